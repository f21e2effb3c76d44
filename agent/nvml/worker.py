"""The NVML worker process: reads requests from standard input, one JSON object a line, and answers on standard output.

It only talks to the driver. If a call blocks for ever or crashes the process, the supervisor lives on; the status page,
a few bytes of memory that both share, tells it which call on which GPU it was. Critical errors (XID) are waited for in a thread
of its own: the driver keeps no history, and waiting for ever, which the status page never announces, is what it is for.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import signal
import sys
import threading
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

_WAIT_MS = 60_000
_PAUSE_S = 60.0  # after an error: a GPU that fell off the bus would answer at once, for ever
_WHOLE_GPU = 0xFFFFFFFF
_OVER = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


class XidWatch:
    """Registers every GPU that can report XIDs and collects what comes."""

    def __init__(self, driver: Driver, gpus: Sequence[DriverGpu]) -> None:
        """Raises as `Driver.ask` does."""
        self._found: list[EventRow] = []
        self._lock = threading.Lock()
        self._uuids: dict[int | None, str] = {}
        self._set = driver.system(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for gpu in gpus:
            self._register(driver, gpu)
        if self._uuids:
            threading.Thread(target=self._wait, name="xid", daemon=True).start()

    def take(self) -> list[EventRow]:
        """What came since the last call, with the time at which it was seen."""
        with self._lock:
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

    def _wait(self) -> None:
        while True:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, _WAIT_MS)
            except pynvml.NVMLError as error:
                if error.value in _OVER:
                    return
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    time.sleep(_PAUSE_S)
                continue
            if event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                with self._lock:
                    self._found.append(self._incident(event))

    def _incident(self, event: pynvml.c_nvmlEventData_t) -> EventRow:
        number = int(event.eventData)
        where = "" if event.gpuInstanceId == _WHOLE_GPU else f" in GPU instance {event.gpuInstanceId}"
        uuid = self._uuids.get(_address(event.device))
        time_ms = time.time_ns() // 1_000_000
        return {"kind": "xid", "detail": f"XID {number}{where}", "gpu": uuid, "code": number, "time": time_ms}


def _address(handle: object) -> int | None:
    """What a handle points to: the driver hands out the same pointer in another object."""
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]  # an NVML handle is a pointer


class Worker:
    """Answers requests; `open` comes first."""

    def __init__(self, page: StatusPage, skip: frozenset[str], sys: str) -> None:
        self._driver = Driver(page)
        self._skip = skip
        self._sys = sys
        self._sampler: Sampler | None = None
        self._xids: XidWatch | None = None
        self._gone: DriverGoneError | None = None
        self._drained_s = 0.0

    def answer(self, request: OpenRequest | IntervalRequest) -> OpenAnswer | DriverGoneAnswer:
        """The answer to one request; a lost driver is an answer too, after which the worker is of no more use."""
        try:
            if self._gone is not None:
                raise self._gone
            answer = self._open(request) if request["op"] == "open" else self._row(request)
        except DriverGoneError as gone:
            return {"gone_code": gone.code, "message": str(gone), "incidents": self._incidents()}
        self._drained_s = time.monotonic()
        return answer

    def _incidents(self) -> list[EventRow]:
        incidents, self._driver.incidents = self._driver.incidents, []
        if self._sampler is not None:
            incidents += [{"kind": "part_failed", "detail": detail} for detail in self._sampler.runs.take_details()]
        if self._xids is not None:
            incidents += self._xids.take()
        return incidents

    @property
    def rest_s(self) -> float | None:
        """How long the next drain may wait; None before `open` and after the driver was lost."""
        if self._sampler is None or self._gone is not None:
            return None
        return max(0.0, self._drained_s + self._sampler.drain_every_s - time.monotonic())

    def drain(self) -> None:
        """Takes new samples between two requests; a lost driver is the answer to the next one."""
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
            self._xids = XidWatch(self._driver, [each.gpu for each in sampler.watched if each.health == "ok"])
        sampler.drain()  # from here on nothing of the ring is missed
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
            raise RuntimeError("the first request has to be `open`")
        return self._sampler


def main() -> None:
    """Serves until standard input ends: when the supervisor goes, however it goes, so does the worker.

    Between requests it drains the sample rings by itself, so that the supervisor sleeps through the interval.
    """
    bound_memory()
    page_fd, sys_path, *skip = sys.argv[1:]
    # the supervisor decides when to end: a Ctrl-C in the terminal reaches the whole group
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with mmap.mmap(int(page_fd), PAGE_BYTES) as memory:
        worker = Worker(StatusPage(memory), frozenset(skip), sys_path)
        serve(worker)
        worker = None  # type: ignore[assignment]  # lets go of the page before it is unmapped


def serve(worker: Worker) -> None:
    """Answers the requests on standard input, one JSON object a line, until it ends."""
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
