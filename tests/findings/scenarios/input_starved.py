"""Hosts at a limit while GPUs work half the time: for want of input, or for another reason."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 4
SMALL = "compute_oversized memory_oversized co_location mig_fit standing_surplus inefficient"


def small_files_from_a_slow_disk(fleet: Fleet) -> None:
    """Half the tasks of the host wait for I/O whenever the GPUs work."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(40, 4), zero=0.5)
    gpus[0].host.load(fleet.always, io_pressure_pct=50, disk_read_bytes_per_s=1.5e8)


def first_epoch_over_the_network(fleet: Fleet) -> None:
    """For a day the data comes over a network card that gives no more; then it lies on the local disk."""
    gpus = fleet.host("h1", H100, 2)
    streams = fleet.between(0, 2)
    train(fleet, gpus, "ann", util=np.where(streams, 38, 95), zero=np.where(streams, 0.5, 0))
    gpus[0].host.load(streams, net_receive_bytes_per_s=1.24e9)


def augmentation_on_few_cpus(fleet: Fleet) -> None:
    """Image augmentation keeps all CPUs busy by day; at night a lighter one is used and the GPUs keep up."""
    gpus = fleet.host("h1", L40S, 4)
    heavy = fleet.daily(6, 22)
    train(fleet, gpus, "ann", util=np.where(heavy, 42, 93), zero=np.where(heavy, 0.5, 0))
    gpus[0].host.load(heavy, cpu_count=16, cpu_util_pct=99, cpu_pressure_pct=80)


def container_with_four_cpus(fleet: Fleet) -> None:
    """The pod may use four CPUs and uses them all; the host has sixty idle ones."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=44.0, zero=0.5, cpu_util_pct=400.0, job=None, pod="train-0", namespace="lab")


def backup_at_night(fleet: Fleet) -> None:
    """A backup fills the disks every night; the GPUs do no worse than by day."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(55, 3), zero=0.3)
    gpus[0].host.load(fleet.daily(22, 8), disk_read_bytes_per_s=2e9, io_pressure_pct=45)


def optimizer_on_the_cpu(fleet: Fleet) -> None:
    """Optimizer states lie in host memory, the CPUs update them at their limit: nothing is waiting for input."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=45.0, zero=0.5, cpu_util_pct=3200.0, host_mem_bytes=400 * GB)
    gpus[0].host.load(fleet.always, cpu_util_pct=96, cpu_pressure_pct=55)


def requests_on_a_busy_host(fleet: Fleet) -> None:
    """A server with moderate traffic shares its host with a build farm."""
    gpus = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, gpus, util=fleet.noise(35, 5), zero=0.6, mem_gb=40)
    gpus[0].host.load(fleet.always, cpu_util_pct=97, cpu_pressure_pct=60)


def data_generation(fleet: Fleet) -> None:
    """Simulators on all CPUs write a data set; the GPU renders a frame now and then."""
    (gpu,) = fleet.host("h1", L40S, 1)
    train(fleet, gpu, "ann", util=6.0, zero=0.9, cpu_util_pct=5000.0)
    gpu.host.load(fleet.always, cpu_util_pct=98, cpu_pressure_pct=70)


def busy_cpus_that_keep_up(fleet: Fleet) -> None:
    """Decoding takes every CPU, and it is enough: the GPUs never wait."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=95.0)
    gpus[0].host.load(fleet.always, cpu_util_pct=97, cpu_pressure_pct=50)


def one_spinning_cpu(fleet: Fleet) -> None:
    """The main thread spins while it waits for its GPU: one busy CPU, as everywhere."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=50.0, zero=0.4, cpu_util_pct=100.0)


def checkpoints_on_a_slow_disk(fleet: Fleet) -> None:
    """The disks are at their limit with writing; the GPUs work at two thirds."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=64.0, zero=0.3)
    gpus[0].host.load(fleet.always, io_pressure_pct=40, disk_write_bytes_per_s=8e8, disk_read_bytes_per_s=1e7)


SCENARIOS = (
    situation(small_files_from_a_slow_disk, days=DAYS, fires="input_starved", may=SMALL),
    situation(first_epoch_over_the_network, days=DAYS, fires="input_starved", may=SMALL),
    situation(augmentation_on_few_cpus, days=DAYS, fires="input_starved", may=SMALL),
    situation(container_with_four_cpus, days=DAYS, fires="input_starved", may=SMALL),
    situation(backup_at_night, days=DAYS, may=SMALL, look_alike_of="input_starved low_efficiency"),
    situation(optimizer_on_the_cpu, days=DAYS, may=SMALL, look_alike_of="input_starved low_efficiency"),
    situation(
        requests_on_a_busy_host, days=DAYS, may=f"{SMALL} preallocated", look_alike_of="input_starved low_efficiency"
    ),
    situation(data_generation, days=DAYS, may=f"{SMALL} low_efficiency", look_alike_of="input_starved held"),
    situation(busy_cpus_that_keep_up, days=DAYS, look_alike_of="input_starved"),
    situation(one_spinning_cpu, days=DAYS, may=SMALL, look_alike_of="input_starved"),
    situation(checkpoints_on_a_slow_disk, days=DAYS, may=SMALL, look_alike_of="input_starved"),
)
