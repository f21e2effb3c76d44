"""The tutorials as written: each page's `sh` blocks in one shell, against a real server with three days of a site."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallow import schema
from fallow.lake import Lake
from fallow.lake_init import init_lake
from tests.conftest import REPOSITORY, clean_environment
from tests.ledger.rows import device, processes, samples, write
from tests.scraped.otlp_requests import push_site
from tests.scraped.servers import PrometheusProcess, VictoriaProcess, free_port, missing, wait_until
from tests.scraped.site import (
    GPUS,
    HOUR_MS,
    MINUTE_MS,
    dcgm,
    dcgm_of_pods,
    kube_states,
    nvidia_smi,
    princeton,
    sacct_page,
    site_samples,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.scraped.exposed import Exposed
from tests.scraped.servers import MetricsProcess

PAGES = REPOSITORY / "docs" / "tutorials"
_BLOCK = re.compile(r"```sh\n(?P<shell>.*?)```\n(?:\n```text\n(?P<shown>.*?)```\n)?", re.DOTALL)
_MARK = "=== the next block ==="
_NOTHING_STAYS = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT"
_DASHBOARD = "fallow dashboard\n"
DAYS = 9


@dataclass(frozen=True)
class Tutorial:
    """The server that a page is about, what it has scraped at these moments, and files that the reader brings."""

    server: type[MetricsProcess]
    samples: Callable[[range], Iterable[Exposed]]
    files: Callable[[range], Mapping[str, str]] = lambda _: {}


PUSHED = "opentelemetry"
"""The page whose reader has no server, but something that pushes."""


ON_NODES = "slurm-agent"
"""The page whose reader has agents on the nodes, and Slurm's commands."""


def _on_kubernetes(times_ms: range) -> Iterator[Exposed]:
    for time_ms in times_ms:
        yield from site_samples(dcgm_of_pods, [time_ms])
        yield from kube_states(GPUS, time_ms, times_ms[0])


TUTORIALS = {
    "prometheus": Tutorial(PrometheusProcess, lambda times_ms: site_samples(dcgm, times_ms)),
    "victoriametrics": Tutorial(VictoriaProcess, lambda times_ms: site_samples(nvidia_smi, times_ms)),
    "kubernetes": Tutorial(PrometheusProcess, _on_kubernetes),
    "slurm": Tutorial(
        PrometheusProcess,
        lambda times_ms: site_samples(princeton, times_ms),
        lambda times_ms: {"jobs.txt": sacct_page(times_ms[0], times_ms[-1] + MINUTE_MS)},
    ),
}


def test_every_tutorial_is_tried() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*TUTORIALS, PUSHED, ON_NODES}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    """What it shows is printed, `...` standing for what differs each time; the pages are served last."""
    if lacking := missing():
        pytest.skip(lacking)
    tutorial = TUTORIALS[name]
    blocks = blocks_of(name)
    home = tmp_path / "home"
    home.mkdir()
    # the cards that work by day do so at noon: at another hour the window would cut one of their nights in two
    until_ms = last_noon_ms()
    times_ms = range(until_ms - DAYS * 24 * HOUR_MS, until_ms, MINUTE_MS)
    for file, content in tutorial.files(times_ms).items():
        (home / file).write_text(content)
    with tutorial.server(tmp_path / "server") as server:
        server.write(tutorial.samples(times_ms))
        shell = Shell(home, PROMETHEUS_URL=server.url)
        printed = shell.run([block["shell"] for block in blocks])
    for block, text in zip(blocks, printed, strict=True):
        assert_shown(block["shown"] or "...", text)
    assert b"fallow" in shell.first_page()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_tutorial_of_what_is_pushed(tmp_path: Path) -> None:
    blocks, address = blocks_of(PUSHED), f"127.0.0.1:{free_port()}"
    until_ms = time.time_ns() // 60_000_000_000 * MINUTE_MS
    shell = Shell(tmp_path, OTLP=address, FALLOW_FOLLOW_LISTEN=f"127.0.0.1:{free_port()}")
    with ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(push_site, address, range(until_ms - 6 * HOUR_MS, until_ms, MINUTE_MS))
        printed = shell.run([block["shell"] for block in blocks])
        pushing.result()
    for block, text in zip(blocks, printed, strict=True):
        assert_shown(block["shown"] or "...", text)
    assert b"fallow" in shell.first_page()


_COMMANDS = {
    "sacct": (
        """Cluster|JobIDRaw|JobID|User|Account|Partition|QOS|State|Start|End|ElapsedRaw|NodeList|NTasks|AllocTRES|\
TRESUsageInMax|TRESUsageInTot
hopper|4101|4101|ann|vis|gpu|normal|RUNNING|1795132800|Unknown|43200|gn1||gres/gpu=2||
hopper|4102|4102|bob|nlp|gpu|normal|COMPLETED|1795140000|1795150800|10800|gn1||gres/gpu=2||
hopper|4102.batch|4102.batch|||||COMPLETED|1795140000|1795150800|10800|gn1|1|gres/gpu=2|gres/gpuutil=90|gres/gpuutil=80
hopper|4102.extern|4102.extern|||||COMPLETED|1795140000|1795150800|10800|gn1|1|gres/gpu=2|gres/gpuutil=0|gres/gpuutil=0
"""
    ),
    "scontrol": (
        """JobId=4101 JobName=train
   JobState=RUNNING Reason=None Dependency=(null)
     Nodes=gn1 CPU_IDs=0-15 Mem=0 GRES=gpu:h100:2(IDX:0-1)

"""
    ),
    "sacctmgr": "",
}
"""What Slurm's commands print."""


@pytest.mark.long
def test_the_tutorial_of_agents_on_slurm_nodes(tmp_path: Path) -> None:
    blocks, commands, twelve_h = blocks_of(ON_NODES), tmp_path / "bin", 12 * 3600
    commands.mkdir()
    for name, printed in _COMMANDS.items():
        (commands / f"{name}.out").write_text(printed)
        (commands / name).write_text(f"#!/bin/sh\ncat '{commands / name}.out'\n")
        (commands / name).chmod(0o755)
    lake = Lake.at(str(tmp_path / "gpu-lake"))
    init_lake(lake)
    gpus = [f"GPU-{number}" for number in range(4)]
    busy = {gpu: {"gpu_util_pct": 90.0, "process_count": 1} if gpu in gpus[:2] else {} for gpu in gpus}
    write(
        lake,
        schema.DEVICE,
        [device(gpu, gpu_index=number, minor_number=number) for number, gpu in enumerate(gpus)],
        "gn1",
    )
    write(lake, schema.GPU, [row for gpu in gpus for row in samples(gpu, 0, twelve_h, every_s=60, **busy[gpu])], "gn1")
    seen = [
        row
        for gpu in gpus[:2]
        for row in processes(gpu, *range(0, twelve_h, 60), every_s=60, slurm_job_id="4101", slurm_account="vis")
    ]
    write(lake, schema.PROCESS, seen, "gn1")
    shell = Shell(tmp_path, FALLOW_SLURM_SCONTROL=str(commands / "scontrol"))
    printed = shell.run([block["shell"].replace("/srv/fallow/lake", lake.root) for block in blocks])
    for block, text in zip(blocks, printed, strict=True):
        assert_shown(block["shown"] or "...", text.replace(f"{commands}/", ""))
    assert b"fallow" in shell.first_page()


def last_noon_ms() -> int:
    """Return the newest 12:00 UTC that is past."""
    now_ms = time.time_ns() // 1_000_000
    return now_ms - (now_ms - 12 * HOUR_MS) % (24 * HOUR_MS)


def blocks_of(name: str) -> list[re.Match[str]]:
    """The blocks of a page in their order, without the one that serves the pages."""
    found = list(_BLOCK.finditer((PAGES / f"{name}.md").read_text(encoding="utf-8")))
    blocks = [block for block in found if block["shell"] != _DASHBOARD]
    assert len(blocks) == len(found) - 1
    return blocks


class Shell:
    """A user's: its own home, and `fallow` on the path."""

    def __init__(self, home: Path, **variables: str) -> None:
        self._home = home
        self._environment = clean_environment({"HOME": str(home), "COLUMNS": "100", **variables})
        self._environment["PATH"] = f"{Path(sys.executable).parent}:{self._environment['PATH']}"

    def run(self, blocks: list[str]) -> list[str]:
        """What each block prints, messages included; they run one after the other in one shell, until one fails."""
        script = "".join(f"echo '{_MARK}'\n{block}" for block in blocks)
        done = subprocess.run(
            ["bash", "-eu", "-c", f"exec 2>&1\n{_NOTHING_STAYS}\n{script}"],
            env=self._environment,
            cwd=self._home,
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.split(f"{_MARK}\n")[1:]

    def first_page(self) -> bytes:
        """What the pages' address answers: at a port that is free, where the page has the usual one."""
        port = free_port()
        command = ["bash", "-c", f"exec {_DASHBOARD.strip()} --port {port}"]
        # the pages of a tutorial export it in the shell in which the dashboard is started
        environment = self._environment | {"FALLOW_LAKE_PATH": str(self._home / "gpu-lake")}
        with subprocess.Popen(command, env=environment, cwd=self._home) as pages:
            try:
                wait_until(lambda: bool(_answer(port)), lambda: "no page")
                return _answer(port)
            finally:
                pages.send_signal(signal.SIGINT)
                pages.wait(timeout=60)


def assert_shown(shown: str, printed: str) -> None:
    """`...` in what a page shows stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in shown.split("..."))
    assert re.fullmatch(pattern, printed, re.DOTALL), printed


def _answer(port: int) -> bytes:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            content: bytes = page.read()
    except OSError:
        return b""
    return content
