"""The report as plain text, 100 columns wide."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from analytics.language.sentences import PAGE_COLUMNS, Language, SentenceList, plain, tr, wrap
from analytics.report.report import Report
from analytics.tables.facts import facts
from analytics.tables.table import Cell, Column, Fold, StateBar, Table, ToCopy
from analytics.tables.wording import lead, title
from fallow.clock import from_ms
from fallow.outside_text import visible_lines

_WIDTH = PAGE_COLUMNS
_BETWEEN = 2
_NAME_LEAST = 6
_READABLE = 8
"""Width of a name in characters below which columns are listed below one another."""
_PLAIN = str.maketrans({"\N{MINUS SIGN}": "-", "±": ""})
"""Signs that every terminal and editor shows alike."""


class TextFormat:
    name = "text"
    suffix = ".txt"
    media_type = "text/plain"

    def render(self, report: Report, language: Language) -> bytes:
        from analytics.tables.report_sections import chapters  # all tables, and a verb's document shows a few

        language_of_text = for_text(language)
        parts = [
            _head(report, language_of_text),
            "\n".join(line for each in lead(report) if each for line in wrap(language_of_text.translate(each), _WIDTH)),
        ]
        if not report.ledger.is_empty:
            parts += [
                section_text(section, language_of_text) for _, sections in chapters(report) for section in sections
            ]
        return (visible_lines("\n\n".join(parts)) + "\n").encode()


@dataclass(frozen=True)
class _Sortable(Language):
    """English with days in sortable form, as in the commands."""

    def moment(self, moment_ms: int) -> str:
        """Return `2026-11-20 06:00 UTC`."""
        local = from_ms(moment_ms).astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M} {local.tzname()}"

    def day(self, moment_ms: int) -> str:
        """Return `2026-11-20`."""
        return f"{from_ms(moment_ms).astimezone(self.zone):%Y-%m-%d}"


def for_text(language: Language) -> Language:
    """Return the language for plain text, with ordinary spaces, which every terminal and editor shows alike."""
    return _Sortable(zone=language.zone, space=" ") if language.code == "en" else replace(language, space=" ")


def written(cell: Cell, language: Language) -> str:
    """Return a cell or a sentence as text; `-` if unknown."""
    return "-" if cell is None or isinstance(cell, StateBar) else language.shown(cell).translate(_PLAIN)


def _head(report: Report, language: Language) -> str:
    entries = facts(report.heading, report.ledger, language)
    widest = max(len(label) for label, _ in entries)
    lines = wrap(language.translate(title(report.heading)), _WIDTH)
    for label, value in entries:
        lines += wrap(value, _WIDTH, f"  {label:<{widest}}  ", " " * (widest + 4))
    return "\n".join(lines)


def section_text(section: Table, language: Language, width: int = PAGE_COLUMNS) -> str:
    """Return the title, the headline, a table or a list, and notes."""
    lines = [*wrap(language.translate(section.title).upper(), width), *_wrapped(section.headline, language, width)]
    if any(column.kind == "sentence" for column in section.heads):
        lines += [line for row in section.listed for line in _record(section.heads, row, language, width)]
    elif section.row_count:
        lines += _table(section, language, width)
    for each in section.lines:
        lines += wrap(plain(written(each, language), 400), width, "  - ", "    ")
    for fold in section.folds:
        lines += ["", *_fold(fold, language, width)]
    terms = (tr("{label}: {value}", label=each.title, value=each.meaning) for each in section.terms)
    after = (section.left_out, *section.notes, *terms)
    return "\n".join([*lines, *(line for each in after for line in _wrapped(each, language, width))])


def _wrapped(sentence: str, language: Language, width: int) -> list[str]:
    return wrap(written(sentence, language), width, "  ", "  ")


def _fold(fold: Fold, language: Language, width: int) -> list[str]:
    title = language.translate(tr("{id}: {sentence}", id=fold.key, sentence=fold.title))
    entries = [tr("{label}: {value}", label=label, value=written(value, language)) for label, value in fold.facts]
    facts_line = language.translate(SentenceList(entries))
    lines = [*wrap(title, width, "  ", "    "), *wrap(facts_line, width, "    ", "    ")]
    for each in fold.lines:
        lines += wrap(written(each, language), width, "    - ", "      ")
    # a command is copied: it keeps its line
    return [*lines, f"    {language.translate(tr('next step'))}  {fold.command}"] if fold.command else lines


def _record(heads: Sequence[Column], row: Sequence[Cell], language: Language, width: int) -> list[str]:
    """Return a row that is too long for a table: its name, then its values."""
    lines = wrap(written(row[0], language), width, "  - ", "    ")
    for has_label, cells in groupby(zip(heads[1:], row[1:], strict=True), lambda each: bool(each[0].title)):
        shown = [(column.title, cell, text) for column, cell in cells if (text := written(cell, language))]
        if has_label:
            about = [tr("{label}: {value}", label=title, value=text) for title, _, text in shown]
            lines += wrap(language.translate(SentenceList(about)), width, "    ", "    ")
            continue
        for _, cell, text in shown:
            lines += _copied(cell, language) if isinstance(cell, ToCopy) else wrap(text, width, "    ", "    ")
    return lines


def _copied(cell: ToCopy, language: Language) -> list[str]:
    """Return text to copy, on one line."""
    label = cell.label if cell.is_address else tr("{label}:", label=cell.label)
    return [f"    {language.translate(label)}", *(f"        {each}" for each in cell.texts)]


def _table(section: Table, language: Language, width: int) -> list[str]:
    """Return the lines of a table; columns without room are printed below it, with its first column repeated."""
    shown = [place for place, column in enumerate(section.heads) if column.kind != "bar"]
    head = [language.translate(section.heads[place].title) for place in shown]
    rows = [[written(row[place], language) for place in shown] for row in section.listed]
    words = {number for number, place in enumerate(shown) if not section.heads[place].is_figure}
    whole = {number for number, place in enumerate(shown) if section.heads[place].kind in ("finding", "moment")}
    lines: list[str] = []
    for block in _blocks([head, *rows], words - whole, width):
        cells = [[line[place] for place in block] for line in (head, *rows)]
        own = {number for number, place in enumerate(block) if place in words}
        ids = {number for number in own if block[number] in whole}
        lines += ([""] if lines else []) + columns(cells[0], cells[1:], own, width, ids)
    return lines


def _blocks(lines: Sequence[Sequence[str]], words: Collection[int], width: int) -> list[list[int]]:
    """Return the columns that are printed side by side, with words cut to a readable length."""
    widths = [
        _BETWEEN + min(max(map(len, column)), _READABLE if place in words else width)
        for place, column in enumerate(zip(*lines, strict=True))
    ]
    blocks = [[0]]
    for place in range(1, len(widths)):
        if sum(widths[each] for each in (*blocks[-1], place)) > width:
            blocks.append([0])
        blocks[-1].append(place)
    return blocks


def columns(
    head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int], width: int, ids: Collection[int] = ()
) -> list[str]:
    """Return lines of heading and rows, at most this wide: figures right-aligned, `words` cut, except `ids`."""
    widths = [max(len(line[place]) for line in (head, *rows)) for place in range(len(head))]
    names = [place for place in words if place not in ids]
    while names and sum(widths) + _BETWEEN * len(widths) > width:
        widest = max(names, key=lambda place: widths[place])
        if widths[widest] <= _NAME_LEAST:
            break
        widths[widest] -= 1
    return [_line(line, widths, words) for line in (head, *rows)]


def _line(cells: Sequence[str], widths: Sequence[int], words: Collection[int]) -> str:
    shown = (
        f"{plain(cell, width):<{width}}" if place in words else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return ("  " + (" " * _BETWEEN).join(shown)).rstrip()
