"""The threads that make views: so many at once, so many waiting, and nothing that nobody asks for any more."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from analytics.language.sentences import tr
from analytics.time_limit import time_limit
from dashboard.cache import Cache
from fallow.errors import FallowError

V = TypeVar("V")

_AT_ONCE = 4
"""More of them make nothing sooner: they share the cores, and each holds a window's frames while it works."""

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


class Makers:
    """Makes what a cache lacks, in the order in which it was asked for. Safe to ask from many threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._open: OrderedDict[Future[Any], _Work] = OrderedDict()
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
        if is_too_much:
            give_up(
                TooManyError(
                    tr("So many pages are being made at this moment that this one has to wait."),
                    tr("It comes by itself when there is room."),
                )
            )
        else:
            self._threads.submit(self._do, future)

    def _do(self, future: Future[Any]) -> None:
        with self._lock:
            work = self._open[future]
            is_abandoned = work.reader is not None and self._now_s() - work.asked_s > _ABANDONED_AFTER_S
        try:
            if is_abandoned:
                work.give_up(_AbandonedError("nobody asked for this page any more", "ask for it again"))
            else:
                with nullcontext() if work.reader is None else time_limit(_MOST_S, self._now_s):
                    work.run()
        finally:
            with self._lock:
                del self._open[future]
