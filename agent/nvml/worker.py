"""The NVML worker process: reads requests from standard input, one JSON object per line; answers on standard output.

It only queries the driver. If a call blocks for ever or crashes the process, the supervisor survives. The status page,
a few bytes of shared memory, names the call and the GPU. Critical errors (XID) wait in the driver until the worker
reads them, between its other calls. Nothing waits for them, because some drivers poll in that wait.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from agent.nvml.binding import pynvml
from agent.nvml.driver import Driver
from agent.nvml.gpu import PAGE_BYTES, CallCosts, DriverGoneError, StatusPage
from agent.nvml.sampler import Sampler
from agent.own_process import bound_memory, resident_bytes, settle_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.nvml.gpu import (
        DriverGoneAnswer,
        DriverGpu,
        IntervalAnswer,
        IntervalRequest,
        OpenAnswer,
        OpenRequest,
        WatchedGpus,
    )
    from agent.rows import EventRow

_AT_ONCE_MS = 0
_MOST_EVENTS = 100
"""Events of one reading, so that a GPU with endless errors does not delay an interval; the driver keeps the others."""
_WHOLE_GPU = 0xFFFFFFFF


class XidEvents:
    """The critical errors of GPUs that can report them. The driver keeps them from registration until they are read."""

    def __init__(self, driver: Driver, gpus: Sequence[DriverGpu]) -> None:
        """Register the GPUs; raises as `Driver.ask` does."""
        self._driver = driver
        self._found: list[EventRow] = []
        self._uuids: dict[int | None, str] = {}
        self._set = driver.system(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for gpu in gpus:
            self._register(driver, gpu)

    def read(self) -> None:
        """Read the new events. The driver does not say when they occurred, so their time is that of the reading."""
        if not self._uuids:
            return
        for _ in range(_MOST_EVENTS):
            event = self._driver.system(pynvml.nvmlEventSetWait_v2, self._set, _AT_ONCE_MS)
            if event is None:
                return
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._found.append(self._incident(event))

    def take(self) -> list[EventRow]:
        """Return the events since the last call."""
        self.read()
        found, self._found = self._found, []
        return found

    def _register(self, driver: Driver, gpu: DriverGpu) -> None:
        supported = driver.ask(gpu, pynvml.nvmlDeviceGetSupportedEventTypes)
        if supported is None or not supported & pynvml.nvmlEventTypeXidCriticalError:
            return
        driver.ask_with(
            gpu, pynvml.nvmlDeviceRegisterEvents, gpu.handle, pynvml.nvmlEventTypeXidCriticalError, self._set
        )
        if pynvml.nvmlDeviceRegisterEvents.__name__ not in gpu.off:
            self._uuids[_address(gpu.handle)] = gpu.uuid

    def _incident(self, event: pynvml.c_nvmlEventData_t) -> EventRow:
        number = int(event.eventData)
        where = "" if event.gpuInstanceId == _WHOLE_GPU else f" in GPU instance {event.gpuInstanceId}"
        uuid = self._uuids.get(_address(event.device))
        time_ms = time.time_ns() // 1_000_000
        return {"kind": "xid", "detail": f"XID {number}{where}", "gpu": uuid, "code": number, "time": time_ms}


def _address(handle: object) -> int | None:
    """Return the address in a handle: the driver returns the same pointer in different objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]  # an NVML handle is a pointer


class Worker:
    """Answers requests; the first is `open`."""

    def __init__(self, page: StatusPage, skip: frozenset[str], sys: str) -> None:
        self._driver = Driver(page)
        self._skip = skip
        self._sys = sys
        self._sampler: Sampler | None = None
        self._xids: XidEvents | None = None
        self._gone: DriverGoneError | None = None
        self._drained_s = 0.0

    def answer(self, request: OpenRequest | IntervalRequest) -> OpenAnswer | DriverGoneAnswer:
        """Return the answer to one request. A lost driver is an answer too; the worker is useless after it."""
        try:
            if self._gone is not None:
                raise self._gone
            answer = self._open(request) if request["op"] == "open" else self._row(request)
        except DriverGoneError as gone:
            return {"gone_code": gone.code, "message": str(gone), "incidents": self._incidents()}
        self._drained_s = time.monotonic()
        return answer

    def _incidents(self) -> list[EventRow]:
        incidents = [] if self._xids is None else self._xids.take()  # first, as the cause of the others
        incidents += self._driver.incidents
        self._driver.incidents = []
        if self._sampler is not None:
            incidents += [{"kind": "part_failed", "detail": detail} for detail in self._sampler.runs.take_details()]
        return incidents

    @property
    def rest_s(self) -> float | None:
        """Return how long the next drain may wait, in s; None before `open` and after the loss of the driver."""
        if self._sampler is None or self._gone is not None:
            return None
        return max(0.0, self._drained_s + self._sampler.drain_every_s - time.monotonic())

    def drain(self) -> None:
        """Read new events and samples between two requests; a lost driver becomes the answer to the next request."""
        if self._xids is not None:
            self._xids.read()
        try:
            self._opened().drain()
        except DriverGoneError as gone:
            self._gone = gone
        self._drained_s = time.monotonic()

    def _open(self, request: OpenRequest) -> OpenAnswer:
        self._driver.trials = {(target, call) for target, call in request["trials"]}
        self._sampler = sampler = Sampler(self._driver, self._driver.open(self._skip), self._sys)
        devices, errors = sampler.devices(all_of_them=True), sampler.errors()
        with self._driver.quietly():
            self._xids = XidEvents(self._driver, [each.gpu for each in sampler.watched if each.health == "ok"])
        sampler.drain()  # from here on no sample of the ring is missed
        return {"device": devices, "errors": errors, **self._watched(), "incidents": self._incidents()}

    def _watched(self) -> WatchedGpus:
        sampler = self._opened()
        returned, self._driver.returned = self._driver.returned, []
        return {
            "gpus": [each.gpu.uuid for each in sampler.watched],
            "instances": {each.gpu.uuid: list(each.instances) for each in sampler.watched if each.instances},
            "missing": self._driver.missing,
            "count": self._driver.count,
            "returned": returned,
        }

    def _row(self, request: IntervalRequest) -> IntervalAnswer:
        sampler = self._opened()
        sampled = sampler.rows(request["start_ms"], request["end_ms"], list_processes=request["list_processes"])
        devices = request["devices"]
        sampled["device"] += [] if devices == "none" else sampler.devices(all_of_them=devices == "all")
        costs, self._driver.costs = self._driver.costs, CallCosts()
        return {
            "gpu": sampled["gpu"],
            "process": sampled["process"],
            "device": sampled["device"],
            "errors": sampler.errors() if request["errors"] else [],
            "costs": {
                "worker_rss_bytes": resident_bytes(),
                "nvml_calls": costs.calls,
                "nvml_busy_ms": round(costs.busy_s * 1000, 2),
                "nvml_slowest_ms": round(costs.slowest_s * 1000, 2),
                "nvml_slowest_call": costs.slowest_call,
            },
            "cpu_s": time.process_time(),
            **self._watched(),
            "incidents": self._incidents(),
        }

    def _opened(self) -> Sampler:
        if self._sampler is None:
            raise RuntimeError("the first request must be `open`")
        return self._sampler


def main() -> None:
    """Serve until standard input ends, so that the worker ends with the supervisor, even after a crash.

    Between requests it drains the sample rings by itself, so that the supervisor can sleep during the interval.
    """
    bound_memory()
    page_fd, sys_path, *skip = sys.argv[1:]
    # only the supervisor decides when to end, but Ctrl-C in the terminal reaches the whole process group
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with mmap.mmap(int(page_fd), PAGE_BYTES) as memory:
        worker = Worker(StatusPage(memory), frozenset(skip), sys_path)
        serve(worker)
        worker = None  # type: ignore[assignment]  # releases the page before it is unmapped


def serve(worker: Worker) -> None:
    """Answer the requests on standard input, one JSON object per line, until the input ends."""
    requests = select.poll()
    requests.register(sys.stdin.fileno(), select.POLLIN)
    pending = b""
    while True:
        rest_s = worker.rest_s
        if not requests.poll(None if rest_s is None else rest_s * 1000):
            worker.drain()
            continue
        part = os.read(sys.stdin.fileno(), 1 << 16)
        if not part:
            return
        *lines, pending = (pending + part).split(b"\n")
        for line in lines:
            request = json.loads(line)
            sys.stdout.buffer.write(json.dumps(worker.answer(request)).encode() + b"\n")
            sys.stdout.buffer.flush()
            if request["op"] == "open":
                settle_memory()


if __name__ == "__main__":
    main()
