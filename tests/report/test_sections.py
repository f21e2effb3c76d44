"""Sections of the report beyond the ledger: figures, headlines, widths, what they leave out, and empty ones."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.capacity.off_peak import OffPeak
from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.language.sentences import ENGLISH
from analytics.ledger.summary import Totals
from analytics.money.accounts import EfficiencyRank
from analytics.render.html.page import page
from analytics.render.report.markdown import MarkdownFormat
from analytics.render.report.text import TextFormat, columns, for_text, section_text
from analytics.report.parts import Breakdown
from analytics.scope import Scope
from analytics.tables.breakdowns import pools
from analytics.tables.coverage import coverage_by, coverage_by_day
from analytics.tables.days import days
from analytics.tables.finding_heading import heading
from analytics.tables.off_peak import off_peak
from analytics.workloads.model import Confidence
from fallow.actors import Actor
from fallow.clock import HOUR_MS
from fallow.outside_text import markdown_text as escape
from fallow.schema import STATES
from tests.delivery.made_items import worth
from tests.lakes import made_lake
from tests.ledger.rows import T0, fill, processes, samples
from tests.report.conftest import BACK_S, BUSY, DAY, FREE, HELD, everything
from tests.report.html.reports import changed, report_of
from tests.report.test_formats import faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from analytics.report.figures import UserFigures
    from analytics.report.report import Report
    from fallow.lake import Lake
    from tests.report.conftest import Outcome

LONG = "n" * 200


def person(like: UserFigures, name: str, hours: float, rank: int, team: str) -> UserFigures:
    """Somebody who used half of what they were given."""
    given = hours * HOUR_MS
    spent = dict.fromkeys(STATES, 0.0) | dict.fromkeys(("active", "low", "held", "reserved"), given / 4)
    cents = dict.fromkeys(STATES, 0) | {"active": 123_456}
    own = {"state_ms": spent, "state_cents": cents, "effective_ms": given / 2, "low_by_sm_ms": given / 8}
    of_model = EfficiencyRank(rank, 7, "NVIDIA H100 80GB HBM3", given, 0.5)
    return replace(like, name=name, label=name, team=team, rank_gpu_time=rank, efficiency_rank=of_model, **own)


def text_of(report: Report, code: str = "en") -> str:
    return TextFormat().render(report, language(code)).decode()


def part(text: str, title: str) -> list[str]:
    """The lines under a heading of the text report, without their indent."""
    block = next(block for block in text.split("\n\n") if block.startswith(title))
    return [line.strip() for line in block.splitlines()]


def side_by_side(text: str, title: str, name: str) -> tuple[list[str], list[str]]:
    """The titles of a table's columns and the cells of a row, with the columns that continue below for lack of room."""
    blocks = text[text.index(f"\n{title}\n") :].split("\n\n")
    titles, cells = [], []
    for block in blocks:
        lines = [re.split(r" {2,}", line.strip()) for line in block.splitlines()]
        head = next((line for line in lines if line[0] == "name"), None)
        if head is None:
            break
        row = next(line for line in lines if line[0] == name)
        titles += head[bool(titles) :]
        cells += row[bool(cells) :]
    return titles, cells


def items(text: str, title: str) -> list[str]:
    """The findings of a list under a heading, each on a line of its own."""
    return [each.strip() for each in " ".join(part(text, title)[1:]).split("- F-")]


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


@pytest.fixture
def going_on(tmp_path: Path) -> Lake:
    """The lake of `everything`, which tests fill with the week after it."""
    return everything(made_lake(tmp_path / "lake"))


def test_the_title_names_week_and_scope(full: Lake, report: Callable[..., Outcome]) -> None:
    flags = ("--week", "2026-W40", "--pool", "train", "--user", "ann")
    for lang, title in (
        ("en", "GPU waste report, 2026-W40, pool train, user ann"),
        ("fr", "Rapport sur le gaspillage de GPU, 2026-W40, pool train, utilisateur ann"),
    ):
        assert report(full, *flags, "--lang", lang).out.splitlines()[0] == title
        assert report(full, *flags, "--lang", lang, "--format", "md").out.startswith(f"# {title}\n")


def test_off_peak_hours_are_in_the_reports_own_time_zone(week: Report) -> None:
    night = OffPeak("train", 4, 20, 32, 24, 6)
    table = off_peak((night,), replace(week.heading, zone=ZoneInfo("Europe/Paris")), week.ledger)
    assert table is not None
    english, french = (
        section_text(table, for_text(language(code, "Europe/Paris"))).splitlines() for code in ("en", "fr")
    )
    assert english[1].strip() == "The largest off-peak window is 24 GPUs of train, Fri 20:00 to Sat 08:00."
    assert english[3].split() == ["train", "Fri", "20:00", "Sat", "08:00", "24", "6"]
    assert "Hours are those of Europe/Paris." in " ".join(english)
    assert french[3].split()[1:5] == ["ven.", "20:00", "sam.", "08:00"]


def test_people_have_their_rank_beside_their_efficiency(week: Report) -> None:
    like = week.people.users[0]
    people = tuple(person(like, f"user{number}", 100 - number, number + 1, "vision") for number in range(15))
    of_vision = replace(week.people, users=people, teams=(person(like, "vision", 100, 2, "vision"),))
    text = text_of(changed(week, people=of_vision))
    titles, first = side_by_side(text, "GPU TIME BY USER", "user0")
    assert titles[titles.index("efficiency") + 1] == "rank"
    assert dict(zip(titles, first, strict=True)) == {
        "name": "user0",
        "team": "vision",
        "GPU-hours": "100.0",
        "effective": "50.0",
        "Low use": "0.0",
        "Stalled": "0.0",
        "Held idle": "25.0",
        "Allocated, unused": "25.0",
        "efficiency": "50.0 %",
        "rank": "1/7 H100 SXM",
        "cost, USD": "1,234.56",
    }
    by_sm = (
        "348.8 GPU-hours of low use count as effective in proportion to their activity: SM activity for 50.0 % of them"
    )
    assert by_sm in " ".join(text.split())
    assert "and 3 more with 261.0 GPU-hours" in text
    nameless = replace(week.people, teams=(replace(of_vision.teams[0], name=None),))
    assert "GPU TIME BY TEAM" not in text_of(changed(week, people=nameless))


@pytest.mark.usefixtures("low_is_listed")
def test_gone_and_snoozed_findings_have_their_reasons(going_on: Lake, report: Callable[..., Outcome]) -> None:
    first_s, last_s = 14 * DAY - BACK_S, 21 * DAY - BACK_S
    rows = samples("GPU-0", first_s, last_s, **BUSY) + samples("GPU-1", first_s, last_s, **FREE)
    fill(going_on, rows, host="train-01")
    ids = [finding.finding_id for finding in report_of(going_on, "2026-W41").review.shown]
    when = {"now_ms": T0 - BACK_S * 1000, "expires_ms": T0 + DAY * 1000}
    record(going_on, "snooze", ids, Actor("ops"), reason="a reserve", **when)
    text = text_of(report_of(going_on, "2026-W41"))
    assert any(line.endswith(": a reserve (ops, until 2026-11-20)") for line in items(text, "SNOOZED"))
    gone = items(text, "LAST WEEK'S FINDINGS THAT ENDED")
    reversed_at = next(at for at, line in enumerate(gone) if ": reversed: last week's finding was wrong" in line)
    assert reversed_at < next(at for at, line in enumerate(gone) if line.endswith(": unseen"))
    content = json.loads(report(going_on, "--format", "json", "--week", "2026-W41").out)
    assert content["snoozed"]
    assert content["ended"]
    assert faults(content) == []


@pytest.mark.usefixtures("low_is_listed")
def test_a_finding_that_was_wrong_and_is_found_again_is_listed_as_wrong(going_on: Lake) -> None:
    """Ann's GPU stood for the end of one week, worked for two days, and stands again: the first finding was wrong."""
    first_s, work_s, last_s = (day * DAY - BACK_S for day in (14, 16, 21))
    rows = samples("GPU-0", first_s, work_s, **BUSY) + samples("GPU-0", work_s, last_s, **HELD)
    lists = processes("GPU-0", *range(first_s, last_s, 300), every_s=300, slurm_job_id="4711")
    fill(going_on, rows, lists, host="train-01")
    report = report_of(going_on, "2026-W41")
    wrong = {each.finding.finding_id for each in report.review.reversals.findings}  # type: ignore[union-attr]
    assert wrong & {finding.finding_id for finding in report.review.shown}
    lines = items(text_of(report), "LAST WEEK'S FINDINGS THAT ENDED")
    assert any(line.endswith("; found again this week") for line in lines)
    assert "found again this week" in page(report, language("en", None))


def test_sums_of_a_week_that_is_not_over_are_not_set_against_a_whole_one(lake: Lake) -> None:
    middle_s = 7 * DAY - BACK_S
    fill(lake, samples("GPU-1", -BACK_S, middle_s, **BUSY) + samples("GPU-1", middle_s, 14 * DAY - BACK_S, **FREE))
    report = report_of(lake, "2026-W40")
    whole = part(text_of(report), "THIS WEEK AGAINST LAST WEEK")
    assert not any("days have passed" in line for line in whole)
    assert any("0.0 %" in line for line in whole if line.startswith("all GPU-hours"))
    seen = replace(report.ledger.seen, until_ms=report.ledger.seen.until_ms - 5 * DAY * 1000)
    running = part(text_of(changed(report, weeks=replace(report.weeks, seen=seen))), "THIS WEEK AGAINST LAST WEEK")
    assert running[-1] == "Only 2.0 of this week's 7 days have passed, so sums of hours and money have no change."
    changes = {line.split("  ")[0]: line for line in running[2:-1]}
    assert "points" in changes["unused share"]
    assert "%" not in changes["all GPU-hours"]


@pytest.mark.parametrize("code", ["en", "fr"])
def test_the_text_stays_within_100_columns_whatever_the_names(week: Report, code: str) -> None:
    like = week.people.users[0]
    people = tuple(person(like, f"{number}{LONG}", 100_000 - number, number + 1, LONG) for number in range(15))
    of_pool = replace(week.heading, scope=Scope(pool=LONG))
    wide = changed(week, heading=of_pool, people=replace(week.people, users=people, teams=people))
    lines = text_of(wide, code).splitlines()
    assert [line for line in lines if len(line) > 100 and " ssh " not in line] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert any(line.startswith("  0nnn") for line in lines)


def test_columns_cut_words_and_never_figures() -> None:
    lines = columns(("name", "n"), (("abcdefghijklmnop", "1,234,567.8"),), {0}, 25)
    assert lines == ["  name                  n", "  abcdefghi…  1,234,567.8"]


@pytest.mark.parametrize("code", ["en", "fr"])
def test_each_decision_in_markdown_has_what_it_rests_on(week: Report, code: str) -> None:
    """Who reads a ticket is to need no terminal."""
    shown = MarkdownFormat().render(week, language(code)).decode()
    parts = {part[:12]: part.split("\n### ")[0] for part in shown.split("\n#### ")[1:]}
    listed = [each for each in week.recommendations.listed if not each.confidence.is_low]
    assert list(parts) == [each.recommendation_id for each in listed]
    found = [each for each in listed if each.evidence]
    assert found
    for each in found:
        part = parts[each.recommendation_id]
        assert each.evidence[0].finding_id in part
        assert all(escape(gpu) in part for gpu in each.gpus_now[:2])
        assert each.next_command in part


@pytest.mark.parametrize("number", [12, 20])
def test_every_document_has_the_count_and_the_page_has_each_decision(week: Report, number: int) -> None:
    sure = {"value": worth(1.0, 2.0, 3.0), "action": "release", "confidence": Confidence(())}
    first = replace(week.recommendations.listed[0], **sure)
    listed = tuple(replace(first, recommendation_id=f"R-{each:010x}") for each in range(number))
    report = changed(week, recommendations=replace(week.recommendations, listed=listed))
    html = page(report, ENGLISH)
    for document in (text_of(report), MarkdownFormat().render(report, ENGLISH).decode(), html):
        assert ("and 8 more recommendations" in " ".join(document.split())) == (number == 20)
    assert all(f'<details class="fold" id="{each.recommendation_id}">' in html for each in listed)


@pytest.mark.parametrize(("number", "drawn", "said"), [(4, 4, ""), (7, 4, "The chart shows 4 of 7 pools")])
def test_the_grid_of_the_week_says_how_many_pools_it_has(week: Report, number: int, drawn: int, said: str) -> None:
    """The pool with the widest window is drawn, whatever its name."""
    narrow = [OffPeak(f"pool{each}", 5, 7, 9, 2, 4) for each in range(number - 1)]
    section = off_peak((*narrow, OffPeak("wide", 5, 0, 24, 2, 4)), week.heading, week.ledger)
    assert section is not None
    assert section.chart is not None
    names = [ENGLISH.shown(each.title) for each in section.chart.panels]
    assert (len(names), names[-1]) == (drawn, "wide")
    assert ENGLISH.translate(section.chart_note).startswith(said)


@pytest.mark.parametrize(
    ("hosts", "where"), [("", ""), ("a", " on a"), ("a+b+c", " on a, b, c"), ("a+b+c+d", " on 4 hosts")]
)
def test_a_few_hosts_of_a_finding_are_named(week: Report, hosts: str, where: str) -> None:
    finding = replace(week.review.shown[0], host=hosts, gpus=("x", "y"), simulated=False)
    assert str(heading(finding)) == f"2 GPUs{where} {finding.sentence}"


def test_simulated_findings_are_marked_where_others_are_not(week: Report) -> None:
    finding, gpus = replace(week.review.shown[0], simulated=True), week.ledger.summary.totals.gpus
    some, every = (replace(week.review, simulated_gpus=number) for number in (gpus - 1, gpus))
    shown = [str(heading(finding, review)) for review in (None, some, every)]
    assert [each.endswith(" (simulated)") for each in shown] == [True, True, False]


def hours(gpus: int = 8, **states: int) -> Totals:
    """GPU-hours by state."""
    return Totals(gpus, {state: HOUR_MS * states.get(state, 0) for state in STATES})


def breakdown(by: str, groups: dict[str, Totals]) -> Breakdown:
    return Breakdown({by: groups}, {}, UTC)


def dates(*totals: Totals) -> dict[str, Totals]:
    return {str(date.fromordinal(739_000 + number)): each for number, each in enumerate(totals)}


@pytest.mark.parametrize(
    ("totals", "headline"),
    [
        (hours(active=9), "All of the observed time was used."),
        (hours(unknown=9), "Nothing was observed."),
        (hours(active=6, free=2), "train has the most unused GPU-hours: 2.0, 25.0 % of its observed time."),
    ],
)
def test_a_breakdown_names_the_worst_only_where_there_is_one(totals: Totals, headline: str) -> None:
    section = pools(breakdown("pool", {"train": totals, "dev": hours(gpus=1, active=1 if totals.observed_ms else 0)}))
    assert section is not None
    assert ENGLISH.translate(section.headline) == headline


def test_days_that_are_alike_are_not_told_apart() -> None:
    alike = days(breakdown("day", dates(*[hours(active=24)] * 7)))
    differ = days(breakdown("day", dates(hours(active=24), hours(free=24))))
    assert ENGLISH.translate(alike.headline) == "0.0 % of the observed time was not used in every period."
    assert ENGLISH.translate(differ.headline).startswith("Between 0.0 % (")


def test_of_many_days_and_pools_the_last_and_the_least_observed_are_listed() -> None:
    by_day = coverage_by_day(dates(*[hours(active=24)] * 80, *[hours(unknown=24)] * 10))
    assert len(by_day.rows) == 60
    assert [str(row[1]) for row in by_day.cells[-10:]] == ["0.0 %"] * 10
    by_pool = coverage_by("pool", {f"pool-{each:02}": hours(active=24, unknown=each) for each in range(70)})
    assert by_pool.cells[0][0] == "pool-69"
    notes = [ENGLISH.translate(*section.notes) for section in (by_day, by_pool)]
    assert notes == ["and 30 earlier days", "and 10 more, observed at least as well"]
