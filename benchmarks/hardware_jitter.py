"""The time of one small kernel from launch to end, in its program: `python benchmarks/hardware_jitter.py --seconds 10`.

Prints one JSON object: `launches`, and `p50`, `p99`, `p99.9` and `max` of that time in us. Needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
WARM_UP = 2000


def measure(seconds: float) -> dict[str, float]:
    """Launch the kernel and wait for it repeatedly, and return the times."""
    took_us = []
    for _ in range(WARM_UP):
        _launch_us()
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        took_us.append(_launch_us())
    took_us.sort()
    shares = {name: round(took_us[int(share * (len(took_us) - 1))], 1) for name, share in SHARES.items()}
    return {"launches": len(took_us), **shares, "max": round(took_us[-1], 1)}


def _launch_us() -> float:
    begun_ns = time.perf_counter_ns()
    torch.cuda._sleep(1000)  # noqa: SLF001  # a microsecond of one thread
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - begun_ns) / 1000


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    print(json.dumps(measure(parser.parse_args().seconds)))
