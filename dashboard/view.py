"""What one reader sees of one version of the lake, or why there is nothing to see."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any, TypeVar

from analytics.decide.annotations import Annotation
from analytics.language.language import Language
from analytics.language.sentences import tr
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
    """What one reader sees of one version of the lake. Two views are equal only if they are the same.

    `report` is of the scope. `names` has the pools, models and teams
    that can be chosen. `as_of_ms` is the end of the newest row of the lake, `version` changes with the lake. `made` keeps
    what was made of the views of this version by their `key`, and goes with it. `whole_of` is another window, which may be empty.
    `annotations` are everybody's, of all times.
    `has_own_window` says that whoever started the pages has named the window of addresses that name none.
    """

    query: Query
    report: Report
    language: Language
    zone: tzinfo
    as_of_ms: int
    version: str
    names: dict[str, tuple[str, ...]]
    reader: Reader
    made: Cache[Any]
    whole_of: Callable[[Window], Whole]
    annotations: tuple[Annotation, ...] = ()
    has_own_window: bool = False

    @property
    def key(self) -> tuple[Query, str, str | None]:
        """The same for all who see the same: what was made for one of them is right for the others."""
        return self.query, self.reader.role, self.reader.team

    @property
    def key_of_figures(self) -> tuple[Query, str, str | None]:
        """The same for all who see the same figures, on whatever page and in whatever language."""
        return replace(self.query.on_every_page, lang=""), self.reader.role, self.reader.team

    @property
    def part(self) -> WindowLedger:
        """The ledger of the scope."""
        return self.report.part

    @property
    def whole(self) -> Whole:
        """The whole window."""
        return self.report.whole

    def kept(self, name: Hashable, make: Callable[[], V]) -> V:
        """What `make` makes, once for all who see the same figures; `name` says what it is."""
        return self.made.of((name, *self.key_of_figures), make)  # type: ignore[no-any-return]

    def translate(self, text: str) -> str:
        """The text in the reader's language."""
        return self.language.translate(text)


@dataclass(frozen=True, eq=False)
class Problem:
    """Why there is nothing to show, and what to do about it; `is_passing` where waiting a little is enough."""

    message: str
    hint: str
    is_passing: bool = False


_OF_SITE = (LakeError, ConfigError, InputError, MissingExtraError)
"""Errors whose words name places and files of the site."""

UNREADABLE = Problem(
    tr("The data cannot be read or written as they should."), tr("Ask who runs these pages: the log says more.")
)
_WHERE_NAMES_ARE = tr(
    "take one of the names that the pages offer above, or that `/api/v1/scopes` and the tool `scopes` answer with"
)
_EMPTY = Problem(tr("There are no data in this window."), tr("Choose another one."))


def problem_of(error: FallowError, reader: Reader) -> Problem:
    """What to tell a reader of an error: only whoever `sees_places`, where the lake lies and of whose host a file is wrong."""
    if isinstance(error, EmptyScopeError):
        return Problem(error.message, _WHERE_NAMES_ARE)
    names_places = isinstance(error, _OF_SITE)
    if reader.sees_places or not names_places:
        return Problem(error.message, error.hint)
    _LOG.warning("said in general words to a %s: %s", reader.described, error)
    return _EMPTY if isinstance(error, EmptyLakeError) else UNREADABLE
