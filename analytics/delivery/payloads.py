"""The JSON for each kind of chat: the same brief, in the receiver's format and within its limits.

Names in it are not trusted. Slack and Teams get plain text fields, in which nothing is markup; Markdown for Mattermost is
escaped, and nobody is mentioned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analytics.delivery.model import Delivery, Message
from analytics.language.languages import language
from analytics.language.plain_text import plain
from analytics.language.sentences import tr
from fallow.clock import format_ms
from fallow.outside_text import mattermost_text, slack_text

GENERIC_VERSION = 1
"""Of the generic JSON in docs/delivering.md: raised when a field changes its meaning, not when one is added."""

_SLACK_TEXT, _SLACK_TITLE = 3000, 150
_TEAMS_TEXT = 1500


def payload(kind: str, message: Message, delivery: Delivery) -> dict[str, Any]:
    """The JSON for a kind of webhook."""
    return _FORMS[kind](message, delivery)


def _slack(message: Message, _: Delivery) -> dict[str, Any]:
    """Blocks; the text is what notifications show."""
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
    said = tr("{label}: {value}", label=brief.title, value=brief.sentences[0] if brief.sentences else brief.window)
    text = _cut(language(message.language).translate(said), _SLACK_TEXT // 2)
    return {"text": slack_text(text), "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _slack_text(text: str, most: int = _SLACK_TEXT) -> dict[str, Any]:
    return {"type": "plain_text", "text": _cut(text, most) or "-", "emoji": False}


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
    """An Adaptive Card, in the envelope that Teams' workflows take."""
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
    """A run of rich text is shown as it is; a TextBlock would read Markdown."""
    outer = {name: value for name, value in style.items() if name in ("spacing", "separator")}
    inner = {name: value for name, value in style.items() if name not in outer}
    run = {"type": "TextRun", "text": _cut(text, _TEAMS_TEXT), **inner}
    return {"type": "RichTextBlock", "inlines": [run], **outer}


def _generic(message: Message, delivery: Delivery) -> dict[str, Any]:
    """The published form."""
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


def _cut(text: str, most: int) -> str:
    """At most `most` characters, without control characters."""
    lines = "\n".join(plain(line, most) for line in text.split("\n"))
    return lines if len(lines) <= most else lines[: most - 1] + "…"


_FORMS: Mapping[str, Callable[[Message, Delivery], dict[str, Any]]] = {
    "slack": _slack,
    "mattermost": _mattermost,
    "teams": _teams,
    "generic": _generic,
}
