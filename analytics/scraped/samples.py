"""Raw samples of series in a window, in the form that all readers of a metrics server return; selectors of series."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import polars as pl

Labels = Mapping[str, str]
"""The labels of one series, its name as `__name__`."""


_UNKNOWN = frozenset(("", "n/a", "[n/a]", "none", "<none>", "null", "nil", "unknown", "-", "[not supported]"))


def is_stated(value: str) -> bool:
    return value.lower() not in _UNKNOWN


def first_label(labels: Labels, names: tuple[str, ...]) -> str:
    """Return the value of the first of these labels that states one; empty where none does."""
    return next((labels[name] for name in names if is_stated(labels.get(name, ""))), "")


SAMPLE_SCHEMA: dict[str, pl.DataType] = {"series": pl.UInt32(), "time_ms": pl.Int64(), "value": pl.Float64()}


@dataclass(frozen=True)
class Samples:
    """`frame` has the columns of SAMPLE_SCHEMA, sorted by series and time; `series` is an index into `labels`.

    A null value is a staleness marker: the series ended there. NaN is a value of the exporter.
    """

    labels: tuple[Labels, ...]
    frame: pl.DataFrame


@dataclass(frozen=True)
class SeriesSelection:
    """The series to read from a server: metrics by name, of some or all targets, where the site's own matchers hold."""

    names: Collection[str]
    instances: Collection[str] | None = None
    """Values of the label `instance`; None: all."""

    match: str = ""
    """Matchers of PromQL, joined by commas."""

    only: Collection[tuple[str, str]] = ()
    """Labels and the regular expressions that match their whole values."""

    @property
    def text(self) -> str:
        return self.like("|".join(re.escape(name) for name in sorted(self.names)))

    def like(self, pattern: str) -> str:
        """Return the selector of metrics whose names match a regular expression, instead of the named ones."""
        parts = [f"__name__=~{_quoted_text(pattern)}"]
        if self.instances is not None:
            parts.append(f"instance=~{_quoted_text('|'.join(re.escape(each) for each in sorted(self.instances)))}")
        parts += [f"{label}=~{_quoted_text(own)}" for label, own in self.only]
        return "{" + ",".join([*parts, *([self.match.strip(", ")] if self.match else [])]) + "}"


def _quoted_text(pattern: str) -> str:
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
