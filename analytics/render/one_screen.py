"""Tables cut to one screen of a terminal: the first rows of the first tables, and a line for each other table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analytics.language.sentences import Language, plain, tr
from analytics.render.report.text import section_text, written
from analytics.tables.table import Table

SCREEN_LINES = 40
"""Lines of a terminal that shows an answer without scrolling."""
_MOST = 2 / 3
"""Share of the remaining lines that a table may take where other tables follow."""


def screen_lines(tables: Sequence[Table], language: Language, width: int, room: int) -> list[str]:
    """Return at most `room` lines: the tables that fit, in their order, and the names and answers of the others."""
    whole: list[str] = []
    for table in tables:
        lines = _whole(table, language, width, room - len(whole) - bool(whole))
        if lines is None:
            return _first_tables(tables, language, width, room)
        whole += ["", *lines] if whole else lines
    return whole


def _first_tables(tables: Sequence[Table], language: Language, width: int, room: int) -> list[str]:
    shown: list[list[str]] = []
    left = room - 1
    for place, table in enumerate(tables):
        others = len(tables) - place - 1
        free = left - 1 - min(_index_length(others), left // 3)
        cut = _cut(table, language, width, int(free * _MOST) if others else free)
        if cut is None:
            break
        shown.append(cut)
        left -= len(cut) + 1
    index = _index(tables[len(shown) :], language, width, left)
    spare = left - len(index)
    if shown and spare > 0:
        shown[0] = _cut(tables[0], language, width, len(shown[0]) + spare) or shown[0]
    footer = language.translate(tr("--all shows all rows, tables and notes."))
    return [*(line for block in shown for line in (*block, "")), *index, footer]


def _whole(table: Table, language: Language, width: int, room: int) -> list[str] | None:
    """Return all lines of a table; None if more than `room`. Each row, sentence and fold takes at least one line."""
    rows = table.row_count if table.shown is None else min(table.shown, table.row_count)
    if rows + len(table.lines) + len(table.folds) > room:
        return None
    lines = _lines(table, language, width)
    return lines if len(lines) <= room else None


def _cut(table: Table, language: Language, width: int, room: int) -> list[str] | None:
    """Return the table's first rows, and notes while there is room; None where the first row does not fit."""
    whole = _whole(table, language, width, room)
    if whole is not None:
        return whole
    bare = replace(table, lines=(), folds=(), notes=(), terms=())
    for shown in range(min(table.row_count, room), 0, -1):
        cut = replace(bare, shown=shown, rest=_more(table.row_count - shown))
        if len(_lines(cut, language, width)) <= room:
            break
    else:
        return None
    for sentence in table.lines:
        cut = _grown(cut, replace(cut, lines=(*cut.lines, sentence)), language, width, room)
    for sentence in table.notes:
        cut = _grown(cut, replace(cut, notes=(*cut.notes, sentence)), language, width, room)
    return _lines(cut, language, width)


def _grown(cut: Table, longer: Table, language: Language, width: int, room: int) -> Table:
    return longer if len(_lines(longer, language, width)) <= room else cut


def _lines(table: Table, language: Language, width: int) -> list[str]:
    return section_text(table, language, width).splitlines()


def _more(number: int) -> str:
    return tr("{more}: --all", more=tr("{number} more", number=number))


def _index_length(tables: int) -> int:
    return tables + 2 if tables else 0


def _index(tables: Sequence[Table], language: Language, width: int, room: int) -> list[str]:
    """Return a line for each table: its name for --table, and its answer, or its title where it has none."""
    if not tables or room < _index_length(1):
        return []
    named = tables if _index_length(len(tables)) <= room else tables[: room - 3]
    widest = max((len(each.name) for each in named), default=0)
    lines = [f"{language.translate(tr('Other tables')).upper()} (--table NAME)"]
    for each in named:
        answer = written(each.headline or each.title, language)
        lines.append(f"  {each.name:<{widest}}  {plain(answer, width - widest - 4)}")
    if len(named) < len(tables):
        lines.append(f"  {language.translate(_more(len(tables) - len(named)))}")
    return [*lines, ""]
