"""What an exporter exposed: single samples, and the text pages that hold them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, order=True)
class Exposed:
    """One sample; `labels` sorted, without the name. A value of None ends the series: a staleness marker."""

    name: str
    labels: Labels
    value: float | None
    time_ms: int = 0

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")

    def labelled(self, **labels: str) -> Exposed:
        """The same with these labels instead; an empty one takes the label away."""
        merged = dict(self.labels) | labels
        return replace(self, labels=tuple(sorted((name, value) for name, value in merged.items() if value)))


def parsed(page: str) -> tuple[Exposed, ...]:
    """The samples of a page in Prometheus' text format, in its order."""
    found = (_LINE.match(line) for line in page.splitlines() if line and not line.startswith("#"))
    return tuple(
        Exposed(match["name"], tuple(sorted(_LABEL.findall(match["labels"] or ""))), float(match["value"]))
        for match in found
        if match
    )


def page_of(samples: Iterable[Exposed]) -> str:
    """A page in Prometheus' text format, without times: what an exporter answers."""
    return "".join(f"{_series(sample)} {_number(sample.value)}\n" for sample in samples if sample.value is not None)


def _series(sample: Exposed) -> str:
    labels = ",".join(f'{name}="{value}"' for name, value in sample.labels)
    return f"{sample.name}{{{labels}}}" if labels else sample.name


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    return repr(value) if value != int(value) else str(int(value))
