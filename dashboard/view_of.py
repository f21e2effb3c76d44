"""From an address to what its reader may see: the one way by which pages, callbacks and exports come to a view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.access.people import person
from dashboard.query import Query
from dashboard.view import Problem
from fallow.errors import FallowError

if TYPE_CHECKING:
    from dashboard.source import Source
    from dashboard.view import View


def view_of(source: Source, search: str | None) -> View | Problem:
    """What the address's `?...` asks for, as far as whoever asks may see it, or what stands in its way."""
    try:
        return source.look(_query(search), person())
    except FallowError as error:
        return Problem(error.message, error.hint)


def _query(search: object) -> Query:
    """That of what a browser sent, which may be anything; raises UsageError for what is no address."""
    return Query.parse(search if isinstance(search, str) else None)
