"""The checks, in the order in which a person would look: what is broken first explains what fails after it."""

from __future__ import annotations

from agent.doctor.case import Check
from agent.doctor.checks import (
    cards,
    clock,
    containers,
    cuda,
    lake,
    mig,
    module,
    nodes,
    nvml,
    processes,
    pythons,
    spool,
    toolkits,
    visible,
)

CHECKS: tuple[Check, ...] = (
    Check("driver.module", "the kernel module is loaded and fits the cards", module.look),
    Check("driver.match", "module and libraries are of one version", module.look_at_match),
    Check("driver.library", "the loader takes the driver's own library", nvml.look_at_library),
    Check("driver.nvml", "the driver answers", nvml.look),
    Check("driver.gpus", "every GPU is listed and answers", nvml.look_at_gpus),
    Check("driver.calls", "no call is refused to this user", nvml.look_at_calls),
    Check("driver.persistence", "the driver stays loaded between programs", processes.look_at_persistence),
    Check("driver.branch", "the driver's branch gets updates", cards.look_at_branch),
    Check("device.nodes", "the device nodes are there", nodes.look),
    Check("device.rights", "the agent's user may open them", nodes.look_at_rights),
    Check("device.mig", "MIG instances can be seen, and there are some", mig.look),
    Check("host.namespace", "every process on the GPUs can be seen", processes.look_at_namespace),
    Check("host.samplers", "no other collector asks the same", processes.look_at_samplers),
    Check("host.clock", "the clock is right and kept", clock.look),
    Check("host.spool", "the spool is on a local disk with room", spool.look),
    Check("host.lake", "the lake can be written, listed and cleaned", lake.look),
    Check("host.containers", "containers get the GPUs of this driver", containers.look),
    Check("cuda.driver", "which CUDA the driver runs, with its own libcuda", cuda.look),
    Check("cuda.visible", "no variable hides the GPUs", visible.look),
    Check("cuda.toolkit", "each toolkit's programs run here", toolkits.look),
    Check("cuda.python", "each Python environment's CUDA runs here", pythons.look),
    Check("cuda.card", "current drivers know each card", cards.look),
)
