"""The real nvitop-exporter over the test driver, on loopback."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import clean_environment
from tests.fakes.nvml import library_folder
from tests.scraped.servers import free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fakes.nvml import Scenario


@contextmanager
def nvitop_exporter(scenario: Scenario, folder: Path, interval_s: float = 0.5) -> Iterator[str]:
    """Yields the target (`host:port`) to scrape; it looks at the driver every `interval_s`, whoever scrapes it."""
    target = f"127.0.0.1:{(port := free_port())}"
    played = scenario.environment(library_folder(), scenario.write(folder / "scenario"))
    command = [
        str(Path(sys.executable).with_name("nvitop-exporter")), "--bind-address", "127.0.0.1", "--port", str(port),
        "--interval", str(interval_s),
    ]  # fmt: skip
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
