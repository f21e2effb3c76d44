"""Error counters and repair state of a GPU: the columns of the `health` table, and what is worth an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pynvml

from agent.nvml.driver import read_fields
from agent.nvml.gpu import Incident

if TYPE_CHECKING:
    from agent.nvml.driver import Driver
    from agent.nvml.gpu import Gpu
    from agent.rows import HealthRow

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


class ErrorCollector:
    """Rows of the `health` table."""

    name = "errors"

    def collect(self, driver: Driver, gpu: Gpu) -> HealthRow | None:
        """A row without its time; None where the GPU tells nothing of the kind. Raises GpuGoneError and DriverGoneError."""
        fields = read_fields(driver, gpu, _FIELDS)
        if not fields:
            return None
        row: dict[str, int | str | None] = {"gpu": gpu.uuid}
        row |= {column: fields.get(field) for field, column in _COUNTERS.items()}
        row |= {column: bool(fields[field]) if field in fields else None for field, column in _FLAGS.items()}
        action = fields.get(_RECOVERY)
        row["recovery_action"] = None if action is None else _ACTIONS.get(action, str(action))
        return cast("HealthRow", row)


def incidents_between(before: HealthRow | None, after: HealthRow) -> list[Incident]:
    """What an operator has to know of: new uncorrected errors, a remap that waits or failed, an action asked for.

    What is so from the start is said too, except the errors that a card has had before.
    """
    known: HealthRow = before or {}
    gpu = after["gpu"]
    found = []
    errors, errors_before = after["ecc_uncorrected_count"], known.get("ecc_uncorrected_count")
    if errors is not None and errors_before is not None and errors > errors_before:
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
    if action is not None and action not in ("none", known.get("recovery_action")):
        found.append(Incident("recovery_action", f"the driver asks for {action.replace('_', ' ')}", gpu))
    return found
