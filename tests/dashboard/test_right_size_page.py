"""Works on their cards: what is drawn, what is only counted, and which are named by a finding."""

from __future__ import annotations

import gzip
import itertools
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from analytics.tables.card_fit import EITHER_DOES, KEEPS, LESS, card_fit, card_sizes, workload_sizes
from analytics.tables.moves import moves
from analytics.tables.palette import LIGHT
from analytics.tables.plan_old_cards import old_cards_on_page
from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource
from dashboard.view import View
from tests.dashboard.conftest import components, inputs_of, page, words
from tests.dashboard.planned import LANGUAGE, WEEK, Planned, planned_site
from tests.ledger.rows import device, fill, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

GIB = 2**30


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_site(tmp_path_factory.getbasetemp())


def figure(shown: Any) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in components(shown) if each["props"].get("id") == "sizes-chart")
    return dict(found["props"]["figure"])


def points(shown: Any) -> int:
    return sum(len(trace["x"]) for trace in figure(shown).get("data", []))


def test_works_of_a_finding_are_its_gpu_hours(planned: Planned) -> None:
    view = planned.view(WEEK)
    works = workload_sizes(view.report)
    named = [
        each for each in view.report.review.shown if each.rule in ("memory_oversized", "compute_oversized", "mig_fit")
    ]
    assert named
    for finding in named:
        own = works.filter(
            pl.col("holder") == finding.holder,
            pl.col("model") == finding.evidence.numbers["model"],
            pl.col("kind").is_in(LESS),
        )
        assert own["gpu_ms"].sum() >= finding.gpu_ms - 1
        assert own["peak_bytes"].max() >= (finding.evidence.numbers["mem_used_max_bytes"] or 0)
    holders = {each.holder for each in named}
    assert set(works.filter(pl.col("kind").is_in(LESS))["holder"]) == holders
    for row in works.filter(pl.col("kind") == EITHER_DOES).iter_rows(named=True):
        assert "MIG instance" in row["instead"]
        assert "," in row["instead"]
    assert set(works.filter(~pl.col("kind").is_in(LESS))["instead"]) == {""}


def test_kinds_differ_in_shape(planned: Planned) -> None:
    view = planned.view(WEEK)
    kinds = set(workload_sizes(view.report)["kind"])
    assert KEEPS in kinds
    assert kinds & set(LESS)
    shown = page(planned.client(), "/right-size", WEEK)
    marks = [trace["marker"] for trace in figure(shown)["data"]]
    shapes = {mark["symbol"].removesuffix("-open") for mark in marks}
    assert len(shapes) >= len(kinds & set(works_drawn(planned)))
    assert {"circle"} < shapes <= {"circle", "diamond", "triangle-up", "star", "square"}
    legend = next(each for each in components(shown) if each["props"].get("aria-label") == "Marks")
    assert len(legend["props"]["children"]) == len(shapes)


def works_drawn(planned: Planned) -> list[str]:
    """The kinds of the works that can be drawn."""
    works = workload_sizes(planned.view(WEEK).report)
    known = pl.col("peak_bytes").is_not_null() & (pl.col("sm_pct").is_not_null() | pl.col("util_pct").is_not_null())
    return works.filter(known)["kind"].to_list()


def test_those_for_which_less_would_do_are_drawn_before_all_others(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = sum(each in LESS for each in works_drawn(planned))
    monkeypatch.setattr("analytics.tables.card_fit._DRAWN", less)
    view = planned.view(WEEK)
    tree = json.loads(json.dumps(section_panel(view, LIGHT, card_fit(view.report)), cls=PlotlyJSONEncoder))
    assert points(tree) == less > 0
    assert {trace["marker"]["color"] for trace in figure(tree)["data"]} == {LIGHT.state["held"]}


def test_every_known_work_is_drawn_once(planned: Planned) -> None:
    works = workload_sizes(planned.view(WEEK).report)
    known = works.filter(
        pl.col("peak_bytes").is_not_null() & (pl.col("sm_pct").is_not_null() | pl.col("util_pct").is_not_null())
    )
    shown = page(planned.client(), "/right-size", WEEK)
    assert 0 < points(shown) == min(known.height, 400)
    assert works.height > known.height
    assert f"{works.height - known.height} workloads are not drawn" in words(shown)


@pytest.mark.parametrize(("lang", "signs"), [("en", ".,"), ("fr", ",\N{NARROW NO-BREAK SPACE}")])
def test_a_mark_says_percent_once_and_numbers_as_the_reader_does(planned: Planned, lang: str, signs: str) -> None:
    drawn = figure(page(planned.client(), "/right-size", f"{WEEK}&lang={lang}"))
    assert drawn["layout"]["xaxis"]["ticksuffix"].strip() == "%"
    assert drawn["layout"]["separators"] == signs
    for trace in drawn["data"]:
        assert trace["hovertemplate"].replace("%{", "").count("%") == 0


def test_the_figure_keeps_its_budget(planned: Planned) -> None:
    for path in ("/", "/film", "/right-size", "/capacity", "/holders"):
        for chart in (each for each in components(page(planned.client(), path, WEEK)) if each["type"] == "Graph"):
            sent = gzip.compress(json.dumps(chart["props"]["figure"]).encode(), 6)
            assert len(sent) < 30_000, chart["props"]["id"]


def test_cards_of_about_the_same_memory_are_one_line(planned: Planned) -> None:
    sizes = [size for size, _ in card_sizes(planned.view(WEEK).whole.context)]
    assert sizes == sorted(sizes)
    assert all(high > 1.04 * low for low, high in itertools.pairwise(sizes))


def test_savings_are_those_of_the_findings(planned: Planned) -> None:
    view = planned.view(WEEK)
    section = moves(view.report.recommendations, view.report.review.shown)
    text = f"{section.headline} {' '.join(str(cell) for row in section.cells for cell in row)}"
    found = [each for each in view.report.review.shown if each.category == "right_size"]
    assert f"{len(found)} finding" in text
    for each in found:
        saving = each.evidence.numbers.get("saving")
        if isinstance(saving, float):
            assert f"{saving:,.2f} USD" in text


def test_a_team_reader_has_their_own_works_only(planned: Planned) -> None:
    view = planned.view(WEEK, LANGUAGE)
    mine = {owner.name for owner in view.whole.money.owners.by_name.values() if owner.team == "language"}
    shown = set(workload_sizes(view.report)["holder"])
    assert shown
    assert shown <= mine
    export = planned.client(LANGUAGE).get("/export/works.csv" + WEEK + "&team=vision")
    assert {line.split(",")[0] for line in export.text.splitlines()[1:]} == shown


def test_the_queue_for_old_cards_is_of_the_readers_own_work(planned: Planned) -> None:
    every, own = planned.view(WEEK), planned.view(WEEK, LANGUAGE)
    queue, mine = old_cards_on_page(every.report), old_cards_on_page(own.report)
    assert queue is not None
    assert mine is not None
    holders = {str(row[0]) for row in queue.cells}
    assert {str(row[0]) for row in mine.cells} == holders & set(workload_sizes(own.report)["holder"])
    assert "which stood unused" in str(queue.headline)
    assert "unused" not in str(mine.headline)


@pytest.mark.parametrize("known", [True, False])
def test_unknown_memory_is_no_point_at_zero(lake: Lake, *, known: bool) -> None:
    memory = {"mem_used_bytes": 20 * GIB} if known else {}
    rows = samples("a", 0, 4 * 3600, gpu_util_pct=90.0, gpu_util_max_pct=90.0, process_count=1, **memory)
    fill(lake, rows, processes("a", *range(0, 4 * 3600, 30)), devices=[device("a")])
    shown = page(build_app(LakeSource(lambda: inputs_of(lake))).server.test_client(), "/right-size")
    assert points(shown) == int(known)
    assert ("1 workload without a known memory is not drawn." in words(shown)) is not known


def test_what_several_hold_is_nobodys_work(lake: Lake) -> None:
    busy = {"gpu_util_pct": 90.0, "gpu_util_max_pct": 90.0, "mem_used_bytes": 20 * GIB}
    rows = [*samples("a", 0, 4 * 3600, process_count=1, **busy), *samples("b", 0, 4 * 3600, process_count=2, **busy)]
    both = [
        each
        for pid, user in ((1, "ann"), (2, "bob"))
        for each in processes("b", *range(0, 4 * 3600, 30), user=user, pid=pid)
    ]
    fill(lake, rows, [*processes("a", *range(0, 4 * 3600, 30)), *both], devices=[device("a"), device("b")])
    source = LakeSource(lambda: inputs_of(lake))
    view = source.look(Query(), Reader("reader", VIEWER))
    assert isinstance(view, View)
    works = workload_sizes(view.report)
    assert works.select("holder", "gpus").rows() == [("ann", ["a"])]
    assert works["peak_bytes"].to_list() == [20 * GIB]
    assert works["util_pct"].to_list() == [90.0]  # the next whole percent, as the rules take it
    assert works["sm_pct"].to_list() == [None]
