"""Weeks and windows beside others: each figure is the ledger's; a difference is given only where both were observed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from analytics.intervals import by_hour
from analytics.ledger.summary import totals_by, totals_of
from analytics.report.compare import (
    Change,
    Changes,
    as_long_before,
    same_time_before,
    window_against,
    window_before,
)
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.report.weeks import parse_week, week_of
from analytics.scope import Scope
from analytics.window import load_whole, load_window_ledger
from fallow.clock import DAY_MS, HOUR_MS, Window, parse_day_ms, parse_window
from fallow.errors import UsageError
from tests.dashboard.sites import UNTIL_MS, Site, make_site
from tests.ledger.rows import device, fill, samples
from tests.report.conftest import BACK_S, BUSY, DAY, FREE, IMPORTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.ledger.build import Ledger
    from fallow.lake import Lake
    from tests.conftest import RunFallow
    from tests.report.conftest import Outcome

PARIS = ZoneInfo("Europe/Paris")
NOW_MS = 1_795_132_800_000  # Friday, 2026-11-20 00:00 UTC
WEEK = ("--week", "2026-W40")
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
SPAN = re.compile(r"--since (\S+) --until (\S+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Four days, of which nothing is known before 2025-11-16."""
    return make_site(tmp_path_factory.mktemp("before"))


@pytest.fixture(scope="module")
def ledger(site: Site) -> Ledger:
    return load_whole(site.inputs())


def changes(site: Site, ledger: Ledger, days: float, scope: Scope | None = None) -> Changes:
    """The changes of the last days."""
    inputs = replace(site.inputs(), window=Window(UNTIL_MS - round(days * DAY_MS), None))
    whole = Whole(inputs, load_window_ledger(inputs, whole=ledger))
    return Report(whole, Asked(scope=scope or Scope())).changes


def test_weeks_are_those_of_iso_8601() -> None:
    assert week_of(parse_week("2026-W01", UTC, NOW_MS).since_ms, UTC).label == "2026-W01"
    assert parse_week("2026-W1", UTC, NOW_MS).before().label == "2025-W52"
    assert parse_week("2026-W53", UTC, NOW_MS).monday.isoformat() == "2026-12-28"


@pytest.mark.parametrize("text", ["2026-W54", "2026-W0", "2025-W53", "W46", "0001-W01", "9999-W52", "yesterday", ""])
def test_what_is_no_week(text: str) -> None:
    with pytest.raises(UsageError, match="is not a week"):
        parse_week(text, UTC, NOW_MS)


def test_the_windows_by_which_the_docs_check_a_report_are_what_they_say() -> None:
    checking = PAGE.split("## Check a figure")[1]
    commands = SPAN.findall(checking.split("```")[1])
    assert len(commands) == 2
    assert {parse_window(*each) for each in commands} == {parse_week("2026-W46", UTC, 0).window}
    [november] = [SPAN.findall(line)[0] for line in PAGE.splitlines() if "november.csv" in line]
    assert parse_window(*november) == parse_window("2026-11-01T00:00Z", "2026-12-01T00:00Z")


def test_the_window_before_ends_where_the_window_begins() -> None:
    assert window_before(Window(1000, 1700)) == Window(300, 1000)
    for window in (Window(None, 1), Window(1, None), Window(None, None)):
        with pytest.raises(ValueError, match="Window"):
            window_before(window)


def test_both_windows_have_the_figures_of_the_ledger(site: Site, ledger: Ledger, run_fallow: RunFallow) -> None:
    figures = changes(site, ledger, 2).figures
    now, before = (
        json.loads(
            run_fallow("ledger", "--config", str(site.config), "--since", since, "--until", until, "--json").stdout
        )
        for since, until in (("2025-11-18", "2025-11-19"), ("2025-11-16", "2025-11-17"))
    )
    for state in ("active", "held", "free", "unavailable", "unknown"):
        assert figures[state].now == pytest.approx(now["gpu_hours"][state])
        assert figures[state].before == pytest.approx(before["gpu_hours"][state])
    paid = figures["paid_money"]
    assert (paid.now, paid.before) == (now["money"]["paid"], before["money"]["paid"])
    assert figures["held_money"].before == before["money"]["cost"]["held"]
    observed = before["gpu_hours"]["total"] - before["gpu_hours"]["unknown"]
    assert figures["free_share"].before == pytest.approx(before["gpu_hours"]["free"] / observed)


def test_the_part_of_a_team_is_compared_with_its_own(site: Site, ledger: Ledger) -> None:
    everybody, team = changes(site, ledger, 2), changes(site, ledger, 2, Scope(team="vision"))
    own = team.figures["active"]
    assert team.is_comparable
    assert (own.now or 0) > 0
    assert 0 < (own.before or 0) < (everybody.figures["active"].before or 0)
    assert team.figures["free"].before == 0


@pytest.mark.parametrize("days", [3, 4, 30])
def test_a_window_before_that_nobody_saw_has_no_change(site: Site, ledger: Ledger, days: float) -> None:
    told = changes(site, ledger, days)
    assert not told.is_comparable
    assert {(each.before, each.sentence) for each in told.figures.values()} == {(None, "")}
    assert told.figures["active"].now


@pytest.mark.parametrize(
    ("unit", "now", "before", "said"),
    [
        ("share", 0.31, 0.3, "+1.0 points"),
        ("share", 0.3, 0.31, "\N{MINUS SIGN}1.0 points"),
        ("share", 0.3, 0.30004, "±0.0 points"),
        ("share", None, 0.3, ""),
        ("share", 0.3, None, ""),
        ("money", 150.0, 100.0, "+50.0 %"),
        ("gpu_hours", 50.0, 100.0, "\N{MINUS SIGN}50.0 %"),
        ("gpu_hours", 50.0, 0.0, ""),
        ("gpu_hours", 0.0, 0.0, ""),
    ],
)
def test_changes_are_in_points_or_relative(unit: str, now: float | None, before: float | None, said: str) -> None:
    assert Change(unit, now, before).sentence == said


def test_the_hours_add_up_to_the_days(ledger: Ledger) -> None:
    hours = totals_by(by_hour(ledger.segments), "hour")
    assert len(hours) >= 4 * 24
    for state, milliseconds in totals_of(ledger.segments).state_ms.items():
        assert sum(each.state_ms[state] for each in hours.values()) == milliseconds
    assert all(int(hour) % HOUR_MS == 0 for hour in hours)
    assert all(each.total_ms <= each.gpus * HOUR_MS for each in hours.values())


def compared(report: Callable[..., Outcome], lake: Lake, *flags: str) -> dict[str, Any]:
    done = report(lake, "--format", "json", *WEEK, "--compare", *flags)
    assert (done.code, done.err) == (0, "")
    return dict(json.loads(done.out))


def test_each_side_is_what_the_ledger_says_of_its_window(full: Lake, report: Callable[..., Outcome]) -> None:
    found = compared(report, full, "before")
    for side in ("now", "before"):
        window = ("--since", found[side]["since"], "--until", found[side]["until"])
        told = json.loads(report(full, *window, "--json", command="ledger").out)
        cost, hours = told["money"]["cost"], told["gpu_hours"]
        figures = {name: each[side] for name, each in found["figures"].items()}
        decided = json.loads(report(full, *window, "--json", command="recommendations").out)
        assert figures["waste_money"] == decided["waste"]["cost"]
        assert figures["paid_money"] == pytest.approx(sum(cost.values()))
        assert figures["active_share"] == pytest.approx(hours["active"] / (hours["total"] - hours["unknown"]))


def test_where_one_was_not_observed_no_difference_is_given(full: Lake, report: Callable[..., Outcome]) -> None:
    found = compared(report, full, "13w")
    assert found["before"]["observed_share"] is None or found["before"]["observed_share"] < 0.9
    assert not found["comparable"]
    assert {each["difference"] for name, each in found["figures"].items() if name != "observed"} == {None}
    text = report(full, *WEEK, "--compare", "13w").out
    assert "No difference is shown: both windows need 90 % observed" in " ".join(text.split())


def test_sums_of_windows_of_other_length_are_not_compared(lake: Lake, report: Callable[..., Outcome]) -> None:
    fill(lake, samples("GPU-0", -BACK_S, 14 * DAY - BACK_S, **BUSY), devices=[device("GPU-0")])
    every = compared(report, lake, "before")
    assert every["comparable"]
    waste = every["figures"]["waste_money"]
    assert waste["difference"] == pytest.approx(waste["now"] - waste["before"])
    since = every["before"]["since"][:10]
    found = compared(report, lake, f"{since}..{since}")
    assert found["figures"]["unused_share"]["difference"] is not None
    assert found["figures"]["waste_money"]["difference"] is None
    text = " ".join(report(lake, *WEEK, "--compare", "before").out.split())
    assert "The same: unused time is 0.0 %, from 0.0 % (0.0 points)." in text


def test_an_efficiency_that_tables_show_as_a_range_is_not_compared(lake: Lake, report: Callable[..., Outcome]) -> None:
    """Two sampled hours are a hundredth of what was observed, but all that was allocated."""
    rows = [row for gpu in ("GPU-0", "GPU-1") for row in samples(gpu, -BACK_S, 14 * DAY - BACK_S, **FREE)]
    for first_s in (7 * DAY - BACK_S - 7200, 14 * DAY - BACK_S - 7200):
        rows += samples("GPU-2", first_s, first_s + 7200, **IMPORTED)
    fill(lake, rows, devices=[device(f"GPU-{number}") for number in range(3)])
    assert "0.0 % to 100.0 % of the allocated time was effective" in " ".join(
        report(lake, *WEEK, "--by", "user", command="ledger").out.split()
    )
    assert compared(report, lake, "before")["figures"]["efficiency"]["now"] is None


def test_days_stay_days_where_clocks_change() -> None:
    """The week in which summer time ends, in Paris."""
    since_ms = parse_day_ms("2026-10-19") - 2 * HOUR_MS
    week = Window(since_ms, parse_day_ms("2026-10-26") - HOUR_MS)
    assert as_long_before(week, PARIS) == Window(parse_day_ms("2026-10-12") - 2 * HOUR_MS, since_ms)
    assert same_time_before(week, PARIS).until_ms == parse_day_ms("2026-07-27") - 2 * HOUR_MS
    odd = Window(since_ms, since_ms + DAY_MS // 2)
    assert as_long_before(odd, PARIS) == Window(since_ms - DAY_MS // 2, since_ms)
    day_of_23_hours = Window(parse_day_ms("2026-03-29") - HOUR_MS, parse_day_ms("2026-03-30") - 2 * HOUR_MS)
    assert window_against(week, "2026-03-29..2026-03-29", PARIS) == day_of_23_hours


@pytest.mark.parametrize(
    "against", ["lastyear", "2026-01-01..", "..", "2026-01-02..2026-01-01", "2026-1-1..2026-01-02"]
)
def test_what_is_no_window_is_refused(against: str) -> None:
    with pytest.raises(UsageError) as refused:
        window_against(Window(0, DAY_MS), against, PARIS)
    assert refused.value.hint


def test_a_comparison_takes_a_window_and_a_format_of_its_own(full: Lake, report: Callable[..., Outcome]) -> None:
    assert report(full, "--compare", "before").code == 2
    assert report(full, *WEEK, "--compare", "before", "--format", "pdf").code == 2


def test_the_tables_of_the_report_and_of_a_comparison_are_files_of_their_own(
    full: Lake, report: Callable[..., Outcome]
) -> None:
    found = report(full, *WEEK, "--table", "waterfall", "--format", "csv").out.splitlines()
    shown = json.loads(report(full, *WEEK, "--table", "waterfall", "--format", "json").out)["tables"]["waterfall"]
    assert len(found) == 1 + len(shown["rows"]) > 1
    assert "pdf holds the whole report" in report(full, *WEEK, "--table", "waterfall", "--format", "pdf").err.lower()
    compared_rows = report(full, *WEEK, "--compare", "before", "--format", "csv").out.splitlines()
    assert compared_rows[0].startswith("figure,unit,now,before")
