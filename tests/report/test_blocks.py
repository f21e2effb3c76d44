"""The parts of the text and Markdown reports beyond the ledger: what they show, how wide, and in which words where there is nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from analytics.capacity.off_peak import OffPeak
from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.money.accounts import EfficiencyRank
from analytics.render.html.page import page
from analytics.render.report.markdown import MarkdownFormat
from analytics.render.report.text import TextFormat, columns, for_text, section_text
from analytics.report.figures import UserFigures
from analytics.scope import Scope
from analytics.tables.off_peak import off_peak
from fallow.actors import Actor
from fallow.clock import HOUR_MS
from tests.lakes import made_lake
from tests.ledger.rows import T0, fill, processes, samples
from tests.report.conftest import BACK_S, BUSY, DAY, FREE, HELD, everything
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from analytics.report.report import Report
    from analytics.tables.table import Table
    from fallow.lake import Lake
    from tests.report.conftest import Outcome

LONG = "n" * 200
NIGHT = OffPeak("train", 4, 20, 32, 24, 6)


def person(name: str | None, hours: float, rank: int | None, team: str | None = None) -> UserFigures:
    """Somebody who used half of what they were given."""
    given = hours * HOUR_MS
    label = name or "(holder not known)"
    of_model = None if rank is None else EfficiencyRank(rank, 7, "NVIDIA H100 80GB HBM3", given, 0.5)
    return UserFigures(
        name, label, team, gpu_ms=given, allocated_ms=given, effective_ms=given / 2, low_ms=given / 4, low_by_sm_ms=given / 8,
        held_ms=given / 4, reserved_ms=given / 4, open_ms=0.0, cents=123_456, efficiency=0.5, rank_gpu_time=rank, ranked=40,
        efficiency_rank=of_model,
    )  # fmt: skip


def text_of(report: Report, code: str = "en", zone: str | None = None) -> str:
    return TextFormat().render(report, language(code, zone)).decode()


def part(text: str, title: str) -> list[str]:
    """The lines under a heading of the text report, without their indent."""
    block = next(block for block in text.split("\n\n") if block.startswith(title))
    return [line.strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def test_the_title_names_week_and_scope(full: Lake, report: Callable[..., Outcome]) -> None:
    flags = ("--week", "2026-W40", "--pool", "train", "--user", "ann")
    for lang, title in (
        ("en", "GPU waste report, 2026-W40, pool train, user ann"),
        ("fr", "Rapport sur le gaspillage de GPU, 2026-W40, pool train, utilisateur ann"),
    ):
        assert report(full, *flags, "--lang", lang).out.splitlines()[0] == title
        assert report(full, *flags, "--lang", lang, "--format", "md").out.startswith(f"# {title}\n")


def test_a_week_stands_beside_those_before_it(week: Report) -> None:
    rows = [" ".join(row.split()) for row in part(text_of(week), "AGAINST LAST WEEK")]
    assert rows[1] == "Unused: 55.4 % of the observed time, +22.1 points against last week."
    assert "unused share 55.4 % 33.3 % +22.1 points -" in rows
    assert "active, GPU-hours 72.0 336.0 - -" in rows
    assert "observed share 65.7 % 100.0 % -34.3 points -" in rows
    assert "held, GPU-hours 138.0 0.0 - -" in rows
    assert "AGAINST LAST WEEK" not in text_of(changed(week, weeks=None))


def test_the_steps_lead_from_paid_to_useful(week: Report) -> None:
    rows = [row.split() for row in part(text_of(week), "FROM PAID TO USEFUL")]
    rows = rows[next(place for place, row in enumerate(rows) if row[:1] == ["state"]) :]
    assert rows[0] == ["state", "GPU-hours", "of", "all", "left", "of", "observed", "cost,", "USD"]
    assert rows[1] == ["paid", "555.0", "3,556.85"]
    assert rows[8] == ["active", "72.0", "13.0", "%", "13.0", "%", "495.36"]
    left = [float(row[4]) for row in rows[2:8]]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 13.0


def section_lines(section: Table | None, code: str = "en", zone: str = "UTC") -> list[str]:
    assert section is not None
    return [line.strip() for line in section_text(section, for_text(language(code, zone))).splitlines()]


def test_off_peak_hours_are_in_the_reports_own_time_zone(week: Report) -> None:
    table = off_peak((NIGHT,), replace(week.heading, zone=ZoneInfo("Europe/Paris")), week.ledger)
    rows = section_lines(table, zone="Europe/Paris")
    assert rows[1] == "The widest window: 24 GPUs of train, Fri 20:00 to Sat 08:00."
    assert rows[3].split() == ["train", "Fri", "20:00", "Sat", "08:00", "24", "6"]
    assert "hours are those of Europe/Paris." in " ".join(rows)
    assert section_lines(table, "fr", "Europe/Paris")[3].split()[1:5] == [
        "ven.",
        "20:00",
        "sam.",
        "08:00",
    ]


def test_people_have_their_rank_beside_their_efficiency(week: Report) -> None:
    people = tuple(person(f"user{number}", 100 - number, number + 1, "vision") for number in range(15))
    of_vision = replace(week.people, holders=people, teams=(person("vision", 100, 2),))
    rows = part(text_of(changed(week, people=of_vision)), "WHAT USERS WERE GIVEN")
    assert rows[3].split() == [
        "user0", "vision", "100.0", "50.0", "0.0", "25.0", "25.0", "50.0", "%", "1/7", "H100", "SXM", "1,234.56",
    ]  # fmt: skip
    assert (
        "348.8 GPU-hours in the state low count as useful by their activity (SM activity for 50.0 % of them"
        in " ".join(rows)
    )
    assert "and 3 more with 261.0 GPU-hours" in rows
    assert "WHAT TEAMS WERE GIVEN" not in text_of(
        changed(week, people=replace(week.people, teams=(person(None, 1, None),)))
    )


def test_a_personal_edition_says_nothing_of_capacity(full: Lake) -> None:
    text = text_of(report_of(full, "2026-W40", scope=Scope(holder="ann")))
    assert "BEYOND WHAT" not in text
    assert "OFF-PEAK" not in text


def test_gone_and_suppressed_findings_have_their_reasons(tmp_path: Path) -> None:
    lake = everything(made_lake(tmp_path / "lake"))
    first_s, last_s = 14 * DAY - BACK_S, 21 * DAY - BACK_S
    fill(lake, samples("GPU-0", first_s, last_s, **BUSY) + samples("GPU-1", first_s, last_s, **FREE), host="train-01")
    ids = [finding.finding_id for finding in report_of(lake, "2026-W41").review.shown]
    record(
        lake, "suppress", ids, Actor("ops"), now_ms=T0 - BACK_S * 1000, reason="a reserve", expires_ms=T0 + DAY * 1000
    )
    text = text_of(report_of(lake, "2026-W41"))
    assert any(line.endswith(": a reserve (ops, until 2026-11-20)") for line in one_line(part(text, "SUPPRESSED")))
    gone = one_line(part(text, "CLOSED AND REVERSED"))
    assert any(": reversed: last week's finding was wrong" in line for line in gone)
    assert any(line.endswith(": unseen") for line in gone)
    assert gone.index(next(line for line in gone if "reversed:" in line)) < gone.index(
        next(line for line in gone if line.endswith(": unseen"))
    )


def test_a_finding_that_was_wrong_and_is_found_again_is_listed_as_wrong(tmp_path: Path) -> None:
    """Ann's GPU stood for the end of one week, worked for two days, and stands again: the first finding was wrong."""
    lake = everything(made_lake(tmp_path / "lake"))
    first_s, work_s, last_s = (day * DAY - BACK_S for day in (14, 16, 21))
    fill(lake, samples("GPU-0", first_s, work_s, **BUSY) + samples("GPU-0", work_s, last_s, **HELD), host="train-01")
    lists = processes("GPU-0", *range(first_s, last_s, 300), every_s=300, slurm_job_id="4711")
    fill(lake, [], lists, host="train-01")
    report = report_of(lake, "2026-W41")
    wrong = {each.finding.finding_id for each in report.review.reversals.findings}  # type: ignore[union-attr]
    again = wrong & {finding.finding_id for finding in report.review.shown}
    assert again
    lines = one_line(part(text_of(report), "CLOSED AND REVERSED"))
    assert any(line.endswith("; found again this week") for line in lines)
    assert "found again this week" in page(report, language("en", None))


def test_sums_of_a_week_that_is_not_over_are_not_set_against_a_whole_one(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    first_s = -BACK_S
    fill(
        lake,
        samples("GPU-1", first_s, first_s + 7 * DAY, **BUSY)
        + samples("GPU-1", first_s + 7 * DAY, first_s + 14 * DAY, **FREE),
    )
    report = report_of(lake, "2026-W40")
    whole = part(text_of(report), "AGAINST LAST WEEK")
    assert not any("days have passed" in line for line in whole)
    assert any("0.0 %" in line for line in whole if line.startswith("all GPU-hours"))
    seen = replace(report.ledger.seen, until_ms=report.ledger.seen.until_ms - 5 * DAY * 1000)
    running = part(text_of(changed(report, weeks=replace(report.weeks, seen=seen))), "AGAINST LAST WEEK")
    assert running[-1] == "2.0 of this week's 7 days have passed: sums of hours and money have no change."
    changes = {line.split("  ")[0]: line for line in running[2:-1]}
    assert "points" in changes["unused share"]
    assert "%" not in changes["all GPU-hours"]


def one_line(lines: list[str]) -> list[str]:
    """Items of a list, each on a line of its own."""
    return [each.strip() for each in " ".join(lines[1:]).split("- F-")]


@pytest.mark.parametrize("code", ["en", "fr"])
def test_the_text_stays_within_100_columns_whatever_the_names(week: Report, code: str) -> None:
    people = tuple(person(f"{number}{LONG}", 100_000 - number, number + 1, LONG) for number in range(15))
    wide = changed(
        week,
        heading=replace(week.heading, scope=Scope(pool=LONG)),
        people=replace(week.people, holders=people, teams=people),
    )
    lines = text_of(wide, code).splitlines()
    assert [line for line in lines if len(line) > 100 and " ssh " not in line] == []
    assert [line for line in lines if line != line.rstrip()] == []
    assert any(line.startswith("  0nnn") for line in lines)


def test_markdown_tables_are_whole_and_names_are_no_markup(week: Report) -> None:
    evil = "a|b](http://x)<script>\n# c"
    hurt = changed(week, people=replace(week.people, holders=(person(evil, 10, 1, evil),)))
    text = MarkdownFormat().render(hurt, language("en")).decode()
    assert "<script>" not in text.replace("\\<script\\>", "")
    rows = [line for line in text.splitlines() if "script" in line and line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11]


def test_columns_cut_words_and_never_figures() -> None:
    lines = columns(("name", "n"), (("abcdefghijklmnop", "1,234,567.8"),), {0}, 25)
    assert lines == ["  name                  n", "  abcdefghi…  1,234,567.8"]
