"""Error counters and repair state of a GPU: the columns of the `health` table, and what is worth an event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from agent.nvml.driver import read_fields
from agent.nvml.gpu import Incident

if TYPE_CHECKING:
    from agent.collectors import Value
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu

_COUNTERS = {
    pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: "ecc_corrected_count",
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: "ecc_uncorrected_count",
    pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL: "ecc_corrected_lifetime_count",
    pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL: "ecc_uncorrected_lifetime_count",
    pynvml.NVML_FI_DEV_REMAPPED_COR: "remapped_rows_corrected_count",
    pynvml.NVML_FI_DEV_REMAPPED_UNC: "remapped_rows_uncorrected_count",
    pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: "pcie_replay_count",
}
_FLAGS = {
    pynvml.NVML_FI_DEV_REMAPPED_PENDING: "row_remap_pending",
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE: "row_remap_failed",
}
_RECOVERY = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_FIELDS = (*_COUNTERS, *_FLAGS, _RECOVERY)
_ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: "none",
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "gpu_reset",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "node_reboot",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain_p2p",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain_and_reset",
}

Entry = dict[str, "Value"]


def read_errors(driver: Driver, gpu: Gpu) -> Entry | None:
    """One entry of the `health` table without its time; None where the GPU tells nothing of the kind.

    Raises GpuGoneError and DriverGoneError.
    """
    fields = read_fields(driver, gpu, _FIELDS)
    if not fields:
        return None
    entry: Entry = {"gpu": gpu.uuid}
    entry |= {column: fields.get(field) for field, column in _COUNTERS.items()}
    entry |= {column: bool(fields[field]) if field in fields else None for field, column in _FLAGS.items()}
    action = fields.get(_RECOVERY)
    entry["recovery_action"] = None if action is None else _ACTIONS.get(action, str(action))
    return entry


def incidents_between(before: Entry | None, after: Entry) -> list[Incident]:
    """What an operator has to know of: new uncorrected errors, a remap that waits or failed, an action asked for.

    What is so from the start is said too, except the errors that a card has had before.
    """
    known = before or {}
    gpu = str(after["gpu"])
    found = []
    errors, errors_before = after["ecc_uncorrected_count"], known.get("ecc_uncorrected_count")
    if isinstance(errors, int) and isinstance(errors_before, int) and errors > errors_before:
        found.append(
            Incident("ecc_uncorrected", f"{errors - errors_before} more memory errors that were not corrected", gpu)
        )
    if after["row_remap_pending"] and not known.get("row_remap_pending"):
        found.append(Incident("row_remap_pending", "a memory row waits to be remapped: reset the GPU", gpu))
    if after["row_remap_failed"] and not known.get("row_remap_failed"):
        found.append(
            Incident("row_remap_failed", "a memory row could not be remapped: the card is to be replaced", gpu)
        )
    action = after["recovery_action"]
    if action not in (None, "none") and action != known.get("recovery_action"):
        found.append(Incident("recovery_action", f"the driver asks for {str(action).replace('_', ' ')}", gpu))
    return found
