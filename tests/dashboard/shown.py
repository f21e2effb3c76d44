"""Sites whose commands and pages are compared, and what their pages show."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask.testing import FlaskClient

from analytics.simulation import SimulatedFleet
from dashboard.access.people import Reader
from fallow.cli import main
from fallow.schema import STATES
from tests.dashboard.conftest import components, hints, links, page, words
from tests.dashboard.sites import ADMINISTRATOR, UNTIL_MS, Site, configured, simulated
from tests.lakes import made_lake
from tests.ledger.rows import load
from tests.made_once import made_once


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

    @property
    def heads(self) -> list[str]:
        """The titles of the columns of its tables: a table of further rows has those of the first."""
        return [each.text for each in self.all_of("Table")[0].all("scope", "col")]

    def hints(self, name: str) -> list[list[str]]:
        """The lines that a chart shows under the pointer, place after place."""
        return hints(self.tree, name)

    def facts(self) -> dict[str, str]:
        """Return the terms with their descriptions; of a repeated term, the first, which the heading has."""
        found = {}
        for each in components(self.tree):
            children = each["props"].get("children")
            if each["type"] == "Div" and isinstance(children, list) and len(children) == 2:  # a pair
                kinds = [child.get("type") if isinstance(child, dict) else None for child in children]
                if kinds == ["Dt", "Dd"]:
                    found.setdefault(Shown(children[0]).text, Shown(children[1]).text)
        return found

    @property
    def hrefs(self) -> list[str]:
        return links(self.tree)


class NumbersSite(Site):
    """One lake under one config file: what its commands print, and its pages."""

    @cached_property
    def told(self) -> Told:
        return Told(self.config, self.inputs().settings.text("money.currency"))

    @cached_property
    def _kept(self) -> dict[tuple[str, str, Reader], Any]:
        return {}

    @cached_property
    def _clients(self) -> dict[Reader, FlaskClient]:
        return {}

    def client(self, reader: Reader | None = None) -> FlaskClient:
        who = reader or self.reader
        if who not in self._clients:
            self._clients[who] = super().client(who)
        return self._clients[who]

    def shown(self, path: str, asked: Question, reader: Reader = ADMINISTRATOR, **more: str) -> Shown:
        """A page about a question as the browser gets it; each is asked for once."""
        key = (path, asked.search(**more), reader)
        if key not in self._kept:
            self._kept[key] = page(self.client(reader), *key[:2])
        return Shown(self._kept[key])


HOLE = ("sim-a100-01", "2025-11-15")
"""The host of which the lake has no row on that day, and the pool `train-old` with it."""


@cache
def numbers_site(base: Path, prices: str = "priced") -> NumbersSite:
    """Twelve GPUs over nine days; one host was not observed for a day.

    `priced`: every model has a price; `partly`: one pool alone; else none, as the catalog's prices are in a currency
    without an exchange rate.
    """

    def fill(folder: Path) -> None:
        simulated(folder, SimulatedFleet(until_ms=UNTIL_MS, gpus=12, days=9, seed=5, interval_ms=300_000))
        host, day = HOLE
        for table in ("gpu", "process", "host", "agent"):
            shutil.rmtree(folder / "lake" / table / f"date={day}" / f"host={host}")
        (folder / "some.csv").write_text("model,pool,hourly,currency\n,train,2.5,EUR\n")
        of_lake, euros = made_lake(folder / "lake"), 'currency = "EUR"\n'
        configured(folder, of_lake, "owners", name="unpriced.toml", more=euros)
        configured(folder, of_lake, "owners", name="partly.toml", more=f'{euros}prices = "{folder}/some.csv"\n')
        load(of_lake)  # its ledger is kept

    folder = made_once(base, "numbers", fill)
    return NumbersSite(made_lake(folder / "lake"), folder / ("fallow.toml" if prices == "priced" else f"{prices}.toml"))


@cache
def long_site(base: Path) -> NumbersSite:
    """Eight GPUs over four weeks: long enough for what takes weeks to say."""
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=8, days=29, seed=5, interval_ms=900_000)
    folder = made_once(base, "long", lambda folder: simulated(folder, fleet))
    return NumbersSite(made_lake(folder / "lake"), folder / "fallow.toml")


HOUR_MS = 3_600_000
UNUSED = ("free", "reserved", "held", "stalled")
IDLE = ("stalled", "held", "reserved")
GIVEN = ("active", "low", *IDLE)
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Question:
    """A window and a scope, as an address and as flags; `asked`: any of `since`, `until`, `pool`, `model`, `team`."""

    name: str
    asked: Mapping[str, str] = field(default_factory=dict)

    def but(self, **asked: str) -> Question:
        """The same with other values."""
        return Question(self.name, {**self.asked, **asked})

    def search(self, **more: str) -> str:
        """The `?...` of an address: without a window it is all that the lake has, as for the commands."""
        span = {} if {"since", "until"} & self.asked.keys() else {"span": "all"}
        return "?" + urlencode(span | dict(self.asked) | more)

    def flags(self, *names: str) -> list[str]:
        """The flags of a command, those of `names` where there are any."""
        return [
            each for name, value in self.asked.items() if not names or name in names for each in (f"--{name}", value)
        ]

    @property
    def is_personal(self) -> bool:
        """Whether it is about people."""
        return "team" in self.asked


class Told:
    """What the commands print with one config file; each is run once."""

    def __init__(self, config: Path, currency: str) -> None:
        self.config = config
        self.currency = currency
        self._kept: dict[tuple[str, ...], str] = {}

    def printed(self, *arguments: str) -> str:
        """The standard output of a command that has to succeed."""
        if arguments not in self._kept:
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                assert main([*arguments, "--config", str(self.config)]) == 0, arguments
            self._kept[arguments] = out.getvalue()
        return self._kept[arguments]

    def ledger(self, asked: Question) -> dict[str, Any]:
        """`fallow ledger --json`."""
        return dict(json.loads(self.printed("ledger", "--json", *asked.flags())))

    def printed_ledger(self, asked: Question) -> Spent | None:
        """The GPU time of a window by state; None where the command finds nothing in it."""
        with contextlib.suppress(AssertionError):
            return Spent.of(self.ledger(asked)["gpu_hours"])
        return None

    def groups(self, asked: Question, by: str) -> dict[str, dict[str, Any]]:
        """The rows of `fallow ledger --by ... --json` by their label."""
        told = json.loads(self.printed("ledger", "--json", "--by", by, *asked.flags()))
        return {row["label"]: row for row in told["groups"]["rows"]}

    def findings(self, asked: Question) -> dict[str, Any]:
        """`fallow findings --json`, which knows windows and teams and neither pools nor models."""
        return dict(json.loads(self.printed("findings", "--json", *asked.flags("since", "until", "team"))))

    def recommendations(self, asked: Question) -> dict[str, Any]:
        """`fallow recommendations --json`, which knows no models."""
        return dict(
            json.loads(self.printed("recommendations", "--json", *asked.flags("since", "until", "pool", "team")))
        )

    def report(self, asked: Question) -> dict[str, Any]:
        """`fallow report --format json`."""
        return dict(json.loads(self.printed("report", "--format", "json", *asked.flags())))


def ms(hours: float) -> int:
    """The whole milliseconds that hours were made of, so that sums of them are exact."""
    return round(hours * HOUR_MS)


def written(milliseconds: float) -> str:
    """GPU-hours as pages write them."""
    return f"{milliseconds / HOUR_MS:,.1f}"


def share(part: float, whole: float, digits: int = 1) -> str:
    """A share as pages write it; of nothing it is unknown."""
    return f"{100 * (part / whole):.{digits}f} %" if whole else UNKNOWN


def percent(ratio: float | None, digits: int = 1) -> str:
    """The same of a ratio that a command prints."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.{digits}f} %"


def money(amount: float | None, currency: str) -> str:
    """An amount as pages write it."""
    return UNKNOWN if amount is None else f"{amount:,.2f} {currency}"


@dataclass(frozen=True)
class Spent:
    """GPU time by state in whole milliseconds, from a command's `gpu_hours`."""

    state_ms: Mapping[str, int]

    @classmethod
    def of(cls, gpu_hours: Mapping[str, float]) -> Spent:
        """From the JSON of a command."""
        return cls({state: ms(hours) for state, hours in gpu_hours.items() if state != "total"})

    @classmethod
    def of_account(cls, row: Mapping[str, float]) -> Spent:
        """From a row of `fallow ledger --by`."""
        return cls({state: ms(row[f"{state}_gpu_hours"]) for state in STATES})

    @classmethod
    def together(cls, parts: Iterable[Spent]) -> Spent:
        """The sum."""
        sums: dict[str, int] = {}
        for part in parts:
            for state, spent_ms in part.state_ms.items():
                sums[state] = sums.get(state, 0) + spent_ms
        return cls(sums)

    @cached_property
    def total_ms(self) -> int:
        """All of it."""
        return sum(self.state_ms.values())

    @cached_property
    def observed_ms(self) -> int:
        """The observed time."""
        return self.total_ms - self.state_ms["unknown"]

    def sum(self, *states: str) -> int:
        """That of some states."""
        return sum(self.state_ms[state] for state in states)
