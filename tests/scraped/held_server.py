"""A metrics server in memory, for schedules: what it has at which time, when it is away, and its request count."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import polars as pl

from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples
from analytics.scraped.server.answers import OversizedAnswerError
from analytics.scraped.server.ways import matchers
from fallow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.scraped.exposed import Exposed


@dataclass
class HeldServer:
    """What `analytics.scraped.server.metrics_server.MetricsServer` is to its users.

    `arrives` gives when a sample can be read, by its labels and time; `now_ms` is what the server's clock shows.
    """

    now_ms: Callable[[], int] = lambda: 1 << 60
    arrives: Callable[[Labels, int], int] = lambda _, time_ms: time_ms
    away: bool = False
    reads: int = 0
    fails_after: int | None = None
    most_series: int = 1_000_000
    name: str = "Held 1.0"
    way: str = "memory"
    warnings: tuple[str, ...] = ()
    offset_ms: int | None = 0
    _series: dict[tuple[tuple[str, str], ...], list[tuple[int, float | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def write(self, exposed: Iterable[Exposed]) -> None:
        for each in exposed:
            self._series[("__name__", each.name), *each.labels].append((each.time_ms, each.value))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def clock_offset_ms(self) -> int | None:
        return self.offset_ms

    def measured_offset_ms(self) -> int | None:
        self._check()
        return self.offset_ms

    def names(self, selector: str, since_ms: int, until_ms: int) -> list[str]:
        self._check()
        return sorted({labels["__name__"] for labels, _ in self._found(selector, since_ms, until_ms)})

    def series(self, selector: str, since_ms: int, until_ms: int) -> list[Labels]:
        self._check()
        found = [labels for labels, _ in self._found(selector, since_ms, until_ms)]
        if len(found) > self.most_series:
            raise OversizedAnswerError("more series than are taken", "narrow them")
        return found

    def samples(self, selector: str, since_ms: int, until_ms: int) -> Iterator[Samples]:
        self._check()
        self.reads += 1
        if self.fails_after is not None and self.reads > self.fails_after:
            raise InputError("the server has had enough", "ask it later")
        middle_ms = (since_ms + until_ms) // 2
        for span in ((since_ms, middle_ms), (middle_ms, until_ms)):
            found = self._found(selector, *span)
            rows = [(number, *each) for number, (_, samples) in enumerate(found) for each in samples]
            yield Samples(tuple(labels for labels, _ in found), pl.DataFrame(rows, SAMPLE_SCHEMA, orient="row"))

    def _check(self) -> None:
        if self.away:
            raise InputError("no connection to the server", "start it")

    def _found(
        self, selector: str, since_ms: int, until_ms: int
    ) -> list[tuple[Labels, list[tuple[int, float | None]]]]:
        wanted = matchers(selector)
        found = []
        for key, samples in self._series.items():
            labels = dict(key)
            if all(_takes(labels.get(each.name, ""), each.kind, each.value) for each in wanted):
                own = [
                    (time_ms, value)
                    for time_ms, value in samples
                    if since_ms <= time_ms < until_ms and self.arrives(labels, time_ms) <= self.now_ms()
                ]
                if own:
                    found.append((labels, own))
        return found


def _takes(value: str, kind: str, pattern: str) -> bool:
    if kind in {"=", "!="}:
        return (value == pattern) == (kind == "=")
    return bool(re.fullmatch(pattern, value)) == (kind == "=~")
