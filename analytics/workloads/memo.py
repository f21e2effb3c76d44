"""Frames that several rules look at, computed once for each context."""

from __future__ import annotations

import weakref
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.workloads.model import Context

Result = TypeVar("Result")


def once(compute: Callable[[Context], Result]) -> Callable[[Context], Result]:
    """Keeps what a function makes of a context for as long as the context lives.

    Contexts hold frames, which cannot be hashed, so it is the object itself that is remembered. Two threads that come
    first at once both compute, and get equal results.
    """
    kept: dict[int, Result] = {}

    @wraps(compute)
    def remembered(context: Context) -> Result:
        key = id(context)
        if key not in kept:
            kept[key] = compute(context)
            weakref.finalize(context, kept.pop, key, None).atexit = False
        return kept[key]

    return remembered
