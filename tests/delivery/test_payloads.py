"""What each chat is sent: the published form of each, its limits, and names that are nothing but names."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from analytics.delivery.model import Brief, BriefLine
from analytics.delivery.settings import CHATS
from analytics.delivery.webhook import payload
from tests.delivery.hands import DELIVERY, example_message

EVIL = "<!channel> @here **b** [x](https://evil.example) `c` </at> \u202e\x07 <script> | # "


def of(kind: str, brief: Brief | None = None) -> dict[str, Any]:
    return payload(kind, example_message(brief=brief) if brief else example_message(), DELIVERY)


def evil(length: int = 1) -> Brief:
    return Brief(EVIL * length, EVIL, (EVIL * length,), EVIL, (BriefLine("F-1", EVIL * length, EVIL),) * 5, EVIL)


@pytest.mark.parametrize("kind", CHATS)
def test_each_names_title_sentences_and_findings(kind: str) -> None:
    text = json.dumps(of(kind), ensure_ascii=False).replace("\\\\", "").replace("\\", "")
    for each in ("GPU waste report 2026", "24.0 went unused.", "held without a kernel", "ann, since Monday"):
        assert each in text


def test_slack_has_blocks_of_plain_text_alone() -> None:
    made = of("slack", evil())
    texts = [each for block in made["blocks"] for each in (block.get("text"), *block.get("elements", ())) if each]
    assert texts
    assert {text["type"] for text in texts} == {"plain_text"}
    assert "<" not in made["text"]
    assert made["text"].startswith("&lt;!channel&gt;")


def test_what_slack_notifies_of_is_set_as_the_language_sets_it() -> None:
    assert payload("slack", example_message(), DELIVERY)["text"] == "GPU waste report 2026-W46: 24.0 went unused."
    assert (
        payload("slack", example_message(language="fr"), DELIVERY)["text"]
        == "GPU waste report 2026-W46 : 24.0 went unused."
    )


def test_slack_limits() -> None:
    made = of("slack", evil(200))
    assert len(made["blocks"]) <= 50
    assert len(made["blocks"][0]["text"]["text"]) <= 150
    assert all(len(block["text"]["text"]) <= 3000 for block in made["blocks"] if "text" in block)


def test_mattermost_mentions_and_links_nobody() -> None:
    text = of("mattermost", evil())["text"]
    assert "@here" not in text
    assert "@channel" not in text
    assert "https://" not in text
    assert "\\*\\*b\\*\\*" in text
    assert "\\`c\\`" in text
    assert len(of("mattermost", evil(200))["text"]) < 16_383


def test_teams_is_an_adaptive_card_of_plain_runs() -> None:
    made = of("teams", evil(200))
    [attachment] = made["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    assert {block["type"] for block in attachment["content"]["body"]} == {"RichTextBlock"}
    assert len(json.dumps(made)) < 28_000


def test_no_control_or_direction_mark_goes_anywhere() -> None:
    for kind in ("slack", "mattermost", "teams"):
        text = json.dumps(of(kind, evil()), ensure_ascii=False)
        assert "\u202e" not in text
        assert "\\u0007" not in text


def test_the_generic_form_is_that_of_the_page() -> None:
    assert list(of("generic")) == [
        "fallow_webhook", "delivery_id", "purpose", "week", "edition", "scope", "language", "since", "until", "title",
        "sentences", "findings", "finding_ids", "text", "content_sha256",
    ]  # fmt: skip


def test_the_page_names_every_field_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "delivering.md").read_text(encoding="utf-8")
    table = page.split("## The generic webhook")[1].split("|---|---|\n")[1].split("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert named == list(of("generic"))
