"""A time limit for a unit of work: it is abandoned at the first step that begins after the limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from analytics.language.sentences import tr
from fallow.errors import FallowError

_CHECK: ContextVar[Callable[[], None]] = ContextVar("time limit", default=lambda: None)


class TookTooLongError(FallowError):
    """The work was abandoned when its time was over."""


@contextmanager
def time_limit(seconds: float, now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Limit the time of the code inside; steps in other threads are not limited."""
    end_s = now_s() + seconds

    def check() -> None:
        if now_s() > end_s:
            raise TookTooLongError(
                tr("This took too long and was stopped."), tr("Ask for a shorter window, or for a part of the fleet.")
            )

    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_time() -> None:
    """Raise TookTooLongError at the beginning of a step where the time is over."""
    _CHECK.get()()
