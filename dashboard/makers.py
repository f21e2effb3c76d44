"""A cache of slow values, and the few threads that make them: in turns by reader, as memory allows."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from analytics.language.sentences import tr
from analytics.time_limit import time_limit
from dashboard.memory import Budget
from fallow.errors import FallowError

V = TypeVar("V")

Submit = Callable[["Future[Any]", Callable[[], None], Callable[[BaseException], None]], None]
"""Schedules the work of a future. Arguments: the future, the function that fills it, and the function that fails it."""


class Cache(Generic[V]):
    """The values of the most recently requested keys. Of several threads that need one, one makes it and others wait.

    A failed value is not kept: the next request tries again. `after` runs after every value.
    """

    def __init__(self, most: int, after: Callable[[], None] = lambda: None) -> None:
        self._most, self._after = most, after
        self._lock = threading.Lock()
        self._futures: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value; this thread makes a missing one. Raises what `make` raises."""
        future, is_mine = self._place(key)
        if is_mine:
            self._fill(key, future, make)
        return future.result()

    def begin(self, key: Hashable, make: Callable[[], V], submit: Submit) -> Future[V]:
        """Return the future of the value; `submit` schedules the work of a missing one."""
        future, is_mine = self._place(key)
        if is_mine:
            submit(future, partial(self._fill, key, future, make), partial(self._fail, key, future))
        return future

    def find(self, key: Hashable) -> V | None:
        """Return the value and count it as requested; None where it is missing or not ready."""
        with self._lock:
            future = self._futures.get(key)
            if future is None or not future.done() or future.exception() is not None:
                return None
            self._futures.move_to_end(key)
            return future.result()

    def drop(self, key: Hashable) -> None:
        """Forget the value; threads that wait for it still get it."""
        with self._lock:
            self._futures.pop(key, None)

    def evict(self, most: int = 1) -> bool:
        """Forget up to `most` of the least recently requested values, never the last; return whether it forgot any."""
        with self._lock:
            goes = min(most, len(self._futures) - 1)
            for _ in range(goes):
                self._futures.popitem(last=False)
        return goes > 0

    def items(self) -> dict[Hashable, V]:
        """Return the values that are ready, the most recently requested one last."""
        with self._lock:
            futures = list(self._futures.items())
        return {key: each.result() for key, each in futures if each.done() and each.exception() is None}

    def _place(self, key: Hashable) -> tuple[Future[V], bool]:
        with self._lock:
            is_mine = key not in self._futures
            if is_mine:
                self._futures[key] = Future()
                while len(self._futures) > self._most:
                    self._futures.popitem(last=False)
            else:
                self._futures.move_to_end(key)
            return self._futures[key], is_mine

    def _fill(self, key: Hashable, future: Future[V], make: Callable[[], V]) -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001  # raised in every thread that waits
            self._fail(key, future, error)
        self._after()

    def _fail(self, key: Hashable, future: Future[V], error: BaseException) -> None:
        with self._lock:
            if self._futures.get(key) is future:
                del self._futures[key]
        future.set_exception(error)


_AT_ONCE = 4
"""The number of threads. More threads would finish nothing sooner, since they share the cores."""

_IN_ALL, _PER_READER = 32, 8
"""The most views that are being made or wait, in all and for one reader."""

_ABANDONED_AFTER_S = 30.0
"""A waiting view without a new request for this long is not begun. A waiting page sends a request every few seconds."""

_MOST_S = 300.0
"""The longest time for one view: five times that of a window of five thousand GPUs."""


class TooManyError(FallowError):
    """Too many views are being made; a later request may succeed."""


class _AbandonedError(TooManyError):
    """The view's turn came after its readers had stopped asking for it."""


@dataclass
class _Work:
    """One view to make.

    Attributes:
        reader: the reader whose turn it takes; None for fallow itself.
        run: makes the view.
        fail: ends the work with an error.
        asked_s: when a reader last requested the view.
    """

    reader: Hashable
    run: Callable[[], None]
    fail: Callable[[BaseException], None]
    asked_s: float
    is_begun: bool = False


class Makers:
    """Makes the missing values of a cache, in turns by reader, and only where the budget has room. Thread-safe.

    `evict` forgets kept values and returns whether there were any.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        budget: Budget | None = None,
        evict: Callable[[], bool] = lambda: False,
    ) -> None:
        self._now_s = now_s
        self._budget, self._evict = budget, evict
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._open: OrderedDict[Future[Any], _Work] = OrderedDict()
        self._turns = 0
        self._turn_of: dict[Hashable, tuple[int, bool]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "view")

    def begin(self, cache: Cache[V], key: Hashable, make: Callable[[], V], reader: Hashable) -> Future[V]:
        """Return the future of a value for a reader; None is fallow itself, without a limit. Raises TooManyError."""
        future = cache.begin(key, make, partial(self._schedule, reader))
        with self._lock:
            if future in self._open:
                self._open[future].asked_s = self._now_s()
        return future

    def _schedule(
        self, reader: Hashable, future: Future[Any], run: Callable[[], None], fail: Callable[[BaseException], None]
    ) -> None:
        with self._lock:
            own = sum(each.reader == reader for each in self._open.values())
            is_too_much = reader is not None and (len(self._open) >= _IN_ALL or own >= _PER_READER)
            if not is_too_much:
                self._open[future] = _Work(reader, run, fail, self._now_s())
                self._turn_of.setdefault(reader, (self._turns, False))
        if is_too_much:
            fail(
                TooManyError(
                    tr("The server is busy with other pages, so this page waits."),
                    tr("This page refreshes by itself."),
                )
            )
        else:
            self._threads.submit(self._run_next)

    def _run_next(self) -> None:
        with self._gate:  # the turn is decided only once there is room
            place = None if self._budget is None else self._budget.admit(self._evict)
            future, work = self._next()
        try:
            if work.reader is not None and self._now_s() - work.asked_s > _ABANDONED_AFTER_S:
                work.fail(_AbandonedError("this page was no longer requested when its turn came", "open it again"))
            else:
                with nullcontext() if work.reader is None else time_limit(_MOST_S, self._now_s):
                    work.run()
        finally:
            if self._budget is not None and place is not None:
                self._budget.release(place)
            with self._lock:
                del self._open[future]
                if all(each.reader != work.reader for each in self._open.values()):
                    del self._turn_of[work.reader]

    def _next(self) -> tuple[Future[Any], _Work]:
        """Return the first work of the reader with the fewest views in progress and, of several, the oldest turn.

        A reader without a turn comes before a reader who had the last turn at the time of the request.
        """
        with self._lock:
            begun = Counter(each.reader for each in self._open.values() if each.is_begun)
            future, work = min(
                ((future, work) for future, work in self._open.items() if not work.is_begun),
                key=lambda each: (begun[each[1].reader], self._turn_of[each[1].reader]),
            )
            work.is_begun = True
            self._turns += 1
            self._turn_of[work.reader] = (self._turns, True)
            return future, work
