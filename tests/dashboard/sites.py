"""A site with owners and settings over a simulated lake, and its pages as one reader gets them, without a browser."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plotly.utils import PlotlyJSONEncoder

from analytics.simulation import SimulatedFleet, write_fleet
from analytics.tables.palette import palette
from analytics.window import Inputs, open_inputs
from dashboard.access.people import ADMIN, Reader
from dashboard.app import build_app
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import View
from tests.lakes import made_lake
from tests.made_once import made_once

if TYPE_CHECKING:
    from pathlib import Path

    from flask import Request
    from flask.testing import FlaskClient

    from fallow.lake import Lake

UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z, a Thursday."""

OWNERS = (
    "kind,name,team,organisation,quota_gpus\n"
    "user,farid,vision,research,4\nuser,quinn,vision,research,\nuser,hiro,language,products,2\naccount,acme,language,products,\n"
)
PRICES = "model,pool,hourly,currency,date,source\nNVIDIA H100 80GB HBM3,train,2.5,USD,2025-01-02,order 7\n"
ADMINISTRATOR = Reader("root", ADMIN)


class As:
    """Whoever asks is this person."""

    way_out = ""

    def __init__(self, who: Reader) -> None:
        self.who = who

    def admit(self, request: Request) -> Reader:  # noqa: ARG002  # a way in asks for it
        return self.who


@dataclass(frozen=True)
class Site:
    """A lake and a config file."""

    lake: Lake
    config: Path

    def inputs(self) -> Inputs:
        return open_inputs(argparse.Namespace(lake=None, since=None, until=None, config=str(self.config)))

    @cached_property
    def source(self) -> LakeSource:
        """Of all its pages: lake and settings stay as they are."""
        return LakeSource(self.inputs)

    def view(self, search: str = "", reader: Reader = ADMINISTRATOR) -> View:
        self.source.forget()
        found = self.source.look(Query.parse(search), reader)
        assert isinstance(found, View), found
        return found

    def client(self, reader: Reader = ADMINISTRATOR) -> FlaskClient:
        """The whole app, with this person as whoever asks."""
        self.source.forget()
        client: FlaskClient = build_app(self.source, As(reader)).server.test_client()
        return client


def make_site(folder: Path, *, days: int = 4, settings: str = "") -> Site:
    """Ten GPUs, two teams, one price of the site's own; `settings` is more TOML. Sites of as many days have one lake: it is only read."""

    def fill(shared: Path) -> None:
        write_fleet(made_lake(shared / "lake"), SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=days, seed=3))

    lake = made_lake(made_once(folder.parent, f"site-{days}", fill) / "lake")
    (folder / "owners.csv").write_text(OWNERS)
    (folder / "prices.csv").write_text(PRICES)
    config = folder / "fallow.toml"
    config.write_text(
        f'[lake]\npath = "{lake.root}"\n[money]\nowners = "{folder}/owners.csv"\nprices = "{folder}/prices.csv"\n{settings}'
    )
    return Site(lake, config)


def content(page: Any, view: View, scheme: str = "light") -> Any:
    """What a page shows, as the browser gets it."""
    return json.loads(json.dumps(page.content(view, palette(scheme)), cls=PlotlyJSONEncoder))
