"""How much of an input file is read: its decoded bytes, its rows and the longest of them, each with the setting that raises it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fallow.errors import InputError
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fallow.config import Config


@dataclass(frozen=True)
class InputLimits:
    """What one file may hold at most; a few kilobytes of gzip or Parquet can stand for more than any machine's memory."""

    max_bytes: int
    """Of the decoded file."""

    max_record_bytes: int
    """Of one line, or of one JSON or XML document."""

    max_rows: int

    @classmethod
    def of(cls, settings: Config) -> InputLimits:
        return cls(
            settings.integer("import.max_bytes"),
            settings.integer("import.max_record"),
            settings.integer("import.max_rows"),
        )

    def too_large(self, path: str) -> InputError:
        return InputError(
            f"{path} holds more than {format_bytes(self.max_bytes)} of data",
            "import it in parts, or raise import.max_bytes where it is a file that you trust",
        )

    def too_long(self, path: str) -> InputError:
        return InputError(
            f"{path} holds a line or document of more than {format_bytes(self.max_record_bytes)}",
            "check the file, or raise import.max_record where it is one that you trust",
        )

    def too_many(self, path: str) -> InputError:
        return InputError(
            f"{path} holds more than {self.max_rows:,} rows",
            "import it in parts, or raise import.max_rows where it is a file that you trust",
        )

    def check_rows(self, path: str, rows: int) -> None:
        """Raises InputError."""
        if rows > self.max_rows:
            raise self.too_many(path)

    def check_each(self, path: str, rows: Iterable[object]) -> None:
        """Raises InputError where there are too many; counts no further than it has to."""
        self.check_rows(path, sum(1 for _ in islice(rows, self.max_rows + 1)))

    def check_lines(self, path: str, text: bytes) -> None:
        """Raises InputError for too many lines, or one that is too long."""
        self.check_rows(path, text.count(b"\n"))
        start = 0
        while len(text) - start > self.max_record_bytes:
            end = text.rfind(b"\n", start, start + self.max_record_bytes + 1)
            if end < 0:
                raise self.too_long(path)
            start = end + 1
