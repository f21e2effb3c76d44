"""How long one piece of work may take: it is given up at the first step that begins after its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from analytics.language.sentences import tr
from fallow.errors import FallowError

_CHECK: ContextVar[Callable[[], None]] = ContextVar("time limit", default=lambda: None)


class TookTooLongError(FallowError):
    """The work was given up when its time was over."""


@contextmanager
def time_limit(seconds: float, now_s: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """What runs inside may take so long; steps in other threads know of no limit."""
    end_s = now_s() + seconds

    def check() -> None:
        if now_s() > end_s:
            raise TookTooLongError(
                tr("This took too long and was given up."), tr("Ask for a shorter window, or for a part of the fleet.")
            )

    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)


def check_time() -> None:
    """At the beginning of a step: raises TookTooLongError where the time is over."""
    _CHECK.get()()
