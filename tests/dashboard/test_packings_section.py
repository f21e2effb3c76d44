"""The sections on packings: what they say, in both languages, and to whom."""

from __future__ import annotations

import argparse
from functools import cache
from typing import TYPE_CHECKING

import pytest

from analytics.language.languages import language
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.tables.packings import packed_cards, packing_list
from analytics.window import load_window_ledger, open_inputs
from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import train
from tests.lakes import made_lake

if TYPE_CHECKING:
    from analytics.tables.table import Table


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
        ("en", "MIG would free 6 of 8 GPUs (NVIDIA H100 80GB HBM3, train): 8 workloads fit on 2."),
        ("fr", "MIG libérerait 6 GPU sur 8 (NVIDIA H100 80GB HBM3, train) : 8 travaux tiennent sur 2."),
    ],
)
def test_the_planners_question_is_answered_in_one_sentence(whole: Whole, code: str, said: str) -> None:
    section = packings_of(of_scope(whole))
    assert language(code).translate(section.headline) == said
    assert len(section.cells) == 1
    cards = packed_cards(of_scope(whole).recommendations.sizing.packings)
    assert cards is not None
    assert len(cards.cells) == 8


def test_people_see_packings_of_their_own_work_only(whole: Whole) -> None:
    """The one packing there is holds work of two teams: it is nobody's alone."""
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
