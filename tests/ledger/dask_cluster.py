"""A real Dask scheduler with workers on loopback, whose workers can be made to fail."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tests.conftest import clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_ENDS_S = 60
Found = TypeVar("Found")


@dataclass
class Cluster:
    """The processes of a cluster. `host:port` of the scheduler is `address`."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""

    def start_scheduler(self, port: int = 0) -> None:
        file = self.folder / f"scheduler-{len(self.processes)}.json"
        self._start("scheduler", "--port", str(port), "--scheduler-file", str(file))
        self.address = waited_for(lambda: json.loads(file.read_text())["address"]).removeprefix("tcp://")

    def start_worker(self, preload: str = "") -> None:
        """Starts a worker that runs the code `preload` first."""
        script = self.folder / f"preload_{len(self.processes)}.py"
        script.write_text(preload)
        flags = ("--nthreads", "1", "--no-nanny", "--death-timeout", str(_ENDS_S), "--preload", str(script))
        self._start("worker", f"tcp://{self.address}", *flags, "--local-directory", str(self.folder))

    def stop_all(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self.processes.clear()

    def _start(self, kind: str, *flags: str) -> None:
        command = (
            sys.executable,
            "-m",
            f"distributed.cli.dask_{kind}",
            "--host",
            "127.0.0.1",
            "--no-dashboard",
            *flags,
        )
        environment = clean_environment({"POLARS_MAX_THREADS": "1"})
        with (self.folder / f"{kind}-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, cwd=self.folder, start_new_session=True
                )
            )


def waited_for(look: Callable[[], Found], within_s: float = _ENDS_S) -> Found:
    """What `look` returns, once it returns something; errors of files that are not there yet are nothing."""
    end_s = time.monotonic() + within_s
    while True:
        try:
            if found := look():
                return found
        except (OSError, ValueError):
            pass
        if time.monotonic() > end_s:
            raise TimeoutError(f"{look} gave nothing in {within_s} s")
        time.sleep(0.02)


@contextmanager
def running(folder: Path, *preloads: str) -> Iterator[Cluster]:
    """A scheduler with a worker for each code, stopped at the end."""
    cluster = Cluster(folder)
    try:
        cluster.start_scheduler()
        for preload in preloads:
            cluster.start_worker(preload)
        yield cluster
    finally:
        cluster.stop_all()
