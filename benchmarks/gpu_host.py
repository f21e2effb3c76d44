"""A host for measurements: the test driver with 8 GPUs, 32 processes on them, and the kernel's figures of a process."""

from __future__ import annotations

import compileall
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.nvml import Fault, library_folder, ms_ago, standard_fleet
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fallow.lake import Lake
    from tests.fakes.nvml import Steps

GPUS = 8
PROCESSES = 32
MIB = 2**20
_CPUCLOCK_SCHED = 2  # linux/posix-timers.h: the scheduler's own count of a whole process
FLEET = f"{GPUS} GPUs, {PROCESSES} processes, test driver"

_INITIALISED = "import ctypes; library = ctypes.CDLL('libnvidia-ml.so.1'); library.nvmlInitWithFlags(0);"
_NOT_YET = "import ctypes;"
_RESIDENT = "print(int(open('/proc/self/statm').read().split()[1]))"


@dataclass(frozen=True)
class GpuHost:
    """A folder for the files of a run, and the environment in which programs find the driver."""

    folder: Path
    environment: dict[str, str]

    @property
    def lake(self) -> Lake:
        return made_lake(self.folder / "lake")

    @contextlib.contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program on this host. At the end of the block it gets SIGTERM, then SIGKILL."""
        program = subprocess.Popen(
            command, env=self.environment, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield program
        finally:
            program.terminate()
            try:
                program.wait(timeout=30)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()

    def agent(self, interval_s: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        """Run the agent as an operator does."""
        places = ["--lake", self.lake.root, "--spool", str(self.folder / "spool"), "--host", "bench"]
        return self.running(sys.executable, "-m", "fallow", "agent", "run", *places, "--interval", f"{interval_s}s")

    def driver_resident_mib(self) -> float:
        """Return the test driver's own memory for its scenario, which the agent's figure includes."""
        pages = [
            int(subprocess.check_output([sys.executable, "-c", code + _RESIDENT], env=self.environment))
            for code in (_NOT_YET, _INITIALISED)
        ]
        return (pages[1] - pages[0]) * os.sysconf("SC_PAGE_SIZE") / MIB


@contextlib.contextmanager
def gpu_host(
    first_gpu_util: Steps | None = None, *, ring: bool = True, gpm: bool = True, event_poll_ms: int = 0
) -> Iterator[GpuHost]:
    """Yield the host, with its processes alive during the block; `first_gpu_util` replaces the idle GPU's pattern.

    Without `ring` the driver has no samples of utilization; without `gpm` the cards do not measure it over intervals.
    With `event_poll_ms` the driver's wait for events polls.
    """
    for package in ("agent", "fallow"):
        compileall.compile_dir(REPOSITORY / package, quiet=1)  # as an installed package is
    users = [subprocess.Popen(["sleep", "3600"]) for _ in range(PROCESSES)]
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            fleet = standard_fleet(ms_ago(60), [user.pid for user in users], gpm=gpm)
            if not ring:
                fleet = replace(fleet, faults=(Fault("not_supported", function="nvmlDeviceGetSamples"),))
            fleet = replace(fleet, event_poll_ms=event_poll_ms)
            if first_gpu_util is not None:
                fleet = replace(fleet, gpus=(replace(fleet.gpus[0], util=first_gpu_util), *fleet.gpus[1:]))
            scenario = fleet.write(folder / "scenario")
            yield GpuHost(folder, clean_environment(fleet.environment(library_folder(), scenario)))
    finally:
        for user in users:
            user.kill()
            user.wait()


def resident(agent: subprocess.Popen[bytes]) -> list[int]:
    """Return supervisor and worker; the short-lived publisher is not resident."""
    children = psutil.Process(agent.pid).children()
    return [agent.pid, *(child.pid for child in children if _runs(child, "agent.nvml.worker"))]


def cpu_ms(pids: Iterable[int]) -> float:
    """Return the CPU time of these processes so far, with a resolution of 1 ns, including ended threads.

    The clock id is clock_getcpuclockid(3)'s for a process id; /proc/PID/stat counts in steps of 10 ms.
    """
    return sum(time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED) for pid in pids) / 1e6


def memory_mib(pids: Iterable[int]) -> tuple[float, float]:
    """Return the resident memory, also with shared pages divided among their processes."""
    full = [psutil.Process(pid).memory_full_info() for pid in pids]
    return sum(each.rss for each in full) / MIB, sum(each.pss for each in full) / MIB


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.Error:  # a publisher that has just ended
        return False
