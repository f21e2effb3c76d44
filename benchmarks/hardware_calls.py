"""The cost of single driver calls on a real GPU: `python benchmarks/hardware_calls.py`.

Prints one JSON object: by call the median, 99th percentile and maximum in us. `event_wait` is one wait without an
event: CPU in ms, voluntary context switches (one where the driver blocks, many where it polls), and the time until it
returned in s.
"""

from __future__ import annotations

import json
import resource
import time

import pynvml

TURNS = 500
WAIT_MS = 10_000


def main() -> None:
    """Print one JSON object, by call."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
    calls = {
        "encoder": lambda: pynvml.nvmlDeviceGetEncoderUtilization(gpu),
        "decoder": lambda: pynvml.nvmlDeviceGetDecoderUtilization(gpu),
        "rates": lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu),
        "power": lambda: pynvml.nvmlDeviceGetPowerUsage(gpu),
        "memory": lambda: pynvml.nvmlDeviceGetMemoryInfo(gpu),
        "processes": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(gpu),
        "events_at_once": lambda: wait(events, 0),
    }
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            begun_s = time.perf_counter()
            call()
            costs[name].append((time.perf_counter() - begun_s) * 1e6)
        time.sleep(0.02)
    shares = {name: sorted(each) for name, each in costs.items()}
    found: dict[str, object] = {
        name: [round(each[int(len(each) * q)], 1) for q in (0.5, 0.99)] + [round(each[-1], 1)]
        for name, each in shares.items()
    }
    print(json.dumps(found | {"event_wait": event_wait(events)}))


def wait(events: object, timeout_ms: int) -> bool:
    """Return whether an event came; raises NVMLError other than the timeout."""
    try:
        pynvml.nvmlEventSetWait_v2(events, timeout_ms)
    except pynvml.NVMLError_Timeout:
        return False
    return True


def event_wait(events: object) -> dict[str, float]:
    """Return the cost of waiting WAIT_MS for an event, in all threads of this process, those of the driver included."""
    before, begun_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    came = wait(events, WAIT_MS)
    after, took_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begun_s
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_ms": round(cpu_s * 1000, 2),
        "switches": after.ru_nvcsw - before.ru_nvcsw,
        "returned_after_s": round(took_s, 3),
        "events": int(came),
    }


if __name__ == "__main__":
    main()
