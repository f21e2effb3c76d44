"""Works on their cards: what is drawn, what is only counted, and which are named by a finding."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from functools import cache
from typing import Any

import polars as pl
import pytest
from plotly.utils import PlotlyJSONEncoder

from analytics.language.languages import language
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.tables.card_fit import EITHER_DOES, KEEPS, LESS, card_fit, card_sizes, workload_sizes
from analytics.tables.packings import packed_cards, packing_list
from analytics.tables.palette import LIGHT
from analytics.tables.plan_old_cards import old_cards_on_page
from analytics.tables.table import Table
from analytics.window import load_window_ledger, open_inputs
from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.lake import Lake
from tests.dashboard.conftest import components, drawing, hints, inputs_of, page, words
from tests.dashboard.sites import LANGUAGE, WEEK, Site
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, processes, samples

GIB = 2**30


def points(shown: Any) -> int:
    has_chart = any(each["props"].get("id") == "sizes-chart" for each in components(shown))
    return len(hints(shown, "sizes-chart")) if has_chart else 0


def test_workloads_of_a_finding_have_its_gpu_hours(planned: Site) -> None:
    view = planned.view(WEEK)
    workloads = workload_sizes(view.report)
    named = [
        each
        for each in view.report.review.findings
        if each.rule in ("memory_oversized", "compute_oversized", "mig_fit")
    ]
    assert named
    for finding in named:
        own = workloads.filter(
            pl.col("user") == finding.user,
            pl.col("model") == finding.evidence.numbers["model"],
            pl.col("kind").is_in(LESS),
        )
        assert own["gpu_ms"].sum() >= finding.gpu_ms - 1
        assert own["peak_bytes"].max() >= (finding.evidence.numbers["mem_used_max_bytes"] or 0)
    users = {each.user for each in named}
    assert set(workloads.filter(pl.col("kind").is_in(LESS))["user"]) == users
    for row in workloads.filter(pl.col("kind") == EITHER_DOES).iter_rows(named=True):
        assert "MIG instance" in row["instead"]
        assert "," in row["instead"]
    assert set(workloads.filter(~pl.col("kind").is_in(LESS))["instead"]) == {""}


def test_kinds_differ_in_shape(planned: Site) -> None:
    view = planned.view(WEEK)
    kinds = set(workload_sizes(view.report)["kind"])
    assert KEEPS in kinds
    assert kinds & set(LESS)
    shown = page(planned.client(), "/right-size", WEEK)
    shapes = {hint[-1] for hint in hints(shown, "sizes-chart")}
    assert len(shapes) == len(kinds & set(workloads_drawn(planned))) > 1
    legend = next(each for each in components(shown) if each["props"].get("aria-label") == "Marks")
    assert len(legend["props"]["children"]) == len(shapes)


def workloads_drawn(planned: Site) -> list[str]:
    """Return the kinds of the workloads that can be drawn."""
    workloads = workload_sizes(planned.view(WEEK).report)
    known = pl.col("peak_bytes").is_not_null() & (pl.col("sm_pct").is_not_null() | pl.col("util_pct").is_not_null())
    return workloads.filter(known)["kind"].to_list()


def test_those_for_which_less_would_do_are_drawn_before_all_others(
    planned: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    less = sum(each in LESS for each in workloads_drawn(planned))
    monkeypatch.setattr("analytics.tables.card_fit._DRAWN", less)
    view = planned.view(WEEK)
    tree = json.loads(json.dumps(section_panel(view, LIGHT, card_fit(view.report)), cls=PlotlyJSONEncoder))
    assert points(tree) == less > 0
    groups = re.findall(r'<g class="d">(.*?)</g>', drawing(tree, "sizes-chart"))
    marks = {colour for each in groups for colour in re.findall(r'class="s-(\w+)"', each)}
    assert marks == {"held"}


@pytest.mark.parametrize(("lang", "sign"), [("en", "."), ("fr", ",")])
def test_a_mark_has_one_percent_sign_and_the_readers_numbers(planned: Site, lang: str, sign: str) -> None:
    for hint in hints(page(planned.client(), "/right-size", f"{WEEK}&lang={lang}"), "sizes-chart"):
        assert re.fullmatch(rf"\d+\{sign}\d %", hint[-2])
        assert "%" not in "".join([*hint[:-2], hint[-1]])


def test_cards_of_about_the_same_memory_are_one_line(planned: Site) -> None:
    sizes = [size for size, _ in card_sizes(planned.view(WEEK).whole.context)]
    assert sizes == sorted(sizes)
    assert all(high > 1.04 * low for low, high in itertools.pairwise(sizes))


def test_a_reader_of_a_team_has_only_its_workloads(planned: Site) -> None:
    view = planned.view(WEEK, LANGUAGE)
    mine = {owner.name for owner in view.whole.money.owners.by_name.values() if owner.team == "language"}
    shown = set(workload_sizes(view.report)["user"])
    assert shown
    assert shown <= mine
    export = planned.client(LANGUAGE).get("/export/workloads.csv" + WEEK + "&team=vision")
    assert {line.split(",")[0] for line in export.text.splitlines()[1:]} == shown


def test_the_queue_for_old_cards_is_of_the_readers_own_work(planned: Site) -> None:
    every, own = planned.view(WEEK), planned.view(WEEK, LANGUAGE)
    queue, mine = old_cards_on_page(every.report), old_cards_on_page(own.report)
    assert queue is not None
    assert mine is not None
    users = {str(row[0]) for row in queue.cells}
    assert {str(row[0]) for row in mine.cells} == users & set(workload_sizes(own.report)["user"])
    assert "which were unused" in str(queue.headline)
    assert "unused" not in str(mine.headline)


@pytest.mark.parametrize("known", [True, False])
def test_unknown_memory_is_no_point_at_zero(lake: Lake, *, known: bool) -> None:
    memory = {"mem_used_bytes": 20 * GIB} if known else {}
    rows = samples("a", 0, 4 * 3600, gpu_util_pct=90.0, gpu_util_max_pct=90.0, process_count=1, **memory)
    fill(lake, rows, processes("a", *range(0, 4 * 3600, 30)), devices=[device("a")])
    shown = page(build_app(LakeSource(lambda: inputs_of(lake))).server.test_client(), "/right-size")
    assert points(shown) == int(known)
    assert ("The chart leaves out 1 workload whose memory is not known." in words(shown)) is not known


def test_a_gpu_of_several_users_is_no_users_workload(lake: Lake) -> None:
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
    workloads = workload_sizes(view.report)
    assert workloads.select("user", "gpus").rows() == [("ann", ["a"])]
    assert workloads["peak_bytes"].to_list() == [20 * GIB]
    assert workloads["util_pct"].to_list() == [90.0]  # the next whole percent, as the rules take it
    assert workloads["sm_pct"].to_list() == [None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Eight H100s with small work: six of the team `vision`, two of `speech`."""
    folder = tmp_path_factory.mktemp("packed")
    owners = folder / "owners.csv"
    owners.write_text("kind,name,team\nuser,ann,vision\nuser,bob,speech\n", encoding="utf-8")
    config = folder / "fallow.toml"
    config.write_text(f'[money]\nowners = "{owners}"\n', encoding="utf-8")
    lake = made_lake(folder / "lake")
    fleet = Fleet(3)
    for number, gpu in enumerate(fleet.host("h1", H100, 8)):
        train(fleet, gpu, "ann" if number < 6 else "bob", util=13.0, sm=11.5, mem_gb=8, job=str(number))
    fleet.write(lake)
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=str(config)))
    return Whole(inputs, load_window_ledger(inputs))


@cache
def of_scope(whole: Whole, **scope: str) -> Report:
    return Report(whole, Asked(scope=Scope(**scope)))


def packings_of(report: Report) -> Table:
    return packing_list(report.recommendations, for_people=report.scope.is_personal)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("en", "MIG frees 6 of 8 GPUs (H100 SXM, train): 8 workloads fit on 2."),
        ("fr", "MIG libère 6 des 8 GPU (H100 SXM, train)\N{NO-BREAK SPACE}: 8 charges de travail tiennent sur 2."),
    ],
)
def test_the_planners_question_is_answered_in_one_sentence(whole: Whole, code: str, said: str) -> None:
    section = packings_of(of_scope(whole))
    assert language(code).translate(section.headline) == said
    assert len(section.cells) == 1
    cards = packed_cards(of_scope(whole).recommendations.sizing.packings)
    assert cards is not None
    assert len(cards.cells) == 8


def test_users_see_packings_of_their_own_workloads_only(whole: Whole) -> None:
    """The only packing has workloads of two teams, so it belongs to neither team alone."""
    report = of_scope(whole, team="vision")
    assert packings_of(report).rows == ()
    assert packed_cards(report.recommendations.sizing.packings) is None
    assert len(packings_of(of_scope(whole, pool="train")).rows) == 1


def test_what_several_ways_would_save_is_counted_once(whole: Whole) -> None:
    report = of_scope(whole)
    paid_cents = report.money.accounts.total.paid_cents
    assert report.recommendations.sizing.saving is not None
    assert paid_cents is not None
    assert 0 < report.recommendations.sizing.saving <= paid_cents / 100
