"""The follower as a process: killed again and again while a real server scrapes, and asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, clean_environment
from tests.scraped.facts import DCGM, facts_in, facts_of
from tests.scraped.servers import wait_until
from tests.scraped.site import GPUS, MINUTE_MS, dcgm, site_samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.scraped.servers import MetricsProcess

pytestmark = pytest.mark.long

SITE = GPUS[3:5]


def test_killed_again_and_again_it_has_every_sample_once_and_ends_when_asked(
    server_type: type[MetricsProcess], lake: Lake, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 10**6
    samples = list(site_samples(dcgm, range(now_ms - 150 * MINUTE_MS, now_ms, MINUTE_MS), SITE))
    with server_type(tmp_path / "server") as server:
        server.write(samples)
        for patience_s in (2.0, 3.0, 2.5, 3.5):
            with followed(server, lake, tmp_path) as process:
                time.sleep(patience_s)  # it is killed wherever it is then
                process.send_signal(signal.SIGKILL)
        process = followed(server, lake, tmp_path)
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("fallow: follows ")
        wait_until(lambda: len(facts_in(lake, DCGM)) >= len(facts_of(samples, DCGM)), lambda: "not caught up")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == f"fallow: stopped following {server.url}; the next start goes on from here"
    assert facts_in(lake, DCGM) == facts_of(samples, DCGM)


def followed(server: MetricsProcess, lake: Lake, tmp_path: Path) -> subprocess.Popen[str]:
    arguments = ("--url", server.url, "--lake", lake.root, "--since", "3h", "--every", "1s", "--listen", "")
    return subprocess.Popen(
        [sys.executable, "-m", "fallow", "follow", "prometheus", *arguments],
        env=clean_environment({"XDG_STATE_HOME": str(tmp_path)}), cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
