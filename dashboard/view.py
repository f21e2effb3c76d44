"""The view of one reader on one version of the lake, and the problem that a reader sees instead."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, TypeVar

from analytics.decide.annotations import Annotation
from analytics.language.sentences import Language, tr
from analytics.report.model import Whole
from analytics.report.report import Report
from analytics.window import WindowLedger
from dashboard.access.people import Reader
from dashboard.makers import Cache
from dashboard.query import Query
from fallow.clock import Window
from fallow.errors import (
    ConfigError,
    EmptyLakeError,
    EmptyScopeError,
    FallowError,
    InputError,
    LakeError,
    MissingExtraError,
)

_LOG = logging.getLogger(__name__)

V = TypeVar("V")


@dataclass(frozen=True, eq=False)
class View:
    """The view of one reader on one version of the lake. Two views are equal only if they are the same object.

    Attributes:
        query: the address's window, scope and settings.
        report: the report of the scope.
        as_of_ms: the end of the newest row of the lake.
        version: a text that changes with the lake.
        names: the pools, models and teams that the reader can choose.
        cache: keeps values made from the views of this window by `key`, and is evicted with the window.
        whole_of: returns the data of another window, which may be empty.
        annotations: the annotations of all readers and all times.
        has_own_window: true where the command that started the pages named a window, for addresses that name none.
    """

    query: Query
    report: Report
    language: Language
    zone: tzinfo
    as_of_ms: int
    version: str
    names: dict[str, tuple[str, ...]]
    reader: Reader
    cache: Cache[Any]
    whole_of: Callable[[Window], Whole]
    annotations: tuple[Annotation, ...] = ()
    has_own_window: bool = False

    @property
    def key(self) -> tuple[Query, str, str | None]:
        """A key that readers share who see the same page: a value made for one reader is right for all of them."""
        return self.query, self.reader.role, self.reader.team

    @property
    def key_of_figures(self) -> tuple[Query, str, str | None]:
        """A key that readers share who see the same figures, on any page and in any language."""
        return replace(self.query.on_every_page, lang=""), self.reader.role, self.reader.team

    @property
    def part(self) -> WindowLedger:
        """The ledger of the scope."""
        return self.report.part

    @property
    def whole(self) -> Whole:
        return self.report.whole

    def kept(self, name: Hashable, make: Callable[[], V]) -> V:
        """Return the value of `make`, made once under `name` for all readers who see the same figures."""
        return self.cache.of((name, *self.key_of_figures), make)  # type: ignore[no-any-return]

    def translate(self, text: str) -> str:
        return self.language.translate(text)


@dataclass(frozen=True, eq=False)
class Problem:
    """Why there is nothing to show, and what to do about it. `is_passing` is true where the page only needs to wait."""

    message: str
    hint: str
    is_passing: bool = False


_SITE_ERRORS = (LakeError, ConfigError, InputError, MissingExtraError)
"""Errors whose words name places and files of the site."""

UNREADABLE = Problem(
    tr("The data cannot be read or written."), tr("Ask the operator of these pages: the log has the details.")
)
_NAMES_HINT = tr("choose a name in the filters of a page, or from the answer of `/api/v1/scopes` or the tool `scopes`")
_EMPTY = Problem(tr("This window has no data."), tr("Choose another window."))


def problem_of(error: FallowError, reader: Reader) -> Problem:
    """Return the problem that a reader sees for an error; only readers who `sees_places` see paths and hosts."""
    if isinstance(error, EmptyScopeError):
        return Problem(error.message, _NAMES_HINT)
    names_places = isinstance(error, _SITE_ERRORS)
    if reader.sees_places or not names_places:
        return Problem(error.message, error.hint)
    _LOG.warning("shown to a %s without details: %s", reader.described, error)
    return _EMPTY if isinstance(error, EmptyLakeError) else UNREADABLE
