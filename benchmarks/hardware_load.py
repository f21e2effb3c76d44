"""Load one real GPU with work of known busy time: `python benchmarks/hardware_load.py PHASES.jsonl --phase-seconds 30`.

It needs PyTorch and CuPy, but not fallow. Each line of the file is one phase: its work, and its start and end (seconds
since the epoch). `busy_ms` is the time in which a kernel ran, by CUDA events around each burst.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cupy
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

GRID_S = 10
"""Phases begin at the starts of the agent's intervals."""
HELD_BYTES = 8 * 2**30
_BURST_MS = 200.0
"""Number of bursts in a row of a phase without pauses."""


@dataclass(frozen=True)
class Phase:
    """Work in bursts of `busy_ms` every `every_ms`; None runs no kernel."""

    name: str
    kernel: str | None = None
    busy_ms: float = 0.0
    every_ms: float = 0.0


PHASES = (
    Phase("context and 8 GiB held, nothing runs"),
    Phase("one block, 20 ms every 2 s", "spin", 20, 2000),
    Phase("one block, 100 ms every 1 s", "spin", 100, 1000),
    Phase("one block, 50 ms every 100 ms", "spin", 50, 100),
    Phase("one block, always", "spin", _BURST_MS, 0),
    Phase("bf16 matrix products, 250 ms every 500 ms", "matmul", 250, 500),
    Phase("bf16 matrix products, always", "matmul", _BURST_MS, 0),
    Phase("copies in device memory, always", "copy", _BURST_MS, 0),
)
DOUBTFUL_PHASES = (
    Phase("one block, always", "spin", _BURST_MS, 0),
    Phase("24 blocks that poll a flag, as a waiting collective does", "poll", _BURST_MS, 0),
    Phase("bf16 matrix times vector, always", "vector", _BURST_MS, 0),
    Phase("fp64 matrix products, always", "fp64", _BURST_MS, 0),
    Phase("kernels of one element, always", "tiny", _BURST_MS, 0),
    Phase("copies from the host, always", "host copy", _BURST_MS, 0),
    Phase("copies in device memory, always", "copy", _BURST_MS, 0),
    Phase("bf16 matrix products, always", "matmul", _BURST_MS, 0),
    Phase("a loader: copies from the host and products, 250 ms every 500 ms", "loader", 250, 500),
    Phase("bf16 matrix products, 25 ms every 500 ms", "matmul", 25, 500),
    Phase("bf16 matrix products, 300 ms every 5 s", "matmul", 300, 5000),
    Phase("bf16 matrix products of 512, always", "small matmul", _BURST_MS, 0),
)
"""Work that looks idle, and idleness that looks like work."""
KEEP_ALIVE_PHASES = (Phase("keep-alive: 3 s of products every 30 s", "matmul", 3000, 30_000),)
"""The blips of a script that defeats idle checks; it holds little memory, so it has a process of its own."""
CHOICES = {"plain": PHASES, "doubtful": DOUBTFUL_PHASES, "keep-alive": KEEP_ALIVE_PHASES}
_POLL = """
extern "C" __global__ void poll(volatile int *flag, long long cycles) {
    long long begin = clock64();
    while (*flag == 0 && clock64() - begin < cycles) {}
}
"""


class Load:
    """Bursts of one kernel, of a requested length."""

    def __init__(self, held_bytes: int = HELD_BYTES) -> None:
        self.held = torch.empty(held_bytes, dtype=torch.uint8, device="cuda")
        self._matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        self._product = torch.empty_like(self._matrix)
        self._small = self._matrix[:512, :512].contiguous()
        self._wide = torch.randn(2048, 2048, device="cuda", dtype=torch.float64)
        self._one = torch.zeros(1, device="cuda")
        self._pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
        self._poll = cupy.RawKernel(_POLL, "poll")
        self._flag = cupy.zeros(1, dtype=cupy.int32)
        half = held_bytes // 2
        self._calls: dict[str, Callable[[int], Any]] = {
            "spin": torch.cuda._sleep,  # noqa: SLF001  # one thread that counts cycles: the kernel with the least in it
            "matmul": lambda times: [torch.mm(self._matrix, self._matrix, out=self._product) for _ in range(times)],
            "copy": lambda times: [self.held[:half].copy_(self.held[half:]) for _ in range(times)],
            "poll": self._run_poll,
            "vector": lambda times: [torch.mv(self._matrix, self._matrix[0]) for _ in range(times)],
            "fp64": lambda times: [torch.mm(self._wide, self._wide) for _ in range(times)],
            "tiny": lambda times: [self._one.add_(1) for _ in range(times)],
            "host copy": lambda times: [
                self.held[: self._pinned.numel()].copy_(self._pinned, non_blocking=True) for _ in range(times)
            ],
            "loader": self._run_loader,
            "small matmul": lambda times: [torch.mm(self._small, self._small) for _ in range(times)],
        }
        tries = {"spin": 10**8, "poll": 10**8, "tiny": 2000, "vector": 500, "small matmul": 2000}
        self._per_ms = {kernel: self._rate(kernel, tries.get(kernel, 50)) for kernel in self._calls}

    def burst(self, kernel: str, busy_ms: float) -> float:
        """Run for about this time, and return the true time."""
        return self._timed(kernel, max(1, round(busy_ms * self._per_ms[kernel])))

    def _run_poll(self, cycles: int) -> None:
        """Run on PyTorch's stream, so that its events measure the time."""
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self._poll((24,), (512,), (self._flag, cupy.int64(cycles)))

    def _run_loader(self, times: int) -> None:
        for _ in range(times):
            self._calls["host copy"](1)
            self._calls["matmul"](4)

    def _rate(self, kernel: str, times: int) -> float:
        self._timed(kernel, times)  # the first run also raises the clocks
        return times / self._timed(kernel, times)

    def _timed(self, kernel: str, times: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self._calls[kernel](times)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def run(load: Load, phase: Phase, until_s: float) -> float:
    """Run the phase, and return the busy time in ms."""
    if phase.kernel is None:
        time.sleep(max(0.0, until_s - time.time()))
        return 0.0
    busy_ms, next_s = 0.0, time.time()
    while time.time() + phase.busy_ms / 1000 <= until_s:
        busy_ms += load.burst(phase.kernel, phase.busy_ms)
        next_s += phase.every_ms / 1000
        time.sleep(max(0.0, min(next_s, until_s) - time.time()))
    time.sleep(max(0.0, until_s - time.time()))
    return busy_ms


def main() -> None:
    """Run every phase in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases")
    parser.add_argument("--phase-seconds", type=int, default=30)
    parser.add_argument("--work", choices=CHOICES, default="plain")
    arguments = parser.parse_args()
    load = Load(HELD_BYTES if arguments.work != "keep-alive" else 2**29)
    with Path(arguments.phases).open("w", encoding="utf-8", buffering=1) as out:
        begin_s = (int(time.time()) // GRID_S + 1) * GRID_S
        time.sleep(begin_s - time.time())
        for phase in CHOICES[arguments.work]:
            end_s = begin_s + arguments.phase_seconds
            line = {"phase": phase.name, "begin_s": begin_s, "end_s": end_s, "busy_ms": run(load, phase, end_s)}
            out.write(json.dumps(line) + "\n")
            begin_s = end_s


if __name__ == "__main__":
    main()
