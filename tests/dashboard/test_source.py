"""The view is read once per version of the lake."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.source import Problem, Source, View
from fallow.clock import MINUTE_MS
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of

if TYPE_CHECKING:
    from fallow.clock import Clock


class Hands:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.time_ms = 0

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_s(self) -> float:
        return self.time_ms / 1000


@pytest.fixture
def own_lake(fleet_lake: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(fleet_lake.root, tmp_path / "lake")
    return Lake.at(str(tmp_path / "lake"))


def test_the_same_lake_gives_the_same_view(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    assert source.look() is source.look()


def test_a_minute_later_it_is_read_again(own_lake: Lake) -> None:
    clock = Hands()
    holds: Clock = clock
    source = Source(lambda: inputs_of(own_lake), holds)
    first = source.look()
    clock.time_ms += MINUTE_MS
    assert source.look() is not first


def test_a_new_file_gives_a_new_view(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    first = source.look()
    newest = own_lake.files("gpu")[-1]
    own_lake.delete(newest)
    second = source.look()
    assert isinstance(first, View)
    assert isinstance(second, View)
    assert second.report.summary.totals.total_ms < first.report.summary.totals.total_ms


def test_a_broken_file_is_a_problem_and_no_exception(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    Path(own_lake.files("gpu")[0].url).write_bytes(b"PAR1")
    look = source.look()
    assert isinstance(look, Problem)
    assert "not a whole Parquet file" in look.message
    assert look.hint


def test_a_lake_that_went_away_is_a_problem(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    assert isinstance(source.look(), View)
    shutil.rmtree(own_lake.root)
    assert isinstance(source.look(), Problem)
