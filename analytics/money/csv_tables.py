"""Read the CSV tables that a site keeps by hand: columns, lines and values, with one sentence per mistake."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches

from fallow.errors import ConfigError
from fallow.given_file import TABLE_BYTES, given_text
from fallow.outside_text import from_csv_cell

_SEPARATORS = ",;\t"
_MOST = Decimal(10**12)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(\.\d{3})+")


@dataclass(frozen=True)
class CsvLine:
    """One line of a table: its cells by column, stripped, and its position.

    `as_written` has the same cells without the blanks and tabs that align them; other white space is still in them.
    """

    path: str
    number: int
    cells: Mapping[str, str]
    as_written: Mapping[str, str]
    decimal_comma: bool

    def text(self, column: str) -> str | None:
        """Return the cell; None if it is empty or the table lacks the column."""
        return self.cells.get(column) or None

    def number_of(self, column: str, *, least: Decimal = Decimal(0)) -> Decimal | None:
        """Return a number of at least `least`; None if the cell is empty. Raises ConfigError."""
        if (text := self.text(column)) is None:
            return None
        plain = text.replace("\N{NO-BREAK SPACE}", "").replace(" ", "")
        if self.decimal_comma and _THOUSANDS.fullmatch(plain):
            raise self.error(f"{column} '{text}' is not clear in a file with decimal commas", _both_readings(plain))
        if self.decimal_comma and re.fullmatch(r"[\d.]*,?\d+", plain):
            plain = (plain.replace(".", "") if "," in plain else plain).replace(",", ".")
        try:
            value = Decimal(plain)
        except InvalidOperation:
            raise self.error(f"{column} '{text}' is not a number", "write it as 1234.56") from None
        if not value.is_finite() or not least <= value < _MOST:
            raise self.error(f"{column} '{text}' is not a number from {least} to {_MOST:,}")
        return value

    def date_of(self, column: str) -> date | None:
        """Return a day; None if the cell is empty. Raises ConfigError."""
        if (text := self.text(column)) is None:
            return None
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise self.error(f"{column} '{text}' is not a day", "write it as 2026-11-20") from None

    def error(self, message: str, hint: str = "correct that line") -> ConfigError:
        """Return a ConfigError that names the file and the line."""
        return ConfigError(f"{self.path}, line {self.number}: {message}", hint)


def read_lines(path: str, columns: Sequence[str], required: Collection[str]) -> Iterator[CsvLine]:
    """Return the lines below the header, without empty lines and lines that begin with #.

    The separator is a comma, a semicolon or a tab, as in the header; a byte order mark is ignored. Columns beyond
    `columns` are ignored. Cells are read as fallow's own CSV writes them. Raises ConfigError.
    """
    text = given_text("the table", path, TABLE_BYTES, encoding="utf-8-sig")
    header = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    separator = max(_SEPARATORS, key=header.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator, strict=True)
    names: list[str] = []
    try:
        for fields in reader:
            if not any(field.strip() for field in fields) or fields[0].lstrip().startswith("#"):
                continue
            if not names:
                names = [field.strip().lower().replace(" ", "_") for field in fields]
                _check_header(path, names, columns, required)
                continue
            if any(field.strip() for field in fields[len(names) :]):
                raise ConfigError(
                    f"{path}, line {reader.line_num}: {len(fields)} cells where the header names {len(names)} columns",
                    "put text that holds a separator in double quotes",
                )
            written = [from_csv_cell(field.strip(" \t")) for field in fields]
            cells = [from_csv_cell(field.strip()) for field in fields]
            yield CsvLine(
                path,
                reader.line_num,
                dict(zip(names, cells, strict=False)),
                dict(zip(names, written, strict=False)),
                decimal_comma=separator != ",",
            )
    except csv.Error as error:
        raise ConfigError(f"{path}, line {reader.line_num}: not CSV: {error}", "correct that line") from error
    if not names:
        raise ConfigError(f"{path} has no header line", f"begin it with: {','.join(columns)}")


def _check_header(path: str, names: list[str], columns: Sequence[str], required: Collection[str]) -> None:
    for name in names:
        near = get_close_matches(name, columns, n=1, cutoff=0.75)
        if name not in columns and near and near[0] not in names:  # else a note of the site's own, which is no mistake
            raise ConfigError(f"{path} has a column '{name}'", f"did you mean '{near[0]}'?")
    if len(named := [name for name in names if name]) != len(set(named)):
        raise ConfigError(f"{path} names a column twice in its header line", "name each column once")
    missing = [name for name in required if name not in names]
    if missing:
        lacks = " and ".join(f"'{name}'" for name in missing)
        raise ConfigError(f"{path} lacks the column {lacks}", f"its header line names some of: {','.join(columns)}")


def _both_readings(number: str) -> str:
    """Return how to write a number whose points may separate thousands or be a decimal point."""
    whole, *groups = number.split(".")
    decimals = groups[0].rstrip("0")
    clear = f"write {whole}{''.join(groups)}"
    return clear if len(groups) > 1 else f"{clear}, or {whole}{',' if decimals else ''}{decimals}"
