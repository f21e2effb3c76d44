"""What the pages show: the report's numbers and the ledger behind them, read again when the lake has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.inputs import WindowLedger, load_whole, load_window_ledger
from analytics.language.languages import language
from analytics.report.model import Asked, Report, Whole, edition_of
from fallow.clock import SystemClock, Window
from fallow.errors import FallowError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from analytics.inputs import Inputs
    from analytics.language.languages import Language
    from dashboard.people import Person
    from dashboard.query import Query
    from fallow.clock import Clock
    from fallow.lake import LakeFile

ACTIONS = "action"
_TABLES = ("gpu", "process", "claim", "device", ACTIONS)
"""What a page rests on: a new file in any of them makes a new view."""

_LOOK_EVERY_MS = 2_000
"""Listing a lake's files takes a tenth of a second for a large fleet: not more often than this."""

_LEDGER = ("ledger",)
_WINDOWS, _VIEWS = 6, 48
_PATIENCE_S = 60
"""How long a reader waits for somebody else's reading of the lake before they are told so."""


@dataclass(frozen=True, eq=False)
class View:
    """What one reader sees of one version of the lake. Two views are equal only if they are the same.

    `report` and `part` (the ledger) are of the scope, `whole` is of the whole window. `names` has the pools, models and teams
    that can be chosen. `as_of_ms` is the end of the newest row of the lake, `version` changes with the lake.
    """

    query: Query
    report: Report
    part: WindowLedger
    whole: Whole
    language: Language
    zone: tzinfo
    as_of_ms: int
    version: str
    names: dict[str, tuple[str, ...]]
    reader: Person

    def say(self, text: str) -> str:
        """The text in the reader's language."""
        return self.language.say(text)


@dataclass(frozen=True, eq=False)
class Problem:
    """Why there is nothing to show, and what to do about it."""

    message: str
    hint: str


class Source:
    """Hands out views. Safe to ask from many threads: one reads the lake, the others wait for it."""

    def __init__(self, open_inputs: Callable[[], Inputs], clock: Clock | None = None) -> None:
        self._open = open_inputs
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._files: dict[str, tuple[LakeFile, ...]] = {}
        self._looked_ms: int | None = None
        self._version = 0
        self._kept: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def look(self, query: Query, reader: Person) -> View | Problem:
        """What the query asks for, as far as the reader may see it, or what stands in its way."""
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return Problem("the lake is being read for somebody else, and it takes long", "look again in a minute")
        try:
            return self._view(query, reader)
        except FallowError as error:
            return Problem(error.message, error.hint)
        finally:
            self._lock.release()

    def version(self) -> str:
        """What changes with the lake; raises LakeError."""
        with self._lock:
            return self._now(self._open())

    def forget(self) -> None:
        """Looks at the lake again at the next question: somebody has just written to it."""
        with self._lock:
            self._looked_ms = None

    def _now(self, inputs: Inputs) -> str:
        now_ms = self._clock.now_ms()
        if self._looked_ms is None or not 0 <= now_ms - self._looked_ms < _LOOK_EVERY_MS:
            files = {table: tuple(inputs.lake.files(table)) for table in _TABLES}
            if files != self._files:
                self._let_go(files)
                self._files, self._version = files, self._version + 1
            self._looked_ms = now_ms
        return str(self._version)

    def _let_go(self, files: dict[str, tuple[LakeFile, ...]]) -> None:
        """Of what is kept, what has changed: after somebody's action the ledger and what the rules found stay."""
        changed = {table for table in _TABLES if files[table] != self._files.get(table)}
        if changed != {ACTIONS}:
            self._kept.clear()
            return
        for key in [key for key in self._kept if key[0] in ("view", "asked")]:
            del self._kept[key]
        for key, kept in self._kept.items():
            if key[0] == "whole":
                kept.forget_actions()

    def _view(self, query: Query, reader: Person) -> View:
        inputs = self._open()
        version = self._now(inputs)
        seen = query if reader.team is None else query.but(team=reader.team)
        asked = ("asked", seen, reader)
        if asked not in self._kept:
            # what a page is about, and how it is sorted, changes nothing of the view itself
            key = ("view", seen.on_every_page, reader)
            if key not in self._kept:
                self._keep(key, self._make(inputs, seen.on_every_page, reader, version), _VIEWS)
            self._kept.move_to_end(key)
            self._keep(asked, replace(self._kept[key], query=seen), 2 * _VIEWS)
        self._kept.move_to_end(asked)
        view: View = self._kept[asked]
        return view

    def _make(self, inputs: Inputs, query: Query, reader: Person, version: str) -> View:
        whole, newest_ms = self._whole(inputs, query)
        settings = inputs.settings
        speaks = language(
            query.lang or settings.text("report.language"), query.zone or settings.text("report.timezone")
        )
        part = whole.part(query.scope)
        report = edition_of(whole, Asked(None, query.scope, speaks.zone), part)
        return View(
            query=query,
            report=report,
            part=part,
            whole=whole,
            language=speaks,
            zone=speaks.zone,
            as_of_ms=newest_ms,
            version=version,
            names=_names(whole, reader),
            reader=reader,
        )

    def _whole(self, inputs: Inputs, query: Query) -> tuple[Whole, int]:
        """The window before anybody narrows it, and the end of the newest row of the lake."""
        if _LEDGER not in self._kept:
            self._kept[_LEDGER] = load_whole(inputs)
        ledger = self._kept[_LEDGER]
        newest = ledger.stretches.select(pl.col("end").max()).item()
        window = query.window(int(newest or 0))
        if inputs.window != Window(None, None) and not (query.span or query.since or query.until):
            window = inputs.window
        key = ("whole", window)
        if key not in self._kept:
            own = replace(inputs, window=window)
            self._keep(key, Whole(own, load_window_ledger(own, whole=ledger)), _WINDOWS)
        self._kept.move_to_end(key)
        return self._kept[key], int(newest or 0)

    def _keep(self, key: tuple[Any, ...], value: Any, most: int) -> None:
        self._kept[key] = value
        of_kind = [each for each in self._kept if each[0] == key[0]]
        for each in of_kind[:-most]:
            del self._kept[each]


def _names(whole: Whole, reader: Person) -> dict[str, tuple[str, ...]]:
    """What can be chosen; somebody who may see one team has no other to choose."""
    gpus = whole.ledger.whole.stretches["gpu"].unique().sort().to_list()
    inventory = whole.inventory
    teams = [reader.team] if reader.team is not None else sorted(whole.money.owners.teams())
    return {
        "pool": tuple(sorted({inventory.pool(gpu) for gpu in gpus})),
        "model": tuple(sorted({inventory.model(gpu) for gpu in gpus})),
        "team": tuple(teams),
    }
