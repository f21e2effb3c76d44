"""The small lake with its owners: views of readers who see everything, and of those who see one team."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from dash.development.base_component import Component

from analytics.simulation import SimulatedFleet, owners_csv
from dashboard.access.people import ADMIN, VIEWER, Reader
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from tests.dashboard.conftest import UNTIL_MS, inputs_of
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl

    from fallow.lake import Lake

ADA = Reader("ada", ADMIN)
HIRO = Reader("hiro", VIEWER, "vision")


@dataclass(frozen=True)
class Teams:
    """A source, and what readers see by it."""

    source: LakeSource

    def view(self, search: str = "", reader: Reader = ADA) -> View:
        """What an address shows to a reader."""
        found = self.source.look(Query.parse(search), reader)
        assert isinstance(found, View), found
        return found

    def spans(self, reader: Reader = ADA) -> pl.DataFrame:
        """The ledger as far as it is a reader's."""
        return self.view("", reader).part.inside.stretches


@pytest.fixture(scope="module")
def teams(fleet_lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Teams:
    """The ten GPUs of the small lake, with the simulation's own owners file."""
    return teams_of(fleet_lake.root, tmp_path_factory.getbasetemp())


@cache
def teams_of(lake_root: str, base: Path) -> Teams:
    folder = base / "teams"
    folder.mkdir()
    (folder / "owners.csv").write_text(
        owners_csv(SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=2, seed=3)), encoding="utf-8"
    )
    settings = folder / "fallow.toml"
    settings.write_text(f"[money]\nowners = {json.dumps(str(folder / 'owners.csv'))}\n", encoding="utf-8")
    return Teams(LakeSource(lambda: inputs_of(made_lake(lake_root), config=str(settings))))


def parts(tree: Any) -> Iterator[Component]:
    """Every component of a page, from the outside in."""
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from parts(each)
    elif isinstance(tree, Component):
        yield tree
        yield from parts(getattr(tree, "children", None))


def text_of(tree: Any) -> str:
    """All words of a page."""
    if isinstance(tree, list | tuple):
        return " ".join(text_of(each) for each in tree)
    if isinstance(tree, Component):
        return text_of(getattr(tree, "children", None))
    return "" if tree is None else str(tree)


def one(tree: Any, wanted: str) -> Any:
    """The component of that id."""
    return next(each for each in parts(tree) if getattr(each, "id", None) == wanted)


def links(tree: Any) -> list[str]:
    """Where a page leads."""
    return [each.href for each in parts(tree) if getattr(each, "href", None)]
