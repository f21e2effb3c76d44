"""The tutorials as written: every `sh` block of a page in its order, in one shell, against a real server with three days of a small site."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY, clean_environment
from tests.scraped.servers import PrometheusProcess, VictoriaProcess, free_port, missing
from tests.scraped.site import GPUS, HOUR_MS, MINUTE_MS, dcgm, dcgm_of_pods, kube_states, nvidia_smi, princeton, site_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.scraped.exposed import Exposed
    from tests.scraped.servers import MetricsProcess

PAGES = REPOSITORY / "docs" / "tutorials"
_BLOCK = re.compile(r"```sh\n(?P<shell>.*?)```\n(?:\n```text\n(?P<shown>.*?)```\n)?", re.DOTALL)
_MARK = "=== block"
_DASHBOARD = "fallow dashboard\n"
HOURS = 72


@dataclass(frozen=True)
class Tutorial:
    """The server that a page is about, what it has scraped at these moments, and files that the reader brings."""

    server: type[MetricsProcess]
    samples: Callable[[range], Iterable[Exposed]]
    files: Mapping[str, str] = field(default_factory=dict)


def _on_kubernetes(times_ms: range) -> Iterable[Exposed]:
    states = (kube_states(GPUS, time_ms, times_ms[0]) for time_ms in times_ms)
    return chain(site_samples(dcgm_of_pods, times_ms), chain.from_iterable(states))


TUTORIALS = {
    "prometheus": Tutorial(PrometheusProcess, lambda times_ms: site_samples(dcgm, times_ms)),
    "victoriametrics": Tutorial(VictoriaProcess, lambda times_ms: site_samples(nvidia_smi, times_ms)),
    "kubernetes": Tutorial(PrometheusProcess, _on_kubernetes),
    "slurm": Tutorial(PrometheusProcess, lambda times_ms: site_samples(princeton, times_ms)),
}


def test_every_tutorial_is_tried() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == set(TUTORIALS)


@pytest.mark.long
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_does_what_it_says(name: str, tmp_path: Path) -> None:
    """What it shows is printed, `...` standing for what is another each time; the last block serves the first page."""
    if lacking := missing():
        pytest.skip(lacking)
    tutorial = TUTORIALS[name]
    *blocks, last = _BLOCK.finditer((PAGES / f"{name}.md").read_text(encoding="utf-8"))
    assert last["shell"] == _DASHBOARD
    home = tmp_path / "home"
    home.mkdir()
    for file, content in tutorial.files.items():
        (home / file).write_text(content)
    until_ms = time.time_ns() // 3_600_000_000_000 * HOUR_MS
    with tutorial.server(tmp_path / "server") as server:
        server.write(tutorial.samples(range(until_ms - HOURS * HOUR_MS, until_ms, MINUTE_MS)))
        environment = clean_environment({"HOME": str(home), "PROMETHEUS_URL": server.url, "COLUMNS": "100"})
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        printed = _printed("".join(block["shell"] for block in blocks), environment, home)
    assert False, printed


def _printed(shell: str, environment: Mapping[str, str], home: Path) -> str:
    done = subprocess.run(
        ["bash", "-eu", "-c", shell], env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
