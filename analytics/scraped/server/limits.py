"""How hard a metrics server may be asked, and how much of an answer is taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from fallow.config import Config


@dataclass(frozen=True)
class ServerLimits:
    """Counts, bytes and seconds; `rate` is requests a second."""

    concurrency: int = 4
    rate: float = 20.0
    attempts: int = 6
    """Of one request that meets a busy server or a broken connection: about a minute with the pauses between them."""

    connect_s: float = 10.0
    silence_s: float = 60.0
    """Without a byte."""

    answer_s: float = 600.0
    """For a whole answer, however steadily its bytes drip."""

    answer_bytes: int = 32 * 2**20
    """Unpacked. Half a million samples as JSON are 15 MB, and the labels of 10,000 series in Kubernetes another 7."""

    series_bytes: int = 192 * 2**20
    """The same of a list of series."""

    piece_samples: int = 500_000
    """What a piece should hold: 10 MB as a frame, and 150 MB while JSON is read."""

    most_series: int = 200_000
    """Of one selector."""

    most_labels: int = 500
    """Of one series."""

    @classmethod
    def of(cls, config: Config) -> Self:
        return cls(concurrency=config.integer("prometheus.concurrency"), rate=config.number("prometheus.rate"))
