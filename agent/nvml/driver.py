"""The only access to the NVIDIA driver: it times and announces calls, and classifies their errors.

Errors are handled as docs/how-a-number-is-made.md describes. Unsupported calls are switched off for that GPU. A lost
GPU changes only that GPU's state. No error ever becomes a number.

Ids of field values depend on the driver's version: NVIDIA has renumbered some, and an old number then names another
field. A field with an unknown number is not read, and its column is null. The numbers were compared in NVIDIA's own
binding (nvidia-ml-py), release by release, from 11.450.129 (July 2020) to 13.615.71 (25 September 2026).
"""

from __future__ import annotations

import ctypes
import math
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pynvml

from agent.nvml.gpu import CallCosts, DriverGoneError, DriverGpu, GpuGoneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agent.nvml.gpu import StatusPage
    from agent.rows import EventRow

Version = tuple[float, ...]
"""A driver's version as numbers: `580.65.06` is (580, 65, 6)."""

NEWEST_CHECKED: Version = (615,)
"""The newest driver branch whose numbers were compared. Fields whose numbers change are not read from newer drivers."""

_ALWAYS = {
    "ecc_corrected_count": 3,
    "ecc_uncorrected_count": 4,
    "ecc_corrected_lifetime_count": 5,
    "ecc_uncorrected_lifetime_count": 6,
    "throttled_power_cap_ms": 74,
    "throttled_sync_boost_ms": 76,
    "mem_temperature_c": 82,
    "energy_mj": 83,
    "pcie_replay_count": 94,
    "remapped_rows_corrected_count": 142,
    "remapped_rows_uncorrected_count": 143,
    "row_remap_pending": 144,
    "row_remap_failed": 145,
}
"""Numbers of fields, by column of the tables, that are the same in every nvidia-ml-py from 11.450.129 on."""

_AFTER_CHECKED: Version = (NEWEST_CHECKED[0] + 1,)
_RANGES: tuple[tuple[Version, Version, dict[str, int]], ...] = (
    # new in nvidia-ml-py 12.570.86 (24 January 2025)
    ((570, 86), (math.inf,), {"recovery_action": 230}),
    # nvidia-ml-py 12.575.51 (6 May 2025) and 13.580.65 (5 August 2025); in 12.570.172, 251 to 253 are power smoothing.
    # 580.65.06 is the last known to have these, 580.82.07 the first with the next; versions between are unknown
    (
        (575, 51),
        (580, 66),
        {"throttled_sw_thermal_ms": 251, "throttled_hw_thermal_ms": 252, "throttled_power_brake_ms": 253},
    ),
    # NVML API reference, known issues: fields 251 to 273 changed between CUDA 13.0 and its Update 1 (driver 580.82.07);
    # nvidia-ml-py 13.580.82 (11 September 2025) to 13.615.71
    (
        (580, 82),
        _AFTER_CHECKED,
        {"throttled_sw_thermal_ms": 269, "throttled_hw_thermal_ms": 270, "throttled_power_brake_ms": 271},
    ),
)
"""Numbers that changed: of drivers from the first version on and before the second."""


def parsed_version(text: str | None) -> Version | None:
    """Return the numbers of a driver's version; None where the text is missing or not a version."""
    parts = (text or "").split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(int(part) for part in parts)


def field_numbers(version: Version | None) -> dict[str, int]:
    """Return the field numbers of a driver version by column; of an unknown version, those that never changed."""
    numbers = dict(_ALWAYS)
    for since, until, found in _RANGES:
        if version is not None and since <= version < until:
            numbers |= found
    return numbers


_BUDGET_S = 5.0  # of one GPU in one round of calls
_OPENING_S = 60.0  # without persistence mode a GPU takes seconds to wake up
_SLOW_S = 0.02  # shorter calls do not count against a GPU's time

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


class Driver:
    """The loaded library. Every call may block for ever, so only the worker process has it."""

    def __init__(self, page: StatusPage) -> None:
        self._page = page
        self._rings: RingReader | None = None
        self.costs = CallCosts()
        self.incidents: list[EventRow] = []
        self.trials: set[tuple[str, str]] = set()
        """GPU and name of calls that blocked or ended an earlier worker and have not returned in this worker."""
        self.returned: list[tuple[str, str]] = []
        """GPU and name of the calls on trial that have returned in this worker."""
        self.missing: list[int] = []
        """Positions of GPUs that exist but cannot be opened."""
        self.count = 0
        """Number of GPUs that the driver has listed."""
        self.fields = field_numbers(None)
        """The numbers of this driver's fields, by column."""
        self._quiet = False
        self.budget_s = _BUDGET_S
        self._spent_s: dict[str, float] = {}

    def begin_round(self, budget_s: float = _BUDGET_S) -> None:
        """Begin a round of calls. Its time per GPU is limited: a slow GPU never keeps the others from being read."""
        self.budget_s = budget_s
        self._spent_s.clear()

    def say(self, kind: str, detail: str, gpu: DriverGpu | None = None) -> None:
        """Store an event, with the time of its row."""
        self.incidents.append({"kind": kind, "detail": detail, "gpu": None if gpu is None else gpu.uuid})

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Suppress, in the block, the event for an unsupported call: many cards lack these values."""
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def open(self, skip: frozenset[str]) -> list[DriverGpu]:
        """Load the library and return the GPUs, except those to skip; raises DriverGoneError where that fails."""
        self.begin_round(_OPENING_S)
        try:
            self._timed("", pynvml.nvmlInit)
            count = self._timed("", pynvml.nvmlDeviceGetCount)
        except pynvml.NVMLError as error:
            raise DriverGoneError(error.value, str(error)) from error
        self.count = int(count)
        self._number_fields()
        # a position identifies a GPU only while the number of GPUs is the same
        skipped = [index for index in range(count) if skip & {f"#{index}", f"#{index}/{count}"}]
        found = [self._open_one(index, skip) for index in range(count) if index not in skipped]
        return [gpu for gpu in found if gpu is not None]

    def _number_fields(self) -> None:
        text = self.system(pynvml.nvmlSystemGetDriverVersion)
        version = parsed_version(text)
        self.fields = field_numbers(version)
        if version is None or version[: len(NEWEST_CHECKED)] > NEWEST_CHECKED:
            what = (
                "has a version in an unknown form"
                if version is None
                else "is newer than the drivers that this fallow supports"
            )
            detail = f"the driver ({text}) {what}: time throttled by heat or the power brake is unknown; upgrade fallow"
            self.say("call_unsupported", detail)

    def open_missing(self) -> list[DriverGpu]:
        """Return the GPUs that could not be opened before and can be opened now."""
        self.begin_round(_OPENING_S)
        missing, self.missing = self.missing, []
        reported, self.incidents = self.incidents, []
        found = [self._open_one(index, frozenset()) for index in missing]
        self.incidents = reported  # that they cannot be opened is reported only once
        gpus = [gpu for gpu in found if gpu is not None]
        for gpu in gpus:
            self.say("gpu_ok", f"GPU {gpu.index} can be opened again", gpu)
        return gpus

    def _open_one(self, index: int, skip: frozenset[str]) -> DriverGpu | None:
        try:
            handle = self._timed(f"#{index}", pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = self._timed(f"#{index}", pynvml.nvmlDeviceGetUUID, handle)
        except (pynvml.NVMLError, ValueError, GpuGoneError) as error:
            if isinstance(error, pynvml.NVMLError):
                self._check_driver(error)
            self.missing.append(index)
            self.say("gpu_lost", f"GPU {index} cannot be opened: {error}")
            return None
        return None if uuid in skip else DriverGpu(handle, uuid, index)

    def system(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call about the whole system; None where it fails."""
        try:
            return self._timed("", call, *args)
        except (pynvml.NVMLError, ValueError):
            return None

    def ask(self, gpu: DriverGpu, call: Callable[..., Any], *args: Any) -> Any:
        """Return the result of a call on a GPU; None where it is unknown.

        Raises GpuGoneError for a lost GPU and DriverGoneError for a lost driver.
        """
        # making the key costs time, so only where a call was refused before
        if gpu.off and _key(call, args) in gpu.off:
            return None
        return self._attempt(gpu, call, (gpu.handle, *args), args)

    def ask_with(self, gpu: DriverGpu, call: Callable[..., Any], *args: Any) -> Any:
        """Like `ask`, for calls whose first argument is not the GPU's handle; they are switched off by name alone."""
        if gpu.off and call.__name__ in gpu.off:
            return None
        return self._attempt(gpu, call, args, ())

    def _attempt(self, gpu: DriverGpu, call: Callable[..., Any], args: tuple[Any, ...], shown: tuple[Any, ...]) -> Any:
        try:
            result = self._timed(gpu.blamed, call, *args)
        except pynvml.NVMLError as error:
            self._judge(gpu, _key(call, shown), error)
            return None
        except ValueError:  # bytes that are not text: the binding itself decodes names
            self._strike(gpu, _key(call, shown))
            return None
        if gpu.strikes:
            gpu.strikes.pop(_key(call, shown), None)
        return result

    def ask_ring(self, gpu: DriverGpu, kind: int, last_seen_us: int) -> list[tuple[int, int]] | None:
        """Return the new (timestamp, percent) samples of a ring; an empty list without new samples, None where unknown.

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
                return []  # no new samples: the driver's answer for an idle GPU, not an error
            self._judge(gpu, key, error)
            return None
        if gpu.strikes:
            gpu.strikes.pop(key, None)
        return samples

    def ask_slot(self, gpu: DriverGpu, slot: int) -> Any:
        """Return the handle of the MIG instance in a slot; None where the slot is empty. Raises as `ask` does."""
        try:
            return self._timed(gpu.blamed, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, slot)
        except pynvml.NVMLError as error:
            if error.value not in _EMPTY_SLOT:
                self._judge(gpu, "nvmlDeviceGetMigDeviceHandleByIndex", error)
            return None

    def unsupported(self, gpu: DriverGpu, call: Callable[..., Any]) -> bool:
        return gpu.off.get(call.__name__) == "call_unsupported"

    def _judge(self, gpu: DriverGpu, key: str, error: pynvml.NVMLError) -> None:
        code = error.value
        self._check_driver(error)
        if code in _GPU_GONE:
            raise GpuGoneError(_GPU_GONE[code]) from error
        if code in _OFF:
            gpu.off[key] = _OFF[code]
            if key not in gpu.reported and not (self._quiet and _OFF[code] == "call_unsupported"):
                gpu.reported.add(key)
                self.say(_OFF[code], f"{key}: {error}", gpu)
        else:
            self._strike(gpu, key)

    def _strike(self, gpu: DriverGpu, key: str) -> None:
        gpu.strikes[key] = gpu.strikes.get(key, 0) + 1
        gpu.struck_in_row[key] = gpu.rows

    def judge_field(self, gpu: DriverGpu, field_id: int, code: int) -> None:
        """Handle the return code of a single field value; raises as `ask` does for a lost GPU."""
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
            if self.trials and (uuid, name) in self.trials:
                self.trials.remove((uuid, name))
                self.returned.append((uuid, name))
            if seconds > _SLOW_S:
                self._spend(uuid, name, seconds)

    def _spend(self, uuid: str, call: str, seconds: float) -> None:
        """Count a slow call; raises GpuGoneError where its GPU has used up this round's time."""
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


_SAMPLE = struct.Struct("=QI4x")  # nvmlSample_t: a time stamp in us, and a union whose first half is the percentage
_ROOM = 512  # samples; the rings hold 72 to 120


class RingReader:
    """Reads rings into one buffer for all GPUs, and returns the samples before the next call."""

    def __init__(self) -> None:
        self._function = pynvml.nvmlLib["nvmlDeviceGetSamples"]
        self._function.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong] + 3 * [ctypes.c_void_p]
        self._type = ctypes.c_int()
        self._count = ctypes.c_uint()
        self._samples = ctypes.create_string_buffer(_SAMPLE.size * _ROOM)
        self._addresses = tuple(ctypes.addressof(each) for each in (self._type, self._count, self._samples))

    def nvmlDeviceGetSamples(self, handle: object, kind: int, last_seen_us: int) -> list[tuple[int, int]]:  # noqa: N802
        """Return the samples newer than `last_seen_us` as (time stamp in us, percent); raises NVMLError.

        It has the name of the driver's function, because calls are announced and counted by name.
        """
        self._count.value = _ROOM
        code = self._function(handle, kind, last_seen_us, *self._addresses)
        if code:
            raise pynvml.NVMLError(code)
        return list(_SAMPLE.iter_unpack(memoryview(self._samples)[: self._count.value * _SAMPLE.size]))


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}


def read_fields(driver: Driver, gpu: DriverGpu, columns: Sequence[str]) -> dict[str, int]:
    """Return the values of these columns' fields, where driver and GPU have them, as integers in the driver's units.

    A field that is not supported is not read again. Raises GpuGoneError and DriverGoneError.
    """
    wanted = {driver.fields[each]: each for each in columns if each in driver.fields}
    ids = [each for each in wanted if each not in gpu.fields_off] if gpu.fields_off else list(wanted)
    # None where the call as a whole fails
    found = driver.ask_with(gpu, pynvml.nvmlDeviceGetFieldValues, gpu.handle, ids) if ids else None
    if found is None:
        return {}
    values = {}
    for each in found:
        if each.nvmlReturn:
            driver.judge_field(gpu, each.fieldId, each.nvmlReturn)
        elif (member := _MEMBERS.get(each.valueType)) is not None:
            values[wanted[each.fieldId]] = int(getattr(each.value, member))
    return values
