"""Servers that are none, do not let in, break off or say too much: one sentence with a remedy, and a lake as it was."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from analytics.scraped.server.connection import ServerLimits
from fallow.clock import format_ms
from tests.conftest import REPOSITORY, clean_environment
from tests.in_process import run_in_process
from tests.lakes import holds_nothing, made_lake
from tests.scraped.exposed import DCGM, Exposed, facts_in
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.servers import PrometheusProcess, VictoriaProcess, free_port, missing
from tests.scraped.site import GPUS, HOUR_MS, dcgm, site_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fallow.lake import Lake
    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

    Fault = Callable[[Asked, Callable[[], Answered]], Answered]

pytestmark = pytest.mark.long
_MINUTE_MS = 60_000
_JSON = {"Content-Type": "application/json"}
_HTML = {"Content-Type": "text/html; charset=utf-8"}
_TOKEN = "token-of-the-tests"  # noqa: S105  # known to everybody


@pytest.fixture(scope="module")
def upstreams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, MetricsProcess]]:
    """Both servers, with the same hour of two hosts."""
    if lacking := missing():
        pytest.skip(lacking)
    with ExitStack() as stack:
        servers = [kind(tmp_path_factory.mktemp(kind.name)) for kind in (PrometheusProcess, VictoriaProcess)]
        for server in servers:
            stack.enter_context(server).write(an_hour())
        yield {server.name: server for server in servers}


def an_hour() -> Iterator[Exposed]:
    until_ms = time.time_ns() // 60_000_000_000 * _MINUTE_MS
    return site_samples(dcgm, range(until_ms - 60 * _MINUTE_MS, until_ms, 15_000), GPUS[:8])


def imported(
    url: str, lake: Lake, *flags: str, limits: ServerLimits | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command, which waits less for a server than it does for people."""
    patient = limits or ServerLimits(attempts=3, silence_s=0.5, rate=1000)
    with (
        patch.object(ServerLimits, "of", lambda _: patient),
        patch("analytics.scraped.server.connection._FIRST_PAUSE_S", 0.01),
    ):
        return run_in_process(
            "import", "prometheus", "--url", url, "--since", "2h", "--lake", lake.root, "--yes", *flags, **environment
        )


def assert_one_sentence(done: subprocess.CompletedProcess[str], says: str, code: int = 1) -> None:
    """`says` is a pattern of the sentence with its remedy."""
    assert done.returncode == code, done.stdout + done.stderr
    *before, sentence = done.stderr.splitlines()
    assert re.search(says, sentence), sentence
    assert all("reading by" in line for line in before), "what was found, and then the sentence"
    assert "Traceback" not in done.stdout


def reads(asked: Asked) -> bool:
    """Whether a request is for samples."""
    return asked.path.startswith(("/api/v1/read", "/api/v1/export")) or b"%5B" in asked.body


@dataclass(frozen=True)
class BadServer:
    """What it answers instead, and what is said of it."""

    says: str
    fault: Fault


def _always(answered: Answered) -> Fault:
    return lambda _, __: answered


def _said(status: int, error: str) -> Answered:
    return Answered(status, json.dumps({"status": "error", "errorType": "x", "error": error}).encode(), _JSON)


BAD = {
    "page": BadServer("a web page answers at .*; give the URL",
                      _always(Answered(200, b"<html><body>It works!", _HTML))),
    "no_json": BadServer("not that of a metrics server; give the URL", _always(Answered(200, b"ok\n"))),
    "no_login": BadServer("answers 401.*; set FALLOW_PROM_TOKEN", _always(Answered(401, b"Unauthorized\n"))),
    "busy": BadServer("answers 503: starting up; try again later", _always(_said(503, "starting up"))),
    "failing": BadServer("answers 500", _always(_said(500, "input/output error"))),
    "silent": BadServer("sent nothing for 0.5 s; check whether the server is busy",
                        _always(Answered(200, b"{}", _JSON, cut_at=0, stalls=True))),
    "cut": BadServer("broke before its answer was whole; try again",
                     _always(Answered(200, b'{"status":"success"}' * 9, _JSON, cut_at=20))),
}  # fmt: skip
"""From the first request on; `test_server_refusals` has every sentence."""


@pytest.mark.parametrize("case", BAD)
def test_a_bad_server_is_one_sentence(case: str, lake: Lake) -> None:
    with Gateway(BAD[case].fault) as gateway:
        assert_one_sentence(imported(gateway.url, lake), BAD[case].says)
    assert holds_nothing(lake)


def test_a_port_that_nobody_listens_on(lake: Lake) -> None:
    done = imported(f"http://127.0.0.1:{free_port()}", lake)
    assert_one_sentence(done, "cannot reach http://127.*; check the host, the port and http against https")
    assert holds_nothing(lake)


WHILE_READING = {
    "cut": BadServer("broke before its answer was whole; try again", lambda _, pass_on: _cut(pass_on())),
    "silent": BadServer("sent nothing for 0.5 s", lambda _, pass_on: _cut(pass_on(), stalls=True)),
    "no_longer": BadServer("answers 403", lambda _, __: Answered(403, b"Forbidden\n")),
    "page": BadServer("a web page answers", lambda _, __: Answered(200, b"<html>We are busy</html>", _HTML)),
    "garbage": BadServer("is truncated or garbled; try again", lambda _, pass_on: _garbled(pass_on())),
}
"""Only where samples are read."""


def _cut(answered: Answered, *, stalls: bool = False) -> Answered:
    return Answered(answered.status, answered.body, answered.headers, cut_at=len(answered.body) // 2, stalls=stalls)


def _garbled(answered: Answered) -> Answered:
    """Its second half is of something else, and the length is right."""
    half = len(answered.body) // 2
    return Answered(answered.status, answered.body[:half] + b"\xff" * (len(answered.body) - half), answered.headers)


@pytest.mark.parametrize("server", [PrometheusProcess.name, VictoriaProcess.name])
@pytest.mark.parametrize("case", WHILE_READING)
def test_a_server_that_fails_while_samples_are_read(
    case: str, server: str, upstreams: Mapping[str, MetricsProcess], lake: Lake
) -> None:
    """Nothing half-written, and the same command completes the import when the server is well again."""
    bad = WHILE_READING[case]
    with Gateway(lambda asked, on: bad.fault(asked, on) if reads(asked) else on(), upstreams[server].port) as gateway:
        assert_one_sentence(imported(gateway.url, lake), bad.says)
        assert holds_nothing(lake)
        gateway.fault = lambda _, pass_on: pass_on()
        done = imported(gateway.url, lake)
    assert done.returncode == 0, done.stderr
    assert len(facts_in(lake, DCGM)) == 240 * 8 * 7


def test_a_wrong_token_and_the_right_one(upstreams: Mapping[str, MetricsProcess], lake: Lake) -> None:
    """The remedy that the sentence names is one."""

    def guarded(asked: Asked, pass_on: Callable[[], Answered]) -> Answered:
        allowed = asked.headers.get("authorization") == f"Bearer {_TOKEN}"
        return pass_on() if allowed else Answered(401, b"Unauthorized\n")

    with Gateway(guarded, upstreams["prometheus"].port) as gateway:
        wrong = imported(gateway.url, lake, FALLOW_PROM_TOKEN="wrong-" + _TOKEN)
        assert_one_sentence(wrong, "answers 401.*; check the token")
        assert _TOKEN not in wrong.stderr + wrong.stdout
        assert holds_nothing(lake)
        right = imported(gateway.url, lake, FALLOW_PROM_TOKEN=_TOKEN)
    assert right.returncode == 0, right.stderr
    assert not holds_nothing(lake)


def test_a_server_without_gpus(tmp_path: Path, lake: Lake) -> None:
    with PrometheusProcess(tmp_path / "server") as server:
        server.write([Exposed("node_load1", (("instance", "n1:9100"),), 1.0, time.time_ns() // 1_000_000)])
        assert_one_sentence(imported(server.url, lake), "GPU")
    assert holds_nothing(lake)


def test_a_series_with_a_million_labels(tmp_path: Path, lake: Lake) -> None:
    labels = {f"label_{number}": "x" for number in range(1_000_000)} | {"UUID": "GPU-a", "gpu": "0", "Hostname": "n1"}
    with PrometheusProcess(tmp_path / "server") as server:
        server.write([Exposed("DCGM_FI_DEV_GPU_UTIL", tuple(sorted(labels.items())), 1.0, time.time_ns() // 1_000_000)])
        done = imported(server.url, lake, limits=ServerLimits(attempts=1))
    assert_one_sentence(done, "labels")
    assert holds_nothing(lake)


def test_more_series_than_are_read(upstreams: Mapping[str, MetricsProcess], lake: Lake) -> None:
    done = imported(upstreams["prometheus"].url, lake, limits=ServerLimits(most_series=10))
    assert_one_sentence(done, "series.*--match")
    assert holds_nothing(lake)


BUSY = {
    "unavailable": lambda asked, pass_on: _said(503, "starting") if asked.number % 3 == 2 else pass_on(),
    "too_often": lambda asked, pass_on: (
        Answered(429, b"", {"Retry-After": "0"}) if asked.number % 3 == 2 else pass_on()
    ),
    "cut": lambda asked, pass_on: _cut(pass_on()) if asked.number % 3 == 2 else pass_on(),
}


@pytest.mark.parametrize("server", [PrometheusProcess.name, VictoriaProcess.name])
@pytest.mark.parametrize("case", BUSY)
def test_a_busy_server_is_asked_again(
    case: str, server: str, upstreams: Mapping[str, MetricsProcess], lake: Lake
) -> None:
    with Gateway(BUSY[case], upstreams[server].port) as gateway:
        done = imported(gateway.url, lake)
    assert done.returncode == 0, done.stderr
    assert len(facts_in(lake, DCGM)) == 240 * 8 * 7


def test_a_server_with_small_limits_is_asked_for_less(tmp_path: Path, lake: Lake) -> None:
    """Real refusals: 422 of the query API, 400 of remote-read."""
    flags = ["--query.max-samples=2000", "--storage.remote.read-sample-limit=2000"]
    with PrometheusProcess(tmp_path / "server", flags=flags) as server:
        server.write(an_hour())
        done = imported(server.url, lake)
    assert done.returncode == 0, done.stderr
    assert len(facts_in(lake, DCGM)) == 240 * 8 * 7


def test_labels_that_contradict_each_other(tmp_path: Path, lake: Lake) -> None:
    """Two replicas, a card under two host names, and two pods with different values of one card: each moment once."""
    hour = list(an_hour())
    replicas = [
        each.labelled(replica=name) for each in hour for name in ("a", "b") if each.label("Hostname") == "gn001"
    ]
    renamed = [
        each.labelled(Hostname="gn002.example.org", instance="10.0.0.2:9400")
        for each in hour
        if each.label("Hostname") == "gn002"
    ]
    pods = [
        replace(each.labelled(pod="other"), value=(each.value or 0) + 1) for each in hour if each.label("gpu") == "3"
    ]
    with PrometheusProcess(tmp_path / "server") as server:
        server.write([*hour, *replicas, *renamed, *pods])
        done = imported(server.url, lake)
    assert done.returncode == 0, done.stderr
    assert "another source has the GPU at that time" in done.stdout
    assert "gn002 is gn002.example.org by another name" in done.stdout
    found = facts_in(lake, DCGM)
    assert len(found) == len({each[:3] for each in found}) == 240 * 8 * 7


class Killer:
    """Kill an import with SIGKILL at its n-th request for samples, which gets no answer, or after so many files."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._reads = 0

    def __call__(self, asked: Asked, pass_on: Callable[[], Answered]) -> Answered:
        """What the gateway does with a request."""
        if self._process is not None and reads(asked):
            self._reads -= 1
            if self._reads < 0:
                self._process.send_signal(signal.SIGKILL)
                return Answered(cut_at=0)
        return pass_on()

    def run(self, lake: Lake, url: str, *window: str, reads: int = sys.maxsize, files: int = sys.maxsize) -> int:
        """The exit code of the import."""
        self._reads = reads
        command = [sys.executable, "-m", "fallow", *import_into(lake, url), *window]
        self._process = subprocess.Popen(
            command, env=clean_environment(), cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while self._process.poll() is None:
            if written(lake) >= files:
                self._process.send_signal(signal.SIGKILL)
            time.sleep(0.002)
        return self._process.returncode


def test_an_import_that_is_killed_again_and_again(server_type: type[MetricsProcess], tmp_path: Path) -> None:
    whole, killed = (made_lake(tmp_path / name, str(uuid.uuid4())) for name in ("whole", "killed"))
    killer = Killer()
    now_ms = time.time_ns() // 3_600_000_000_000 * HOUR_MS
    with server_type(tmp_path / "server") as server, Gateway(killer, server.port) as gateway:
        server.write(site_samples(dcgm, range(now_ms - 24 * HOUR_MS, now_ms, 60_000)))
        window = ("--since", "4d", "--until", format_ms(now_ms), "--yes")
        codes = [killer.run(killed, gateway.url, *window, reads=count) for count in (0, 2)]
        codes += [killer.run(killed, gateway.url, *window, files=written(killed) + more) for more in (1, 5)]
        assert codes == [-signal.SIGKILL] * 4
        assert killer.run(killed, gateway.url, *window) == 0
        undisturbed = run_in_process(*import_into(whole, server.url), *window)
        assert undisturbed.returncode == 0, undisturbed.stderr
    found = facts_in(killed, DCGM)
    assert len(found) == len(set(found)) == 24 * 60 * 16 * 7
    assert found == facts_in(whole, DCGM)
    assert run_in_process("lake", "check", "--lake", killed.root).returncode == 0


def import_into(lake: Lake, url: str) -> tuple[str, ...]:
    return ("import", "prometheus", "--url", url, "--lake", lake.root)


def written(lake: Lake) -> int:
    """How many files of rows there are."""
    return sum(1 for _ in Path(lake.root).rglob("*.parquet"))
