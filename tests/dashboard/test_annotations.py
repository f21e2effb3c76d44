"""Annotations: kept as rows that are only added, shown where they belong, written by who may."""

from __future__ import annotations

import json
from typing import Any

import pytest

from analytics.decide.annotations import add_annotation, load_annotations, remove_annotation
from analytics.tables.annotations import annotation_lines
from analytics.tables.days import days
from analytics.tables.palette import LIGHT
from analytics.tables.weeks import quarter
from dashboard.access.people import PLANNER, VIEWER, NotAllowedError, Reader
from dashboard.actions import abouts, annotate, annotations_about, annotations_in_sight, withdraw
from dashboard.pages.timeline import GRAPH, TIMELINE
from dashboard.view import View
from fallow.actors import ANONYMOUS, PERSON, Actor
from fallow.cli import main
from fallow.clock import HOUR_MS, format_ms, from_ms
from fallow.errors import FallowError, UsageError
from fallow.schema import ANNOTATION
from tests.dashboard.acting import PLAN, PLAN_ALPHA, VIEW_ALPHA, Held
from tests.dashboard.conftest import one, words
from tests.drawn_charts import in_svg


def marked(held: Held, text: str, scope: str = "all", name: str | None = None, hours: float = 1.0) -> str:
    since_ms = held.pages().view().report.ledger.summary.since_ms
    at_ms = since_ms + int(hours * HOUR_MS)
    added = add_annotation(held.lake, text, Actor("ann"), at_ms=at_ms, now_ms=at_ms, scope=scope, name=name)
    return added.annotation_id


def texts(view: View) -> list[str]:
    return [each.text for each in annotations_in_sight(view)]


def test_the_command_adds_lists_and_removes(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    def told(verb: str, *arguments: str) -> str:
        assert main(["annotations", verb, *arguments, "--lake", held.lake.root]) == 0
        return capsys.readouterr().out

    told("add", " driver  580 ", "--at", "2026-11-20T09:00Z", "--as", "ann")
    told("add", "quota 8 to 4", "--at", "2026-11-19", "--team", "nlp", "--as", "bob")
    first, second = json.loads(told("list", "--json"))["tables"]["annotations"]["rows"]
    assert set(first) == set(ANNOTATION.names) - {"kind"}
    assert (first["at"], first["scope"], first["name"], first["text"]) == (
        "2026-11-19T00:00:00Z",
        "team",
        "nlp",
        "quota 8 to 4",
    )
    assert (second["at"], second["scope"], second["name"], second["text"]) == (
        "2026-11-20T09:00:00Z",
        "all",
        None,
        "driver 580",
    )
    assert "removed" in told("remove", second["annotation_id"], "--as", "zoe")
    assert "driver" not in told("list")
    # both rows of what was removed stay
    assert len(held.lake.files("annotation")) == 3
    assert main(["annotations", "remove", second["annotation_id"], "--lake", held.lake.root]) == 1
    assert main(["annotations", "add", " ", "--lake", held.lake.root]) == 2


def test_each_reader_sees_what_is_about_their_part(held: Held) -> None:
    marked(held, "to all")
    marked(held, "alpha's", "team", "alpha", hours=1.1)
    marked(held, "beta's", "team", "beta", hours=1.2)
    marked(held, "no such pool", "pool", "nowhere", hours=1.3)
    marked(held, "next year", hours=9000)
    assert texts(held.pages().view()) == ["to all", "alpha's", "beta's", "no such pool"]
    assert texts(held.pages(VIEW_ALPHA).view()) == ["to all", "alpha's"]
    assert texts(held.pages().view("?span=all&team=beta")) == ["to all", "beta's"]
    (pool,) = held.pages().view().names["pool"]
    assert texts(held.pages().view(f"?span=all&pool={pool}")) == ["to all", "alpha's", "beta's"]


def test_a_mark_stands_at_its_moment_in_timeline_and_days(held: Held) -> None:
    marked(held, "<b>maintenance</b>", hours=1.5)
    view = held.pages().view()
    page = TIMELINE.content(view, LIGHT)
    figure = one(page, GRAPH).figure
    assert [shape.x0 for shape in figure.layout.shapes] == [view.annotations[0].at_ms]
    assert "<b>maintenance</b> (ann)" in words(page)
    section = days(view.report.breakdown, annotations_in_sight(view))
    (bar,) = section.chart.annotations  # type: ignore[union-attr]
    start_ms = list(view.report.breakdown.hours)[bar]
    assert start_ms <= view.annotations[0].at_ms < start_ms + HOUR_MS
    assert len(section.lines) == 1
    assert days(view.report.breakdown).lines == ()
    trend = quarter(view.report.quarter, annotations_about(view))
    assert (trend.chart.annotations, len(trend.lines)) == ((0,), 1)  # type: ignore[union-attr]
    assert len([each for each in in_svg(trend).iter("path") if each.get("stroke-dasharray") == "2 3"]) == 1


def test_planners_write_and_remove_and_it_is_audited(held: Held, audited: list[str]) -> None:
    view = held.pages().view("?span=all&zone=Asia/Kolkata")
    added = annotate(view, "driver 580", "2026-11-20 09:00", ("all", None), 1)
    assert format_ms(load_annotations(held.lake)[0].at_ms) == "2026-11-20T03:30:00Z"
    assert load_annotations(held.lake)[0].actor == PLAN.actor
    mark = marked(held, "here")
    withdraw(held.pages().view(), mark, 2)
    assert [each.text for each in load_annotations(held.lake)] == ["driver 580"]
    assert audited == [
        "person pia: asks to annotate as planner",
        f"person pia: annotate as planner: {added.annotation_id}",
        f"person pia: asks to remove annotation as planner: {mark}",
        f"person pia: remove annotation as planner: {mark}",
    ]
    for when in ("", "yesterday", "2026-13-01"):
        with pytest.raises(UsageError):
            annotate(view, "text", when, ("all", None), 1)
    with pytest.raises(UsageError):
        annotate(view, "text", "2026-11-20", ("pool", "of nobody"), 1)


def test_a_person_who_is_called_as_the_pages_call_strangers_is_recorded_and_shown_as_a_person(
    held: Held, audited: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    names = {PERSON: "everybody", ANONYMOUS: "everybody (without a sign-in)"}
    for kind in names:
        view = held.pages(Reader("everybody", PLANNER, kind=kind)).view()
        annotate(
            view, f"by {kind}", from_ms(view.report.ledger.summary.since_ms + HOUR_MS).isoformat(), ("all", None), 1
        )
    assert {each.text: each.by for each in load_annotations(held.lake)} == {
        f"by {kind}": name for kind, name in names.items()
    }
    shown = annotation_lines(annotations_in_sight(held.pages().view()))
    assert {line.partition(": by ")[2] for line in shown} == {f"{kind} ({name})" for kind, name in names.items()}
    assert main(["annotations", "list", "--json", "--lake", held.lake.root]) == 0
    listed = json.loads(capsys.readouterr().out)["tables"]["annotations"]["rows"]
    assert {each["text"]: (each["actor"], each["actor_kind"]) for each in listed} == {
        f"by {kind}": ("everybody", kind) for kind in names
    }
    assert [each.partition(":")[0] for each in audited] == ["person everybody"] * 2 + ["anonymous everybody"] * 2


@pytest.mark.parametrize("who", [VIEW_ALPHA, Reader("val", VIEWER)], ids=lambda each: each.name)
def test_viewers_write_nothing(held: Held, who: Reader, audited: list[str]) -> None:
    mark = marked(held, "to all")
    view = held.pages(who).view()
    with pytest.raises(NotAllowedError):
        annotate(view, "text", "2026-11-20", abouts(view)[0], 1)
    with pytest.raises(NotAllowedError):
        withdraw(view, mark, 1)
    assert len(held.lake.files("annotation")) == 1
    assert all("refused" in line for line in audited)
    page = TIMELINE.content(view, LIGHT)
    assert "to all" in words(page)
    assert "Annotate a moment" not in words(page)


def test_a_planner_of_one_team_writes_and_removes_only_its_own(held: Held) -> None:
    to_all, own = marked(held, "to all"), marked(held, "own", "team", "alpha")
    view = held.pages(PLAN_ALPHA).view()
    assert abouts(view) == (("team", "alpha"),)
    with pytest.raises(UsageError):
        annotate(view, "text", "2026-11-20", ("all", None), 1)
    with pytest.raises(NotAllowedError):
        withdraw(view, to_all, 1)
    withdraw(view, own, 1)
    assert [each.text for each in load_annotations(held.lake)] == ["to all"]


def test_a_second_removal_is_refused(held: Held) -> None:
    mark: Any = marked(held, "once")
    view = held.pages(Reader("pat", PLANNER)).view()
    remove_annotation(held.lake, mark, Actor("bob"), now_ms=1)
    with pytest.raises(FallowError, match="there is no annotation"):
        withdraw(view, mark, 2)
