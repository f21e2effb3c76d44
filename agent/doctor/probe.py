"""`python -m agent.doctor.probe DEV [SKIP ...]`: asks the driver, a line of JSON per answer; a process of its own.

SKIP are positions of GPUs that blocked an earlier probe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml

from agent.doctor.look import announce, tr

if TYPE_CHECKING:
    from collections.abc import Callable

_CALLS: tuple[tuple[str, tuple[Any, ...]], ...] = (
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
"""What the agent's rows are made of; whether each may be called is what the doctor wants to know."""
_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_UNKNOWN)
_UNSUPPORTED = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)


def main() -> None:
    """Says what the driver says, the most important first."""
    dev, *skip = sys.argv[1:]
    _nodes(Path(dev))
    try:
        announce("nvmlInit")
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        tr(refused={"code": error.value, "message": str(error)}, library=_loaded_library())
        return
    tr(
        library=_loaded_library(),
        driver_version=_asked(pynvml.nvmlSystemGetDriverVersion),
        nvml_version=_asked(pynvml.nvmlSystemGetNVMLVersion),
        cuda_version=_asked(pynvml.nvmlSystemGetCudaDriverVersion_v2),
    )
    count = _asked(pynvml.nvmlDeviceGetCount)
    tr(count=count)
    for index in range(count or 0):
        if str(index) not in skip:
            tr(gpu=_gpu(index))


def _nodes(dev: Path) -> None:
    """Whether the control node opens: a container whose right was revoked gets EPERM in spite of the file's mode."""
    node = dev / "nvidiactl"
    announce(f"open {node}")
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
        tr(control_errno=0)
    except OSError as error:
        tr(control_errno=error.errno)


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
        return _asked(getattr(pynvml, name), handle, *arguments, refused=refused)

    answer = {
        "index": index,
        "uuid": uuid,
        "model": ask("nvmlDeviceGetName"),
        "capability": ask("nvmlDeviceGetCudaComputeCapability"),
        "minor": ask("nvmlDeviceGetMinorNumber"),
        "persistence": ask("nvmlDeviceGetPersistenceMode"),
        "mig": (ask("nvmlDeviceGetMigMode") or [None])[0],
    }
    pci = ask("nvmlDeviceGetPciInfo")
    answer["pci"] = None if pci is None else (pci.busId.decode() if isinstance(pci.busId, bytes) else pci.busId)
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
    """How many MIG instances this process may see; None where their number is not told."""
    slots = ask("nvmlDeviceGetMaxMigDeviceCount")
    if slots is None:
        return None
    found = 0
    for slot in range(slots):
        try:
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)
            found += 1
        except pynvml.NVMLError:
            continue  # an empty slot, or one that this process has no right to
    return found


def _asked(call: Callable[..., Any], *arguments: Any, refused: dict[str, int] | None = None) -> Any:
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if refused is not None:
            refused[call.__name__] = error.value
        return None


def _loaded_library() -> str | None:
    """The file behind libnvidia-ml.so.1 as this process has it mapped."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "libnvidia-ml" in line:
            return line.split(maxsplit=5)[-1].removesuffix(" (deleted)")
    return None


if __name__ == "__main__":
    main()
