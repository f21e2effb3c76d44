"""What took long to make: kept for whoever asks next, and made by a few threads, in turns by reader, as memory allows."""

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
"""Takes on work for a future: what fills it, and what to call with the error where it is not done."""


class Cache(Generic[V]):
    """The values of the keys that were last asked for. Of several who ask for one at once, one makes it and the others wait.

    A value that could not be made is not kept: whoever asks next tries again. `after` runs whenever one has been made.
    """

    def __init__(self, most: int, after: Callable[[], None] = lambda: None) -> None:
        self._most, self._after = most, after
        self._lock = threading.Lock()
        self._made: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value, made in this thread where nobody has it; raises what `make` raises."""
        future, is_mine = self._place(key)
        if is_mine:
            self._fill(key, future, make)
        return future.result()

    def begin(self, key: Hashable, make: Callable[[], V], submit: Submit) -> Future[V]:
        """The value to come; where nobody has it, `submit` takes on the work."""
        future, is_mine = self._place(key)
        if is_mine:
            submit(future, partial(self._fill, key, future, make), partial(self._fail, key, future))
        return future

    def find(self, key: Hashable) -> V | None:
        """The value where it is there, which counts as asking for it; None where it is not, or not yet."""
        with self._lock:
            future = self._made.get(key)
            if future is None or not future.done() or future.exception() is not None:
                return None
            self._made.move_to_end(key)
            return future.result()

    def drop(self, key: Hashable) -> None:
        """Forgets the value; who waits for it gets it."""
        with self._lock:
            self._made.pop(key, None)

    def let_go(self, most: int = 1) -> bool:
        """Forgets what was asked for the longest ago, so many at most and never the last; whether there was any."""
        with self._lock:
            goes = min(most, len(self._made) - 1)
            for _ in range(goes):
                self._made.popitem(last=False)
        return goes > 0

    def items(self) -> dict[Hashable, V]:
        """Those that are there by now, the one that was asked for last at the end."""
        with self._lock:
            made = list(self._made.items())
        return {key: each.result() for key, each in made if each.done() and each.exception() is None}

    def _place(self, key: Hashable) -> tuple[Future[V], bool]:
        with self._lock:
            is_mine = key not in self._made
            if is_mine:
                self._made[key] = Future()
                while len(self._made) > self._most:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(key)
            return self._made[key], is_mine

    def _fill(self, key: Hashable, future: Future[V], make: Callable[[], V]) -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # noqa: BLE001  # handed to all who wait
            self._fail(key, future, error)
        self._after()

    def _fail(self, key: Hashable, future: Future[V], error: BaseException) -> None:
        with self._lock:
            if self._made.get(key) is future:
                del self._made[key]
        future.set_exception(error)


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
