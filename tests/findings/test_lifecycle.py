"""How a finding stands: new, standing, closed or reversed by itself, and what people's actions make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.actions import Action, record
from analytics.decide.lifecycle import RELEASED, status_of
from fallow.actors import Actor
from fallow.clock import DAY_MS
from tests.findings.conftest import BUSY, DAY, HELD, HOUR, reviewed
from tests.ledger.recording import Recording
from tests.ledger.rows import device, fill, ms, processes, samples

if TYPE_CHECKING:
    from analytics.decide.review import Review
    from fallow.lake import Lake

WEEK = 7 * DAY


def action(kind: str, at_ms: int, expires_ms: int | None = None) -> Action:
    return Action(at_ms, f"A-{at_ms}", "F-1", kind, Actor("ann"), expires_ms=expires_ms)


@pytest.mark.parametrize(
    ("actions", "status"),
    [
        ([], "standing"),
        ([action("note", 1)], "standing"),
        ([action("notify", 1)], "notified"),
        ([action("ack", 1)], "acknowledged"),
        ([action("ack", 1), action("notify", 2)], "acknowledged"),
        ([action("notify", 1), action("ack", 2)], "acknowledged"),
        ([action("ack", 1), action("snooze", 2)], "snoozed"),
        ([action("snooze", 1), action("ack", 2)], "acknowledged"),
        ([action("snooze", 1, 11)], "snoozed"),
        ([action("snooze", 1, 10)], "standing"),
        ([action("snooze", 1, 9), action("notify", 2)], "notified"),
        ([action("snooze", 1), action("notify", 2), action("note", 3)], "snoozed"),
        ([action("snooze", 1), action("reopen", 2)], "standing"),
        ([action("notify", 1), action("snooze", 2), action("reopen", 3)], "standing"),
        ([action("ack", 1), action("reopen", 2), action("notify", 3)], "notified"),
    ],
)
def test_what_was_done_last_decides(actions: list[Action], status: str) -> None:
    assert status_of(actions, "standing", 10) == status


def held(gpu: str, first_s: float, last_s: float) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=300, **HELD)


def users(gpu: str, first_s: int, last_s: int, user: str = "ann", pid: int = 1) -> list[dict[str, Any]]:
    return processes(gpu, *range(first_s, last_s, 300), every_s=300, user=user, pid=pid)


def busy(gpu: str, first_s: float, last_s: float) -> list[dict[str, Any]]:
    return samples(gpu, first_s, last_s, every_s=300, **BUSY)


@pytest.fixture(scope="module")
def two_weeks() -> Recording:
    """Ann idles in both weeks, bob in the first only, cy in the second only; dan came back in the second."""
    rows = held("a", 0, 2 * WEEK)
    rows += held("b", 0, 5 * HOUR) + busy("b", 5 * HOUR, 2 * WEEK)
    rows += busy("c", 0, 2 * WEEK - 5 * HOUR) + held("c", 2 * WEEK - 5 * HOUR, 2 * WEEK)
    rows += held("d", 0, WEEK + DAY) + busy("d", WEEK + DAY, 2 * WEEK)
    names = {"a": "ann", "b": "bob", "c": "cy", "d": "dan"}
    lists = [row for number, gpu in enumerate("abcd") for row in users(gpu, 0, 2 * WEEK, names[gpu], number + 1)]
    return fill(Recording(), rows, lists)


def by_user(found: Review) -> dict[str | None, str]:
    return {each.user: each.status for each in (*found.findings, *found.gone) if each.rule == "held"}


def test_new_standing_closed_and_reversed(two_weeks: Recording) -> None:
    """What is gone has nothing to take back and nothing to type; without a week before everything is new."""
    found = reviewed(two_weeks, since="2026-11-29", until="2026-12-03")
    assert by_user(found) == {"ann": "standing", "cy": "new", "dan": "reversed"}
    dan = next(each for each in found.gone if each.rule == "held")
    assert (dan.user, dan.reclaimable, dan.next_command) == ("dan", False, "")
    assert dan.notes == ("last week's finding was wrong: the GPUs were used again from 2026-11-28 00:00 UTC",)
    week = by_user(reviewed(two_weeks, since="2026-11-27", until="2026-12-03"))
    assert week == {"ann": "standing", "cy": "new", "bob": "closed", "dan": "standing"}
    first = reviewed(two_weeks, until="2026-11-22")
    assert ({each.status for each in first.findings}, first.gone, first.reversals) == ({"new"}, (), None)


def test_a_snoozed_finding_is_hidden_until_it_expires(two_weeks: Recording, lake: Lake) -> None:
    site = two_weeks.beside(lake)
    now_ms = ms(2 * WEEK)
    first = reviewed(site)
    ann = next(each for each in first.shown if each.user == "ann")
    until_ms = now_ms + DAY_MS
    record(lake, "snooze", [ann.finding_id], Actor("zoe"), now_ms=now_ms, reason="standby", expires_ms=until_ms)
    hidden = reviewed(site)
    assert [each.user for each in hidden.snoozed] == ["ann"]
    assert ann.finding_id not in {each.finding_id for each in hidden.shown}
    assert hidden.snoozed[0].notes == ("2026-12-04 00:00 UTC, zoe: snoozed until 2026-12-05 00:00 UTC: standby",)
    assert reviewed(site, later_ms=DAY_MS - 1).snoozed
    back = reviewed(site, later_ms=DAY_MS)
    assert back.snoozed == ()
    assert next(each.status for each in back.shown if each.user == "ann") == ann.status


def test_ids_of_one_window_are_unique_also_where_a_user_is_called_like_a_gpu(site: Recording) -> None:
    rows = held("a", 0, 2 * HOUR) + [
        row | {"process_count": None, "mem_used_bytes": 2**34} for row in held("b", 0, 2 * HOUR)
    ]
    fill(site, rows, users("a", 0, 2 * HOUR, user="b"))
    found = reviewed(site).findings
    assert sorted((each.subject.partition("\0")[0], each.gpus) for each in found) == [("b", ("a",)), ("b", ("b",))]
    assert len({each.finding_id for each in found}) == 2


def test_what_nobody_could_see_any_more_is_not_closed(site: Recording) -> None:
    """Ann's host falls silent and bob's does not; bob's GPU is at work, and a card of his host is lost."""
    fill(site, held("a", 0, WEEK - HOUR), users("a", 0, WEEK - HOUR), devices=[device("a")], host="h1")
    rows = held("b", 0, 5 * HOUR) + busy("b", 5 * HOUR, 2 * WEEK) + held("c", 0, WEEK - HOUR)
    lists = users("b", 0, 2 * WEEK, "bob", 2) + users("c", 0, WEEK - HOUR, "cy", 3)
    fill(site, rows, lists, devices=[device("b"), device("c")], host="h2")
    found = reviewed(site, since="2026-11-27", until="2026-12-03")
    gone = {each.user: each for each in found.gone if each.rule == "held"}
    assert {name: each.status for name, each in gone.items()} == {"ann": "unseen", "bob": "closed", "cy": "unseen"}
    assert (gone["ann"].reclaimable, gone["ann"].next_command) == (False, "")


def test_what_ended_on_a_host_that_was_seen_is_closed(site: Recording) -> None:
    """A name without an entry in the inventory, such as a pod's, ends with its work."""
    fill(site, held("pod", 0, WEEK - HOUR), users("pod", 0, WEEK - HOUR), host="h1")
    fill(site, busy("b", 0, 2 * WEEK), devices=[device("b")], host="h1")
    found = reviewed(site, since="2026-11-27", until="2026-12-03")
    assert {each.status for each in found.gone if each.rule == "held"} == {"closed"}


@pytest.mark.parametrize(
    ("said_h", "reason", "status"),
    [
        (-2, RELEASED, "standing"),
        (-1, RELEASED, "standing"),
        (-0.5, RELEASED, "acknowledged"),
        (1, RELEASED, "acknowledged"),
        (-24, "asked ann", "acknowledged"),  # no allocation
    ],
)
def test_who_said_that_gpus_are_released_is_taken_at_their_word_until_they_are_seen_held_again(
    two_weeks: Recording, lake: Lake, said_h: float, reason: str, status: str
) -> None:
    """What is held at the end was seen in the hour before it: an allocation that is younger is not refuted."""
    site = two_weeks.beside(lake)
    ann = next(each for each in reviewed(site).shown if each.user == "ann")
    said_ms = ms(2 * WEEK + said_h * HOUR)
    record(lake, "ack", [ann.finding_id], Actor("ann@example.org"), now_ms=said_ms, reason=reason, channel="link 1")
    after = next(each for each in reviewed(site).findings if each.finding_id == ann.finding_id)
    assert after.status == (ann.status if status == "standing" else status)
    said = [note for note in after.notes if note.startswith("reported as released on ")]
    assert [note.endswith(" UTC, still held") for note in said] == ([True] if status == "standing" else [])
