"""Posting to a chat or a receiver of the site's own, again where the receiver asks for it, never where it may have got it."""

from __future__ import annotations

import json
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from analytics.delivery.http_post import Answer, post
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Outcome
from analytics.delivery.payloads import payload
from fallow import __version__
from fallow.clock import to_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.delivery.journal import Delivery
    from analytics.delivery.model import Parcel
    from analytics.delivery.settings import WebhookSettings
    from analytics.delivery.targets import Target

TRIES = 4
WAIT_AT_MOST_S = 60.0
"""For all pauses of one delivery together; a receiver that asks for more is asked again in the next run."""

_FIRST_PAUSE_S = 1.0
_NOBODY_KNOWS = frozenset({504, 520, 522, 524, 598, 599})
"""Gateways and caches that have passed the request on and had no answer, or none that they understood."""

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
    """A webhook of one kind."""

    repeatable = False

    def __init__(self, settings: WebhookSettings, target: Target, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings, self._target, self._sleep = settings, target, sleep

    def send(self, parcel: Parcel, delivery: Delivery, now_ms: int) -> Outcome:
        """Posts the brief; up to TRIES times where the receiver is busy or failing."""
        data = json.dumps(payload(self._target.kind, parcel, delivery), ensure_ascii=False).encode()
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

    def _outcome(self, answer: Answer, tries: int, pause_s: float | None) -> Outcome:
        host = f"the webhook at {urlsplit(self._target.address).hostname}"
        if answer.status is None:
            step = UNKNOWN if answer.was_sent else FAILED
            doubt = "; it may have got the message" if answer.was_sent else ""
            return Outcome(step, f"{host}: {answer.reason}{doubt}", tries)
        if 200 <= answer.status < 300:
            return Outcome(SENT, str(answer.status), tries)
        if answer.status in _NOBODY_KNOWS:
            return Outcome(UNKNOWN, f"{host} answered {answer.status}: a gateway on the way had no answer", tries)
        why = answer.reason or _REMEDIES.get(answer.status, "")
        if pause_s is not None and pause_s > WAIT_AT_MOST_S:
            why = f"it asks to wait for {pause_s:.0f} s"
        return Outcome(FAILED, f"{host} answered {answer.status}{f'; {why}' if why else ''}", tries)


def _pause_s(answer: Answer, number: int, now_ms: int) -> float | None:
    """How long to wait before the next try; None where there is to be none."""
    backoff_s = _FIRST_PAUSE_S * 2 ** (number - 1)
    if answer.status is None:
        return None if answer.was_sent else backoff_s
    if answer.status not in _TRY_AGAIN:
        return None
    asked_s = _retry_after_s(answer.headers.get("retry-after", ""), now_ms)
    return backoff_s if asked_s is None else max(asked_s, 0.1)


def _retry_after_s(text: str, now_ms: int) -> float | None:
    """Seconds, or those to a date; None for neither."""
    if text.strip().isdecimal():
        return float(text)
    try:
        return (to_ms(parsedate_to_datetime(text)) - now_ms) / 1000
    except (ValueError, TypeError):
        return None
