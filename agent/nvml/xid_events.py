"""Critical errors (XID) as the driver reports them, waited for in a thread of its own inside the worker.

The driver keeps no history: what happened before the registration is not known. The thread makes no call that the
status page announces: waiting for ever is what it is for.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import TYPE_CHECKING

import pynvml

from agent.nvml.gpu import Incident

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.nvml.driver import Driver
    from agent.nvml.gpu import DriverGpu

_WAIT_MS = 60_000
_PAUSE_S = 60.0  # after an error: a GPU that fell off the bus would answer at once, for ever
_WHOLE_GPU = 0xFFFFFFFF
_OVER = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


class XidWatch:
    """Registers every GPU that can report XIDs and collects what comes."""

    def __init__(self, driver: Driver, gpus: Sequence[DriverGpu]) -> None:
        """Raises as `Driver.ask` does."""
        self._found: list[Incident] = []
        self._lock = threading.Lock()
        self._uuids: dict[int | None, str] = {}
        self._set = driver.system(pynvml.nvmlEventSetCreate)
        if self._set is None:
            return
        for gpu in gpus:
            self._register(driver, gpu)
        if self._uuids:
            threading.Thread(target=self._wait, name="xid", daemon=True).start()

    def take(self) -> list[Incident]:
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

    def _incident(self, event: pynvml.c_nvmlEventData_t) -> Incident:
        number = int(event.eventData)
        where = "" if event.gpuInstanceId == _WHOLE_GPU else f" in GPU instance {event.gpuInstanceId}"
        uuid = self._uuids.get(_address(event.device))
        return Incident("xid", f"XID {number}{where}", uuid, number, time.time_ns() // 1_000_000)


def _address(handle: object) -> int | None:
    """What a handle points to: the driver hands out the same pointer in another object."""
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]  # an NVML handle is a pointer
