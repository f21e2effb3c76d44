"""The NVIDIA driver behind one narrow door: calls are timed, announced and their errors told apart.

What an error means follows docs/how-a-number-is-made.md: unsupported calls are switched off for that GPU, a lost GPU is
that GPU's state and nobody else's, and no error ever becomes a number.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pynvml

from agent.nvml.ring_reader import RingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STRIKES = 3
"""Failures in a row of one call after which a GPU counts as degraded."""

_BUDGET_S = 5.0  # of one GPU in one round of calls
_OPENING_S = 60.0  # without persistence mode a GPU takes seconds to wake up
_SLOW_S = 0.02  # calls below it are not counted against a GPU
_STRIKES_LAST = 6  # intervals: a call that fails is made again sooner

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
_EMPTY_SLOT = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
_DRIVER_GONE = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
)


class GpuGoneError(Exception):
    """This GPU cannot be used for now; `health` says how, and `reason` why where that is not plain."""

    def __init__(self, health: str, reason: str = "") -> None:
        super().__init__(health)
        self.health = health
        self.reason = reason


class DriverGoneError(Exception):
    """The driver itself cannot be used any more; a new process has to load it again."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Announces(Protocol):
    """Told of every call before it is made, so that a call that never returns can be named."""

    def announce(self, uuid: str, call: str) -> None:
        """Takes the GPU (`#index` before its UUID is known, empty for the driver as a whole) and the call's name."""
        ...

    def returned(self) -> None:
        """Takes note that the call has returned."""
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
    """Something to be written as an event; without a time of its own it gets that of the row it comes with."""

    kind: str
    detail: str
    gpu: str | None = None
    code: int | None = None
    time_ms: int | None = None


@dataclass
class Gpu:
    """One GPU or MIG instance: its handle, what it cannot do and how it fares."""

    handle: Any
    uuid: str
    index: int
    off: dict[str, str] = field(default_factory=dict)
    """Calls that are switched off, and the kind of event that said so."""
    fields_off: set[int] = field(default_factory=set)
    """Field values that this GPU does not have."""
    said: set[str] = field(default_factory=set)
    strikes: dict[str, int] = field(default_factory=dict)
    """Failures in a row, by call."""
    rows: int = 0
    """Intervals so far."""
    struck_in_row: dict[str, int] = field(default_factory=dict)
    parent: Gpu | None = None
    """The GPU that a MIG instance belongs to."""
    gpu_instance_id: int | None = None

    @property
    def blamed(self) -> str:
        """The UUID that a blocked or crashing call is put down to: a worker can leave whole GPUs out only."""
        return self.uuid if self.parent is None else self.parent.uuid

    @property
    def degraded(self) -> bool:
        """Whether some call has failed too often in a row."""
        return any(count >= STRIKES for count in self.strikes.values())

    def next_row(self) -> None:
        """Counts an interval, and forgets failures of calls that are not made any more: stand-ins for others."""
        self.rows += 1
        for key in [key for key, row in self.struck_in_row.items() if self.rows - row > _STRIKES_LAST]:
            del self.struck_in_row[key]
            self.strikes.pop(key, None)

    def ask_again(self) -> None:
        """Forgets what was refused: rights, modes and drivers change."""
        self.off.clear()
        self.fields_off.clear()


class Driver:
    """The loaded library. Everything in it may block for ever, so it lives in the worker process only."""

    def __init__(self, page: Announces) -> None:
        self._page = page
        self._rings: RingReader | None = None
        self.costs = Costs()
        self.incidents: list[Incident] = []
        self._missing: list[int] = []
        self.count = 0
        """GPUs that the driver has listed."""
        self._quiet = False
        self.budget_s = _BUDGET_S
        self._spent_s: dict[str, float] = {}

    def begin_round(self, budget_s: float = _BUDGET_S) -> None:
        """Begins a round of calls: no GPU may take longer than that in all, so that a slow one never hides the others."""
        self.budget_s = budget_s
        self._spent_s.clear()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Meanwhile calls that a GPU does not support are no incident: facts of a card that it need not have."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def open(self, skip: frozenset[str]) -> list[Gpu]:
        """Loads the library and returns the GPUs except those to skip; raises DriverGoneError where it cannot."""
        self.begin_round(_OPENING_S)
        try:
            self._timed("", pynvml.nvmlInit)
            count = self._timed("", pynvml.nvmlDeviceGetCount)
        except pynvml.NVMLError as error:
            raise DriverGoneError(error.value, str(error)) from error
        self.count = int(count)
        # a position says which GPU it is only as long as their number is the same
        skipped = [index for index in range(count) if skip & {f"#{index}", f"#{index}/{count}"}]
        found = [self._open_one(index, skip) for index in range(count) if index not in skipped]
        return [gpu for gpu in found if gpu is not None]

    @property
    def missing(self) -> list[int]:
        """Positions of GPUs that exist and cannot be opened."""
        return list(self._missing)

    def open_missing(self) -> list[Gpu]:
        """GPUs that could not be opened before and can now."""
        self.begin_round(_OPENING_S)
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
        except (pynvml.NVMLError, ValueError, GpuGoneError) as error:
            if isinstance(error, pynvml.NVMLError):
                self._check_driver(error)
            self._missing.append(index)
            self.incidents.append(Incident("gpu_lost", f"GPU {index} cannot be opened: {error}"))
            return None
        return None if uuid in skip else Gpu(handle, uuid, index)

    def system(self, call: Callable[..., Any]) -> Any:
        """The result of a call about the whole system, None where it fails."""
        try:
            return self._timed("", call)
        except (pynvml.NVMLError, ValueError):
            return None

    def ask(self, gpu: Gpu, call: Callable[..., Any], *args: Any) -> Any:
        """The result of a call on a GPU, None where it is unknown.

        Raises GpuGoneError for a lost GPU and DriverGoneError for a lost driver.
        """
        # the key is made of text, so only where something was refused before
        if gpu.off and _key(call, args) in gpu.off:
            return None
        return self._attempt(gpu, call, (gpu.handle, *args), args)

    def ask_with(self, gpu: Gpu, call: Callable[..., Any], *args: Any) -> Any:
        """As `ask`, for calls that take other things than the GPU's own handle first; known by their name alone."""
        if gpu.off and call.__name__ in gpu.off:
            return None
        return self._attempt(gpu, call, args, ())

    def _attempt(self, gpu: Gpu, call: Callable[..., Any], args: tuple[Any, ...], shown: tuple[Any, ...]) -> Any:
        try:
            result = self._timed(gpu.blamed, call, *args)
        except pynvml.NVMLError as error:
            self._judge(gpu, _key(call, shown), error)
            return None
        except ValueError:  # text that is none: the binding decodes names by itself
            self._strike(gpu, _key(call, shown))
            return None
        if gpu.strikes:
            gpu.strikes.pop(_key(call, shown), None)
        return result

    def ask_ring(self, gpu: Gpu, kind: int, last_seen_us: int) -> list[tuple[int, int]] | None:
        """New (timestamp, percent) samples of a ring, an empty list where there are none, None where unknown.

        Raises as `ask` does.
        """
        key = _RINGS[kind]
        if key in gpu.off:
            return None
        if self._rings is None:
            self._rings = RingReader()
        try:
            samples: list[tuple[int, int]] = self._timed(
                gpu.blamed, self._rings.nvmlDeviceGetSamples, gpu.handle, kind, last_seen_us
            )
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                gpu.strikes.pop(key, None)
                return []  # nothing new: the driver's word for an idle GPU, not an error
            self._judge(gpu, key, error)
            return None
        if gpu.strikes:
            gpu.strikes.pop(key, None)
        return samples

    def ask_fields(self, gpu: Gpu, ids: list[int]) -> Any:
        """NVML's array of field values, None where the call as a whole fails; raises as `ask` does."""
        call = pynvml.nvmlDeviceGetFieldValues
        if gpu.off and call.__name__ in gpu.off:
            return None
        return self._attempt(gpu, call, (gpu.handle, ids), ())

    def ask_slot(self, gpu: Gpu, slot: int) -> Any:
        """The handle of the MIG instance in a slot, None where the slot is empty; raises as `ask` does."""
        try:
            return self._timed(gpu.blamed, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, slot)
        except pynvml.NVMLError as error:
            if error.value not in _EMPTY_SLOT:
                self._judge(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", error)
            return None

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
            if key not in gpu.said and not (self._quiet and _OFF[code] == "call_unsupported"):
                gpu.said.add(key)
                self.incidents.append(Incident(_OFF[code], f"{key}: {error}", gpu.uuid))
        else:
            self._strike(gpu, key)

    def _strike(self, gpu: Gpu, key: str) -> None:
        gpu.strikes[key] = gpu.strikes.get(key, 0) + 1
        gpu.struck_in_row[key] = gpu.rows

    def judge_field(self, gpu: Gpu, field_id: int, code: int) -> None:
        """What the return code of a single field value means; raises as `ask` does for a lost GPU."""
        if code in _GPU_GONE:
            raise GpuGoneError(_GPU_GONE[code])
        if code in _OFF or code == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # a driver that does not know the field
            gpu.fields_off.add(field_id)

    def _check_driver(self, error: pynvml.NVMLError) -> None:
        if error.value in _DRIVER_GONE:
            raise DriverGoneError(error.value, str(error)) from error

    def _timed(self, uuid: str, call: Callable[..., Any], *args: Any) -> Any:
        name = call.__name__
        self._page.announce(uuid, name)
        begun_s = _now()
        try:
            return call(*args)
        finally:
            seconds = _now() - begun_s
            self._page.returned()
            self.costs.add(name, seconds)
            if seconds > _SLOW_S:
                self._spend(uuid, name, seconds)

    def _spend(self, uuid: str, call: str, seconds: float) -> None:
        """Counts a slow call; raises GpuGoneError where its GPU has used up this round's time."""
        spent_s = self._spent_s[uuid] = self._spent_s.get(uuid, 0.0) + seconds
        if uuid and spent_s > self.budget_s:
            raise GpuGoneError("degraded", f"its calls took {spent_s:.1f} s, the last of them {call}")


_now = time.perf_counter

_RINGS = {
    kind: f"nvmlDeviceGetSamples({kind})"
    for kind in (pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_MEMORY_UTILIZATION_SAMPLES)
}


def _key(call: Callable[..., Any], args: tuple[Any, ...]) -> str:
    return f"{call.__name__}{args}" if args else call.__name__
