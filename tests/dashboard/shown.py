"""Sites whose commands and pages are compared, and what their pages show."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from analytics.simulation import SimulatedFleet, owners_csv, prices_csv, write_fleet
from analytics.window import Inputs, open_inputs
from dashboard.app import build_app
from dashboard.source import LakeSource
from tests.dashboard.conftest import UNTIL_MS, components, page, words
from tests.dashboard.sites import ADMINISTRATOR, As
from tests.dashboard.told import Question, Told
from tests.lakes import made_lake
from tests.made_once import made_once

if TYPE_CHECKING:
    from pathlib import Path

    from flask.testing import FlaskClient

    from dashboard.access.people import Reader

PATIENCE_S = 600.0
"""How long a page may take on a machine that has other work to do: numbers are compared here, no times."""


class Anybody(As):
    """Whoever asks is this person, who cannot sign out."""

    way_out = ""


class Pages:
    """The pages of a source, asked by the callback that a browser asks by."""

    def __init__(self, source: LakeSource) -> None:
        self.source = source
        self._clients: dict[Reader, FlaskClient] = {}
        self._kept: dict[tuple[str, str, Reader], Any] = {}

    def client(self, reader: Reader = ADMINISTRATOR) -> FlaskClient:
        """The whole app as a reader is served it."""
        if reader not in self._clients:
            self._clients[reader] = build_app(self.source, Anybody(reader)).server.test_client()
        return self._clients[reader]

    def page(self, path: str, search: str, reader: Reader = ADMINISTRATOR) -> Shown:
        """A page as the browser gets it."""
        key = (path, search, reader)
        if key not in self._kept:
            self._kept[key] = Shown(page(self.client(reader), path, search))
        return Shown(self._kept[key].tree)


@dataclass(frozen=True)
class Shown:
    """A page, or a part of one."""

    tree: Any

    @property
    def text(self) -> str:
        """Its words, with ordinary spaces."""
        return " ".join(words(self.tree).split())

    def all(self, name: str, value: Any) -> list[Shown]:
        """Every component with that property."""
        return [Shown(each) for each in components(self.tree) if each["props"].get(name) == value]

    def all_of(self, kind: str) -> list[Shown]:
        """Every component of a kind."""
        return [Shown(each) for each in components(self.tree) if each["type"] == kind]

    def panel(self, name: str) -> Shown:
        """The panel of that name."""
        return next(
            Shown(each)
            for each in components(self.tree)
            if each["type"] == "Section" and each["props"].get("aria-labelledby") == f"{name}-title"
        )

    def has_panel(self, name: str) -> bool:
        """Whether there is one."""
        return bool(self.all("aria-labelledby", f"{name}-title"))

    @property
    def finding(self) -> str:
        """The one line under a panel's question."""
        return self.all("className", "finding")[0].text

    def rows(self, column: str = "Tr") -> list[list[str]]:
        """The rows of all its tables, heads left out, by the words of their cells."""
        found = []
        for row in (each for each in components(self.tree) if each["type"] == column):
            cells = [each for each in row["props"]["children"] if isinstance(each, dict)]
            if not all(cell["type"] == "Th" and cell["props"].get("scope") == "col" for cell in cells):
                found.append([Shown(cell).text for cell in cells])
        return found

    def figure(self, name: str) -> dict[str, Any]:
        """The figure of a graph."""
        found = next(each for each in components(self.tree) if each["props"].get("id") == name)
        return dict(found["props"]["figure"])

    def facts(self) -> dict[str, str]:
        """Terms and what is said of them."""
        found = {}
        for each in components(self.tree):
            children = each["props"].get("children")
            if each["type"] == "Div" and isinstance(children, list) and len(children) == 2:  # a pair
                kinds = [child.get("type") if isinstance(child, dict) else None for child in children]
                if kinds == ["Dt", "Dd"]:
                    found[Shown(children[0]).text] = Shown(children[1]).text
        return found

    @property
    def hrefs(self) -> list[str]:
        """Where it leads."""
        return [each["props"]["href"] for each in components(self.tree) if "href" in each["props"]]


@dataclass(frozen=True)
class Site:
    """One lake under one config file: what its commands print, and its pages."""

    told: Told
    pages: Pages

    def shown(self, path: str, asked: Question, reader: Reader = ADMINISTRATOR, **more: str) -> Shown:
        """A page about a question."""
        return self.pages.page(path, asked.search(**more), reader)


HOLE = ("sim-a100-01", "2025-11-15")
"""The host of which the lake has no row on that day, and the pool `train-old` with it."""


@cache
def priced_site(base: Path) -> Site:
    """Twelve GPUs over nine days, every model with a price of its own; nobody looked at one host for a day."""
    return _site(_numbers(base) / "fallow.toml", "USD")


@cache
def unpriced_site(base: Path) -> Site:
    """The same lake where nothing has a price: the catalog's are in another currency, which nobody exchanges."""
    return _site(_numbers(base) / "unpriced.toml", "EUR")


@cache
def partly_priced_site(base: Path) -> Site:
    """The same lake where one pool has a price."""
    return _site(_numbers(base) / "some.toml", "EUR")


@cache
def long_site(base: Path) -> Site:
    """Eight GPUs over four weeks: long enough for what takes weeks to say."""
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=8, days=29, seed=5, interval_ms=900_000)
    return _site(made_once(base, "long", lambda folder: _fill(folder, fleet)) / "fallow.toml", "USD")


def _numbers(base: Path) -> Path:
    """The folder of the sites whose lake has a hole."""

    def fill(folder: Path) -> None:
        _fill(folder, SimulatedFleet(until_ms=UNTIL_MS, gpus=12, days=9, seed=5, interval_ms=60_000))
        host, day = HOLE
        for table in ("gpu", "process", "host", "agent"):
            shutil.rmtree(folder / "lake" / table / f"date={day}" / f"host={host}")
        (folder / "some.csv").write_text("model,pool,hourly,currency\n,train,2.5,EUR\n", encoding="utf-8")
        _configure(folder, "unpriced.toml", 'currency = "EUR"')
        _configure(folder, "some.toml", 'currency = "EUR"', f'prices = "{folder}/some.csv"')

    return made_once(base, "numbers", fill)


def _fill(folder: Path, fleet: SimulatedFleet) -> None:
    write_fleet(made_lake(folder / "lake"), fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet), encoding="utf-8")
    (folder / "prices.csv").write_text(prices_csv(fleet), encoding="utf-8")
    _configure(folder, "fallow.toml", f'prices = "{folder}/prices.csv"')


def _configure(folder: Path, name: str, *money: str) -> None:
    lines = ["[lake]", f'path = "{folder}/lake"', "[money]", f'owners = "{folder}/owners.csv"', *money, ""]
    (folder / name).write_text("\n".join(lines), encoding="utf-8")


def _site(config: Path, currency: str) -> Site:
    def opened() -> Inputs:
        return open_inputs(argparse.Namespace(lake=None, since=None, until=None, config=str(config)))

    return Site(Told(config, currency), Pages(LakeSource(opened, patience_s=PATIENCE_S)))
