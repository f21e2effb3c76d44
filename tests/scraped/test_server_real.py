"""Real servers: every sample exactly once, by each way they offer, over windows that begin and end at samples."""

from __future__ import annotations

import json
import math
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from tests.scraped.exposed import Exposed, parsed
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.servers import PrometheusProcess, Replayer, ScrapeJob, VictoriaProcess, missing, replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.scraped.gateway import Asked
    from tests.scraped.servers import Exposure, MetricsProcess

_COUNT = 400
_NAMES = {"a": "plain", "b": 'C:\\x "quoted"\n', "c": "π|.*", "d": ""}
_ODD = {3: math.nan, 5: math.inf, 6: -math.inf, 10: None, 11: 0.0, 12: 1 / 3, 13: 1e-3, 399: None}


pytestmark = pytest.mark.long


class LabellingPrometheus(PrometheusProcess):
    """One that adds labels to what it hands on to others."""

    def _config(self) -> str:
        added = {"cluster": "x y: z", "replica": "a" * 200}
        return json.dumps({**json.loads(super()._config()), "global": {"external_labels": added}})


@pytest.fixture(
    params=[
        (PrometheusProcess, (), "remote-read"),
        (PrometheusProcess, ("--query.max-samples=150", "--storage.remote.read-sample-limit=150"), "remote-read"),
        (PrometheusProcess, ("--query.max-samples=150",), "range vectors"),
        (LabellingPrometheus, (), "remote-read"),
        (VictoriaProcess, (), "VictoriaMetrics export"),
        (VictoriaProcess, (), "range vectors"),
    ],
    ids=["read", "read-limited", "vectors-limited", "read-labelled", "export", "vectors-victoria"],
)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[MetricsProcess, MetricsServer]]:
    """A server, and the way to it; where only range vectors are left, a gateway knows nothing else."""
    if lacking := missing():
        pytest.skip(lacking)
    kind, flags, way = request.param
    limits = ServerLimits(rate=1e6, piece_samples=100)

    def without(asked: Asked, passed: Callable[[], Answered]) -> Answered:
        hidden = way == "range vectors" and asked.path.startswith(("/api/v1/read", "/api/v1/export"))
        return Answered(404) if hidden else passed()

    with (
        kind(tmp_path / "server", flags=flags) as process,
        Gateway(without, process.port) as gateway,
        MetricsServer.connect(ServerAddress(gateway.url), limits) as server,
    ):
        assert server.way == way
        assert server.name.startswith("Prometheus 2." if isinstance(process, PrometheusProcess) else "VictoriaMetrics")
        assert abs(server.clock_offset_ms() or 0) < 3000
        yield process, server


def truth(since_ms: int) -> list[Exposed]:
    """Series that lie a few milliseconds apart, one of which has all that a value can be."""
    return [
        Exposed(
            "util",
            (("gpu", gpu), ("why", text)) if text else (("gpu", gpu),),
            value,
            since_ms + 7_000 * number + 3 * place,
        )
        for place, (gpu, text) in enumerate(_NAMES.items())
        for number in range(_COUNT)
        for value in [_ODD.get(number, float(number)) if gpu == "b" else float(number)]
    ]


def test_every_sample_comes_once(asked: tuple[MetricsProcess, MetricsServer]) -> None:
    process, server = asked
    since_ms = time.time_ns() // 1_000_000 - 7_000 * _COUNT
    written = truth(since_ms)
    process.write(written)
    edges = [
        since_ms,
        since_ms + 7_000,
        since_ms + 7_000 * 11 + 3,
        since_ms + 7_000 * 200 - 1,
        since_ms + 7_000 * _COUNT,
    ]
    got = []
    for start_ms, end_ms in pairwise(edges):
        for piece in server.samples('util{gpu=~".+"}', start_ms, end_ms):
            got += [
                (labelled(piece.labels[series]), at_ms, bits(value)) for series, at_ms, value in piece.frame.iter_rows()
            ]
    assert sorted(got) == sorted(
        (key(each), each.time_ms, bits(each.value)) for each in written if is_kept(each, server)
    )
    assert sorted(map(labelled, server.series("util", edges[0], edges[-1]))) == sorted({key(each) for each in written})
    many = "|".join(f"nobody_has_metric_{number}" for number in range(400))
    for selector in ("util", f'{{__name__=~"util|{many}"}}'):
        assert server.names(selector, edges[0], edges[-1]) == ["util"]


def is_kept(sample: Exposed, server: MetricsServer) -> bool:
    """VictoriaMetrics drops an exporter's NaN, and Prometheus' range vectors have no staleness markers."""
    if sample.value is None:
        return not (server.way == "range vectors" and server.name.startswith("Prometheus"))
    return not (math.isnan(sample.value) and server.name == "VictoriaMetrics")


def key(sample: Exposed) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"__name__": sample.name, **dict(sample.labels)}.items()))


def labelled(labels: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def bits(value: float | None) -> str:
    """VictoriaMetrics keeps about twelve digits."""
    return "stale" if value is None else f"{value:.11g}"


_SEEDS = range(24)
_TEXTS = ('"', "\\", "\n", "é", "π|.*", '"values":[NaN', '"timestamps"', "x" * 1000, "\t\r", "\u2028", "😀", "'", "`",
          "{}", "+Inf", "</script>", "\x00", "\x1b", " ", "null", "\\n", "%s", "\ufeff")  # fmt: skip
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


_PAGE = """# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",Hostname="n1"} 5
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",Hostname="n1"} 65.25
"""


def test_a_server_has_what_was_exposed_and_nothing_for_the_time_that_it_was_away(
    server_type: type[MetricsProcess], tmp_path: Path
) -> None:
    exporter = Replayer(replayed(_PAGE, lambda sample, number: (sample.value or 0) + number))
    server = server_type(tmp_path / "server", [ScrapeJob("dcgm", (exporter.target,))])
    with exporter, server:
        exporter.wait_for(3)
        with exporter.away():
            exporter.wait_for(2)
        exporter.wait_for(2)
        with exporter.away():  # what is exposed to a server that is being stopped may not be kept
            exporter.wait_for(1)
            server.stop()
        server.start()
        exporter.wait_for(2)
        with exporter.away():
            exporter.wait_for(1)
            kept = {sample.name: server.kept(sample.name) for sample in parsed(_PAGE)}
        for name, samples in kept.items():
            assert [(each.labels, each.value) for each in samples] == exposed(exporter.exposures, name)
            times, answered = [each.time_ms for each in samples], [exposure.at_ms for exposure in exporter.exposures]
            # the server's time is that of its asking, which it may set up to 2 ms later for an even grid
            assert all(asked <= at + 2 for asked, at in zip(times, answered, strict=True))
            assert all(at <= asked + 2 for at, asked in zip(answered, times[1:], strict=False))


def exposed(exposures: list[Exposure], name: str) -> list[tuple[tuple[tuple[str, str], ...], float | None]]:
    return [(each.labels, each.value) for exposure in exposures for each in exposure.samples if each.name == name]
