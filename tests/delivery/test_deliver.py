"""Which weeks are due, and never twice: whatever was recorded, whoever else sends, and wherever a sender ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.delivery import deliver as deliver_module
from analytics.delivery.deliver import ALREADY, BUSY, DeliveryResult, acquire_send_lock, deliver
from analytics.delivery.editions import CLOSES_AFTER_MS, asked_week, delivery_of, failed_weeks, missed_weeks
from analytics.delivery.journal import LEASE_MS, QUEUED, SENDING, YIELDED, Journal, new_try
from analytics.delivery.model import FAILED, SENT, UNKNOWN, Delivery, DeliveryOutcome, Message
from analytics.delivery.settings import parse_targets
from analytics.frames import read_frame
from fallow import schema
from fallow.actors import Actor
from fallow.clock import parse_window
from fallow.errors import LakeError, UsageError
from tests.delivery.hands import DELIVERY, Hands, example_message, journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.report.weeks import Week
    from fallow.lake import Lake

PARIS = ZoneInfo("Europe/Paris")


def at(text: str) -> int:
    moment_ms = parse_window(text, None).since_ms
    assert moment_ms is not None
    return moment_ms


@pytest.mark.parametrize(
    ("now", "label"),
    [
        ("2026-11-16T05:59:59+01:00", "2026-W45"),
        ("2026-11-16T06:00:00+01:00", "2026-W46"),
        ("2026-11-22T23:59:59+01:00", "2026-W46"),
        ("2026-11-23T06:00:00+01:00", "2026-W47"),
        ("2027-01-04T06:00:00+01:00", "2026-W53"),
        ("2026-03-30T06:00:00+02:00", "2026-W13"),
    ],
)
def test_a_week_closes_on_monday_at_six(now: str, label: str) -> None:
    assert asked_week("last", PARIS, at(now)).label == label


def week(label: str) -> Week:
    return asked_week(label, PARIS, at("2030-01-01"))


def test_a_week_that_is_not_closed_is_not_sent() -> None:
    monday = week("2026-W46").until_ms
    assert asked_week("2026-W46", PARIS, monday + CLOSES_AFTER_MS).label == "2026-W46"
    with pytest.raises(UsageError, match="2026-W46 is not over: it closes on Monday, 2026-11-16, at 06:00"):
        asked_week("2026-W46", PARIS, monday + CLOSES_AFTER_MS - 1)


def ended(lake: Lake, label: str, step: str, target: str = "t") -> None:
    own, name = journal(lake, Hands(at("2026-11-20"))), new_try(0)
    for each in (QUEUED, SENDING):
        own.add(delivery_of(week(label), "all/en", target), name, each, example_message())
    own.add(delivery_of(week(label), "all/en", target), name, step, example_message(), DeliveryOutcome(step))


def labels(lake: Lake, which: object, newest: str = "2026-W46", target: str = "t") -> list[str]:
    own = journal(lake, Hands(at("2026-11-20")))
    assert callable(which)
    return [each.label for each in which(own, week(newest), "all/en", target)]


def test_who_is_new_is_not_sent_a_month_at_once(lake: Lake) -> None:
    assert labels(lake, missed_weeks) == []
    ended(lake, "2026-W40", SENT, "another")
    assert labels(lake, missed_weeks) == []


def test_what_did_not_arrive_is_made_up_for(lake: Lake) -> None:
    ended(lake, "2026-W43", SENT)
    assert labels(lake, missed_weeks) == ["2026-W44", "2026-W45"]
    ended(lake, "2026-W44", FAILED)
    ended(lake, "2026-W45", SENT)
    assert labels(lake, missed_weeks) == ["2026-W44"]
    assert labels(lake, failed_weeks) == ["2026-W44"]


def test_at_most_four_weeks_back(lake: Lake) -> None:
    ended(lake, "2026-W30", SENT)
    assert labels(lake, missed_weeks) == ["2026-W43", "2026-W44", "2026-W45"]


def test_what_is_unknown_is_named_among_them_and_not_among_the_failed(lake: Lake) -> None:
    ended(lake, "2026-W45", UNKNOWN)
    assert labels(lake, missed_weeks) == ["2026-W45"]  # `deliver` names it and leaves it alone
    assert labels(lake, failed_weeks) == []


@dataclass
class Counting:
    """A channel that counts, and ends as a test wants."""

    ends: list[str] = field(default_factory=list)
    repeatable: bool = False
    sent: list[Delivery] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None

    def send(self, _: Message, delivery: Delivery, now_ms: int) -> DeliveryOutcome:  # noqa: ARG002
        self.sent.append(delivery)
        if self.meanwhile:
            self.meanwhile()
        step = self.ends.pop(0) if self.ends else SENT
        return DeliveryOutcome(step, "" if step == SENT else f"it {step}")


def send(lake: Lake, channel: Counting, hands: Hands, *, again: bool = False) -> DeliveryResult:
    """In a process that knows nothing but what the lake holds."""
    return deliver(journal(lake, hands), DELIVERY, example_message(), channel, hands, again=again, sleep=hands.sleep)


def steps(lake: Lake) -> list[str]:
    rows = read_frame(lake.files("delivery"), schema.DELIVERY)
    return sorted(rows["step"].to_list())


def test_the_same_edition_goes_to_the_same_target_once(lake: Lake, hands: Hands) -> None:
    channel = Counting()
    assert [send(lake, channel, hands).step for _ in range(3)] == [SENT, ALREADY, ALREADY]
    late = example_message(text="with rows that came late")
    assert late.sha256 != example_message().sha256
    assert deliver(journal(lake, hands), DELIVERY, late, channel, hands, sleep=hands.sleep).step == ALREADY
    assert channel.sent == [DELIVERY]
    assert steps(lake) == sorted([QUEUED, SENDING, SENT])


def test_what_is_recorded(lake: Lake, hands: Hands) -> None:
    send(lake, Counting([FAILED]), hands)
    rows = read_frame(lake.files("delivery"), schema.DELIVERY).drop("host").to_dicts()
    [failed] = [row for row in rows if row["step"] == FAILED]
    assert failed.pop("try_id")
    assert failed == {
        "time": hands.now_ms(),
        "delivery_id": DELIVERY.delivery_id,
        "step": "failed",
        "purpose": "report",
        "week": "2026-W46",
        "edition": "all/en",
        "round": 0,
        "target": "mailto:lead@example.org",
        "actor": "zoe",
        "actor_kind": "person",
        "content_sha256": example_message().sha256,
        "content_bytes": example_message().size_bytes,
        "tries": 1,
        "reason": "it failed",
        "finding_ids": ["F-0000000001"],
        "os_user": None,
    }
    assert set(failed) | {"try_id"} == set(schema.DELIVERY.names)


def test_a_failed_one_is_sent_by_the_next_run(lake: Lake, hands: Hands) -> None:
    channel = Counting([FAILED, FAILED])
    assert [send(lake, channel, hands).step for _ in range(4)] == [FAILED, FAILED, SENT, ALREADY]
    assert {each.delivery_id for each in channel.sent} == {DELIVERY.delivery_id}


def test_an_unknown_one_is_named_and_never_sent_again_without_a_word(lake: Lake, hands: Hands) -> None:
    channel = Counting([UNKNOWN])
    first, second = send(lake, channel, hands), send(lake, channel, hands)
    assert (first.step, first.is_failure) == (UNKNOWN, True)
    assert (second.step, second.is_failure, second.reason) == (UNKNOWN, False, "it unknown")
    assert len(channel.sent) == 1
    assert send(lake, channel, hands, again=True).step == SENT
    # the same id: whoever got the first can tell the second as a duplicate
    assert channel.sent[0].delivery_id == channel.sent[1].delivery_id
    assert send(lake, channel, hands).step == ALREADY


def test_sent_again_on_purpose_is_another_delivery(lake: Lake, hands: Hands) -> None:
    channel = Counting()
    assert [send(lake, channel, hands, again=each).step for each in (False, True, True, False)] == [
        SENT,
        SENT,
        SENT,
        ALREADY,
    ]
    assert [each.round for each in channel.sent] == [0, 1, 2]
    assert len({each.delivery_id for each in channel.sent}) == 3


class Killed(BaseException):
    """What ends a process in the middle."""


def killed() -> None:
    raise Killed


def test_a_sender_that_ended_in_the_middle_leaves_an_unknown_delivery(lake: Lake, hands: Hands) -> None:
    channel = Counting(meanwhile=killed)
    with pytest.raises(Killed):
        send(lake, channel, hands)
    channel.meanwhile = None
    assert send(lake, channel, hands).step == BUSY  # it may still be at it
    hands.at_ms += LEASE_MS
    found = send(lake, channel, hands)
    assert (found.step, found.is_failure, found.reason) == (UNKNOWN, True, "a sender ended while it was sending")
    assert (send(lake, channel, hands).step, send(lake, channel, hands).is_failure) == (UNKNOWN, False)
    assert len(channel.sent) == 1
    assert send(lake, channel, hands, again=True).step == SENT


def test_where_a_repeat_leaves_no_copy_it_is_simply_repeated(lake: Lake, hands: Hands) -> None:
    channel = Counting(repeatable=True, meanwhile=killed)
    with pytest.raises(Killed):
        send(lake, channel, hands)
    channel.meanwhile = None
    hands.at_ms += LEASE_MS
    assert send(lake, channel, hands).step == SENT


def test_a_sender_that_ended_before_it_began_leaves_nothing(lake: Lake, hands: Hands) -> None:
    other = journal(lake, hands)
    other.add(DELIVERY, new_try(hands.now_ms()), QUEUED, example_message())
    channel = Counting()
    assert send(lake, channel, hands).step == BUSY
    hands.at_ms += LEASE_MS
    assert send(lake, channel, hands).step == SENT


def test_nothing_goes_out_that_could_not_be_recorded_before(lake: Lake, hands: Hands) -> None:
    own, channel = journal(lake, hands), Counting()
    Path(lake.root, "delivery").write_text("in the way of the folder", encoding="utf-8")
    with pytest.raises(LakeError, match="cannot write"):
        deliver(own, DELIVERY, example_message(), channel, hands, sleep=hands.sleep)
    assert channel.sent == []


def test_what_could_not_be_recorded_afterwards_is_said_and_counts_as_unknown(lake: Lake, hands: Hands) -> None:
    folder = Path(lake.root, "delivery")

    def in_the_way() -> None:
        folder.rename(folder.with_name("aside"))
        folder.write_text("", encoding="utf-8")

    channel = Counting(meanwhile=in_the_way)
    with pytest.raises(Exception, match=r"it was sent to mailto:lead@example\.org, and that could not be recorded"):
        send(lake, channel, hands)
    folder.unlink()
    folder.with_name("aside").rename(folder)
    hands.at_ms += LEASE_MS
    channel.meanwhile = None
    assert send(lake, channel, hands).step == UNKNOWN
    assert len(channel.sent) == 1


def test_a_sender_that_slept_through_its_lease_sends_nothing(lake: Lake, hands: Hands) -> None:
    class Slow(Journal):
        def add(self, *arguments: object, **named: object) -> None:
            super().add(*arguments, **named)  # type: ignore[arg-type]
            hands.at_ms += LEASE_MS // 2

    own, channel = Slow(lake, hands, Actor("zoe"), 0), Counting()
    result = deliver(own, DELIVERY, example_message(), channel, hands, sleep=hands.sleep)
    assert (result.step, channel.sent) == (FAILED, [])


def rival(lake: Lake, hands: Hands, try_id: str, *steps_of_it: str) -> Journal:
    other = journal(lake, hands, "rival")
    for step in steps_of_it:
        other.add(DELIVERY, try_id, step, example_message())
    return other


LOW, HIGH = "000000000000-low", "ffffffffffff-high"


@pytest.mark.parametrize(
    ("try_id", "steps_of_it", "wins"),
    [
        (LOW, [QUEUED], False),
        (LOW, [QUEUED, YIELDED], True),
        (LOW, [QUEUED, SENDING], False),
        (HIGH, [QUEUED], False),
        (HIGH, [QUEUED, YIELDED], True),
        (HIGH, [QUEUED, SENDING], False),
        (LOW, [QUEUED, SENDING, UNKNOWN], False),
        (HIGH, [QUEUED, SENDING, FAILED], True),
        (LOW, [QUEUED, SENDING, SENT], False),
    ],
)
def test_who_sees_another_allocation(
    lake: Lake, hands: Hands, try_id: str, steps_of_it: list[str], *, wins: bool
) -> None:
    own = journal(lake, hands)
    rival(lake, hands, try_id, *steps_of_it)
    assert (acquire_send_lock(own, DELIVERY, example_message(), hands, hands.sleep) is not None) is wins


def test_the_lowest_waits_for_the_others_word_and_not_for_ever(lake: Lake, hands: Hands) -> None:
    own, other = journal(lake, hands), rival(lake, hands, HIGH, QUEUED)

    def then_it_yields(seconds: float) -> None:
        hands.sleep(seconds)
        if len(hands.slept_s) == 3:
            other.add(DELIVERY, HIGH, YIELDED)

    patient = Hands()
    assert acquire_send_lock(own, DELIVERY, example_message(), patient, patient.sleep) is None
    assert sum(patient.slept_s) == deliver_module.WAIT_S
    own = journal(lake, hands)
    assert acquire_send_lock(own, DELIVERY, example_message(), hands, then_it_yields) is not None
    assert len(hands.slept_s) == 3


@pytest.mark.parametrize("number", [2, 5])
def test_of_several_senders_at_once_at_most_one_sends(lake: Lake, hands: Hands, number: int) -> None:
    channel, begin, found = Counting(), threading.Barrier(number), []

    def one() -> None:
        own = journal(lake, Hands())
        begin.wait(30)
        found.append(deliver(own, DELIVERY, example_message(), channel, Hands(), sleep=threading.Event().wait).step)

    for _ in range(5):
        threads = [threading.Thread(target=one, daemon=True) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(found) == 5 * number
    assert len(channel.sent) == found.count(SENT) <= 1
    # nobody is left behind: with nobody else at it, the next one sends
    hands.at_ms += LEASE_MS
    send(lake, channel, hands)
    assert len(channel.sent) == 1


def test_a_target_with_a_secret_leaves_none_in_the_lake(lake: Lake, hands: Hands) -> None:
    [target] = parse_targets(["https://hooks.slack.com/services/T0/B0/hush-hush"])
    delivery = Delivery("report", "2026-W46", "all/en", target.shown)
    deliver(journal(lake, hands), delivery, example_message(), Counting(), hands, sleep=hands.sleep)
    rows = read_frame(lake.files("delivery"), schema.DELIVERY)
    assert "hush" not in str(rows.to_dicts())
    assert "hooks.slack.com" in str(rows.to_dicts())
