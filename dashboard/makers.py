"""The threads that make views: a few at once, as memory allows, in turns by reader, and nothing abandoned."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from analytics.language.sentences import tr
from analytics.time_limit import time_limit
from dashboard.cache import Cache
from dashboard.memory import Budget
from fallow.errors import FallowError

V = TypeVar("V")

_AT_ONCE = 4
"""At most: more of them make nothing sooner, since they share the cores."""

_IN_ALL, _PER_READER = 32, 8
"""Of views that are being made or wait to be."""

_ABANDONED_AFTER_S = 30.0
"""What waits and was not asked for again for this long is not begun. A page that was told to wait asks every few seconds."""

_MOST_S = 300.0
"""Five times what a window of five thousand GPUs takes."""


class TooManyError(FallowError):
    """So much is being made already that nothing more is taken on; asking again helps."""


class _AbandonedError(TooManyError):
    """Nobody asked for it any more when its turn came."""


@dataclass
class _Work:
    """One view to make, for whom, and when somebody last asked for it."""

    reader: Hashable
    run: Callable[[], None]
    give_up: Callable[[BaseException], None]
    asked_s: float
    is_begun: bool = False


class Makers:
    """Makes what a cache lacks, in turns by reader, and only where the budget has room. Safe to ask from many threads.

    `let_go` lets go of something that is kept, and says whether there was any.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        budget: Budget | None = None,
        let_go: Callable[[], bool] = lambda: False,
    ) -> None:
        self._now_s = now_s
        self._budget, self._let_go = budget, let_go
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._open: OrderedDict[Future[Any], _Work] = OrderedDict()
        self._turns = 0
        self._turn_of: dict[Hashable, tuple[int, bool]] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, "view")

    def begin(self, cache: Cache[V], key: Hashable, make: Callable[[], V], reader: Hashable) -> Future[V]:
        """The value to come, made for a reader (None: for fallow itself, which no bound holds back); raises TooManyError."""
        future = cache.begin(key, make, partial(self._take_on, reader))
        with self._lock:
            if future in self._open:
                self._open[future].asked_s = self._now_s()
        return future

    def _take_on(
        self, reader: Hashable, future: Future[Any], run: Callable[[], None], give_up: Callable[[BaseException], None]
    ) -> None:
        with self._lock:
            own = sum(each.reader == reader for each in self._open.values())
            is_too_much = reader is not None and (len(self._open) >= _IN_ALL or own >= _PER_READER)
            if not is_too_much:
                self._open[future] = _Work(reader, run, give_up, self._now_s())
                self._turn_of.setdefault(reader, (self._turns, False))
        if is_too_much:
            give_up(
                TooManyError(
                    tr("So many pages are being made at this moment that this one has to wait."),
                    tr("It comes by itself when there is room."),
                )
            )
        else:
            self._threads.submit(self._do)

    def _do(self) -> None:
        with self._gate:  # whose turn it is shows once there is room
            place = None if self._budget is None else self._budget.admit(self._let_go)
            future, work = self._next()
        try:
            if work.reader is not None and self._now_s() - work.asked_s > _ABANDONED_AFTER_S:
                work.give_up(_AbandonedError("nobody asked for this page any more", "ask for it again"))
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
        """The first work of the reader for whom the least is being made; of several, of the one whose last turn is longest ago.

        A reader who had no turn yet comes before one who had the last turn when they asked.
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
