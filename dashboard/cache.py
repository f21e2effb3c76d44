"""A few values that took long to make, for whoever asks next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

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
