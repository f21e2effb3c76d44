"""A few values that took long to make, for whoever asks next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

V = TypeVar("V")


class Cache(Generic[V]):
    """The values of the keys that were last asked for. Of several who ask for one at once, one makes it and the others wait.

    A value that could not be made is not kept: whoever asks next tries again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._made: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value, made in this thread where nobody has it; raises what `make` raises."""
        future, is_mine = self._place(key)
        if is_mine:
            self._fill(key, future, make)
        return future.result()

    def begin(self, key: Hashable, make: Callable[[], V], executor: Executor) -> Future[V]:
        """The value to come, made by the executor where nobody has it."""
        future, is_mine = self._place(key)
        if is_mine:
            executor.submit(self._fill, key, future, make)
        return future

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
            with self._lock:
                if self._made.get(key) is future:
                    del self._made[key]
            future.set_exception(error)
