"""What single driver calls cost on a real GPU, in us (median, 99 of 100, most): `python benchmarks/hardware_calls.py`."""

from __future__ import annotations

import json
import time

import pynvml

TURNS = 500


def main() -> None:
    """Prints one JSON object, by call."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    calls = {
        "encoder": pynvml.nvmlDeviceGetEncoderUtilization,
        "decoder": pynvml.nvmlDeviceGetDecoderUtilization,
        "rates": pynvml.nvmlDeviceGetUtilizationRates,
        "power": pynvml.nvmlDeviceGetPowerUsage,
        "memory": pynvml.nvmlDeviceGetMemoryInfo,
        "processes": pynvml.nvmlDeviceGetComputeRunningProcesses,
    }
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begun_s = time.perf_counter()
            call(gpu)
            costs[name].append((time.perf_counter() - begun_s) * 1e6)
        time.sleep(0.02)
    shares = {name: sorted(each) for name, each in costs.items()}
    print(
        json.dumps(
            {
                name: [round(each[int(len(each) * q)], 1) for q in (0.5, 0.99)] + [round(each[-1], 1)]
                for name, each in shares.items()
            }
        )
    )


if __name__ == "__main__":
    main()
