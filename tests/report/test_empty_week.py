"""A week in which nothing was seen: that is said, and nothing is concluded from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from analytics.language.languages import language
from analytics.render.html.mail import mail_body
from tests.report.html.reports import report_of
from tests.report.test_schema import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

BEFORE, AFTER = "2020-W10", "2026-W42"
CONCLUSIONS = ("No GPU could be taken back", "o findings", "Nothing is suppressed", "Nobody was given", "0.0")


@pytest.mark.parametrize("form", ["text", "md", "html"])
@pytest.mark.parametrize("week", [BEFORE, AFTER])
def test_it_says_where_the_rows_are_and_concludes_nothing(
    full: Lake, report: Callable[..., Outcome], form: str, week: str
) -> None:
    done = report(full, "--week", week, "--format", form)
    text = " ".join(done.out.replace("\N{NO-BREAK SPACE}", " ").split())
    assert (done.code, done.err) == (0, "")
    assert f"GPU waste report, {week}" in text
    assert "Nothing was observed in this window. The lake has rows from " in text
    assert [each for each in CONCLUSIONS if each in text] == []


def test_figures_for_programs_are_unknown_and_not_zero(full: Lake, report: Callable[..., Outcome]) -> None:
    content = json.loads(report(full, "--week", AFTER, "--format", "json").out)
    assert (content["empty"], faults(content)) == (True, [])
    assert content["known"] == {"since": "2026-09-21T00:00:00Z", "until": "2026-10-05T00:00:00Z"}
    ledger, energy = content["ledger"], content["ledger"]["energy"]
    figures = [ledger["gpu_hours"], ledger["money"]["cost"], ledger["idle"], energy["kwh_by_state"], energy["kwh"],
               content["sensitivity"], [each["now"] for each in content["trends"].values() if each["unit"] != "share"]]  # fmt: skip
    assert numbers([figures, *(content[name] for name in ("hosts", "simulated_gpus"))]) == []
    assert (ledger["gpus"], ledger["coverage"], ledger["money"]["unpriced_gpu_hours"]) == (None, None, None)
    assert energy["pue"] > 1  # a setting holds whatever was seen
    assert content["ledger"]["window"] == {"since": "2026-10-12T00:00:00Z", "until": "2026-10-19T00:00:00Z"}
    assert (content["findings"], content["ended"], content["reversals"]) == ([], [], None)
    assert list(content["tables"]) == ["data-quality"]


def test_the_table_of_figures_is_empty_where_they_are_unknown(full: Lake, report: Callable[..., Outcome]) -> None:
    lines = report(full, "--week", AFTER, "--format", "csv").out.splitlines()
    assert "empty,true" in lines
    assert {"ledger.gpu_hours.free,", "ledger.gpus,", "trends.total.now,"} <= set(lines)
    seen = report(full, "--week", "2026-W40", "--format", "csv").out.splitlines()
    assert {"empty,false", "ledger.gpu_hours.active,72.0"} <= set(seen)


def numbers(value: object) -> list[object]:
    """Every number in JSON values."""
    if isinstance(value, dict | list):
        return [found for each in (value.values() if isinstance(value, dict) else value) for found in numbers(each)]
    return [] if value is None or isinstance(value, str) else [value]


def test_the_mail_has_no_picture_of_nothing(full: Lake) -> None:
    body, picture = mail_body(report_of(full, BEFORE), language("en", "UTC"))
    assert picture is None
    assert "cid:" not in body
    assert "Nothing was observed in this window." in body


def test_who_had_nothing_in_a_week_has_an_edition_that_says_so(full: Lake, report: Callable[..., Outcome]) -> None:
    dark, without = (report(full, "--week", week, "--user", "svc") for week in (BEFORE, "2026-W39"))
    assert (dark.code, without.code) == (0, 0)
    assert "Nothing was observed in this window." in dark.out
    assert "Nothing in this window is of user svc." in without.out


def test_a_name_that_nobody_has_is_refused(full: Lake, report: Callable[..., Outcome]) -> None:
    done = report(full, "--week", "2026-W39", "--user", "svcc")
    assert done.code == 1
    assert done.err.startswith("fallow: nothing in this window is of user svcc; ")


def test_a_week_that_has_not_begun_is_refused(full: Lake, report: Callable[..., Outcome]) -> None:
    done = report(full, "--week", "2198-W01")
    assert done.code == 1
    assert "holds nothing between 2197-12-" in done.err or "holds nothing between 2198-01-" in done.err
