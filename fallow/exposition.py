"""Metric families as data, and writers of the Prometheus text format and OpenMetrics for all `/metrics` of fallow.

prometheus_client would add 9 MiB to the agent and rename DCGM's counters.

Formats: Prometheus exposition format 0.0.4 and OpenMetrics 1.0.0. Counters of OpenMetrics end in `_total`; DCGM's
counters do not, and have the type `unknown` there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_SELF_EVIDENT = ("1", "0 or 1", "ratio", "bits", "code")

Value = float | bool


@dataclass(frozen=True)
class Family:
    """A metric; entries with the same name differ in `label`."""

    name: str
    unit: str
    meaning: str
    source: str
    """`table.column` of the lake's schema, or another source."""
    factor: float = 1
    """Converts the column's unit to `unit`."""
    kind: str = "gauge"
    label: tuple[str, str] | None = None

    @property
    def column(self) -> str:
        return self.source.partition(".")[2]


class ExposedSamples:
    """The samples of a scrape, by family name; a label set of a family has one value."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[Family, dict[str, Value]]] = {}

    def add(self, family: Family, value: Value | None, labels: str = "") -> None:
        """Add a value in the family's unit, with labels from `label_text`; None is unknown and left out."""
        if value is not None:
            self._families.setdefault(family.name, (family, {}))[1][labels] = value

    def add_column(self, family: Family, row: Mapping[str, Any], labels: str = "") -> None:
        """Add the value of the family's column in the row, in the family's unit and with the family's label."""
        value = row.get(family.column)
        if value is None:
            return
        if family.factor != 1:
            value = round(value * family.factor, 9)
        if family.label is not None:
            labels = ",".join(part for part in (labels, label_text(dict([family.label]))) if part)
        self.add(family, value, labels)

    def render(self, content_type: str) -> bytes:
        lines = [line for family, values in self._families.values() for line in _lines(family, values, content_type)]
        if content_type == OPEN_METRICS:
            lines.append("# EOF")
        return "\n".join([*lines, ""]).encode(errors="replace")


def label_text(labels: Mapping[str, object]) -> str:
    """Return `a="x",b="y"`; labels without a value are left out."""
    return ",".join(
        f'{name}="{str(value).translate(_ESCAPED)}"' for name, value in labels.items() if value not in (None, "")
    )


def negotiate(accept: str) -> str:
    """Return the content type for an Accept header: OpenMetrics if the header names it, else Prometheus text."""
    return OPEN_METRICS if "application/openmetrics-text" in accept.lower() else TEXT


def _lines(family: Family, values: dict[str, Value], content_type: str) -> Iterator[str]:
    name, kind = family.name, family.kind
    if content_type == OPEN_METRICS and kind == "counter":
        name, kind = (name.removesuffix("_total"), kind) if name.endswith("_total") else (name, "unknown")
    yield f"# HELP {name} {_help(family).translate(_ESCAPED if content_type == OPEN_METRICS else _ESCAPED_HELP)}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{family.name}{{{labels}}} {_number(value)}" if labels else f"{family.name} {_number(value)}"


_ESCAPED_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})


def _help(family: Family) -> str:
    return f"{family.meaning}." if family.unit in _SELF_EVIDENT else f"{family.meaning} (in {family.unit})."


def _number(value: Value) -> str:
    return repr(value if isinstance(value, float) else int(value))
