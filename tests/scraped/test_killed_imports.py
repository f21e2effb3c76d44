"""kill -9 in the middle, again and again: what is there afterwards is what an undisturbed import writes, no more and no less."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallow.clock import format_ms
from tests.conftest import REPOSITORY, clean_environment
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.scraped.facts import DCGM, facts_in
from tests.scraped.gateway import Answered, Gateway
from tests.scraped.site import HOUR_MS, dcgm, site_samples
from tests.scraped.test_bad_servers import reads

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long


class Killer:
    """Kills an import with SIGKILL when it asks for samples for the n-th time, which gets no answer, or has written so many files."""

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
        server.write(site_samples(dcgm, range(now_ms - 72 * HOUR_MS, now_ms, 60_000)))
        window = ("--since", "4d", "--until", format_ms(now_ms), "--yes")
        codes = [killer.run(killed, gateway.url, *window, reads=count) for count in (0, 1, 3)]
        codes += [killer.run(killed, gateway.url, *window, files=written(killed) + more) for more in (1, 2, 5)]
        assert codes == [-signal.SIGKILL] * 6
        assert killer.run(killed, gateway.url, *window) == 0
        undisturbed = run_in_process(*import_into(whole, server.url), *window)
        assert undisturbed.returncode == 0, undisturbed.stderr
    found = facts_in(killed, DCGM)
    assert len(found) == len(set(found)) == 72 * 60 * 16 * 7
    assert found == facts_in(whole, DCGM)
    assert run_in_process("lake", "check", "--lake", killed.root).returncode == 0


def import_into(lake: Lake, url: str) -> tuple[str, ...]:
    return ("import", "prometheus", "--url", url, "--lake", lake.root)


def written(lake: Lake) -> int:
    """How many files of rows there are."""
    return sum(1 for _ in Path(lake.root).rglob("*.parquet"))
