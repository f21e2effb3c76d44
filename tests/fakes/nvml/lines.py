"""The lines of a scenario file (its format is told at the top of nvml.c)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fakes.nvml.devices import THROTTLE_BITS
from tests.fakes.nvml.steps import constant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.fakes.nvml.devices import Gpu, MigInstance, Process
    from tests.fakes.nvml.scenario import Scenario
    from tests.fakes.nvml.steps import Steps

_FLAGS = ["samples_while_idle", "ring_garbage", "mig_capable", "persistence", "ecc", "row_remap"]
_NUMBERS = [
    "ring_size",
    "max_sm_clock",
    "max_mem_clock",
    "nvlink_group",
    "energy_offset_mj",
    "ecc_corrected_offset",
    "ecc_uncorrected_offset",
]
_STEPS = [
    "util",
    "mem_util",
    "encoder_util",
    "decoder_util",
    "mem_used",
    "sm_clock",
    "mem_clock",
    "throttle",
    "ecc_corrected",
    "ecc_uncorrected",
    "remapped_corrected",
    "remapped_uncorrected",
    "remap_pending",
    "remap_failed",
    "pcie_replay",
    "recovery_action",
]


def scenario_lines(scenario: Scenario) -> Iterator[str]:
    """The whole file, line by line."""
    yield "fallow-fake-nvml 1"
    yield f"start_ms {scenario.start_ms}"
    yield f"sample_clock_offset_us {scenario.sample_clock_offset_us}"
    if scenario.event_poll_ms:
        yield f"event_poll_ms {scenario.event_poll_ms}"
    yield f"driver_version {scenario.driver_version}"
    yield f"cuda_driver_version {scenario.cuda_driver_version}"
    for fault in scenario.faults:
        span = f"{_ms(fault.start_s)} {_ms(fault.end_s)}"
        yield f"fault {fault.kind} {_or_dash(fault.gpu)} {fault.function or '-'} {span} {_ms(fault.delay_s)}"
    for xid in sorted(scenario.xids, key=lambda xid: xid.at_s):
        yield f"xid {xid.gpu} {_ms(xid.at_s)} {xid.code}"
    for index, gpu in enumerate(scenario.gpus):
        yield from _gpu_lines(index, gpu)
        yield from _activity_lines("", gpu.processes, gpu.gpm_metrics(), gpu.gpm_nan)
        for instance in gpu.mig:
            yield from _mig_lines(gpu, instance)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else str(round(seconds * 1000))


def _or_dash(value: int | None) -> int | str:
    return "-" if value is None else value


def _steps(steps: Steps) -> str:
    return " ".join(f"{at_ms}:{milli}" for at_ms, milli in steps.encoded())


def _gpu_lines(index: int, gpu: Gpu) -> Iterator[str]:
    yield f"gpu {gpu.uuid}"
    yield f"name {gpu.model}"
    yield f"serial {gpu.serial}"
    yield f"pci {gpu.pci_bus_id or f'0000:{0x17 + index:02x}:00'}"
    yield f"minor {index if gpu.minor is None else gpu.minor}"
    yield f"arch {gpu.architecture}"
    yield f"cc_major {gpu.compute_capability[0]}"
    yield f"cc_minor {gpu.compute_capability[1]}"
    yield f"power_limit_mw {round(gpu.power_limit_w * 1000)}"
    yield f"mem_total {gpu.mem_total_bytes}"
    yield f"mem_reserved {gpu.mem_reserved_bytes}"
    yield f"gpm_supported {gpu.has_gpm():d}"
    yield from (f"{number} {_or_dash(getattr(gpu, number))}" for number in _NUMBERS)
    yield from (f"{flag} {getattr(gpu, flag):d}" for flag in _FLAGS)
    yield from (f"{key} {_steps(steps)}" for key, steps in _gpu_steps(gpu).items())
    yield from (f"throttled_{reason}_offset_ns {ns}" for reason, ns in gpu.throttled_offset_ns.items())
    yield from _recorded_lines(gpu)
    yield from (f"field_error {field} {code}" for field, code in gpu.field_errors.items())


def _recorded_lines(gpu: Gpu) -> Iterator[str]:
    """The entries of a real ring, each of the two kinds by itself."""
    if gpu.ring_recorded is None:
        return
    yield "ring_recorded 1"
    for place, key in ((1, "ring_util"), (2, "ring_mem_util")):
        entries = [f"{round(entry[0] * 1e6)}:{entry[place]}" for entry in gpu.ring_recorded if entry[place] is not None]
        if entries:
            yield f"{key} {' '.join(entries)}"


def _gpu_steps(gpu: Gpu) -> dict[str, Steps]:
    same_name: dict[str, Steps] = {name: getattr(gpu, name) for name in _STEPS}
    throttled = {f"throttled_{reason}": gpu.throttled_share(reason) for reason in THROTTLE_BITS}
    return (
        same_name
        | throttled
        | {
            "power": gpu.power_w,
            "energy_power": gpu.energy_power_w or gpu.power_w,
            "rates_util": gpu.rates[0] if gpu.rates else gpu.util,
            "rates_mem_util": gpu.rates[1] if gpu.rates else gpu.mem_util,
            "temperature": gpu.temperature_c,
            "mem_temperature": gpu.mem_temperature_c,
            "mig_mode": constant(1 if gpu.mig else 0) if gpu.mig_mode is None else gpu.mig_mode,
        }
    )


def _mig_lines(gpu: Gpu, instance: MigInstance) -> Iterator[str]:
    ids = f"{instance.slot} {instance.gi} {instance.ci} {instance.gpu_slices} {instance.compute_slices}"
    span = f"{_ms(instance.start_s)} {_ms(instance.end_s)}"
    yield f"mig {instance.uuid} {ids} {instance.mem_total_bytes} {span}"
    yield f"mig_name {gpu.model} MIG {instance.profile}"
    yield f"mig_mem_used {_steps(instance.mem_used)}"
    yield from _activity_lines("mig_", instance.processes, instance.gpm_metrics(), instance.gpm_nan)


def _activity_lines(
    prefix: str, processes: tuple[Process, ...], gpm: Mapping[int, Steps], gpm_nan: tuple[int, ...]
) -> Iterator[str]:
    for process in processes:
        span = f"{_ms(process.start_s)} {_ms(process.end_s)}"
        yield f"{prefix}process {process.pid} {process.kind} {span} {_or_dash(process.mem_bytes)}"
    for metric, steps in gpm.items():
        yield f"{prefix}gpm {metric} {_steps(steps)}"
    for metric in gpm_nan:
        yield f"{prefix}gpm_nan {metric}"
