"""Sites over simulated lakes: their settings, and their pages as one reader gets them, without a browser."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from flask import Request
from flask.testing import FlaskClient
from plotly.utils import PlotlyJSONEncoder

from analytics.simulation import SimulatedFleet, owners_csv, prices_csv, write_fleet
from analytics.tables.palette import palette
from analytics.window import Inputs, open_inputs
from dashboard.access.people import ADMIN, VIEWER, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.lake import Lake
from tests.lakes import made_lake
from tests.ledger.rows import load
from tests.made_once import made_once

UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z, a Thursday."""

OWNERS = (
    "kind,name,team,organisation,quota_gpus\n"
    "user,farid,vision,research,4\nuser,quinn,vision,research,\n"
    "user,hiro,language,products,2\naccount,acme,language,products,\n"
)
PRICES = "model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,train,2.5,USD,2025-01-02,order 7\n"
ADMINISTRATOR = Reader("root", ADMIN)
READER = Reader("reader", VIEWER)
LANGUAGE = Reader("lena", VIEWER, "language")
"""A reader who may see one of the teams."""

WEEK = "?since=2025-11-13&until=2025-11-19"
WINDOW = ("--since", "2025-11-13", "--until", "2025-11-19")
PATIENCE_S = 600.0
"""How long a page may take on a machine that has other work to do."""


class As:
    """An access whose reader is always this person."""

    way_out = ""

    def __init__(self, who: Reader) -> None:
        self.who = who

    def admit(self, request: Request) -> Reader:  # noqa: ARG002  # a way in asks for it
        return self.who


def inputs_of(lake: Lake, since: str | None = None, until: str | None = None, config: str | None = None) -> Inputs:
    return open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=config))


@dataclass(frozen=True)
class Site:
    """A lake and a config file; `search` and `reader` are the defaults of a test's request."""

    lake: Lake
    config: Path
    search: str = ""
    reader: Reader = ADMINISTRATOR

    def inputs(self) -> Inputs:
        return inputs_of(self.lake, config=str(self.config))

    @cached_property
    def source(self) -> LakeSource:
        """Of all its pages: lake and settings stay as they are."""
        return LakeSource(self.inputs, patience_s=PATIENCE_S)

    def view(self, search: str | None = None, reader: Reader | None = None) -> View:
        self.source.forget()
        found = self.source.look(Query.parse(self.search if search is None else search), reader or self.reader)
        assert isinstance(found, View), found
        return found

    def spans(self, reader: Reader | None = None) -> pl.DataFrame:
        """The ledger as far as it is a reader's."""
        return self.view("", reader).part.inside.segments

    def client(self, reader: Reader | None = None) -> FlaskClient:
        """Return a client of the whole app, with this person as the reader."""
        self.source.forget()
        client: FlaskClient = build_app(self.source, As(reader or self.reader)).server.test_client()
        return client

    def beside(self, folder: Path, lines: str) -> Site:
        """The same site with more lines at the end of its settings, which are those of money."""
        config = folder / "fallow.toml"
        config.write_text(self.config.read_text() + lines)
        return replace(self, config=config)

    def asking(self, folder: Path, requests: Sequence[str]) -> Site:
        """The same site, whose teams ask for GPUs."""
        table = folder / "requests.csv"
        table.write_text("\n".join(("team,gpus,card,memory_gib,from,until,priority,name", *requests)))
        return self.beside(folder, f"[plan]\nrequests = {json.dumps(str(table))}\n")


def fleet_lake_of(base: Path, days: int) -> Lake:
    """Ten GPUs over some days, made once: tests read it and never write to it."""

    def fill(folder: Path) -> None:
        lake = made_lake(folder / "lake")
        write_fleet(lake, SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=days, seed=3))
        load(lake)  # its ledger is kept

    return made_lake(made_once(base, f"fleet-{days}", fill) / "lake")


def make_site(folder: Path, *, days: int = 4, settings: str = "") -> Site:
    """Ten GPUs, two teams, one price of the site's own; `settings` is more TOML."""
    lake = fleet_lake_of(folder.parent, days)
    (folder / "owners.csv").write_text(OWNERS)
    (folder / "prices.csv").write_text(PRICES)
    return Site(lake, configured(folder, lake, "owners", "prices", more=settings))


def simulated(folder: Path, fleet: SimulatedFleet) -> Site:
    """A fleet with the simulation's own owners and prices."""
    lake = made_lake(folder / "lake")
    write_fleet(lake, fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet))
    (folder / "prices.csv").write_text(prices_csv(fleet))
    return Site(lake, configured(folder, lake, "owners", "prices"))


def configured(folder: Path, lake: Lake, *tables: str, name: str = "fallow.toml", more: str = "") -> Path:
    """A config file that names the lake and the tables beside it."""
    named = [f'{table} = {json.dumps(str(folder / table))[:-1]}.csv"' for table in tables]
    (folder / name).write_text("\n".join(["[lake]", f"path = {json.dumps(lake.root)}", "[money]", *named, more]))
    return folder / name


def planned_site(base: Path) -> Site:
    """Twenty-four GPUs over two weeks and a day, made once; tests read it and never write to it."""

    def fill(folder: Path) -> None:
        fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=24, days=15, seed=5, interval_ms=900_000)
        load(simulated(folder, fleet).lake)  # its ledger is kept

    folder = made_once(base, "planned", fill)
    return Site(made_lake(folder / "lake"), folder / "fallow.toml", WEEK, READER)


def content(page: Any, view: View, scheme: str = "light") -> Any:
    """What a page shows, as the browser gets it."""
    return json.loads(json.dumps(page.content(view, palette(scheme)), cls=PlotlyJSONEncoder))
