"""The NVIDIA driver behind one narrow door: calls are timed, announced and their errors told apart.

What an error means follows docs/how-a-number-is-made.md: unsupported calls are switched off for that GPU, a lost GPU is
that GPU's state and nobody else's, and no error ever becomes a number.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable

STRIKES = 3
"""Failures in a row of one call after which a GPU counts as degraded."""

_OFF = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "call_unsupported",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "call_unsupported",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "call_unsupported",
    pynvml.NVML_ERROR_NO_PERMISSION: "call_denied",
}
_GPU_GONE = {
    pynvml.NVML_ERROR_GPU_IS_LOST: "lost",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset_required",
    pynvml.NVML_ERROR_GPU_NOT_FOUND: "lost",
}
_DRIVER_GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
)


class GpuGoneError(Exception):
    """This GPU cannot be used; `health` says how."""

    def __init__(self, health: str) -> None:
        super().__init__(health)
        self.health = health


class DriverGoneError(Exception):
    """The driver itself cannot be used any more; a new process has to load it again."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Announce(Protocol):
    """Told of every call before it is made, so that a call that never returns can be named."""

    def __call__(self, uuid: str, call: str) -> None:
        """Takes the GPU (`#index` before its UUID is known, empty for the driver as a whole) and the call's name."""
        ...


@dataclass
class Costs:
    """What the driver calls since the last look cost."""

    calls: int = 0
    busy_s: float = 0.0
    slowest_s: float = 0.0
    slowest_call: str | None = None

    def add(self, call: str, seconds: float) -> None:
        """Counts one call."""
        self.calls += 1
        self.busy_s += seconds
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest_call = seconds, call


@dataclass
class Incident:
    """Something to be written as an event."""

    kind: str
    detail: str
    gpu: str | None = None


@dataclass
class Gpu:
    """One GPU: its handle, what it cannot do and how it fares."""

    handle: Any
    uuid: str
    index: int
    off: dict[str, str] = field(default_factory=dict)
    """Calls that are switched off, and the kind of event that said so."""
    said: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)

    @property
    def degraded(self) -> bool:
        """Whether some call has failed too often in a row."""
        return any(count >= STRIKES for count in self.strikes.values())


class Driver:
    """The loaded library. Everything in it may block for ever, so it lives in the worker process only."""

    def __init__(self, announce: Announce) -> None:
        self._announce = announce
        self.costs = Costs()
        self.incidents: list[Incident] = []
        self._missing: list[int] = []

    def open(self, skip: frozenset[str]) -> list[Gpu]:
        """Loads the library and returns the GPUs except those to skip; raises DriverGoneError where it cannot."""
        try:
            self._timed("", pynvml.nvmlInit)
            count = self._timed("", pynvml.nvmlDeviceGetCount)
        except pynvml.NVMLError as error:
            raise DriverGoneError(error.value, str(error)) from error
        found = [self._open_one(index, skip) for index in range(count) if f"#{index}" not in skip]
        return [gpu for gpu in found if gpu is not None]

    @property
    def missing(self) -> list[int]:
        """Positions of GPUs that exist and cannot be opened."""
        return list(self._missing)

    def open_missing(self) -> list[Gpu]:
        """GPUs that could not be opened before and can now."""
        missing, self._missing = self._missing, []
        said, self.incidents = self.incidents, []
        found = [self._open_one(index, frozenset()) for index in missing]
        self.incidents = said  # it was said once that they cannot be opened
        gpus = [gpu for gpu in found if gpu is not None]
        self.incidents += [Incident("gpu_ok", f"GPU {gpu.index} can be opened again", gpu.uuid) for gpu in gpus]
        return gpus

    def _open_one(self, index: int, skip: frozenset[str]) -> Gpu | None:
        try:
            handle = self._timed(f"#{index}", pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = self._timed(f"#{index}", pynvml.nvmlDeviceGetUUID, handle)
        except pynvml.NVMLError as error:
            self._check_driver(error)
            self._missing.append(index)
            self.incidents.append(Incident("gpu_lost", f"GPU {index} cannot be opened: {error}"))
            return None
        return None if uuid in skip else Gpu(handle, uuid, index)

    def system(self, call: Callable[..., Any]) -> Any:
        """The result of a call about the whole system, None where it fails."""
        try:
            return self._timed("", call)
        except pynvml.NVMLError:
            return None

    def ask(self, gpu: Gpu, call: Callable[..., Any], *args: Any) -> Any:
        """The result of a call on a GPU, None where it is unknown.

        Raises GpuGoneError for a lost GPU and DriverGoneError for a lost driver.
        """
        name = call.__name__
        key = name if not args else f"{name}{args}"
        if key in gpu.off:
            return None
        try:
            result = self._timed(gpu.uuid, call, gpu.handle, *args)
        except pynvml.NVMLError as error:
            self._judge(gpu, key, error)
            return None
        gpu.strikes.pop(key, None)
        return result

    def ask_ring(self, gpu: Gpu, kind: int, last_seen_us: int) -> list[tuple[int, int]] | None:
        """New (timestamp, percent) samples of a ring, an empty list where there are none, None where unknown.

        Raises as `ask` does.
        """
        key = f"nvmlDeviceGetSamples({kind})"
        if key in gpu.off:
            return None
        try:
            _, samples = self._timed(gpu.uuid, pynvml.nvmlDeviceGetSamples, gpu.handle, kind, last_seen_us)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                gpu.strikes.pop(key, None)
                return []  # nothing new: the driver's word for an idle GPU, not an error
            self._judge(gpu, key, error)
            return None
        gpu.strikes.pop(key, None)
        return _pairs(samples)

    def unsupported(self, gpu: Gpu, call: Callable[..., Any]) -> bool:
        """Whether the GPU has said that it does not know such a thing."""
        return gpu.off.get(call.__name__) == "call_unsupported"

    def _judge(self, gpu: Gpu, key: str, error: pynvml.NVMLError) -> None:
        code = error.value
        self._check_driver(error)
        if code in _GPU_GONE:
            raise GpuGoneError(_GPU_GONE[code]) from error
        if code in _OFF:
            gpu.off[key] = _OFF[code]
            if key not in gpu.said:
                gpu.said.add(key)
                self.incidents.append(Incident(_OFF[code], f"{key}: {error}", gpu.uuid))
        else:
            gpu.strikes[key] = gpu.strikes.get(key, 0) + 1

    def _check_driver(self, error: pynvml.NVMLError) -> None:
        if error.value in _DRIVER_GONE:
            raise DriverGoneError(error.value, str(error)) from error

    def _timed(self, uuid: str, call: Callable[..., Any], *args: Any) -> Any:
        self._announce(uuid, call.__name__)
        begun = time.perf_counter()
        try:
            return call(*args)
        finally:
            self.costs.add(call.__name__, time.perf_counter() - begun)
            self._announce("", "")


_SAMPLE = struct.Struct("=QI4x")  # nvmlSample_t: a time stamp in us, and a union whose first half is the percentage


def _pairs(samples: list[Any]) -> list[tuple[int, int]]:
    """The samples as plain numbers; copying the array behind them at once costs a tenth of asking each structure."""
    if not samples:
        return []
    whole = bytes(samples[0]._b_base_)
    return list(_SAMPLE.iter_unpack(whole[: len(samples) * _SAMPLE.size]))
