"""Up to when a window is looked at, and which GPUs are silent in it: by ledger rows and a clock of our own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.ledger.summary import clip_ledger, summarise
from analytics.report.coverage import Watch
from analytics.report.weeks import week_of
from analytics.window import WindowLedger
from fallow.clock import HOUR_MS, Window
from tests.money.fleet import T0, inventory, ledger, stretch

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from analytics.report.coverage import Seen
    from tests.money.fleet import Row

DAY_S, HOUR_S = 86_400, 3_600
MONDAY_S = -4 * DAY_S  # T0 is a Friday
WEEK = week_of(T0, UTC)


def whole_of(rows: list[Row]) -> Ledger:
    """The ledger of these rows, without a spell at zero."""
    spells = dict.fromkeys(("time", "end", "spell_start", "spell_end"), pl.Int64)
    return replace(ledger(rows), spells=pl.DataFrame(schema=spells))


def seen(rows: list[Row], now_s: float, window: Window | None = None, parents: dict[str, str] | None = None) -> Seen:
    """Of the week, when the clock says so many seconds after T0."""
    whole, asked = whole_of(rows), window or WEEK.window
    inside = clip_ledger(whole, asked)
    watch = Watch(
        WindowLedger(whole, inside, summarise(inside)), inventory(rows, **(parents or {})), T0 + round(now_s * 1000)
    )
    return watch.seen(asked, inside, lambda each: each)


@pytest.mark.parametrize(("late_s", "until_s"), [(0, 0), (HOUR_S, 0), (HOUR_S + 1, HOUR_S + 1), (9 * DAY_S, 3 * DAY_S)])
def test_a_running_week_is_looked_at_up_to_now_and_rows_may_be_an_hour_late(late_s: float, until_s: float) -> None:
    found = seen([stretch("a", MONDAY_S, 0, "free")], late_s)
    assert found.until_ms == T0 + until_s * 1000
    assert found.share == pytest.approx(4 * DAY_S / (4 * DAY_S + until_s))
    assert bool(found.silent) == (until_s > HOUR_S)


def test_rows_of_a_time_to_come_are_seen() -> None:
    """Where every host is ahead of the clock, the clock is behind."""
    found = seen([stretch("a", MONDAY_S, 2 * DAY_S, "free")], 0)
    assert (found.until_ms, found.share, found.silent) == (T0 + 2 * DAY_S * 1000, 1.0, ())


def test_a_host_whose_clock_is_ahead_makes_no_other_silent() -> None:
    rows = [stretch(gpu, MONDAY_S, 0, "free", host=gpu) for gpu in ("a", "b", "c")]
    ahead = stretch("d", MONDAY_S, DAY_S, "free", host="d")
    assert seen([*rows, ahead], 60).silent == ()


def test_without_an_end_a_window_ends_with_what_was_seen() -> None:
    rows = [stretch("a", MONDAY_S, -DAY_S, "free"), stretch("b", MONDAY_S - DAY_S, 0, "free")]
    found = seen(rows, 90 * DAY_S, Window(None, None))
    assert (found.since_ms, found.until_ms) == (T0 + (MONDAY_S - DAY_S) * 1000, T0)
    assert [(each.host, each.since_ms) for each in found.silent] == [("h-a", T0 - 24 * HOUR_MS)]
    assert found.unseen_ms == 24 * HOUR_MS  # nobody asked for the time before a host's first row


def test_time_that_nobody_looked_at_between_two_rows_counts_once() -> None:
    rows = [
        stretch("a", MONDAY_S, 0, "free"),
        stretch("a", 0, DAY_S, "unknown"),
        stretch("a", DAY_S, 3 * DAY_S, "free"),
    ]
    found = seen(rows, 3 * DAY_S)
    assert found.unseen_ms == 24 * HOUR_MS
    assert found.share == pytest.approx(6 / 7)


@pytest.mark.parametrize(("silent_days", "share"), [(27, 0.5), (28, 1.0)])
def test_what_was_not_seen_for_four_weeks_was_taken_away(silent_days: int, share: float) -> None:
    end_s = MONDAY_S + 7 * DAY_S
    rows = [stretch(gpu, end_s - 40 * DAY_S, end_s - silent_days * DAY_S, "free") for gpu in ("a", "b")]
    found = seen([*rows, stretch("a", end_s - silent_days * DAY_S, end_s, "free")], end_s)
    assert (found.share, [each.host for each in found.silent]) == (share, ["h-b"] if share < 1 else [])


def test_a_gpu_that_moved_is_not_silent_where_it_was() -> None:
    rows = [stretch("a", MONDAY_S, 0, "free", host="old"), stretch("a", 0, 3 * DAY_S, "free", host="new")]
    found = seen([*rows, stretch("b", MONDAY_S, 3 * DAY_S, "free", host="old")], 3 * DAY_S)
    assert (found.silent, found.share, found.gpus) == ((), 1.0, 2)


def test_a_mig_instance_that_was_taken_down_is_not_silent_and_those_of_a_silent_host_are() -> None:
    half = {"gpu_share": 0.5, "host": "h"}
    rows = [
        stretch("a", MONDAY_S, 0, "free", **half),
        stretch("MIG-1", MONDAY_S, 0, "free", **half),
        stretch("a", 0, DAY_S, "free", host="h"),
    ]
    parents = {"MIG_1": "a"}
    living = seen([*rows, stretch("a", DAY_S, 3 * DAY_S, "free", host="h")], 3 * DAY_S, parents=parents)
    assert (living.silent, living.share, living.gpus) == ((), 1.0, 1)
    dead = seen(rows, 3 * DAY_S, parents=parents)
    assert [(each.host, each.gpus, each.whole_host) for each in dead.silent] == [("h", 1, True)]
    assert dead.share == pytest.approx(5 / 7)
    split = seen(rows[:2], 3 * DAY_S, parents=parents)
    assert [(each.host, each.gpus) for each in split.silent] == [("h", 1)]
    assert split.share == pytest.approx(4 / 7)
    assert split.unseen_ms == 3 * 24 * HOUR_MS


def test_last_seen_is_the_newest_row_of_a_window_that_is_not_over() -> None:
    """GPUs that had gone before, a host whose clock is ahead and the moment of the call count for nothing."""
    rows = [
        stretch("a", MONDAY_S, DAY_S, "free", host="h"),
        stretch("a", DAY_S, 2 * DAY_S, "unknown", host="h"),
        stretch("MIG-1", MONDAY_S, 0, "free", host="h"),
        stretch("b", MONDAY_S, HOUR_S, "held", host="other"),
    ]
    parents, newest_ms = {"MIG_1": "a"}, T0 + 24 * HOUR_MS
    silent = seen(rows, 2.5 * DAY_S, parents=parents)
    assert (silent.last_ms, silent.to_the_end) == (newest_ms, False)
    assert silent.until_ms == T0 + 60 * HOUR_MS
    ahead = stretch("c", MONDAY_S, 3 * DAY_S, "free", host="ahead")
    assert seen([*rows, ahead], 2.5 * DAY_S, parents=parents).last_ms == newest_ms
    late = seen([rows[0], *rows[2:]], DAY_S + 1800, Window(None, None), parents)
    assert (late.last_ms, late.to_the_end) == (newest_ms, True)
    early = seen(rows, 2.5 * DAY_S, Window(None, T0 + 2 * HOUR_MS - 1))
    assert early.last_ms == early.until_ms


def test_of_a_window_of_the_past_last_seen_is_its_own_newest_row() -> None:
    rows = [stretch("a", MONDAY_S, 0, "free"), stretch("a", 2 * HOUR_S, DAY_S, "free")]
    found = seen(rows, 9 * DAY_S, Window(None, T0 + 45 * 60_000))
    assert (found.last_ms, found.to_the_end) == (T0, True)


def test_a_name_without_an_entry_in_the_inventory_has_ended_where_its_host_goes_on() -> None:
    rows = [stretch("a", MONDAY_S, 3 * DAY_S, "free", host="h")]
    pod = stretch("pod", MONDAY_S, 0, "held", host="h")
    whole = whole_of([*rows, pod])
    inside = clip_ledger(whole, WEEK.window)
    watch = Watch(WindowLedger(whole, inside, summarise(inside)), inventory(rows), T0 + 3 * DAY_S * 1000)
    assert watch.seen(WEEK.window, inside, lambda each: each).share == 1.0


def test_nothing_is_known_of_a_fleet_before_its_first_row() -> None:
    found = seen([stretch("a", 30 * DAY_S, 31 * DAY_S, "free")], 31 * DAY_S)
    assert (found.share, found.gpus, found.last_ms, found.silent) == (None, 0, None, ())
