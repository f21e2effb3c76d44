"""Webhooks against a real receiver: what each answer means, when it is asked again, and when never."""

from __future__ import annotations

import socket
import ssl
from email.utils import format_datetime
from typing import TYPE_CHECKING

import pytest

from analytics.delivery.model import FAILED, SENT, UNKNOWN, DeliveryOutcome
from analytics.delivery.settings import WebhookSettings, parse_targets
from analytics.delivery.webhook import TRIES, WebhookChannel
from fallow.clock import from_ms
from tests.delivery.hands import DELIVERY, Hands, example_message
from tests.delivery.receiver import DRIP, DROP, HANG, Receiver
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from pathlib import Path


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
        DELIVERY.delivery_id, "2026-W46", ["F-0000000001"],
    )  # fmt: skip
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
