"""Records what a real driver answers for a minute: a small file of raw calls, which replay.py turns into a scenario.

It runs by itself on any host with a GPU and pynvml: `python record.py capture.jsonl --seconds 60`. Nothing in the file
names the machine or its users: UUIDs and serial numbers are invented, processes are only counted.

Each line is one JSON object: `t_s` (seconds since the start), `call`, `gpu` (null for the host) and `result`, or
`error` with NVML's return code. Unchanged values are left out: a value holds until a line changes it. MIG instances are
not recorded, only whether the mode is on.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 1
MOST_BYTES = 200_000
RING_EVERY_S = 4.0
RINGS = (pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES)
FIELDS = (3, 4, 5, 6, 74, 76, 82, 83, 94, 142, 143, 144, 145, 230, 251, 252, 253, 269, 270, 271)
METRICS = (1, 2, 3, 5, 10, 11, 12, 13, 20, 21, 60, 61)
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}
_NVLINKS = 18


class Recorder:
    """Writes what each call answers, and how long it took."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._begun_s = time.monotonic()
        self.begun_us = time.time_ns() // 1000
        self._last: dict[tuple[str, int | None], tuple[float, float, dict[str, Any]]] = {}
        """Of each call: when its answer was first and last seen, and the answer."""
        self._latency_us: dict[str, list[float]] = {}
        self.written = 0

    @property
    def now_s(self) -> float:
        """Seconds since the start, to the millisecond."""
        return round(time.monotonic() - self._begun_s, 3)

    def ask(self, name: str, gpu: int | None, call: Callable[..., Any], *args: Any) -> Any:
        """Makes a call and writes its answer; returns the answer, None for an error."""
        begun_s, now_s = time.perf_counter(), self.now_s
        try:
            answer = {"result": call(*args)}
        except pynvml.NVMLError as error:
            answer = {"error": error.value}
        self._latency_us.setdefault(name, []).append((time.perf_counter() - begun_s) * 1e6)
        self.note(name, gpu, answer, now_s)
        return answer.get("result")

    def note(self, name: str, gpu: int | None, answer: dict[str, Any], now_s: float) -> None:
        """Writes an answer if it is new, and before it how long the one before was seen."""
        first_s, last_s, before = self._last.get((name, gpu), (now_s, now_s, None))
        if before == answer:
            self._last[name, gpu] = (first_s, now_s, answer)
            return
        if before is not None and last_s > first_s:
            self._write(last_s, name, gpu, before)
        self._write(now_s, name, gpu, answer)
        self._last[name, gpu] = (now_s, now_s, answer)

    def finish(self) -> None:
        """Writes what the calls cost (median and largest, in us) and when the recording ended."""
        costs = {
            name: [round(statistics.median(each), 1), round(max(each), 1), len(each)]
            for name, each in sorted(self._latency_us.items())
        }
        for (name, gpu), (first_s, last_s, answer) in self._last.items():
            if last_s > first_s:
                self._write(last_s, name, gpu, answer)
        self._write(self.now_s, "latency_us", None, {"result": costs})

    def _write(self, t_s: float, name: str, gpu: int | None, answer: dict[str, Any]) -> None:
        line = json.dumps({"t_s": t_s, "call": name, "gpu": gpu, **answer}, separators=(",", ":")) + "\n"
        self.written += len(line)
        self._out.write(line)


class Card:
    """One GPU that is recorded."""

    def __init__(self, recorder: Recorder, index: int) -> None:
        self._recorder = recorder
        self._index = index
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self._last_seen = dict.fromkeys(RINGS, 0)
        self._samples: list[Any] = []
        self._request: Any = None
        self._sampled_s: float | None = None

    def _ask(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        return self._recorder.ask(name, self._index, call, *args)

    def facts(self) -> None:
        """What does not change: identity (made up), limits, links."""
        plain = (
            "nvmlDeviceGetName", "nvmlDeviceGetArchitecture", "nvmlDeviceGetCudaComputeCapability",
            "nvmlDeviceGetMinorNumber", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode",
            "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetSupportedEventTypes",
        )  # fmt: skip
        for name in plain:
            self._ask(name, getattr(pynvml, name), self._handle)
        for clock in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM):
            self._ask(f"nvmlDeviceGetMaxClockInfo({clock})", pynvml.nvmlDeviceGetMaxClockInfo, self._handle, clock)
        self._ask("nvmlDeviceGetPciInfo", lambda: pynvml.nvmlDeviceGetPciInfo(self._handle).busId)
        self._ask("nvlinks", self._active_links)
        self._ask("nvmlGpmQueryDeviceSupport", lambda: pynvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)

    def relations(self, others: list[Card]) -> None:
        """How near this GPU is to each of the others."""
        nvlink = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        for other in others:
            pair = (self._handle, other._handle)  # noqa: SLF001  # the same class
            where = f"({other._index})"  # noqa: SLF001
            self._ask(f"nvmlDeviceGetP2PStatus{where}", pynvml.nvmlDeviceGetP2PStatus, *pair, nvlink)

    def readings(self) -> None:
        """What changes: memory, power, clocks, rates, fields, GPM, how many processes."""
        plain = (
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetTotalEnergyConsumption",
            "nvmlDeviceGetCurrentClocksEventReasons",
        )
        for name in plain:
            self._ask(name, getattr(pynvml, name), self._handle)
        self._ask("nvmlDeviceGetTemperature", pynvml.nvmlDeviceGetTemperature, self._handle, 0)
        self._ask("nvmlDeviceGetMemoryInfo_v2", self._memory)
        self._ask("nvmlDeviceGetUtilizationRates", self._rates)
        for clock in (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM):
            self._ask(f"nvmlDeviceGetClockInfo({clock})", pynvml.nvmlDeviceGetClockInfo, self._handle, clock)
        for kind in ("Compute", "Graphics", "MPSCompute"):
            name = f"nvmlDeviceGet{kind}RunningProcesses_v3"
            self._ask(name, lambda call: len(call(self._handle)), getattr(pynvml, name))
        self._read_fields()
        self._read_gpm()

    def drain(self) -> None:
        """The entries of both rings that are new, with time stamps since the recording's start."""
        for kind in RINGS:
            self._ask(f"nvmlDeviceGetSamples({kind})", self._ring, kind)

    def _ring(self, kind: int) -> list[list[int]]:
        samples = pynvml.nvmlDeviceGetSamples(self._handle, kind, self._last_seen[kind])[1]
        self._last_seen[kind] = max(sample.timeStamp for sample in samples)
        return [[sample.timeStamp - self._recorder.begun_us, sample.sampleValue.uiVal] for sample in samples]

    def _memory(self) -> list[int]:
        memory = pynvml.nvmlDeviceGetMemoryInfo(self._handle, pynvml.nvmlMemory_v2)
        return [memory.total, memory.reserved, memory.used]

    def _rates(self) -> list[int]:
        rates = pynvml.nvmlDeviceGetUtilizationRates(self._handle)
        return [rates.gpu, rates.memory]

    def _active_links(self) -> int:
        return sum(pynvml.nvmlDeviceGetNvLinkState(self._handle, link) for link in range(_NVLINKS))

    def _read_fields(self) -> None:
        now_s = self._recorder.now_s
        try:
            found = pynvml.nvmlDeviceGetFieldValues(self._handle, list(FIELDS))
        except pynvml.NVMLError as error:
            self._recorder.note("nvmlDeviceGetFieldValues", self._index, {"error": error.value}, now_s)
            return
        for field in found:
            answer = {"error": field.nvmlReturn} if field.nvmlReturn else {"result": _number(field)}
            self._recorder.note(f"field({field.fieldId})", self._index, answer, now_s)

    def _read_gpm(self) -> None:
        """The averages since the reading before; the first reading only begins."""
        if not self._samples:
            self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
            self._request = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(METRICS))
            for place, metric in enumerate(METRICS):
                self._request.metrics[place].metricId = metric
        since_s, self._sampled_s = self._sampled_s, self._recorder.now_s
        self._samples.reverse()
        if self._ask("nvmlGpmSampleGet", self._sample) is not None and since_s is not None:
            self._ask("nvmlGpmMetricsGet", self._metrics, since_s)

    def _sample(self) -> int:
        pynvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        return 0

    def _metrics(self, since_s: float) -> dict[str, Any]:
        request = self._request
        request.sample1, request.sample2 = self._samples
        pynvml.nvmlGpmMetricsGet(request)
        values: dict[str, Any] = {"since_s": since_s}
        for found in request.metrics[: len(METRICS)]:
            if found.nvmlReturn == 0:
                values[str(found.metricId)] = None if math.isnan(found.value) else round(found.value, 3)
        return values


def _number(field: Any) -> Any:
    return getattr(field.value, _MEMBERS[field.valueType])


def record(out: TextIO, seconds: float, every_s: float, most_bytes: int = MOST_BYTES) -> int:
    """Records every GPU of the host; returns the bytes written."""
    pynvml.nvmlInit()
    recorder = Recorder(out)
    count = pynvml.nvmlDeviceGetCount()
    about = {"format": FORMAT, "begun_us": recorder.begun_us, "gpus": count, "every_s": every_s}
    recorder.note("capture", None, {"result": about}, 0.0)
    recorder.ask("nvmlSystemGetDriverVersion", None, pynvml.nvmlSystemGetDriverVersion)
    recorder.ask("nvmlSystemGetCudaDriverVersion_v2", None, pynvml.nvmlSystemGetCudaDriverVersion_v2)
    cards = [Card(recorder, index) for index in range(count)]
    for place, card in enumerate(cards):
        card.facts()
        card.relations(cards[place + 1 :])
    tick, drained_s = 0, -RING_EVERY_S
    while recorder.now_s < seconds and recorder.written < most_bytes * 9 // 10:
        drains = recorder.now_s - drained_s >= RING_EVERY_S - 0.1
        drained_s = recorder.now_s if drains else drained_s
        for card in cards:
            card.readings()
            if drains:
                card.drain()
        tick += 1
        time.sleep(max(0.0, min(tick * every_s, seconds) - recorder.now_s))
    for card in cards:
        card.readings()
        card.drain()
    recorder.finish()
    return recorder.written


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path, help="file to write")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--every", type=float, default=1, help="seconds between two readings; more on hosts of many GPUs"
    )
    told = parser.parse_args()
    with told.capture.open("w", encoding="utf-8") as out:
        written = record(out, told.seconds, told.every)
    print(f"{written} bytes in {told.capture}", file=sys.stderr)


if __name__ == "__main__":
    main()
