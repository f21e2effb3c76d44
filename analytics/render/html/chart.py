"""What stands on the page: a chart with its finding in words and its figures as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Table:
    """Rows of text. The first column names the row; in `words` are the numbers of further columns that hold no figures.

    `listing` says that the first column holds sentences, not names. `rest` counts what is left out.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str | Markup, ...], ...]
    words: frozenset[int] = frozenset()
    rest: str = ""
    listing: bool = False


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in one sentence, and every figure in it.

    `legend` are the states in it that need a key; `note` says what a reader has to know beside. Where `drawing` is empty the
    table is the drawing, with bars in its cells.
    """

    key: str
    title: str
    finding: str
    drawing: Markup
    table: Table
    legend: tuple[str, ...] = ()
    note: str = ""
    wide: bool = False
