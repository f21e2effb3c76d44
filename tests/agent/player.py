"""Plays programs against the fake driver through the real pynvml, each in a process of its own."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tests.fakes.clock import FakeClock
from tests.fakes.nvml import (
    Fault,
    Gpu,
    Scenario,
)

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = time.time_ns() // 1_000_000
"""When the first program of a test starts, by its clock; the next one starts when it has ended."""

UUID = "GPU-11111111-2222-3333-4444-555555555555"
OTHER_UUID = "GPU-99999999-2222-3333-4444-555555555555"

# What every program below may use; each leaves its answer in `out`.
PRELUDE = """
import time
import pynvml as nv
def attempt(call, *args):
    try:
        return call(*args)
    except nv.NVMLError as error:
        return type(error).__name__
def samples(handle, kind=nv.NVML_GPU_UTILIZATION_SAMPLES, last_seen=0):
    return [(s.timeStamp, s.sampleValue.uiVal) for s in nv.nvmlDeviceGetSamples(handle, kind, last_seen)[1]]
"""
START = "nv.nvmlInit(); gpu = nv.nvmlDeviceGetHandleByIndex(0)\n"


class Player:
    """Runs a program against a scenario and gives back what it left in `out`."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch
        self._clock = FakeClock(scratch, folder, NOW_MS)

    def start(self, scenario: Scenario, program: str, clock: FakeClock | None = None) -> subprocess.Popen[str]:
        path = scenario.write(self._scratch / "scenario")
        code = PRELUDE + textwrap.dedent(program) + "\nprint(repr(out))"
        environment = (
            os.environ | scenario.environment(self._folder, path) | ({} if clock is None else clock.environment)
        )
        return subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys; sys.path[:0] = " + repr(sys.path) + "\n" + code],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def play(self, scenario: Scenario, program: str, *, real_time: bool = False) -> Any:
        """What the program left in `out`; unless in real time it waits for nothing that is long."""
        clock = None if real_time else self._clock
        with self.start(scenario, program, clock) as process, ThreadPoolExecutor(1) as pool:
            reading = pool.submit(process.communicate, timeout=240)
            if clock is not None:
                clock.until_ended(process)
            output, errors = reading.result()
        assert process.returncode == 0, errors
        return ast.literal_eval(output)

    def ask(self, scenario: Scenario, program: str) -> Any:
        """As play, with `gpu` the first GPU's handle."""
        return self.play(scenario, START + textwrap.dedent(program))


def ms_ago(seconds: float) -> int:
    """A scenario's start so many seconds before a program begins."""
    return NOW_MS - round(seconds * 1000)


def one(gpu: Gpu | None = None, *, ago_s: float = 60.0, **options: Any) -> Scenario:
    return Scenario(gpus=(gpu or Gpu(UUID),), start_ms=ms_ago(ago_s), **options)


def failing(*faults: Fault) -> Scenario:
    return Scenario(gpus=(Gpu(UUID), Gpu(OTHER_UUID)), start_ms=ms_ago(60), faults=faults)
