"""The view is read once per version of the lake."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dashboard.people import ADMIN, VIEWER, Person
from dashboard.query import Query
from dashboard.source import Problem, Source, View
from fallow.lake import Lake
from tests.dashboard.conftest import inputs_of

if TYPE_CHECKING:
    from fallow.clock import Clock


ADA = Person("ada", ADMIN)


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


def look(source: Source, query: Query | None = None, reader: Person = ADA) -> View | Problem:
    return source.look(query or Query(), reader)


def test_the_same_question_gives_the_same_view(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    assert look(source) is look(source)
    assert look(source, Query(pool="legacy")) is not look(source)


def test_a_new_file_gives_a_new_view_and_another_version(own_lake: Lake) -> None:
    clock = Hands()
    holds: Clock = clock
    source = Source(lambda: inputs_of(own_lake), holds)
    first, version = look(source), source.version()
    own_lake.delete(own_lake.files("gpu")[-1])
    assert look(source) is first  # the lake is not listed for every click
    clock.time_ms += 2_000
    second = look(source)
    assert isinstance(first, View)
    assert isinstance(second, View)
    assert second.report.summary.totals.total_ms < first.report.summary.totals.total_ms
    assert source.version() == second.version != version == first.version


def test_whoever_wrote_to_the_lake_sees_it_at_once(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    first = look(source)
    own_lake.delete(own_lake.files("gpu")[-1])
    source.forget()
    assert look(source) is not first


def test_a_broken_file_is_a_problem_and_no_exception(own_lake: Lake) -> None:
    source = Source(lambda: inputs_of(own_lake), Hands())
    Path(own_lake.files("gpu")[0].url).write_bytes(b"PAR1")
    found = look(source)
    assert isinstance(found, Problem)
    assert "not a whole Parquet file" in found.message
    assert found.hint


def test_a_lake_that_went_away_is_a_problem(own_lake: Lake) -> None:
    clock = Hands()
    source = Source(lambda: inputs_of(own_lake), clock)
    assert isinstance(look(source), View)
    shutil.rmtree(own_lake.root)
    clock.time_ms += 2_000
    assert isinstance(look(source), Problem)


def test_whoever_may_see_one_team_gets_no_other(own_lake: Lake, tmp_path: Path) -> None:
    """Whatever they ask for: what they ask for of it is put aside before anything is read."""
    owners = tmp_path / "owners.csv"
    holders = [each.name for each in whole_view(own_lake).report.holders if each.name]
    owners.write_text(
        "kind,name,team\n" + "".join(f"user,{name},team{place % 2}\n" for place, name in enumerate(holders))
    )
    config = tmp_path / "fallow.toml"
    config.write_text(f'[money]\nowners = "{owners}"\n')
    source = Source(lambda: inputs_of(own_lake, config=str(config)), Hands())
    mine = {name for place, name in enumerate(holders) if place % 2}
    reader = Person("bob", VIEWER, "team1")
    for asked in (Query(span="all"), Query(span="all", team="team0")):
        found = look(source, asked, reader)
        assert isinstance(found, View)
        assert {each.name for each in found.report.holders} == mine
        assert found.names["team"] == ("team1",)
        assert found.query.team == "team1"
    nobody = look(source, Query(span="all"), Person("eve", VIEWER, "no such team"))
    assert isinstance(nobody, Problem)


def whole_view(lake: Lake) -> View:
    found = look(Source(lambda: inputs_of(lake), Hands()), Query(span="all"))
    assert isinstance(found, View)
    return found
