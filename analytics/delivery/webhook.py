"""Posts to chats and webhooks, in each receiver's format.

A post is repeated where the receiver asks for it, and never where the receiver may already have the message. Messages
name only the host of an address: its path and query let any person post. Names in a message are not trusted. Slack and
Teams get plain text fields without markup. Markdown for Mattermost is escaped, and no user is mentioned.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from analytics.delivery.model import FAILED, SENT, UNKNOWN, Delivery, DeliveryOutcome, Message
from analytics.delivery.settings import Target, WebhookSettings
from analytics.language.languages import language
from analytics.language.sentences import plain, tr
from fallow import __version__
from fallow.clock import format_ms, to_ms
from fallow.connection_faults import connection_fault
from fallow.outside_text import mattermost_text, slack_text

GENERIC_VERSION = 1
"""Version of the generic JSON in docs/delivering.md: raised when a field changes its meaning, not when a field is
added."""

_SLACK_TEXT, _SLACK_TITLE = 3000, 150
_TEAMS_TEXT = 1500


def payload(kind: str, message: Message, delivery: Delivery) -> dict[str, Any]:
    return _FORMS[kind](message, delivery)


def _slack(message: Message, _: Delivery) -> dict[str, Any]:
    """Return Slack blocks; notifications show the text."""
    brief = message.brief
    blocks = [
        {"type": "header", "text": _slack_text(brief.title, _SLACK_TITLE)},
        {"type": "context", "elements": [_slack_text(brief.window)]},
        {"type": "section", "text": _slack_text("\n".join(brief.sentences))},
    ]
    if brief.lines:
        blocks += [{"type": "divider"}, {"type": "section", "text": _slack_text(brief.heading)}]
    for line in brief.lines:
        blocks.append({"type": "section", "text": _slack_text(line.text)})
        blocks.append({"type": "context", "elements": [_slack_text(line.detail)]})
    if brief.rest:
        blocks.append({"type": "context", "elements": [_slack_text(brief.rest)]})
    sentence = tr("{label}: {value}", label=brief.title, value=brief.sentences[0] if brief.sentences else brief.window)
    text = _shortened(language(message.language).translate(sentence), _SLACK_TEXT // 2)
    return {"text": slack_text(text), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _slack_text(text: str, most: int = _SLACK_TEXT) -> dict[str, Any]:
    return {"type": "plain_text", "text": _shortened(text, most) or "-", "emoji": False}


def _mattermost(message: Message, _: Delivery) -> dict[str, Any]:
    brief = message.brief
    blocks = [
        f"#### {mattermost_text(brief.title)}",
        mattermost_text(brief.window),
        "\n".join(f"- {mattermost_text(each)}" for each in brief.sentences),
    ]
    if brief.lines:
        blocks.append(f"**{mattermost_text(brief.heading)}**")
        blocks.append(
            "\n".join(f"- {mattermost_text(line.text)}\n  {mattermost_text(line.detail)}" for line in brief.lines)
        )
    if brief.rest:
        blocks.append(mattermost_text(brief.rest))
    return {"text": "\n\n".join(blocks)}


def _teams(message: Message, _: Delivery) -> dict[str, Any]:
    """Return an Adaptive Card, in the envelope of Teams' workflows."""
    brief = message.brief
    body = [
        _card_text(brief.title, size="Large", weight="Bolder"),
        _card_text(brief.window, isSubtle=True, spacing="None"),
        *(_card_text(each) for each in brief.sentences),
    ]
    if brief.lines:
        body.append(_card_text(brief.heading, weight="Bolder", separator=True))
    for line in brief.lines:
        body += [_card_text(line.text), _card_text(line.detail, isSubtle=True, spacing="None", size="Small")]
    if brief.rest:
        body.append(_card_text(brief.rest, isSubtle=True))
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    return {"type": "message", "attachments": [attachment]}


def _card_text(text: str, **style: object) -> dict[str, Any]:
    """Return a run of rich text, which is shown unchanged; a TextBlock would interpret Markdown."""
    outer = {name: value for name, value in style.items() if name in ("spacing", "separator")}
    inner = {name: value for name, value in style.items() if name not in outer}
    run = {"type": "TextRun", "text": _shortened(text, _TEAMS_TEXT), **inner}
    return {"type": "RichTextBlock", "inlines": [run], **outer}


def _generic(message: Message, delivery: Delivery) -> dict[str, Any]:
    brief = message.brief
    return {
        "fallow_webhook": GENERIC_VERSION,
        "delivery_id": delivery.delivery_id,
        "purpose": delivery.purpose,
        "week": message.week,
        "edition": delivery.edition,
        "scope": message.scope,
        "language": message.language,
        "since": format_ms(message.since_ms),
        "until": format_ms(message.until_ms),
        "title": brief.title,
        "sentences": list(brief.sentences),
        "findings": [{"finding_id": line.finding_id, "text": line.text, "detail": line.detail} for line in brief.lines],
        "finding_ids": list(message.finding_ids),
        "text": message.text,
        "content_sha256": message.sha256,
    }


def _shortened(text: str, most: int) -> str:
    """Return at most `most` characters, without control characters."""
    lines = "\n".join(plain(line, most) for line in text.split("\n"))
    return lines if len(lines) <= most else lines[: most - 1] + "…"


_FORMS: Mapping[str, Callable[[Message, Delivery], dict[str, Any]]] = {
    "slack": _slack,
    "mattermost": _mattermost,
    "teams": _teams,
    "generic": _generic,
}


_MOST_BYTES = 4096
_REDIRECTS = (307, 308)
"""Redirects that repeat a POST; other redirects would turn it into a GET."""

_MOST_REDIRECTS = 3


@dataclass(frozen=True)
class WebhookAnswer:
    """A status with its headers in lower case. Without an answer the status is None, and `reason` has the cause.

    `was_sent` is False only if the receiver cannot have received the request.
    """

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    was_sent: bool = True


def post(url: str, data: bytes, headers: Mapping[str, str], context: ssl.SSLContext, timeout_s: float) -> WebhookAnswer:
    """Post once, and follow redirects to the same host only."""
    for _ in range(_MOST_REDIRECTS):
        answer = _post_once(url, data, headers, context, timeout_s)
        if answer.status is None or not 300 <= answer.status < 400:
            return answer
        there = urljoin(url, answer.headers.get("location", ""))
        if answer.status not in _REDIRECTS or urlsplit(there)[:2] != urlsplit(url)[:2]:
            return WebhookAnswer(
                answer.status, reason="it sends its callers elsewhere, which is not followed", was_sent=False
            )
        url = there
    return WebhookAnswer(None, reason="it sends its callers round and round", was_sent=False)


def _post_once(
    url: str, data: bytes, headers: Mapping[str, str], context: ssl.SSLContext, timeout_s: float
) -> WebhookAnswer:
    connection = _connection(url, context, timeout_s)
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # a receiver that sends a byte now and then never runs into the socket's own timeout
    timer = threading.Timer(2 * timeout_s, _cut, [connection])
    timer.daemon = True
    was_sent = False
    try:
        timer.start()
        connection.connect()
        was_sent = True
        connection.request("POST", path, body=data, headers=dict(headers))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        with contextlib.suppress(OSError, http.client.HTTPException):  # the status is the answer
            response.read(_MOST_BYTES)
        return WebhookAnswer(response.status, found)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return WebhookAnswer(None, reason=_reason(error, timeout_s), was_sent=was_sent)
    finally:
        timer.cancel()
        connection.close()


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {timeout_s:g} s"
    return connection_fault(error) if isinstance(error, OSError) else "the connection broke"


def _connection(url: str, context: ssl.SSLContext, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection that is not open yet, through the proxy of the environment."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    proxy = urlsplit(getproxies().get(parts.scheme, ""))
    through = proxy.hostname if proxy.hostname and not proxy_bypass(host) else None
    place, door = (through, proxy.port or 8080) if through else (host, port)
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=timeout_s)  # loopback alone: no proxy
    connection = http.client.HTTPSConnection(place, door, timeout=timeout_s, context=context)
    if through:
        connection.set_tunnel(host, port or 443)
    return connection


def _cut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if isinstance(sock, socket.socket):
        with contextlib.suppress(OSError):
            # not the method of a TLS socket, which would take its state away from under the reader
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


TRIES = 4
WAIT_AT_MOST_S = 60.0
"""Limit of all pauses of one delivery together; if a receiver asks for more, the next run tries again."""

_FIRST_PAUSE_S = 1.0
_UNCLEAR_STATUSES = frozenset({504, 520, 522, 524, 598, 599})
"""Statuses of gateways that forwarded the request and got no answer, or an invalid one."""

_TRY_AGAIN = frozenset({429, 500, 501, 502, 503})

_REMEDIES = {
    400: "check that the webhook is of this kind (docs/delivering.md)",
    401: "make a new webhook",
    403: "make a new webhook",
    404: "make a new webhook",
    410: "make a new webhook",
    413: "it takes no message of this size",
}


class WebhookChannel:
    repeatable = False

    def __init__(self, settings: WebhookSettings, target: Target, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings, self._target, self._sleep = settings, target, sleep

    def send(self, message: Message, delivery: Delivery, now_ms: int) -> DeliveryOutcome:
        """Post the brief, up to TRIES times if the receiver is busy or failing."""
        data = json.dumps(payload(self._target.kind, message, delivery), ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"fallow/{__version__}",
            "Idempotency-Key": delivery.delivery_id,
        }
        waited_s = 0.0
        for number in range(1, TRIES + 1):
            answer = post(self._target.address, data, headers, self._settings.context, self._settings.timeout_s)
            pause_s = _pause_s(answer, number, now_ms + round(1000 * waited_s))
            if pause_s is None or number == TRIES or waited_s + pause_s > WAIT_AT_MOST_S:
                return self._outcome(answer, number, pause_s)
            self._sleep(pause_s)
            waited_s += pause_s
        raise AssertionError

    def _outcome(self, answer: WebhookAnswer, tries: int, pause_s: float | None) -> DeliveryOutcome:
        host = f"the webhook at {urlsplit(self._target.address).hostname}"
        if answer.status is None:
            step = UNKNOWN if answer.was_sent else FAILED
            doubt = "; it may have got the message" if answer.was_sent else ""
            return DeliveryOutcome(step, f"{host}: {answer.reason}{doubt}", tries)
        if 200 <= answer.status < 300:
            return DeliveryOutcome(SENT, str(answer.status), tries)
        if answer.status in _UNCLEAR_STATUSES:
            return DeliveryOutcome(
                UNKNOWN, f"{host} answered {answer.status}: a gateway on the way had no answer", tries
            )
        why = answer.reason or _REMEDIES.get(answer.status, "")
        if pause_s is not None and pause_s > WAIT_AT_MOST_S:
            why = f"it asks to wait for {pause_s:.0f} s"
        return DeliveryOutcome(FAILED, f"{host} answered {answer.status}{f'; {why}' if why else ''}", tries)


def _pause_s(answer: WebhookAnswer, number: int, now_ms: int) -> float | None:
    """Return the pause before the next try; None if there is no next try."""
    backoff_s = _FIRST_PAUSE_S * 2 ** (number - 1)
    if answer.status is None:
        return None if answer.was_sent else backoff_s
    if answer.status not in _TRY_AGAIN:
        return None
    asked_s = _retry_after_s(answer.headers.get("retry-after", ""), now_ms)
    return backoff_s if asked_s is None else max(asked_s, 0.1)


def _retry_after_s(text: str, now_ms: int) -> float | None:
    """Return the seconds, or the seconds until a date; None for neither."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return (to_ms(parsedate_to_datetime(text)) - now_ms) / 1000
    except (ValueError, TypeError):
        return None
