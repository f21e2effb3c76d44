"""The series of recorded pages, under the labels that a Prometheus server adds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.scraped.exposed import parsed

if TYPE_CHECKING:
    from analytics.scraped.samples import Labels

RECORDED = Path(__file__).parent / "recorded"


def recorded_labels(exporter: str, **added: str) -> list[Labels]:
    """One entry for each series of `recorded/EXPORTER.prom`."""
    page = (RECORDED / f"{exporter}.prom").read_text(encoding="utf-8")
    target = {"job": exporter, "instance": "10.0.0.7:9400"} | added
    return [{"__name__": sample.name, **dict(sample.labels), **target} for sample in parsed(page)]
