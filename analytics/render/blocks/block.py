"""What a part of the report is before a format lays it out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """A title, what goes with it in brackets, and a table, a list or lines, all of it in the reader's language.

    Columns of the table whose numbers are in `words` hold names or words, the others figures. `items` are a list, `lines`
    stand below.
    """

    title: str
    about: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    words: frozenset[int] = frozenset({0})
    items: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
