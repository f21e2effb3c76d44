"""All that is made of one version of the lake, for every reader and every window."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from analytics.decide.actions import load_actions
from analytics.decide.annotations import Annotation, load_annotations
from analytics.language.language import Language
from analytics.language.languages import language
from analytics.ledger.build import Ledger
from analytics.ledger.summary import data_end_ms
from analytics.money.window_money import open_owners, open_prices
from analytics.report.goals import open_goals
from analytics.report.model import Asked, Whole
from analytics.report.part_tables import all_known
from analytics.report.report import Report
from analytics.scope import Scope
from analytics.window import Inputs, load_whole, load_window_ledger
from dashboard.access.people import VIEWER, Reader
from dashboard.makers import Cache, Makers
from dashboard.query import Query
from dashboard.view import View
from fallow.clock import SystemClock, Window

_WINDOWS, _VIEWS, _PAGES = 64, 48, 64
"""At most, whatever memory there is; views and pages are those of one window."""


class _Window:
    """What all views of a window share. It fills itself as it is asked, which one thread does at a time (`turn`).

    Whatever is made of a window is kept here, so that it goes when the window goes; `keep` runs after each of it. `before` are
    the views of before somebody acted.
    """

    def __init__(self, whole: Whole, keep: Callable[[], None]) -> None:
        self.whole, self._keep = whole, keep
        self.turn = threading.Lock()
        self.before: dict[Hashable, View] = {}
        self.views: Cache[View] = Cache(_VIEWS, keep)
        self.pages: Cache[Any] = Cache(_PAGES, keep)

    def after_actions(self) -> _Window:
        """The same with what people did since."""
        after = _Window(self.whole.after_actions(), self._keep)
        after.turn = self.turn
        after.before = dict(list({**self.before, **self.views.items()}.items())[-_VIEWS:])
        return after

    def let_go(self) -> bool:
        """Forgets of what was made of it what was asked for the longest ago; whether there was any."""
        if self.before:
            self.before = {}
            return True
        return self.pages.let_go(_PAGES // 2) or self.views.let_go(_VIEWS // 2)


class LakeSnapshot:
    """One version of the lake: the ledger and what was made of it. Safe to ask from many threads."""

    def __init__(
        self,
        inputs: Inputs,
        ledger: Ledger,
        version: str,
        annotations: tuple[Annotation, ...],
        keep: Callable[[], None],
    ) -> None:
        self.inputs = inputs
        self.version = version
        self._annotations = annotations
        self._ledger = ledger
        self._keep = keep
        self._windows: Cache[_Window] = Cache(_WINDOWS, keep)
        self._names: Cache[dict[str, tuple[str, ...]]] = Cache(_VIEWS)
        self._making: Cache[View] = Cache(_VIEWS)

    @classmethod
    def read(cls, inputs: Inputs, version: str, keep: Callable[[], None]) -> LakeSnapshot:
        """That of the lake as it is; `keep` runs whenever something has been made of it.

        Raises LakeError and its kinds, and ConfigError for tables of prices, owners or goals.
        """
        # what cannot be read is known before the ledger is made for nothing, and before anybody is shown the new version
        load_actions(inputs.lake)
        annotations = load_annotations(inputs.lake)
        open_owners(inputs.settings)
        open_prices(inputs.settings)
        open_goals(inputs.settings)
        return cls(inputs, load_whole(inputs), version, annotations, keep)

    def after_actions(self, version: str) -> LakeSnapshot:
        """The same data after somebody acted on a finding or annotated: the ledger and what the rules found stay; raises LakeError."""
        load_actions(self.inputs.lake, strict=True)
        annotations = load_annotations(self.inputs.lake, strict=True)
        after = LakeSnapshot(self.inputs, self._ledger, version, annotations, self._keep)
        for key, window in self._windows.items().items():
            after._windows.of(key, window.after_actions)
        return after

    def begin(self, query: Query, reader: Reader, makers: Makers, *, by: str | None = None) -> Future[View]:
        """What the query asks for, as far as the reader may see it; where nobody has it, the makers make it for `by`.

        Its reader is `nobody`: it is the same for all of a team. What a page is about, and how it is sorted, changes nothing
        of the view: its query is what goes along on every page. Raises LakeError and its kinds, UsageError and TooManyError.
        """
        key = (seen_by(query, reader).on_every_page, nobody(reader))
        window = self._windows.find((self._named(query), False))
        view = None if window is None else window.views.find(key)
        if view is not None:
            there: Future[View] = Future()
            there.set_result(view)
            return there
        future = makers.begin(self._making, key, partial(self._view, *key), by)
        future.add_done_callback(lambda _: self._making.drop(key))  # it is kept with its window
        return future

    def let_go(self) -> bool:
        """Forgets the window that was asked for the longest ago with all that was made of it, of the last one only that.

        Whether there was any.
        """
        return self._windows.let_go() or any(window.let_go() for window in self._windows.items().values())

    def _view(self, query: Query, reader: Reader) -> View:
        window = self._window(self._named(query))
        return window.views.of(
            (query, reader), lambda: self._again(window, query, reader) or self._make(window, query, reader)
        )

    def _again(self, window: _Window, query: Query, reader: Reader) -> View | None:
        """The view of before somebody acted, with the findings as they stand now: the rest of it has not changed."""
        before = window.before.get((query, reader))
        if before is None:
            return None
        with window.turn:
            report = before.report.after_actions(window.whole).decided()
        return replace(
            before,
            report=report,
            version=self.version,
            made=window.pages,
            whole_of=self._whole_of,
            annotations=self._annotations,
        )

    def _whole_of(self, window: Window) -> Whole:
        return self._window(window, or_empty=True).whole

    def _make(self, window: _Window, query: Query, reader: Reader) -> View:
        speaks = self._speaks(query)
        whole = window.whole
        with window.turn:
            report = Report(whole, Asked(None, query.scope, speaks.zone)).decided()
        return View(
            query=query,
            report=report,
            language=speaks,
            zone=speaks.zone,
            as_of_ms=self._newest_ms,
            version=self.version,
            names=self._names.of(reader.team, lambda: _names(whole, reader)),
            reader=reader,
            made=window.pages,
            has_own_window=self.has_own_window,
            whole_of=self._whole_of,
            annotations=self._annotations,
        )

    def _speaks(self, query: Query) -> Language:
        settings = self.inputs.settings
        return language(query.lang or settings.text("report.language"), query.zone or settings.text("report.timezone"))

    def _named(self, query: Query) -> Window:
        if self.has_own_window and not (query.span or query.names_window):
            own = self.inputs.back
            return self.inputs.window if own is None else own.before(self._newest_ms)
        return query.window(self._newest_ms, self._speaks(query).zone)

    def _window(self, window: Window, *, or_empty: bool = False) -> _Window:
        def make() -> _Window:
            own = replace(self.inputs, window=window, back=None)
            return _Window(Whole(own, load_window_ledger(own, or_empty=or_empty, whole=self._ledger)), self._keep)

        return self._windows.of((window, or_empty), make)

    @property
    def has_own_window(self) -> bool:
        """Whether whoever started the pages has named a window for addresses that name none."""
        return self.inputs.back is not None or self.inputs.window != Window(None, None)

    @cached_property
    def _newest_ms(self) -> int:
        ends = self._ledger.host_ends
        return data_end_ms(ends, SystemClock().now_ms()) if ends else 0


def seen_by(query: Query, reader: Reader) -> Query:
    """What comes of the query for a reader: who may see one team gets no other, whatever they ask for."""
    return query if reader.team is None else query.but(team=reader.team)


def nobody(reader: Reader) -> Reader:
    """Whoever sees the same as the reader: what a role may do changes nothing of the figures."""
    return Reader("", VIEWER, reader.team)


def _names(whole: Whole, reader: Reader) -> dict[str, tuple[str, ...]]:
    """What can be chosen; somebody who may see one team has no other to choose, and no pool or model that it never had."""
    seen = all_known(whole, Scope(team=reader.team))
    gpus = seen.stretches["gpu"].unique().sort().to_list()
    inventory = whole.inventory
    teams = [reader.team] if reader.team is not None else sorted(whole.money.owners.teams())
    return {
        "pool": tuple(sorted({inventory.pool(gpu) for gpu in gpus})),
        "model": tuple(sorted({inventory.model(gpu) for gpu in gpus})),
        "team": tuple(teams),
    }
