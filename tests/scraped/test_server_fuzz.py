"""Real servers with series that nobody would write by hand: each way of reading gives what was written, over windows cut anywhere."""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING

import pytest

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.scraped.exposed import Exposed
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.test_server_real import bits, is_kept, key, labelled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long
_SEEDS = range(24)
_TEXTS = ('"', "\\", "\n", "é", "π|.*", '"values":[NaN', '"timestamps"', "x" * 1000, "\t\r", "\u2028", "😀", "'", "`", "{}", "+Inf",
          "</script>", "\x00", "\x1b", " ", "null", "\\n", "%s", "\ufeff")  # fmt: skip
_VALUES = {
    "counts": (0.0, 1.0, 37.0, 100.0),
    "fractions": (-0.0, 0.1, 1 / 3, 100 / 3, 1e-3, 12.5),
    "none": (math.inf, -math.inf, 0.0, 3.0),
    # VictoriaMetrics has one power of ten for many values in a row: of both ends of the scale it keeps the large one
    "wild": (5e-324, 1e300, -1e300, 2.0**53 + 1, 2.0**63, 1 / 3, math.inf, -5.0),
}


class _Written:
    """The series of one seed, from `since_ms` on."""

    def __init__(self, seed: int, since_ms: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # the same series every time
        self.name = f"m{seed}"
        self.since_ms = since_ms
        self.span_ms = self._random.choice([5 * MINUTE_MS, HOUR_MS, 12 * HOUR_MS, 26 * HOUR_MS])
        self._wild: set[str] = set()
        every = (each for number in range(self._random.randrange(2, 9)) for each in self._series(str(number)))
        self.samples = sorted(every, key=lambda each: each.time_ms)

    def windows(self) -> list[tuple[int, int]]:
        moments = [each.time_ms for each in self._random.sample(self.samples, min(len(self.samples), 9))]
        edges = [moment + self._random.choice([-1, 0, 1]) for moment in moments]
        edges += [self.since_ms, self.since_ms + self.span_ms]
        return [(first, last) for first, last in (sorted(self._random.sample(edges, 2)) for _ in range(4))]

    def word(self, server: MetricsServer, number: str, value: float | None) -> str:
        """What is compared of a value; 0 has no sign."""
        is_rough = value is not None and number in self._wild and server.name == "VictoriaMetrics"
        return "number" if is_rough else bits(value if value is None else value + 0.0)

    def _series(self, number: str) -> list[Exposed]:
        draw = self._random
        labels = {draw.choice(["a", "values", "metric", "le"]): draw.choice(_TEXTS), "n": number}
        kind = draw.choice(list(_VALUES))
        if kind == "wild":
            self._wild.add(number)
        count, step_ms = draw.choice([1, 2, 10, 150]), draw.choice([1, 1000, 15_000, self.span_ms // 150])
        start_ms = self.since_ms + draw.randrange(max(1, self.span_ms - count * step_ms))
        times = [start_ms + step_ms * place for place in range(count)][:: draw.choice([1, 1, 7])]
        own = tuple(sorted(labels.items()))
        values = [self._value(kind, 0.4 if at in {times[0], times[-1]} else 0.1) for at in times]
        return [Exposed(self.name, own, value, at) for at, value in zip(times, values, strict=True)]

    def _value(self, kind: str, ends: float) -> float | None:
        """`ends` is how probable a staleness marker is."""
        if self._random.random() < ends:
            return None
        return math.nan if self._random.random() < 0.05 else self._random.choice(_VALUES[kind])


def test_what_was_written_is_read_by_every_way(server_type: type[MetricsProcess], tmp_path: Path) -> None:
    since_ms = time.time_ns() // 1_000_000 - 30 * DAY_MS
    limits = ServerLimits(rate=1e6, piece_samples=100)
    with (
        server_type(tmp_path / "server") as process,
        Gateway(_only_vectors, process.port) as gateway,
        MetricsServer.connect(ServerAddress(process.url), limits) as direct,
        MetricsServer.connect(ServerAddress(gateway.url), limits) as vectors,
    ):
        assert direct.way != vectors.way
        for seed in _SEEDS:
            written = _Written(seed, since_ms)
            since_ms += written.span_ms
            process.write(written.samples)
            for window in written.windows():
                for server in (direct, vectors):
                    where = f"seed {seed}, {server.way}, {window}"
                    assert _read(server, written, *window) == _truth(server, written, *window), where


def _only_vectors(asked: Asked, passed: Callable[[], Answered]) -> Answered:
    return Answered(404) if asked.path.startswith(("/api/v1/read", "/api/v1/export")) else passed()


def _truth(server: MetricsServer, written: _Written, since_ms: int, until_ms: int) -> list[tuple[object, ...]]:
    kept = (each for each in written.samples if since_ms <= each.time_ms < until_ms and is_kept(each, server))
    return sorted((key(each), each.time_ms, written.word(server, each.label("n"), each.value)) for each in kept)


def _read(server: MetricsServer, written: _Written, since_ms: int, until_ms: int) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for piece in server.samples(written.name, since_ms, until_ms):
        for series, time_ms, value in piece.frame.iter_rows():
            labels = piece.labels[series]
            found.append((labelled(labels), time_ms, written.word(server, labels["n"], value)))
    assert {series for series, *_ in found} <= set(map(labelled, server.series(written.name, since_ms, until_ms)))
    assert not found or server.names(written.name, since_ms, until_ms) == [written.name]
    return sorted(found)
