"""Situations from the field: training, in its healthy forms and in those that waste."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, GB, H100, L40S, Fleet
from tests.findings.scenarios.situations import hang, situation, train

NEVER_IDLE = "held ending low_efficiency"


@situation(
    look_alike_of=f"{NEVER_IDLE} imbalance partial_use throttled inefficient stalls input_starved memory_oversized"
)
def healthy_training(fleet: Fleet) -> None:
    train(fleet, fleet.host("h1", H100, 4), "ann")


@situation(may="stalls", look_alike_of=f"{NEVER_IDLE} partial_use imbalance input_starved")
def evaluation_gaps(fleet: Fleet) -> None:
    """After three hours of training the checkpoint is evaluated on the CPU for 40 minutes."""
    train(fleet, fleet.host("h1", H100, 4), "ann", util=fleet.wave(95, period_h=4, on_h=3.34))


@situation(look_alike_of=f"{NEVER_IDLE} stalls input_starved inefficient")
def checkpointing(fleet: Fleet) -> None:
    """Once an hour all GPUs wait two minutes for a checkpoint: the price of being safe."""
    gpus = fleet.host("h1", H100, 4)
    saving = fleet.every(1, 1 / 12, offset_h=0.5)
    train(fleet, gpus, "ann", util=np.where(saving, 57, 95), zero=np.where(saving, 0.4, 0))
    gpus[0].host.load(saving, disk_write_bytes_per_s=3e9, io_pressure_pct=6)


@situation(fires="stalls", may="input_starved", look_alike_of=f"{NEVER_IDLE} imbalance")
def checkpoint_stalls(fleet: Fleet) -> None:
    """Every half hour all GPUs stand still for ten minutes while a slow disk takes the checkpoint."""
    gpus = fleet.host("h1", H100, 4)
    saving = fleet.every(0.5, 1 / 6)
    train(fleet, gpus, "ann", util=np.where(saving, 0, 96))
    gpus[0].host.load(saving, disk_write_bytes_per_s=4e8, io_pressure_pct=70)


@situation(look_alike_of=f"{NEVER_IDLE} imbalance partial_use stalls inefficient")
def pipeline_bubbles(fleet: Fleet) -> None:
    """Stages of a pipeline wait for one another: a tenth of the time, not the same on each."""
    train(fleet, fleet.host("h1", H100, 4), "ann", util=(86.0, 79.0, 76.0, 84.0), zero=0.12)


@situation(may="input_starved", look_alike_of=f"{NEVER_IDLE} compute_oversized stalls")
def cpu_offload_training(fleet: Fleet) -> None:
    """The optimizer runs on the CPU: the GPU rests within every step, and the memory of both is in use."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(48, 3), zero=0.45, cpu_util_pct=2800.0, host_mem_bytes=300 * GB)
    gpus[0].host.load(fleet.always, cpu_util_pct=48, mem_used_bytes=400 * GB)


@situation(
    fires="held",
    may="ending partial_use imbalance releasable_pool",
    look_alike_of="never_used low_efficiency blind_spot",
)
def failed_node_of_a_job(fleet: Fleet) -> None:
    """A GPU of one node is lost; the other node's GPUs wait for it for two days, no kernel runs."""
    first, second = fleet.host("h1", H100, 4), fleet.host("h2", H100, 4)
    lost = fleet.between(-2)
    train(fleet, first, "ann", util=np.where(lost, 0, 95), job="900")
    train(fleet, second, "ann", ~lost, job="900")
    for gpu in second:
        gpu.is_in(lost, "lost")


@situation(fires="hung_job", look_alike_of="inefficient held throttled stalls")
def collective_that_hangs(fleet: Fleet) -> None:
    """A rank has died; the others spin in NCCL for two days: full utilization, little power, few SMs, no unit busy."""
    hang(fleet, fleet.host("h1", H100, 4), fleet.between(-2))


@situation(days=15, look_alike_of=f"{NEVER_IDLE} reserved_unused never_used releasable_pool")
def jobs_one_after_another(fleet: Fleet) -> None:
    """Jobs of four people follow one another; the scheduler leaves the GPUs free for 20 minutes in between."""
    gpus = fleet.host("h1", H100, 4)
    for number, user in enumerate(("ann", "bob", "cem", "dora")):
        train(fleet, gpus, user, fleet.every(20, 4.67, offset_h=5 * number), job=f"20{number}")


@situation(may="stalls", look_alike_of=f"{NEVER_IDLE} input_starved")
def sweep_of_short_jobs(fleet: Fleet) -> None:
    """A search for hyper-parameters: a new process every 20 minutes, five of them spent on starting."""
    gpus = fleet.host("h1", H100, 4)
    warming = fleet.every(20 / 60, 5 / 60)
    train(fleet, gpus, "ann", ~fleet.every(6, 5 / 60), util=np.where(warming, 0, 90))


@situation(may="input_starved", look_alike_of=f"{NEVER_IDLE} compute_oversized stalls")
def simulators_on_the_cpu(fleet: Fleet) -> None:
    """Reinforcement learning: the CPUs simulate for most of each step, the GPU learns for a third of it."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(38, 3), zero=0.55, cpu_util_pct=3000.0)
    gpus[0].host.load(fleet.always, cpu_util_pct=55, cpu_pressure_pct=4)


@situation(may="stalls", look_alike_of=NEVER_IDLE)
def compiling_first(fleet: Fleet) -> None:
    """Each job compiles for 25 minutes with its context open before the first kernel runs."""
    gpus = fleet.host("h1", H100, 2)
    compiling = fleet.every(8, 25 / 60)
    train(fleet, gpus, "ann", ~fleet.every(8, 5 / 60), util=np.where(compiling, 0, 94))


@situation(fires="preallocated", look_alike_of=f"{NEVER_IDLE} memory_oversized mig_fit")
def jax_takes_three_quarters(fleet: Fleet) -> None:
    """JAX takes 75 % of the card when it starts, whatever it needs."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", fleet.between(0.1), mem_gb=0.75 * H100.mem_total_bytes / GB)


@situation(fires="input_starved", may="stalls", look_alike_of=f"{NEVER_IDLE} imbalance")
def waiting_for_the_file_server(fleet: Fleet) -> None:
    """Small files over the network: GPUs work a third of the time, the host waits for I/O."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=fleet.noise(33, 4), zero=0.6)
    gpus[0].host.load(fleet.always, io_pressure_pct=65, net_receive_bytes_per_s=1.1e9, cpu_util_pct=30)


@situation(fires="input_starved", may="stalls", look_alike_of=f"{NEVER_IDLE} throttled")
def decoding_images_on_too_few_cpus(fleet: Fleet) -> None:
    """Images are decoded on eight CPUs that are all busy; four GPUs wait."""
    gpus = fleet.host("h1", L40S, 4)
    train(fleet, gpus, "ann", util=fleet.noise(36, 4), zero=0.55, cpu_util_pct=200.0)
    gpus[0].host.load(fleet.always, cpu_count=8, cpu_util_pct=98, cpu_pressure_pct=75)


@situation(look_alike_of="input_starved held ending never_used reserved_unused")
def preprocessing_without_gpus(fleet: Fleet) -> None:
    """For a day a host of busy GPUs prepares data on its CPUs, and no process is on the GPUs."""
    gpus = fleet.host("h1", H100, 2)
    preparing = fleet.between(-6, -5)
    train(fleet, gpus, "ann", ~preparing)
    gpus[0].host.load(preparing, cpu_util_pct=97, cpu_pressure_pct=60, io_pressure_pct=40)


@situation(
    fires="partial_use",
    may="held imbalance releasable_pool low_efficiency",
    look_alike_of="never_used",
)
def one_rank_works(fleet: Fleet) -> None:
    """Somebody asked for four GPUs and forgot to distribute the work."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=(95.0, 0.0, 0.0, 0.0))


@situation(fires="imbalance", look_alike_of="partial_use held low_efficiency")
def one_rank_has_half_the_work(fleet: Fleet) -> None:
    """Three GPUs wait for the fourth, which has most of the data."""
    gpus = fleet.host("h1", A100_80, 4)
    train(fleet, gpus, "ann", util=(96.0, 31.0, 29.0, 33.0))
