"""Unobserved time: where a window's view ends, which hosts are silent, and what a report does not conclude from it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.ledger.summary import clip_ledger, summarise
from analytics.money.prices import Price
from analytics.money.window_money import PriceBasis
from analytics.report.coverage import Silent, Watch
from analytics.report.weeks import week_of
from analytics.tables.facts import silent_host_names, whose_prices
from analytics.window import WindowLedger
from fallow.clock import HOUR_MS, Window
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, processes, samples
from tests.money.fleet import T0, inventory, ledger, segment
from tests.report.test_formats import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.ledger.build import Ledger
    from analytics.report.coverage import Seen
    from fallow.lake import Lake
    from tests.money.fleet import Row
    from tests.report.conftest import Outcome

DAY_S, HOUR_S = 86_400, 3_600
MONDAY_S = -4 * DAY_S  # T0 is a Friday
WEEK = week_of(T0, UTC)


def whole_of(rows: list[Row]) -> Ledger:
    """The ledger of these rows, without an idle interval."""
    idle_intervals = dict.fromkeys(("time", "end", "idle_interval_start", "idle_interval_end"), pl.Int64)
    return replace(ledger(rows), idle_intervals=pl.DataFrame(schema=idle_intervals))


def seen(
    rows: list[Row],
    now_s: float,
    window: Window | None = None,
    parents: dict[str, str] | None = None,
    unlisted: list[Row] | None = None,
) -> Seen:
    """Of the week, when the clock says so many seconds after T0; `unlisted` rows have no entry in the inventory."""
    whole, asked = whole_of([*rows, *(unlisted or [])]), window or WEEK.window
    inside = clip_ledger(whole, asked)
    devices = inventory(rows, **(parents or {}))
    watch = Watch(WindowLedger(whole, inside, summarise(inside)), devices, T0 + round(now_s * 1000))
    return watch.seen(asked, inside, lambda each: each)


@pytest.mark.parametrize(("late_s", "until_s"), [(0, 0), (HOUR_S, 0), (HOUR_S + 1, HOUR_S + 1), (9 * DAY_S, 3 * DAY_S)])
def test_a_running_week_is_looked_at_up_to_now_and_rows_may_be_an_hour_late(late_s: float, until_s: float) -> None:
    found = seen([segment("a", MONDAY_S, 0, "free")], late_s)
    assert found.until_ms == T0 + until_s * 1000
    assert found.share == pytest.approx(4 * DAY_S / (4 * DAY_S + until_s))
    assert bool(found.silent) == (until_s > HOUR_S)


def test_rows_of_a_time_to_come_are_seen() -> None:
    """Where every host is ahead of the clock, the clock is behind."""
    found = seen([segment("a", MONDAY_S, 2 * DAY_S, "free")], 0)
    assert (found.until_ms, found.share, found.silent) == (T0 + 2 * DAY_S * 1000, 1.0, ())


def test_a_host_whose_clock_is_ahead_makes_no_other_silent() -> None:
    rows = [segment(gpu, MONDAY_S, 0, "free", host=gpu) for gpu in ("a", "b", "c")]
    ahead = segment("d", MONDAY_S, DAY_S, "free", host="d")
    assert seen([*rows, ahead], 60).silent == ()


def test_without_an_end_a_window_ends_with_what_was_seen() -> None:
    rows = [segment("a", MONDAY_S, -DAY_S, "free"), segment("b", MONDAY_S - DAY_S, 0, "free")]
    found = seen(rows, 90 * DAY_S, Window(None, None))
    assert (found.since_ms, found.until_ms) == (T0 + (MONDAY_S - DAY_S) * 1000, T0)
    assert [(each.host, each.since_ms) for each in found.silent] == [("h-a", T0 - 24 * HOUR_MS)]
    same = seen(rows, 90 * DAY_S, Window(found.since_ms, found.until_ms))
    assert found.unseen_ms == same.unseen_ms == 48 * HOUR_MS, "the same window is observed as much, asked for or not"


def test_time_that_nobody_looked_at_between_two_rows_counts_once() -> None:
    rows = [
        segment("a", MONDAY_S, 0, "free"),
        segment("a", 0, DAY_S, "unknown"),
        segment("a", DAY_S, 3 * DAY_S, "free"),
    ]
    found = seen(rows, 3 * DAY_S)
    assert found.unseen_ms == 24 * HOUR_MS
    assert found.share == pytest.approx(6 / 7)


@pytest.mark.parametrize(("silent_days", "share"), [(27, 0.5), (28, 1.0)])
def test_what_was_not_seen_for_four_weeks_was_taken_away(silent_days: int, share: float) -> None:
    end_s = MONDAY_S + 7 * DAY_S
    rows = [segment(gpu, end_s - 40 * DAY_S, end_s - silent_days * DAY_S, "free") for gpu in ("a", "b")]
    found = seen([*rows, segment("a", end_s - silent_days * DAY_S, end_s, "free")], end_s)
    assert (found.share, [each.host for each in found.silent]) == (share, ["h-b"] if share < 1 else [])


def test_a_gpu_that_moved_is_not_silent_where_it_was() -> None:
    rows = [segment("a", MONDAY_S, 0, "free", host="old"), segment("a", 0, 3 * DAY_S, "free", host="new")]
    found = seen([*rows, segment("b", MONDAY_S, 3 * DAY_S, "free", host="old")], 3 * DAY_S)
    assert (found.silent, found.share, found.gpus) == ((), 1.0, 2)


def test_a_mig_instance_that_was_taken_down_is_not_silent_and_those_of_a_silent_host_are() -> None:
    half = {"gpu_share": 0.5, "host": "h"}
    rows = [
        segment("a", MONDAY_S, 0, "free", **half),
        segment("MIG-1", MONDAY_S, 0, "free", **half),
        segment("a", 0, DAY_S, "free", host="h"),
    ]
    parents = {"MIG_1": "a"}
    living = seen([*rows, segment("a", DAY_S, 3 * DAY_S, "free", host="h")], 3 * DAY_S, parents=parents)
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
        segment("a", MONDAY_S, DAY_S, "free", host="h"),
        segment("a", DAY_S, 2 * DAY_S, "unknown", host="h"),
        segment("MIG-1", MONDAY_S, 0, "free", host="h"),
        segment("b", MONDAY_S, HOUR_S, "held", host="other"),
    ]
    parents, newest_ms = {"MIG_1": "a"}, T0 + 24 * HOUR_MS
    silent = seen(rows, 2.5 * DAY_S, parents=parents)
    assert (silent.last_ms, silent.to_the_end) == (newest_ms, False)
    assert silent.until_ms == T0 + 60 * HOUR_MS
    ahead = segment("c", MONDAY_S, 3 * DAY_S, "free", host="ahead")
    assert seen([*rows, ahead], 2.5 * DAY_S, parents=parents).last_ms == newest_ms
    late = seen([rows[0], *rows[2:]], DAY_S + 1800, Window(None, None), parents)
    assert (late.last_ms, late.to_the_end) == (newest_ms, True)
    early = seen(rows, 2.5 * DAY_S, Window(None, T0 + 2 * HOUR_MS - 1))
    assert early.last_ms == early.until_ms


def test_of_a_window_of_the_past_last_seen_is_its_own_newest_row() -> None:
    rows = [segment("a", MONDAY_S, 0, "free"), segment("a", 2 * HOUR_S, DAY_S, "free")]
    found = seen(rows, 9 * DAY_S, Window(None, T0 + 45 * 60_000))
    assert (found.last_ms, found.to_the_end) == (T0, True)


def test_a_name_without_an_entry_in_the_inventory_has_ended_where_its_host_goes_on() -> None:
    pod = segment("pod", MONDAY_S, 0, "held", host="h")
    assert seen([segment("a", MONDAY_S, 3 * DAY_S, "free", host="h")], 3 * DAY_S, unlisted=[pod]).share == 1.0


@pytest.mark.parametrize(
    ("other", "share", "silent"),
    [
        (segment("b", MONDAY_S, MONDAY_S + 2 * DAY_S, "held", host="h"), 9 / 14, [("h", 1, False)]),
        (segment("b", MONDAY_S + 2 * DAY_S, 3 * DAY_S, "held", host="h"), 1.0, []),
        (segment("h/pci-0000:17:00.0", MONDAY_S, MONDAY_S + DAY_S, "unavailable", host="h"), 1.0, []),
    ],
    ids=["lost by a living host", "came to the host in the week", "dead until it told its UUID"],
)
def test_a_gpu_of_a_host_that_was_seen_all_the_time(other: Row, share: float, silent: list[tuple[object, ...]]) -> None:
    found = seen([segment("a", MONDAY_S, 3 * DAY_S, "held", host="h"), other], 3 * DAY_S)
    assert found.share == pytest.approx(share)
    assert [(each.host, each.gpus, each.whole_host) for each in found.silent] == silent


def test_nothing_is_known_of_a_fleet_before_its_first_row() -> None:
    found = seen([segment("a", 30 * DAY_S, 31 * DAY_S, "free")], 31 * DAY_S)
    assert (found.share, found.gpus, found.last_ms, found.silent) == (None, 0, None, ())


def test_a_week_in_which_the_lake_begins_was_seen_in_part() -> None:
    assert seen([segment("a", MONDAY_S + DAY_S, 3 * DAY_S, "held")], 3 * DAY_S).share == pytest.approx(6 / 7)


def test_five_silent_hosts_are_named_and_the_others_counted() -> None:
    hosts = [Silent(f"h{number}", 1, T0, whole_host=number > 0) for number in range(7)]
    shown = str(silent_host_names(hosts))
    assert shown.startswith("1 GPU of h0 since 20 Nov 2026, 00:00 UTC, h1 since ")
    assert shown.endswith("h4 since 20 Nov 2026, 00:00 UTC, and 2 more hosts")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Lake]:
    return lambda name: made_lake(tmp_path_factory.mktemp(name) / "lake")


REPORTED = week_of(ms(MONDAY_S - 70 * 7 * DAY_S), UTC)
"""So far back that no week is running whenever the tests run."""
THIS, NEXT, LAST = REPORTED.label, REPORTED.before(-1).label, REPORTED.before(1).label
FIRST_S = MONDAY_S - 70 * 7 * DAY_S
START_S, END_S = FIRST_S - 7 * DAY_S, FIRST_S + 8 * DAY_S


def host(lake: Lake, name: str, gpu: str, first_s: int, last_s: int, *, user: str = "ann", pool: str = "train") -> Lake:
    """A GPU that a process holds without a kernel."""
    rows = samples(gpu, first_s, last_s, every_s=1200, process_count=1)
    lists = processes(gpu, *range(first_s, last_s, 1200), user=user, every_s=1200)
    return fill(lake, rows, lists, devices=[device(gpu, pool=pool, time=ms(START_S))], host=name)


@pytest.fixture(scope="module")
def dies(made: Callable[[str], Lake]) -> Lake:
    """Every GPU is silent from Wednesday on."""
    return host(host(made("dies"), "h1", "GPU-0", START_S, day_s(2)), "h1", "GPU-1", START_S, day_s(2))


@pytest.fixture(scope="module")
def part(made: Callable[[str], Lake]) -> Lake:
    """The only GPU of the pool p2, which ann holds, is silent from Wednesday on; zoe's is not."""
    lake = host(made("part"), "h1", "GPU-1", START_S, END_S, user="zoe")
    return host(lake, "h2", "GPU-2", START_S, day_s(2), pool="p2")


@pytest.fixture(scope="module")
def outage(made: Callable[[str], Lake]) -> Lake:
    """Nobody looked for the last five days of the week before."""
    lake = host(made("outage"), "h1", "GPU-1", START_S, day_s(-5))
    return host(lake, "h1", "GPU-1", FIRST_S, END_S)


def day_s(number: int) -> int:
    return FIRST_S + number * DAY_S


def day(number: int) -> str:
    """A day of the week, the first is 0, as the text has it."""
    return REPORTED.monday.fromordinal(REPORTED.monday.toordinal() + number).isoformat()


def plain(done: Outcome) -> str:
    assert (done.code, done.err) == (0, "")
    return " ".join(done.out.split())


def told(done: Outcome) -> Any:
    content = json.loads(plain(done))
    assert faults(content) == []
    return content


def test_a_fleet_that_fell_silent_was_observed_for_a_part_of_the_week(
    dies: Lake, report: Callable[..., Outcome]
) -> None:
    text = plain(report(dies, "--week", THIS))
    assert f"window {day(0)} 00:00 UTC to {day(7)} 00:00 UTC" in text
    assert "observed 28.6 % of the time" in text
    assert f"silent hosts h1 since {day(2)} 00:00 UTC; no sum includes the time after that" in text
    not_known = f"Whether a GPU can be released is not known: nothing was observed after {day(2)} 00:00 UTC."
    assert f"{not_known} No recommendation frees" in text
    assert "idle now" not in text.replace("pool model GPUs idle now", "")
    content = told(report(dies, "--week", THIS, "--format", "json"))
    seen = content["observed"]
    assert (seen["since"], seen["until"]) == (f"{day(0)}T00:00:00Z", f"{day(7)}T00:00:00Z")
    assert (seen["gpus"], seen["observed_gpu_hours"], seen["unseen_gpu_hours"]) == (2, 96.0, 240.0)
    assert seen["share"] == content["trends"]["observed"]["now"] == pytest.approx(2 / 7)
    assert seen["silent"] == [{"host": "h1", "gpus": 2, "since": f"{day(2)}T00:00:00Z", "whole_host": True}]
    ledger = json.loads(report(dies, "--since", day(0), "--until", day(6), "--json", command="ledger").out)
    assert content["ledger"]["gpu_hours"] == ledger["gpu_hours"]


def test_a_week_of_a_dead_fleet_is_empty_and_says_who_is_silent(dies: Lake, report: Callable[..., Outcome]) -> None:
    assert f"silent hosts h1 since {day(2)} 00:00 UTC" in plain(report(dies, "--week", NEXT))
    content = told(report(dies, "--week", NEXT, "--format", "json"))
    assert (content["empty"], content["observed"]["share"]) == (True, 0.0)
    assert content["weeks_before"][0] == {"label": THIS, "observed_share": pytest.approx(2 / 7)}
    assert content["trends"]["total"]["last_week"] == 96.0


@pytest.mark.usefixtures("low_is_listed")
def test_a_host_that_fell_silent_before_the_week_is_named_and_its_findings_are_not_closed(
    made: Callable[[str], Lake], report: Callable[..., Outcome]
) -> None:
    lake = host(made("gone"), "h1", "GPU-1", START_S, END_S, user="zoe")
    host(lake, "h2", "GPU-2", START_S, FIRST_S - HOUR_S)
    text = plain(report(lake, "--week", THIS))
    assert f"silent hosts h2 since {day(-1)} 23:00 UTC; no sum includes the time after that" in text
    assert "observed 50.0 % of the time" in text
    ended = told(report(lake, "--week", THIS, "--format", "json"))["ended"]
    assert {each["status"] for each in ended if each["gpus"] == ["GPU-2"]} == {"unseen"}
    assert {each["rule"] for each in ended} >= {"held"}


def test_a_pool_that_fell_silent_is_unseen_and_not_absent(part: Lake, report: Callable[..., Outcome]) -> None:
    text = plain(report(part, "--week", THIS, "--pool", "p2"))
    assert "observed 28.6 % of the time" in text
    assert f"Whether a GPU can be released is not known: nothing was observed after {day(2)} 00:00 UTC." in text
    later = plain(report(part, "--week", NEXT, "--pool", "p2"))
    assert f"Nothing was observed in this window for pool p2. Silent hosts: h2 since {day(2)} 00:00 UTC." in later
    assert "This window has no GPU time of" not in later
    train = plain(report(part, "--week", THIS, "--pool", "train"))
    assert "observed 100.0 % of the time" in train
    assert "Held idle, GPU-hours 168.0 168.0 0.0 % -" in train
    assert "Observed share of the GPU time" not in train


def test_an_edition_for_people_names_the_hosts_they_last_had_and_no_others(
    part: Lake, report: Callable[..., Outcome]
) -> None:
    ann, zoe = (plain(report(part, "--week", THIS, "--user", user)) for user in ("ann", "zoe"))
    assert f"silent hosts h2 since {day(2)} 00:00 UTC" in ann
    assert "observed 28.6 % of the time" in ann
    assert ("silent hosts none" in zoe, "h2" in zoe) == (True, False)
    assert told(report(part, "--week", THIS, "--user", "zoe", "--format", "json"))["observed"]["silent"] == []


@pytest.mark.parametrize("scope", [(), ("--user", "ann")])
def test_sums_of_a_week_of_which_a_part_was_seen_are_shown_and_not_compared(
    outage: Lake, report: Callable[..., Outcome], scope: tuple[str, ...]
) -> None:
    done = report(outage, "--week", THIS, *scope)
    rows = {line.strip().split("  ")[0]: line.split() for line in done.out.splitlines()}
    assert rows["Held idle, GPU-hours"][3:6] == ["168.0", "48.7", "-"]
    assert rows["observed share"][2:] == ["100.0", "%", "29.0", "%", "+71.0", "points", "-"]
    assert f"Observed share of the GPU time: 29.0 % of {LAST}. Below 90 %, sums have no change" in plain(done)


@pytest.mark.parametrize(("scope", "is_silent"), [((), True), (("--pool", "p2"), True), (("--pool", "train"), False)])
def test_the_ledger_counts_who_was_silent_at_the_end_that_was_asked_for(
    part: Lake, report: Callable[..., Outcome], scope: tuple[str, ...], *, is_silent: bool
) -> None:
    text = plain(report(part, "--since", day(0), "--until", day(6), *scope, command="ledger"))
    assert ("stopped reporting" in text) == ("1 GPU stopped reporting before the end" in text) == is_silent


def test_dates_of_some_prices_are_not_those_of_all() -> None:
    dated = Price(Decimal(3), "USD", date(2025, 1, 2), "ours", "site", None, None)
    basis = [PriceBasis("m", "p", frozenset(), each) for each in (dated, replace(dated, date=None))]
    assert whose_prices(basis, "USD") == "the site's own, in USD, of 2 Jan 2025 (1 of 2 are dated)"
    assert whose_prices(basis[:1], "USD") == "the site's own, in USD, of 2 Jan 2025"
    assert whose_prices(basis[1:], "USD") == "the site's own, in USD"
