"""`python -m agent.doctor.probe DEV [SKIP ...]`: a process that queries the driver and writes answers as JSON lines.

SKIP are the indices of GPUs that blocked an earlier probe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from agent.doctor.look import announce, write_answer

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("nvmlDeviceGetMinorNumber", ()),
    ("nvmlDeviceGetPciInfo", ()),
    ("nvmlDeviceGetUtilizationRates", ()),
    ("nvmlDeviceGetSamples", (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)),
    ("nvmlDeviceGetMemoryInfo", ()),
    ("nvmlDeviceGetPowerUsage", ()),
    ("nvmlDeviceGetTotalEnergyConsumption", ()),
    ("nvmlDeviceGetTemperature", (pynvml.NVML_TEMPERATURE_GPU,)),
    ("nvmlDeviceGetClockInfo", (pynvml.NVML_CLOCK_SM,)),
    ("nvmlDeviceGetCurrentClocksEventReasons", ()),
    ("nvmlDeviceGetEncoderUtilization", ()),
    ("nvmlDeviceGetDecoderUtilization", ()),
    ("nvmlDeviceGetComputeRunningProcesses", ()),
    ("nvmlDeviceGetGraphicsRunningProcesses", ()),
    ("nvmlDeviceGetProcessUtilization", (0,)),
    ("nvmlGpmQueryDeviceSupport", ()),
)
"""The calls that fill the agent's rows. The doctor checks that this user may make them."""
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNKNOWN)
_UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)


def main() -> None:
    """Write the driver's answers, the most important first."""
    dev, *skip = sys.argv[1:]
    _nodes(Path(dev))
    try:
        announce("nvmlInit")
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        write_answer(refused={"code": error.value, "message": str(error)}, library=_loaded_library())
        return
    write_answer(
        library=_loaded_library(),
        driver_version=_answer(pynvml.nvmlSystemGetDriverVersion),
        nvml_version=_answer(pynvml.nvmlSystemGetNVMLVersion),
        cuda_version=_answer(pynvml.nvmlSystemGetCudaDriverVersion_v2),
    )
    count = _answer(pynvml.nvmlDeviceGetCount)
    write_answer(count=count)
    for index in range(count or 0):
        if str(index) not in skip:
            write_answer(gpu=_gpu(index))


def _nodes(dev: Path) -> None:
    """Write whether the control node opens. A container that lost device access gets EPERM despite the file's mode."""
    node = dev / "nvidiactl"
    announce(f"open {node}")
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
        write_answer(control_errno=0)
    except OSError as error:
        write_answer(control_errno=error.errno)


def _gpu(index: int) -> dict[str, Any]:
    announce(f"GPU {index}: nvmlDeviceGetHandleByIndex")
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:
        return {"index": index, "error": str(error)}
    refused: dict[str, int] = {}

    def ask(name: str, *arguments: Any) -> Any:
        announce(f"GPU {index}: {name}")
        return _answer(getattr(pynvml, name), handle, *arguments, refused=refused)

    answer = {
        "index": index,
        "uuid": uuid,
        "model": ask("nvmlDeviceGetName"),
        "capability": ask("nvmlDeviceGetCudaComputeCapability"),
        "persistence": ask("nvmlDeviceGetPersistenceMode"),
        "mig": (ask("nvmlDeviceGetMigMode") or [None])[0],
    }
    answer["mig_instances"] = _mig_instances(handle, ask) if answer["mig"] else None
    for name, arguments in _CALLS:
        ask(name, *arguments)
    gone = sorted({code for code in refused.values() if code in _GONE})
    return answer | {
        "error": str(pynvml.NVMLError(gone[0])) if gone else "",
        "denied": sorted(name for name, code in refused.items() if code == pynvml.NVML_ERROR_NO_PERMISSION),
        "unsupported": sorted(name for name, code in refused.items() if code in _UNSUPPORTED),
    }


def _mig_instances(handle: Any, ask: Callable[..., Any]) -> int | None:
    """Return the number of MIG instances that this process may see; None where the driver does not report it."""
    slots = ask("nvmlDeviceGetMaxMigDeviceCount")
    if slots is None:
        return None
    found = 0
    for slot in range(slots):
        try:
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            found += 1
        except pynvml.NVMLError:
            continue  # an empty slot, or an instance that this process may not see
    return found


def _answer(call: Callable[..., Any], *arguments: Any, refused: dict[str, int] | None = None) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if refused is not None:
            refused[call.__name__] = error.value
        return None


def _loaded_library() -> str | None:
    """Return the file that this process has mapped as libnvidia-ml.so.1."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "libnvidia-ml" in line:
            return line.split(maxsplit=5)[-1].removesuffix(" (deleted)")
    return None


if __name__ == "__main__":
    main()
