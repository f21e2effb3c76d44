"""The checks, in the order in which a person would look: what is broken first explains what fails after it."""

from __future__ import annotations

from agent.doctor.case import DoctorCheck
from agent.doctor.checks import cuda, device, driver, machine, storage

CHECKS: tuple[DoctorCheck, ...] = (
    DoctorCheck("driver.module", "the kernel module is loaded and fits the cards", driver.look_at_module),
    DoctorCheck("driver.match", "module and libraries are of one version", driver.look_at_match),
    DoctorCheck("driver.library", "the loader takes the driver's own library", driver.look_at_library),
    DoctorCheck("driver.nvml", "the driver answers", driver.look_at_driver),
    DoctorCheck("driver.gpus", "every GPU is listed and answers", driver.look_at_gpus),
    DoctorCheck("driver.calls", "no call is refused to this user", driver.look_at_calls),
    DoctorCheck("driver.persistence", "the driver stays loaded between programs", machine.look_at_persistence),
    DoctorCheck("driver.branch", "the driver's branch gets updates", cuda.look_at_branch),
    DoctorCheck("device.nodes", "the device nodes are there", device.look_at_nodes),
    DoctorCheck("device.rights", "the agent's user may open them", device.look_at_rights),
    DoctorCheck("device.mig", "MIG instances can be seen, and there are some", device.look_at_mig),
    DoctorCheck("host.namespace", "every process on the GPUs can be seen", machine.look_at_namespace),
    DoctorCheck("host.jobs", "the scheduler's job of each process is known", machine.look_at_jobs),
    DoctorCheck("host.samplers", "no other collector asks the same", machine.look_at_samplers),
    DoctorCheck("host.clock", "the clock is right and kept", machine.look_at_clock),
    DoctorCheck("host.spool", "the spool is on a local disk with room", storage.look_at_spool),
    DoctorCheck(
        "host.lake", "there is a lake, and this host can write, list and clean its own part of it", storage.look_at_lake
    ),
    DoctorCheck("host.containers", "containers get the GPUs of this driver", machine.look_at_containers),
    DoctorCheck("cuda.driver", "which CUDA the driver runs, with its own libcuda", cuda.look_at_driver_cuda),
    DoctorCheck("cuda.visible", "no variable hides the GPUs", cuda.look_at_variables),
    DoctorCheck("cuda.toolkit", "each toolkit's programs run here", cuda.look_at_toolkits),
    DoctorCheck("cuda.python", "each Python environment's CUDA runs here", cuda.look_at_pythons),
    DoctorCheck("cuda.card", "current drivers know each card", cuda.look_at_cards),
)
