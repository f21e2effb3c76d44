"""Two windows side by side: every figure is that of the ledger, and a difference is only given where both were observed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from analytics.report.compare import as_long_before, same_time_before, window_against
from fallow.clock import DAY_MS, HOUR_MS, Window, parse_day_ms
from fallow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

PARIS = ZoneInfo("Europe/Paris")
WEEK = ("--week", "2026-W40")


def compared(report: Callable[..., Outcome], lake: Lake, *flags: str) -> dict[str, Any]:
    done = report(lake, "--format", "json", *flags)
    assert (done.code, done.err) == (0, "")
    return dict(json.loads(done.out))


def test_each_side_is_what_the_ledger_says_of_its_window(full: Lake, report: Callable[..., Outcome]) -> None:
    found = compared(report, full, *WEEK, "--compare", "before")
    for side in ("now", "before"):
        window = ("--since", found[side]["since"], "--until", found[side]["until"])
        told = json.loads(report(full, *window, "--json", command="ledger").out)
        cost, hours = told["money"]["cost"], told["gpu_hours"]
        figures = {name: each[side] for name, each in found["figures"].items()}
        decided = json.loads(report(full, *window, "--json", command="recommendations").out)
        assert figures["waste_money"] == decided["waste"]["cost"]
        assert figures["paid_money"] == pytest.approx(sum(cost.values()))
        assert figures["active_share"] == pytest.approx(hours["active"] / (hours["total"] - hours["unknown"]))
    if found["comparable"]:
        waste = found["figures"]["waste_money"]
        assert waste["difference"] == pytest.approx(waste["now"] - waste["before"])


def test_where_one_was_not_observed_no_difference_is_given(full: Lake, report: Callable[..., Outcome]) -> None:
    found = compared(report, full, *WEEK, "--compare", "13w")
    assert found["before"]["observed_share"] is None or found["before"]["observed_share"] < 0.9
    assert not found["comparable"]
    assert {each["difference"] for name, each in found["figures"].items() if name != "observed"} == {None}
    text = report(full, *WEEK, "--compare", "13w").out
    assert "No difference is given: it takes 90 % of both windows observed" in " ".join(text.split())


def test_sums_of_windows_of_other_length_are_not_compared(full: Lake, report: Callable[..., Outcome]) -> None:
    every = compared(report, full, *WEEK, "--compare", "before", "--pool", "train")
    if not every["comparable"]:
        pytest.skip("the pool was not observed in both weeks")
    since = every["before"]["since"][:10]
    found = compared(report, full, *WEEK, "--compare", f"{since}..{since}", "--pool", "train")
    assert found["figures"]["unused_share"]["difference"] is not None
    assert found["figures"]["waste_money"]["difference"] is None


def test_days_stay_days_where_clocks_change() -> None:
    """The week in which summer time ends, in Paris."""
    week = Window(parse_day_ms("2026-10-19") - 2 * HOUR_MS, parse_day_ms("2026-10-26") - HOUR_MS)
    assert as_long_before(week, PARIS) == Window(parse_day_ms("2026-10-12") - 2 * HOUR_MS, week.since_ms)
    assert same_time_before(week, PARIS).until_ms == parse_day_ms("2026-07-27") - 2 * HOUR_MS
    odd = Window(week.since_ms, (week.since_ms or 0) + DAY_MS // 2)
    assert as_long_before(odd, PARIS) == Window((week.since_ms or 0) - DAY_MS // 2, week.since_ms)
    assert window_against(week, "2026-03-29..2026-03-29", PARIS) == Window(
        parse_day_ms("2026-03-29") - HOUR_MS, parse_day_ms("2026-03-30") - 2 * HOUR_MS
    )


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
    assert "pdf has the whole report" in report(full, *WEEK, "--table", "waterfall", "--format", "pdf").err.lower()
    compared_rows = report(full, *WEEK, "--compare", "before", "--format", "csv").out.splitlines()
    assert compared_rows[0].startswith("figure,unit,now,before")
