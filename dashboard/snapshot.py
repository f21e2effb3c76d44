"""One version of the lake, with the views made from it for every reader and every window."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from analytics.decide.actions import load_actions
from analytics.decide.annotations import Annotation, load_annotations
from analytics.language.languages import language
from analytics.language.sentences import Language
from analytics.ledger.build import Ledger
from analytics.ledger.summary import data_end_ms
from analytics.money.window_money import open_owners, open_prices
from analytics.report.goals import open_goals
from analytics.report.model import Asked, Shared, Whole
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
"""The most kept windows, and the most views and pages of one window, however much memory is free."""


class _Window:
    """What all views of a window share. Its figures are computed on demand, by one thread at a time (`turn`).

    Views and pages of a window are kept here, so that they are evicted with the window.

    Attributes:
        before: the views from before the last actions of readers.
        views: the views by query and reader.
        pages: the pages that are made of the views.
    """

    def __init__(self, whole: Whole, keep: Callable[[], None]) -> None:
        """`keep` runs after every view and page that is made."""
        self.whole, self._keep = whole, keep
        self.turn = threading.Lock()
        self.before: dict[Hashable, View] = {}
        self.views: Cache[View] = Cache(_VIEWS, keep)
        self.pages: Cache[Any] = Cache(_PAGES, keep)

    def after_actions(self) -> _Window:
        after = _Window(self.whole.after_actions(), self._keep)
        after.turn = self.turn
        after.before = dict(list({**self.before, **self.views.items()}.items())[-_VIEWS:])
        return after

    def evict(self) -> bool:
        """Forget the least recently requested views and pages; return whether there were any."""
        if self.before:
            self.before = {}
            return True
        return self.pages.evict(_PAGES // 2) or self.views.evict(_VIEWS // 2)


class LakeSnapshot:
    """One version of the lake: the ledger and the views made from it. Thread-safe."""

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
        self._shared = Shared(self._whole_of)

    @classmethod
    def read(cls, inputs: Inputs, version: str, keep: Callable[[], None]) -> LakeSnapshot:
        """Return the snapshot of the current lake; `keep` runs after everything that is made from it.

        Raises LakeError and its kinds, and ConfigError for tables of prices, owners or goals.
        """
        # first, so that an unreadable table fails before the ledger is built and before a reader sees the new version
        load_actions(inputs.lake)
        annotations = load_annotations(inputs.lake)
        open_owners(inputs.settings)
        open_prices(inputs.settings)
        open_goals(inputs.settings)
        return cls(inputs, load_whole(inputs), version, annotations, keep)

    def after_actions(self, version: str) -> LakeSnapshot:
        """Return the same data with the newest actions and annotations; keeps ledger and findings. Raises LakeError."""
        load_actions(self.inputs.lake, strict=True)
        annotations = load_annotations(self.inputs.lake, strict=True)
        after = LakeSnapshot(self.inputs, self._ledger, version, annotations, self._keep)
        for key, window in self._windows.items().items():
            after._windows.of(key, window.after_actions)
        return after

    def begin(
        self, query: Query, reader: Reader, makers: Makers, *, findings: bool = True, by: str | None = None
    ) -> Future[View]:
        """Return the future of a query's view, limited to what the reader may see; the makers make it for `by`.

        Without `findings`, the rules need not have run in the window.

        The view's reader is `shared_reader`, since all readers of a team share the view. Its query is the part that
        every page has in its address: the subject of a page and its order do not change the view. Raises LakeError and
        its kinds, UsageError and TooManyError.
        """
        key = (seen_by(query, reader).on_every_page, shared_reader(reader))
        window = self._windows.find((self._named_window(query), False))
        view = None if window is None else window.views.find(key)
        if view is not None and (view.report.is_reviewed or not findings):
            there: Future[View] = Future()
            there.set_result(view)
            return there
        making = (*key, findings)
        future = makers.begin(self._making, making, partial(self._view, *key, findings=findings), by)
        future.add_done_callback(lambda _: self._making.drop(making))  # the view is kept with its window
        return future

    def evict(self) -> bool:
        """Forget the least recently requested window with its views; of the last window, only views and pages.

        Return whether there was anything to forget.
        """
        return self._windows.evict() or any(window.evict() for window in self._windows.items().values())

    def _view(self, query: Query, reader: Reader, *, findings: bool) -> View:
        window = self._window(self._named_window(query))
        view = window.views.of(
            (query, reader), lambda: self._updated_view(window, query, reader) or self._new_view(window, query, reader)
        )
        if findings and not view.report.is_reviewed:
            with window.turn:
                _ = view.report.review
        return view

    def _updated_view(self, window: _Window, query: Query, reader: Reader) -> View | None:
        """Return the view from before the last actions with its findings' current status; None without such a view."""
        before = window.before.get((query, reader))
        if before is None:
            return None
        with window.turn:
            report = before.report.after_actions(window.whole).decided()
        return replace(
            before,
            report=report,
            version=self.version,
            cache=window.pages,
            whole_of=self._whole_of,
            annotations=self._annotations,
        )

    def _whole_of(self, window: Window) -> Whole:
        return self._window(window, or_empty=True).whole

    def _new_view(self, window: _Window, query: Query, reader: Reader) -> View:
        speaks = self._language(query)
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
            cache=window.pages,
            has_own_window=self.has_own_window,
            whole_of=self._whole_of,
            annotations=self._annotations,
        )

    def _language(self, query: Query) -> Language:
        settings = self.inputs.settings
        return language(query.lang or settings.text("report.language"), query.zone or settings.text("report.timezone"))

    def _named_window(self, query: Query) -> Window:
        if self.has_own_window and not (query.span or query.names_window):
            own = self.inputs.back
            return self.inputs.window if own is None else own.before(self._newest_ms)
        return query.window(self._newest_ms, self._language(query).zone)

    def _window(self, window: Window, *, or_empty: bool = False) -> _Window:
        def make() -> _Window:
            own = replace(self.inputs, window=window, back=None)
            ledger = load_window_ledger(own, or_empty=or_empty, whole=self._ledger)
            return _Window(Whole(own, ledger, shared=self._shared), self._keep)

        return self._windows.of((window, or_empty), make)

    @property
    def has_own_window(self) -> bool:
        """True where the command that started the pages named a window, for addresses that name none."""
        return self.inputs.back is not None or self.inputs.window != Window(None, None)

    @cached_property
    def _newest_ms(self) -> int:
        ends = self._ledger.host_ends
        return data_end_ms(ends, SystemClock().now_ms()) if ends else 0


def seen_by(query: Query, reader: Reader) -> Query:
    """Return the query limited to the reader's team: a reader of one team always gets that team."""
    return query if reader.team is None else query.but(team=reader.team)


def shared_reader(reader: Reader) -> Reader:
    """Return the reader that stands for all readers who see the same figures: name and role do not change figures."""
    return Reader("", VIEWER, reader.team)


def _names(whole: Whole, reader: Reader) -> dict[str, tuple[str, ...]]:
    """Return the pools, models and teams that the reader can choose; a reader of one team only those of that team."""
    seen = all_known(whole, Scope(team=reader.team))
    gpus = seen.segments["gpu"].unique().sort().to_list()
    inventory = whole.inventory
    teams = [reader.team] if reader.team is not None else sorted(whole.money.owners.teams())
    return {
        "pool": tuple(sorted({inventory.pool(gpu) for gpu in gpus})),
        "model": tuple(sorted({inventory.model(gpu) for gpu in gpus})),
        "team": tuple(teams),
    }
