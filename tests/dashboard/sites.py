"""A larger simulated site with its plan's owners and prices: for pages about people, cards and capacity."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.simulation import SimulatedFleet, owners_csv, prices_csv, write_fleet
from analytics.window import Inputs, load_whole, open_inputs
from dashboard.access.people import VIEWER, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from tests.dashboard.conftest import UNTIL_MS
from tests.dashboard.sites import As
from tests.lakes import made_lake
from tests.made_once import made_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flask.testing import FlaskClient

READER = Reader("reader", VIEWER)
LANGUAGE = Reader("lena", VIEWER, "language")
"""A reader who may see one of the teams."""

WEEK = "?since=2025-11-13&until=2025-11-19"
WINDOW = ("--since", "2025-11-13", "--until", "2025-11-19")


@dataclass(frozen=True)
class Planned:
    """The site's config file, and one source for all views of its lake."""

    config: str
    source: LakeSource

    def view(self, search: str = WEEK, reader: Reader = READER) -> View:
        """What a reader sees of an address."""
        found = self.source.look(Query.parse(search), reader)
        assert isinstance(found, View), found
        return found

    def client(self, reader: Reader = READER) -> FlaskClient:
        """The pages as a reader is served them."""
        client: FlaskClient = build_app(self.source, As(reader)).server.test_client()
        return client


@cache
def planned_site(base: Path) -> Planned:
    """Twenty-four GPUs over two weeks and a day, made once; tests read it and never write to it."""
    config = made_once(base, "planned", _fill) / "fallow.toml"
    return Planned(str(config), LakeSource(partial(_opened, config)))


def asking_site(site: Planned, folder: Path, requests: Sequence[str]) -> Planned:
    """The same site, whose teams ask for GPUs."""
    table = folder / "requests.csv"
    table.write_text("\n".join(("team,gpus,card,memory_gib,from,until,priority,name", *requests)), encoding="utf-8")
    return with_plan(site, folder, f"requests = {json.dumps(str(table))}")


def with_plan(site: Planned, folder: Path, setting: str) -> Planned:
    """The same site with one setting of the section `plan`."""
    return _set_beside(site, folder, f"[plan]\n{setting}\n")


def offering_site(site: Planned, folder: Path, offers: str) -> Planned:
    """The same site with a table of offers."""
    table = folder / "offers.csv"
    table.write_text(offers, encoding="utf-8")
    return _set_beside(site, folder, f"offers = {json.dumps(str(table))}\n")  # its settings end with those of money


def _set_beside(site: Planned, folder: Path, lines: str) -> Planned:
    config = folder / "fallow.toml"
    config.write_text(Path(site.config).read_text(encoding="utf-8") + lines, encoding="utf-8")
    return Planned(str(config), LakeSource(partial(_opened, config)))


def _fill(folder: Path) -> None:
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=24, days=15, seed=5)
    lake = made_lake(folder / "lake")
    write_fleet(lake, fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet), encoding="utf-8")
    (folder / "prices.csv").write_text(prices_csv(fleet), encoding="utf-8")
    tables = [f'{name} = {json.dumps(str(folder / name))[:-1]}.csv"' for name in ("owners", "prices")]
    config = folder / "fallow.toml"
    config.write_text(
        "\n".join(["[lake]", f"path = {json.dumps(lake.root)}", "[money]", *tables, ""]), encoding="utf-8"
    )
    load_whole(_opened(config))  # its ledger is kept for whoever reads it next


def _opened(config: Path) -> Inputs:
    return open_inputs(argparse.Namespace(lake=None, since=None, until=None, config=str(config)))
