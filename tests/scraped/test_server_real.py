"""Real servers: every sample exactly once, by each way that they offer, over windows that begin and end where samples are."""

from __future__ import annotations

import json
import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
from tests.scraped.exposed import Exposed
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.servers import PrometheusProcess, VictoriaProcess, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long
_COUNT = 400
_NAMES = {"a": "plain", "b": 'C:\\x "quoted"\n', "c": "π|.*", "d": ""}
_ODD = {3: math.nan, 5: math.inf, 6: -math.inf, 10: None, 11: 0.0, 12: 1 / 3, 13: 1e-3, 399: None}


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
