"""The report as CSV: every figure of the JSON form on a line of its own, for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

from analytics.language.language import Language
from analytics.render.report.json_format import content
from analytics.report.model import Report

_RISKY = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets take for the start of a formula."""


class CsvFormat:
    """`--format csv`."""

    name = "csv"
    suffix = ".csv"

    def render(self, report: Report, language: Language) -> bytes:  # noqa: ARG002  # for machines
        """The columns `figure`, a path such as `ledger.gpu_hours.free`, and `value`, empty where it is unknown."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("figure", "value"))
        writer.writerows(_figures("", content(report)))
        return text.getvalue().encode()


def _figures(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _figures(f"{path}.{name}" if path else str(name), each)
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value, start=1):
            yield from _figures(f"{path}.{number}", each)
    elif isinstance(value, str):
        yield _safe(path), _safe(value)
    else:
        yield _safe(path), "" if value is None else json.dumps(value)


def _safe(text: str) -> str:
    """Text that a spreadsheet shows and does not run: names come from users."""
    return f"'{text}" if text.startswith(_RISKY) else text
