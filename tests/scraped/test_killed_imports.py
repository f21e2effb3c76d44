"""kill -9 in the middle, again and again: what is there afterwards is what an undisturbed import writes, no more and no less."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
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
    from pathlib import Path

    from fallow.lake import Lake
    from tests.scraped.gateway import Asked
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long


class Killer:
    """Kills the import that runs when it asks for samples for the n-th time; its request gets no answer."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.after = 0
        self._reads = 0

    def __call__(self, asked: Asked, pass_on: Callable[[], Answered]) -> Answered:
        if self.process is not None and reads(asked):
            self._reads += 1
            if self._reads > self.after:
                self.process.send_signal(signal.SIGKILL)
                return Answered(cut_at=0)
        return pass_on()

    def run(self, *arguments: str, after: int | None) -> int:
        """The exit code of `fallow` with these arguments, which is killed after so many reads; None: never."""
        self._reads, self.after = 0, sys.maxsize if after is None else after
        command = [sys.executable, "-m", "fallow", *arguments]
        self.process = subprocess.Popen(
            command, env=clean_environment(), cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self.process.wait(timeout=120)


def test_an_import_that_is_killed_again_and_again(server_type: type[MetricsProcess], tmp_path: Path) -> None:
    whole, killed = made_lake(tmp_path / "whole"), made_lake(tmp_path / "killed")
    killer = Killer()
    now_ms = time.time_ns() // 3_600_000_000_000 * HOUR_MS
    with server_type(tmp_path / "server") as server, Gateway(killer, server.port) as gateway:
        server.write(site_samples(dcgm, range(now_ms - 72 * HOUR_MS, now_ms, 60_000)))
        window = ("--since", "4d", "--until", format_ms(now_ms), "--yes")
        codes = [killer.run(*import_into(killed, gateway.url), *window, after=after) for after in (0, 1, 1, 2, 3, 5)]
        assert -signal.SIGKILL in codes
        assert killer.run(*import_into(killed, gateway.url), *window, after=None) == 0
        undisturbed = run_in_process(*import_into(whole, server.url), *window)
        assert undisturbed.returncode == 0, undisturbed.stderr
    found = facts_in(killed, DCGM)
    assert len(found) == len(set(found)) == 72 * 60 * 16 * 7
    assert found == facts_in(whole, DCGM)
    assert run_in_process("lake", "check", "--lake", killed.root).returncode == 0


def import_into(lake: Lake, url: str) -> tuple[str, ...]:
    return ("import", "prometheus", "--url", url, "--lake", lake.root)
