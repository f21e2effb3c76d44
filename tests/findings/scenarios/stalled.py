"""GPUs whose kernels do no work, and work that looks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, Fleet
from tests.findings.scenarios.situations import hang, serve, situation, spin, train

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.findings.scenarios.builder import Gpu, Mask

BESIDE = (
    "compute_oversized memory_oversized co_location mig_fit preallocated releasable_pool low_efficiency never_used"
    " blind_spot"
)
AT_WORK = f"{BESIDE} inefficient imbalance stalls input_starved throttled"
DAYS: dict[str, Any] = {"days": 1.5, "interval_s": 60}


def reported(gpus: Sequence[Gpu], when: Mask, *, power_w: float) -> None:
    """Kernels without a process."""
    for gpu in gpus:
        gpu.util, gpu.busy = np.where(when, 100.0, gpu.util), np.where(when, 1.0, gpu.busy)
        gpu.p98 = gpu.peak = gpu.util
        gpu.power = np.where(when, power_w, gpu.power)


@situation(**DAYS, fires="hung_job", may=BESIDE)
def rank_that_never_comes(fleet: Fleet) -> None:
    """Half a day into a job of eight GPUs one rank crashes, and two minutes later all others wait."""
    gpus = fleet.host("h1", H100, 8)
    hang(fleet, gpus[3:4], fleet.between(0.5))
    hang(fleet, [*gpus[:3], *gpus[4:]], fleet.between(0.5 + 2 / 1440))


@situation(**DAYS, fires="hung_job", may=BESIDE)
def spinning_thread(fleet: Fleet) -> None:
    """As measured on an H200: one thread spins, the process spins with it, and nothing was ever seen to work."""
    gpus = fleet.host("h1", H100, 1)
    fleet.run(gpus, "bob", util=98.2, sm=1.5, power_w=198.0, mem_gb=8, cpu_util_pct=100.0)
    spin(gpus, fleet.always)


@situation(**DAYS, fires="straggler", may=BESIDE, look_alike_of="hung_job imbalance")
def one_rank_works_on(fleet: Fleet) -> None:
    """Rank 0 evaluates for hours, and the others wait in the collective."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:1], "ann", util=95.0)
    hang(fleet, gpus[1:], fleet.between(0.5))


@situation(**DAYS, fires="straggler", may=f"{BESIDE} imbalance", look_alike_of="hung_job")
def two_hosts_wait_for_a_third(fleet: Fleet) -> None:
    """One job on three hosts; the last one reads its input from a slow disk."""
    waiting = [fleet.host(name, H100, 2) for name in ("h1", "h2")]
    train(fleet, fleet.host("h3", H100, 1), "ann", util=40.0, sm=30.0)
    for gpus in waiting:
        hang(fleet, gpus, fleet.between(1.0))


@situation(**DAYS, fires="straggler", may=f"{BESIDE} held imbalance partial_use", look_alike_of="hung_job")
def rank_that_tokenizes_on_the_cpu(fleet: Fleet) -> None:
    """Rank 0 left its GPU for eight CPUs, and the others wait in the barrier."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:1], "ann", util=np.where(fleet.between(0.5), 0.0, 95.0), cpu_util_pct=800.0)
    hang(fleet, gpus[1:], fleet.between(0.5), cpu_util_pct=100.0)


@situation(**DAYS, fires="straggler", may=f"{BESIDE} imbalance stalls input_starved", look_alike_of="hung_job")
def rank_at_work_half_of_the_time(fleet: Fleet) -> None:
    """Rank 0 evaluates five minutes on its GPU and five on one CPU, by turns."""
    gpus = fleet.host("h1", H100, 3)
    rests = fleet.between(0.5) & (np.arange(fleet.rows) % 10 >= 5)
    train(fleet, gpus[:1], "ann", util=np.where(rests, 0.0, 95.0), cpu_util_pct=100.0)
    hang(fleet, gpus[1:], fleet.between(0.5), cpu_util_pct=100.0)


@situation(**DAYS, fires="orphaned_kernel", may=BESIDE)
def killed_with_a_kernel_resident(fleet: Fleet) -> None:
    """The process was killed; its kernel and its memory stay."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", fleet.between(0, 0.5))
    reported(gpus[:1], fleet.between(0.5), power_w=110.0)
    gpus[0].mem = np.where(fleet.between(0.5), 30e9, gpus[0].mem)


@situation(**DAYS, fires="orphaned_kernel", may=BESIDE)
def killed_container_of_two_gpus(fleet: Fleet) -> None:
    """A container was killed for its memory; on both of its GPUs a kernel polls a peer that is gone."""
    gpus = fleet.host("h1", A100_80, 2)
    lives = fleet.between(0, 0.4)
    serve(fleet, gpus, lives, util=60.0)
    reported(gpus, ~lives, power_w=95.0)
    for gpu in gpus:
        gpu.mem = np.where(lives, gpu.mem, 50e9)


@situation(**DAYS, may=BESIDE, look_alike_of="orphaned_kernel hung_job")
def counter_that_stands_at_a_hundred(fleet: Fleet) -> None:
    """4 MiB in use and the draw of an idle card beside 100 %: no kernel can be there, so the time is not observed."""
    gpus = fleet.host("h1", H100, 1)
    reported(gpus, fleet.always, power_w=55.0)
    gpus[0].mem = np.full(fleet.rows, 4.0 * 2**20)


@situation(**DAYS, fires="keep_alive", may=BESIDE, look_alike_of="held")
def keep_gpu(fleet: Fleet) -> None:
    """1.2 GiB and a blip every four minutes, by a tool that is named."""
    gpus = fleet.host("h1", H100, 2)
    blips = np.where(np.arange(fleet.rows) % 4 == 0, 30.0, 0.0)
    fleet.run(gpus, "ann", util=blips, mem_gb=1.2, power_w=125.0, command="keep-gpu", cpu_util_pct=2.0)


@situation(**DAYS, fires="keep_alive", may=BESIDE, look_alike_of="held")
def loop_of_ones_own(fleet: Fleet) -> None:
    """A loop of a few lines does the same, as python3."""
    gpus = fleet.host("h1", H100, 1)
    blips = np.where(np.arange(fleet.rows) % 3 == 0, 12.0, 0.0)
    fleet.run(gpus, "ann", util=blips, mem_gb=0.9, power_w=122.0, command="python3", cpu_util_pct=0.5)


@situation(**DAYS, may=AT_WORK, look_alike_of="hung_job")
def decoding_one_request_at_a_time(fleet: Fleet) -> None:
    """Bound by memory: few SMs would do, and the bandwidth is used."""
    gpus = fleet.host("h1", H100, 1)
    serve(fleet, gpus, util=99.0, sm=40.0, power_w=390.0)


@situation(**DAYS, may=AT_WORK, look_alike_of="hung_job keep_alive")
def tiny_model_bound_by_launch_latency(fleet: Fleet) -> None:
    """Kernels of a few microseconds, one after the other: a CPU is busy, 3 % of the SMs, 170 W."""
    gpus = fleet.host("h1", H100, 1)
    fleet.run(gpus, "ann", util=fleet.noise(92, 4, 60, 99), sm=3.0, power_w=170.0, mem_gb=1.5, cpu_util_pct=100.0)
    gpus[0].dram, gpus[0].tensor = np.full(fleet.rows, 0.6), np.full(fleet.rows, 0.3)


@situation(**DAYS, may=AT_WORK, look_alike_of="hung_job straggler")
def ranks_wait_for_a_checkpoint(fleet: Fleet) -> None:
    """Every three hours the host writes for a quarter of an hour, and all ranks wait in the barrier."""
    gpus = fleet.host("h1", H100, 4)
    writes = fleet.every(3, 0.25)
    hang(fleet, gpus, writes, sm=6.0)
    fleet.hosts[0].load(writes, disk_write_bytes_per_s=2e9)


@situation(**DAYS, may=AT_WORK, look_alike_of="straggler hung_job")
def barrier_of_five_minutes(fleet: Fleet) -> None:
    """Rank 0 evaluates for five minutes every two hours."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:1], "ann", util=95.0)
    hang(fleet, gpus[1:], fleet.every(2, 5 / 60))


@situation(**DAYS, may=AT_WORK, look_alike_of="hung_job")
def throttled_by_heat(fleet: Fleet) -> None:
    """The clocks are down, and so is the power; the SMs are busy."""
    gpus = fleet.host("h1", H100, 1)
    train(fleet, gpus, "ann", util=99.0, sm=95.0, power_w=150.0)


@situation(**DAYS, may=f"{AT_WORK} held", look_alike_of="keep_alive")
def small_model_with_callers(fleet: Fleet) -> None:
    """A model of 1.5 GB gets a request now and then, at random."""
    gpus = fleet.host("h1", H100, 1)
    asked = np.random.default_rng(3).random(fleet.rows) < 0.3
    fleet.run(gpus, "ann", util=np.where(asked, 8.0, 0.0), mem_gb=1.5, power_w=125.0, cpu_util_pct=3.0)


@situation(**DAYS, may=f"{AT_WORK} held", look_alike_of="keep_alive hung_job")
def loader_at_five_percent(fleet: Fleet) -> None:
    """A step every four minutes; the CPUs load in between."""
    gpus = fleet.host("h1", H100, 1)
    steps = np.where(np.arange(fleet.rows) % 4 == 0, 20.0, 0.0)
    fleet.run(gpus, "ann", util=steps, mem_gb=1.8, power_w=140.0, cpu_util_pct=180.0)


@situation(**DAYS, may=f"{AT_WORK} ending", look_alike_of="orphaned_kernel")
def processes_between_two_lists(fleet: Fleet) -> None:
    """A test suite starts a process for each case: lists are empty, and the GPU works."""
    gpus = fleet.host("h1", H100, 1)
    for gpu in gpus:
        gpu.util, gpu.busy = fleet.noise(45, 10, 5, 90), np.full(fleet.rows, 0.45)
        gpu.p98 = gpu.peak = gpu.util
        gpu.power, gpu.sm = np.full(fleet.rows, 320.0), np.full(fleet.rows, 35.0)


@situation(**DAYS, may=f"{AT_WORK} ending", look_alike_of="orphaned_kernel hung_job")
def work_beside_an_empty_list(fleet: Fleet) -> None:
    """A container hides its processes from the list: 100 %, 40 GB and 600 W."""
    gpus = fleet.host("h1", H100, 1)
    reported(gpus, fleet.always, power_w=600.0)
    gpus[0].mem, gpus[0].sm = np.full(fleet.rows, 40e9), np.full(fleet.rows, 85.0)
