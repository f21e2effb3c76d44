"""Webhooks against a real receiver: what each answer means, when it is asked again, and when never."""

from __future__ import annotations

import json
import re
import socket
import ssl
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from analytics.delivery.model import FAILED, SENT, UNKNOWN, Brief, BriefLine, DeliveryOutcome
from analytics.delivery.settings import CHATS, WebhookSettings, parse_targets
from analytics.delivery.webhook import TRIES, WebhookChannel, payload
from fallow.clock import from_ms
from tests.delivery.hands import DELIVERY, Hands, example_message
from tests.delivery.receiver import DRIP, DROP, HANG, Receiver
from tests.ledger.rows import T0


def send(url: str, hands: Hands, timeout_s: float = 20.0, ca_file: Path | None = None) -> DeliveryOutcome:
    [target] = parse_targets([url])
    context = ssl.create_default_context(cafile=ca_file)
    channel = WebhookChannel(WebhookSettings(context, timeout_s), target, hands.sleep)
    outcome = channel.send(example_message(), DELIVERY, T0)
    assert "secret-token" not in outcome.reason
    return outcome


def test_what_a_receiver_of_the_sites_own_gets(receiver: Receiver, hands: Hands) -> None:
    assert send(receiver.url(), hands) == DeliveryOutcome(SENT, "200")
    [body] = receiver.posted
    assert (body["delivery_id"], body["week"], body["finding_ids"]) == (
        DELIVERY.delivery_id,
        "2026-W46",
        ["F-0000000001"],
    )
    assert receiver.headers[0]["idempotency-key"] == DELIVERY.delivery_id
    assert receiver.headers[0]["content-type"] == "application/json; charset=utf-8"


def test_over_tls_with_the_sites_own_authority(server_context: ssl.SSLContext, ca_file: Path, hands: Hands) -> None:
    with Receiver(server_context) as receiver:
        url = receiver.url(host="localhost", scheme="https")
        assert send(url, hands, 5, ca_file).step == SENT
        refused = send(url, hands, 5)
        assert (refused.step, refused.tries) == (FAILED, TRIES)
        assert "its certificate is not accepted" in refused.reason
        assert len(receiver.bodies) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 413])
def test_a_refusal_is_not_asked_again(receiver: Receiver, hands: Hands, status: int) -> None:
    receiver.answers = [status]
    outcome = send(receiver.url(), hands)
    assert (outcome.step, outcome.tries, len(receiver.bodies)) == (FAILED, 1, 1)
    assert outcome.reason.startswith(f"the webhook at 127.0.0.1 answered {status}; ")


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_failing_receiver_is_asked_again_with_longer_pauses(receiver: Receiver, hands: Hands, status: int) -> None:
    receiver.answers = [status, status]
    assert send(receiver.url(), hands) == DeliveryOutcome(SENT, "200", 3)
    assert hands.slept_s == [1.0, 2.0]
    receiver.answers = [status] * 10
    assert send(receiver.url(), hands).tries == TRIES
    assert len(receiver.bodies) == 3 + TRIES


@pytest.mark.parametrize(
    ("asked", "slept_s"),
    [
        ("7", [7.0]),
        (format_datetime(from_ms(T0 + 9000), usegmt=True), [9.0]),
        ("soon", [1.0]),
        ("0", [0.1]),
        ("", [1.0]),
    ],
    ids=["seconds", "date", "neither", "at once", "nothing"],
)
def test_a_busy_receiver_is_given_its_time(receiver: Receiver, hands: Hands, asked: str, slept_s: list[float]) -> None:
    receiver.answers = [(429, {"Retry-After": asked})]
    assert send(receiver.url(), hands) == DeliveryOutcome(SENT, "200", 2)
    assert hands.slept_s == slept_s


def test_who_asks_for_too_long_is_asked_in_the_next_run(receiver: Receiver, hands: Hands) -> None:
    receiver.answers = [(429, {"Retry-After": "3600"})]
    assert send(receiver.url(), hands) == DeliveryOutcome(
        FAILED, "the webhook at 127.0.0.1 answered 429; it asks to wait for 3600 s"
    )
    assert hands.slept_s == []
    receiver.answers = [(429, {"Retry-After": "40"})] * 2
    assert send(receiver.url(), hands).tries == 2
    assert hands.slept_s == [40.0]


@pytest.mark.long
@pytest.mark.parametrize("answer", [DROP, HANG, DRIP, 504], ids=["drops", "hangs", "drips", "gateway"])
def test_who_may_have_got_it_is_not_asked_again(receiver: Receiver, hands: Hands, answer: int) -> None:
    receiver.answers = [answer]
    outcome = send(receiver.url(), hands, timeout_s=1.0)
    assert (outcome.step, outcome.tries, len(receiver.bodies)) == (UNKNOWN, 1, 1)
    assert hands.slept_s == []


def test_who_is_not_there_is_asked_again(hands: Hands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    outcome = send(f"http://127.0.0.1:{port}/hook/secret-token", hands)
    assert outcome == DeliveryOutcome(FAILED, "the webhook at 127.0.0.1: connection refused", TRIES)
    assert hands.slept_s == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_host_is_followed(receiver: Receiver, hands: Hands, status: int) -> None:
    receiver.answers = [(status, {"Location": "/new/place"})]
    assert send(receiver.url(), hands).step == SENT
    assert receiver.paths == ["/hook/secret-token", "/new/place"]
    assert receiver.bodies[0] == receiver.bodies[1]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_elsewhere_is_not(receiver: Receiver, hands: Hands, status: int) -> None:
    with Receiver() as other:
        receiver.answers = [(status, {"Location": other.url()})]
        outcome = send(receiver.url(), hands)
        assert other.bodies == []
    assert (outcome.step, outcome.tries) == (FAILED, 1)
    assert "sends its callers elsewhere, which is not followed" in outcome.reason


def test_a_redirect_without_end(receiver: Receiver, hands: Hands) -> None:
    receiver.answers = [(307, {"Location": "/again"})] * 50
    assert send(receiver.url(), hands).step == FAILED
    assert len(receiver.bodies) == 3 * TRIES


def test_through_the_proxy_of_the_environment(
    receiver: Receiver, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{receiver.port}")
    receiver.answers = [403] * TRIES
    assert send("https://chat.example.org/hook/secret-token", hands).step == FAILED
    assert receiver.paths == []  # CONNECT is what the proxy is asked, and this one knows it not


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
        "fallow_webhook",
        "delivery_id",
        "purpose",
        "week",
        "edition",
        "scope",
        "language",
        "since",
        "until",
        "title",
        "sentences",
        "findings",
        "finding_ids",
        "text",
        "content_sha256",
    ]


def test_the_page_names_every_field_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "delivering.md").read_text(encoding="utf-8")
    table = page.split("## The generic webhook")[1].split("|---|---|\n")[1].split("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert named == list(of("generic"))
