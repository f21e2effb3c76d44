"""The speed of turning a metrics server's raw samples into a frame and rows, by each way of reading and by `promtool`.

Real Prometheus and VictoriaMetrics on loopback: 80 GPUs, 6 metrics each, the labels of dcgm-exporter in Kubernetes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerConnection, ServerLimits
from analytics.scraped.server.ways import ExportLines, RangeVectors, RemoteRead
from benchmarks.measure import Figure, timed
from benchmarks.scraped_bill import bill
from tests.scraped.servers import PrometheusProcess, VictoriaProcess, missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from analytics.scraped.server.metrics_server import WayOfReading
    from tests.scraped.servers import MetricsProcess

GPUS = 80
METRICS = {
    "DCGM_FI_DEV_GPU_UTIL": (0, 101, 0),
    "DCGM_FI_DEV_FB_USED": (0, 81_559, 0),
    "DCGM_FI_DEV_POWER_USAGE": (60, 700, 3),
    "DCGM_FI_DEV_SM_CLOCK": (210, 1980, 0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (0, 1, 6),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (0, 1, 6),
}
"""Minimum, maximum and number of decimals."""

STEP_MS = 15_000
STEPS = 2_500
SAMPLES = GPUS * len(METRICS) * STEPS
WINDOWS = 4
"""Requests of at most half a million samples, as in ServerLimits."""

ALL = '{__name__=~"DCGM_.*"}'
READ_LONG = """
import sys
from pathlib import Path
from analytics.scraped.server.address import ServerAddress
from analytics.scraped.server.connection import ServerLimits
from analytics.scraped.server.metrics_server import MetricsServer
url, since_ms, until_ms, repeats = sys.argv[1], *map(int, sys.argv[2:])
with MetricsServer.connect(ServerAddress(url), ServerLimits(rate=1e6)) as server:
    count = sum(p.frame.height for _ in range(repeats) for p in server.samples('{__name__=~"DCGM_.*"}',
    since_ms, until_ms))
print(count, Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])  # ru_maxrss has what forked it, too
"""


def measure() -> Iterator[Figure]:
    """Yield the rates; nothing where the servers are not installed."""
    if lacking := missing():
        print(lacking, file=sys.stderr)
        return
    since_ms = time.time_ns() // 1_000_000 - STEP_MS * STEPS
    with tempfile.TemporaryDirectory() as name:
        prometheus = PrometheusProcess(Path(name) / "p")
        text = Path(name) / "history.txt"
        text.write_text(history(since_ms))
        blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", text, prometheus.folder / "data"]
        subprocess.run(blocks, check=True, capture_output=True)
        with prometheus:
            yield from _ways(prometheus, since_ms, {"remote_read": RemoteRead, "range_vectors": _range_vectors})
            yield from _promtool(prometheus, since_ms)
            yield from _memory(prometheus, since_ms)
        with VictoriaProcess(Path(name) / "v") as victoria:
            _load(victoria, text)
            yield from _ways(victoria, since_ms, {"export": ExportLines})
            yield from _memory(victoria, since_ms)


def _load(victoria: MetricsProcess, text: Path) -> None:
    """Load the history; OpenMetrics has times in seconds, VictoriaMetrics' import in milliseconds."""
    lines = (line.rpartition(" ") for line in text.read_text().splitlines() if not line.startswith("#"))
    body = "\n".join(f"{sample} {round(float(at_s) * 1000)}" for sample, _, at_s in lines)
    with ServerConnection(ServerAddress(victoria.url), ServerLimits()) as connection:
        connection.post("/api/v1/import/prometheus", body.encode(), {})
    victoria.has_all()


def history(since_ms: int) -> str:
    """Return the history as OpenMetrics text; half of all utilizations are 0."""
    generator = np.random.default_rng(1)
    lines = []
    for metric, (least, most, digits) in METRICS.items():
        lines.append(f"# TYPE {metric} gauge")
        for gpu in range(GPUS):
            labels = _labels(gpu)
            values = np.round(generator.uniform(least, most, STEPS) * generator.integers(0, 2, STEPS), digits)
            lines += [
                f"{metric}{{{labels}}} {value:.{digits}f} {(since_ms + STEP_MS * step + gpu) / 1000:.3f}"
                for step, value in enumerate(values.tolist())
            ]
    return "\n".join([*lines, "# EOF", ""])


def _labels(gpu: int) -> str:
    host = f"gn{gpu // 8:03d}"
    labels = {
        "gpu": gpu % 8, "UUID": f"GPU-{gpu:08x}-5f1c-4c3e-9d5b-000000000000", "device": f"nvidia{gpu % 8}",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": host, "container": "trainer", "namespace": "research",
        "pod": f"llm-pretrain-{gpu}-x7k2p", "instance": f"10.0.0.{gpu // 8}:9400", "job": "dcgm-exporter",
    }  # fmt: skip
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _range_vectors(connection: ServerConnection) -> RangeVectors:
    return RangeVectors(connection, lambda _: None)


def _ways(
    process: MetricsProcess, since_ms: int, ways: dict[str, Callable[[ServerConnection], WayOfReading]]
) -> Iterator[Figure]:
    address, limits = ServerAddress(process.url), ServerLimits(rate=1e6)
    with ServerConnection(address, limits) as connection:
        for name, way in ways.items():
            reader = way(connection)
            served_s = -_cpu_of(process)
            cpu, _ = timed(lambda reader=reader: _read(reader, since_ms))
            served_s += _cpu_of(process)
            how = f"{SAMPLES:,} samples from {process.name} to frames, median of 3"
            yield Figure(f"scraped_{name}_samples_per_cpu_s", SAMPLES / cpu, "samples/s", f"{how}, our CPU seconds")
            how = f"{SAMPLES:,} samples from {process.name}, mean of 3, the server's CPU seconds"
            yield Figure(f"scraped_{name}_served_per_cpu_s", 3 * SAMPLES / served_s, "samples/s", how)
            yield from bill(name, reader, ALL, range(since_ms, since_ms + STEP_MS * STEPS, STEP_MS))


def _cpu_of(process: MetricsProcess) -> float:
    """Return the CPU seconds of a server, which is a child of this process."""
    [server] = [each for each in psutil.Process().children() if each.cmdline()[0] == process.command]
    return sum(server.cpu_times()[:2])


def _read(reader: WayOfReading, since_ms: int) -> None:
    edges = [since_ms + STEP_MS * STEPS * number // WINDOWS for number in range(WINDOWS + 1)]
    count = 0
    for start_ms, end_ms in pairwise(edges):
        count += reader.parse(reader.fetch(ALL, start_ms, end_ms), start_ms, end_ms).frame.height
    if count != SAMPLES:
        raise SystemExit(f"{count:,} samples where there are {SAMPLES:,}")


def _promtool(process: PrometheusProcess, since_ms: int) -> Iterator[Figure]:
    """Yield promtool's times. It prints its samples; its dump reads the blocks without a server."""
    end_s = (since_ms + STEP_MS * STEPS) / 1000
    commands = {
        "query": ["promtool", "query", "instant", f"--time={end_s:.3f}", process.url, f"{ALL}[{STEP_MS * STEPS}ms]"],
        "dump": ["promtool", "tsdb", "dump", str(process.folder / "data")],
    }
    for name, command in commands.items():
        cpu, _ = timed(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        how = f"`promtool {' '.join(command[1:3])}` of the same {SAMPLES:,} samples to text, median of 3, CPU seconds"
        yield Figure(f"scraped_promtool_{name}_samples_per_cpu_s", SAMPLES / cpu, "samples/s", how)


def _memory(process: MetricsProcess, since_ms: int) -> Iterator[Figure]:
    """Yield the memory of a process that reads the whole range once and ten times."""
    for repeats in (1, 10):
        arguments = [process.url, str(since_ms), str(since_ms + STEP_MS * STEPS), str(repeats)]
        done = subprocess.run(
            [sys.executable, "-c", READ_LONG, *arguments], check=True, stdout=subprocess.PIPE, text=True
        )
        count, peak_kib = map(int, done.stdout.split())
        how = f"peak resident memory of a process that reads {count:,} samples from {process.name}"
        yield Figure(f"scraped_{process.name}_{repeats}x_peak_mib", peak_kib / 1024, "MiB", how)
