"""Real Prometheus and VictoriaMetrics from Debian's packages, and exporters, on loopback, each in its own folder.

Both scrape the targets that they are given, and take samples of any time by remote-write: days of history at once, or
as a test's clock goes on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import cramjam

from analytics.scraped.server.ways import ReadResponse
from tests.conftest import clean_environment
from tests.fakes.nvml import library_folder
from tests.scraped.exposed import Exposed, page_of, parsed
from tests.scraped.gateway import Answered, Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from http.server import BaseHTTPRequestHandler

    from tests.fakes.nvml import Scenario

_UP_WITHIN_S = 60.0
_BATCH = 50_000
"""Samples in a request."""


@dataclass(frozen=True)
class ScrapeJob:
    """Targets (`host:port`) that a server scrapes; `options` are further keys of Prometheus' `scrape_config`."""

    name: str
    targets: tuple[str, ...]
    interval_s: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        interval = f"{self.interval_s}s"
        static = [{"targets": list(self.targets)}]
        times = {"scrape_interval": interval, "scrape_timeout": interval}
        return {"job_name": self.name, "static_configs": static, **times, **self.options}


class MetricsProcess:
    """A server that keeps its port and its folder when it is started again."""

    name: str
    command: str
    healthy: str
    """The path that answers 200 once the server can be asked."""

    def __init__(self, folder: Path, jobs: Sequence[ScrapeJob] = (), flags: Sequence[str] = ()) -> None:
        self.folder = folder
        self.jobs = tuple(jobs)
        self.flags = tuple(flags)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns when the server answers."""
        (self.folder / "scrape.yml").write_text(self._config())
        with (self.folder / "log").open("ab") as log:
            command = [self.command, *self._arguments(), *self.flags]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=clean_environment({"GOMAXPROCS": "2"})
            )
        wait_until(self._answers, lambda: (self.folder / "log").read_text(errors="replace")[-2000:])

    def stop(self) -> None:
        """Asks it to end, as a service manager does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Gives it no time for anything."""
        self._end(signal.SIGKILL)

    def write(self, exposed: Iterable[Exposed]) -> None:
        """Take these samples as they are: per series in order of time, none older than an hour before the newest."""
        for samples in batched(exposed, _BATCH):
            self._post("/api/v1/write", written_request(samples))
        self.has_all()

    def has_all(self) -> None:
        """Returns when everything that was written can be read."""

    def ask(self, query: str, **parameters: str) -> list[dict[str, Any]]:
        """What the instant API answers; VictoriaMetrics' has NaN where a series ends."""
        answer = self._get(f"/api/v1/query?{urlencode({'query': query, **parameters})}")
        result: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return result

    def kept(self, selector: str, within: str = "3h") -> list[Exposed]:
        """The samples `within` the last hours, by series and time, without `instance` and `job`, and without NaN."""
        self.has_all()
        return sorted(
            Exposed(series["metric"]["__name__"], own_labels(series["metric"]), float(value), round(float(at_s) * 1000))
            for series in self.ask(f"{selector}[{within}]")
            for at_s, value in series["values"]
            if value != "NaN"
        )

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def _config(self) -> str:
        return json.dumps({"scrape_configs": [job.config() for job in self.jobs]})

    def _answers(self) -> bool:
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            raise RuntimeError(f"{self.command} ended with {code}: {(self.folder / 'log').read_text()[-2000:]}")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", self.healthy)
            return connection.getresponse().status in {200, 401}
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        self._process.wait(timeout=60)
        self._process = None

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:  # noqa: S310  # loopback
            content: bytes = answer.read()
            return content

    def _post(self, path: str, body: bytes) -> None:
        headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
        request = urllib.request.Request(f"{self.url}{path}", data=body, headers=headers, method="POST")  # noqa: S310
        with urllib.request.urlopen(request, timeout=120):  # noqa: S310
            return


class PrometheusProcess(MetricsProcess):
    """Debian's Prometheus."""

    name = "prometheus"
    command = "prometheus"
    healthy = "/-/ready"

    def _arguments(self) -> list[str]:
        return [
            f"--config.file={self.folder / 'scrape.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            "--storage.tsdb.retention.time=60d",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ]


class VictoriaProcess(MetricsProcess):
    """Debian's VictoriaMetrics."""

    name = "victoriametrics"
    command = "victoria-metrics"
    healthy = "/health"

    def has_all(self) -> None:
        self._get("/internal/force_flush")

    def _arguments(self) -> list[str]:
        return [
            f"-storageDataPath={self.folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=60d",
            f"-promscrape.config={self.folder / 'scrape.yml'}",
            "-memory.allowedBytes=256MiB",
            "-loggerLevel=WARN",
            "-search.latencyOffset=0s",
            "-search.disableCache",
        ]


SERVERS = (PrometheusProcess, VictoriaProcess)


def own_labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Those that an exporter gave its series."""
    return tuple(sorted((name, value) for name, value in labels.items() if name not in {"__name__", "instance", "job"}))


def batched(samples: Iterable[Exposed], size: int) -> Iterator[list[Exposed]]:
    """Lists of so many, the last one shorter."""
    source = iter(samples)
    while batch := list(islice(source, size)):
        yield batch


def missing() -> str:
    """What has to be installed for both to run here; empty where everything is there."""
    if all(shutil.which(name) for name in ("prometheus", "promtool", "victoria-metrics")):
        return ""
    return "no metrics servers here: apt-get install prometheus victoria-metrics"


def free_port() -> int:
    """A port that is free now: servers are told theirs before they listen."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    return port


def wait_until(true: Callable[[], bool], why_not: Callable[[], str]) -> None:
    """Raises TimeoutError with what `why_not` says after a minute."""
    deadline = time.monotonic() + _UP_WITHIN_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(why_not())
        time.sleep(0.02)


_STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The NaN that Prometheus ends a series with."""


def written_request(samples: Iterable[Exposed]) -> bytes:
    """The body of a request with these samples, packed as it travels."""
    series: dict[tuple[str, tuple[tuple[str, str], ...]], list[Exposed]] = defaultdict(list)
    for sample in samples:
        series[sample.name, sample.labels].append(sample)
    written = ReadResponse().results.add()  # on the wire the same as a WriteRequest
    for (name, labels), own in series.items():
        one = written.timeseries.add()
        for label, value in sorted((("__name__", name), *labels)):
            one.labels.add(name=label.encode(), value=value.encode())
        for each in own:
            one.samples.add(value=_STALE if each.value is None else each.value, timestamp=each.time_ms)
    return bytes(cramjam.snappy.compress_raw(written.SerializeToString()))


@dataclass(frozen=True)
class Exposure:
    """One scrape that was answered whole: when (epoch, ms), and with which samples."""

    at_ms: int
    samples: tuple[Exposed, ...]


class Replayer(Gateway):
    """Serves `/metrics` on loopback; `pages` gives the text of the n-th page that is answered."""

    def __init__(self, pages: Callable[[int], str]) -> None:
        super().__init__(self._answer)
        self.exposures: list[Exposure] = []
        self.target = self.url.removeprefix("http://")
        self._exposure: Exposure | None = None
        self._away = False
        self._pages = pages
        self._turn = threading.Lock()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Scrapes fail."""
        with self._turn:
            self._away = True
        yield
        with self._turn:
            self._away = False

    def wait_for(self, scrapes: int) -> None:
        """Returns when it was asked so many times more, also while it was away."""
        until = len(self.asked) + scrapes
        wait_until(lambda: len(self.asked) >= until, lambda: "nobody scrapes")

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """One scrape at a time, so that exposures have an order; one that was not waited for is none."""
        with self._turn:
            self._exposure = None
            super().serve(request)
            if self._exposure is not None:
                self.exposures.append(self._exposure)

    def _answer(self, *_: object) -> Answered:
        if self._away:
            return Answered(503)
        page = self._pages(len(self.exposures))
        self._exposure = Exposure(time.time_ns() // 1_000_000, parsed(page))
        return Answered(200, page.encode(), {"Content-Type": "text/plain; version=0.0.4"})


def replayed(
    page: str, script: Callable[[Exposed, int], float | None], relabel: Mapping[str, str] | None = None
) -> Callable[[int], str]:
    """A recorded page with the script's values (None leaves a sample out), with labels replaced by `relabel`."""
    recorded = [sample.labelled(**(relabel or {})) for sample in parsed(page)]
    return lambda number: page_of(replace(sample, value=script(sample, number)) for sample in recorded)


@contextmanager
def nvitop_exporter(scenario: Scenario, folder: Path, interval_s: float = 0.5) -> Iterator[str]:
    """Yields the target (`host:port`) to scrape; it looks at the driver every `interval_s`, whoever scrapes it."""
    target = f"127.0.0.1:{(port := free_port())}"
    played = scenario.environment(library_folder(), scenario.write(folder / "scenario"))
    command = [
        str(Path(sys.executable).with_name("nvitop-exporter")),
        "--bind-address",
        "127.0.0.1",
        "--port",
        str(port),
        "--interval",
        str(interval_s),
    ]
    with (folder / "nvitop.log").open("wb") as log:
        program = subprocess.Popen(command, env=clean_environment(played), stdout=log, stderr=log)
        try:
            wait_until(lambda: b"gpu_utilization" in scraped(target), (folder / "nvitop.log").read_text)
            yield target
        finally:
            program.kill()
            program.wait()


def scraped(target: str) -> bytes:
    """The page as a server gets it; empty while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{target}/metrics", timeout=30) as answer:
            page: bytes = answer.read()
    except OSError:
        return b""
    return page
