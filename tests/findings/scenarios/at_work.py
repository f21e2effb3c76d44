"""Jobs that run: uneven, starved, throttled or with little behind them, and as they should be."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, V100, Fleet
from tests.findings.scenarios.situations import serve, situation, train

BESIDE_IMBALANCE = "compute_oversized memory_oversized co_location mig_fit releasable_pool"
BESIDE_INEFFICIENT = "compute_oversized memory_oversized co_location mig_fit preallocated"
BESIDE_INPUT_STARVED = "compute_oversized memory_oversized co_location mig_fit releasable_pool inefficient"
BESIDE_LOW_EFFICIENCY = "compute_oversized memory_oversized co_location mig_fit releasable_pool preallocated"
IDLE_BESIDE_LOW_EFFICIENCY = f"{BESIDE_LOW_EFFICIENCY} held ending partial_use"
BESIDE_STALLS = "compute_oversized memory_oversized co_location mig_fit releasable_pool"
REST_BESIDE_STALLS = f"held low_efficiency {BESIDE_STALLS} preallocated"
BESIDE_THROTTLED = "releasable_pool never_used ending"


@situation(days=4, fires="imbalance", may=BESIDE_IMBALANCE)
def one_slow_input(fleet: Fleet) -> None:
    """Without a scheduler: one process on four cards, two of which wait for a slow branch."""
    gpus = fleet.host("h1", A100_80, 4)
    fleet.run(gpus, "ann", util=(95.0, 93.0, 28.0, 26.0), mem_gb=70, one_process=True)


@situation(days=4, fires="imbalance", may=BESIDE_IMBALANCE)
def old_and_new_hosts_in_one_job(fleet: Fleet) -> None:
    """A step takes as long as the older cards need; the new ones work a third of it."""
    old, new = fleet.host("h1", L40S, 2), fleet.host("h2", H100, 2)
    train(fleet, old, "ann", util=97.0, job="61")
    train(fleet, new, "ann", util=32.0, sm=26.0, job="61", mem_gb=68)


@situation(days=4, look_alike_of="imbalance partial_use stalls low_efficiency")
def rank_zero_evaluates(fleet: Fleet) -> None:
    """Twice a day rank 0 evaluates for two hours; the others do next to nothing meanwhile."""
    gpus = fleet.host("h1", H100, 4)
    evaluates = fleet.every(12, 2)
    others = np.where(evaluates, 4.0, 95.0)
    train(fleet, gpus, "ann", util=(95.0, others, others, others))


@situation(days=4, may=BESIDE_IMBALANCE, look_alike_of="imbalance partial_use")
def trials_take_turns(fleet: Fleet) -> None:
    """A search in one job: every six hours the heavy trial is on another card."""
    gpus = fleet.host("h1", H100, 4)
    heavy = [fleet.wave(95, period_h=24, on_h=6, low=40, offset_h=6 * number) for number in range(4)]
    train(fleet, gpus, "ann", util=heavy)


@situation(days=4, may=BESIDE_IMBALANCE, look_alike_of="imbalance partial_use")
def two_runs_of_one_person(fleet: Fleet) -> None:
    """A large and a small run, started one after the other from the same shell."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=95.0, mem_gb=70, parent_pid=55)
    fleet.run(second, "ann", fleet.between(0.1), util=30.0, mem_gb=70, parent_pid=55)


@situation(days=4, fires="inefficient", may=BESIDE_INEFFICIENT)
def tiny_kernels(fleet: Fleet) -> None:
    """A thousand small kernels a second: always one of them on the card, hardly any SM busy."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=96.0, sm=14.0)


@situation(days=4, fires="inefficient", may=BESIDE_INEFFICIENT)
def decoding_video_on_the_gpu(fleet: Fleet) -> None:
    """Input is prepared on the card itself: kernels spin between batches, power stays low."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", util=92.0, power_w=130.0)


@situation(days=4, may=BESIDE_INEFFICIENT, look_alike_of="inefficient")
def solver_bound_by_memory(fleet: Fleet) -> None:
    """A stencil code: 35 % of the SMs at work, the bandwidth used up."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=99.0, sm=35.0)
    for gpu in gpus:
        gpu.override(fleet.always, dram_active_pct=85.0)


@situation(days=4, look_alike_of="inefficient")
def full_load(fleet: Fleet) -> None:
    """Large matrix products: nothing to be had."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=99.0, sm=88.0)


@situation(days=4, fires="input_starved", may=BESIDE_INPUT_STARVED)
def small_files_from_a_slow_disk(fleet: Fleet) -> None:
    """Half the tasks of the host wait for I/O whenever the GPUs work."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(40, 4), zero=0.5)
    gpus[0].host.load(fleet.always, io_pressure_pct=50, disk_read_bytes_per_s=1.5e8)


@situation(days=4, fires="input_starved", may=BESIDE_INPUT_STARVED)
def first_epoch_over_the_network(fleet: Fleet) -> None:
    """For a day the data comes over a network card that gives no more; then it lies on the local disk."""
    gpus = fleet.host("h1", H100, 2)
    streams = fleet.between(0, 2)
    train(fleet, gpus, "ann", util=np.where(streams, 38, 95), zero=np.where(streams, 0.5, 0))
    gpus[0].host.load(streams, net_receive_bytes_per_s=1.24e9)


@situation(days=4, fires="input_starved", may=BESIDE_INPUT_STARVED)
def augmentation_on_few_cpus(fleet: Fleet) -> None:
    """Image augmentation keeps all CPUs busy by day; at night a lighter one is used and the GPUs keep up."""
    gpus = fleet.host("h1", L40S, 4)
    heavy = fleet.daily(6, 22)
    train(fleet, gpus, "ann", util=np.where(heavy, 42, 93), zero=np.where(heavy, 0.5, 0))
    gpus[0].host.load(heavy, cpu_count=16, cpu_util_pct=99, cpu_pressure_pct=80)


@situation(days=4, may=BESIDE_INPUT_STARVED, look_alike_of="input_starved low_efficiency")
def backup_at_night(fleet: Fleet) -> None:
    """A backup fills the disks every night; the GPUs do no worse than by day."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=fleet.noise(55, 3), zero=0.3)
    gpus[0].host.load(fleet.daily(22, 8), disk_read_bytes_per_s=2e9, io_pressure_pct=45)


@situation(days=4, may=f"{BESIDE_INPUT_STARVED} preallocated", look_alike_of="input_starved low_efficiency")
def requests_on_a_busy_host(fleet: Fleet) -> None:
    """A server with moderate traffic shares its host with a build farm."""
    gpus = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, gpus, util=fleet.noise(35, 5), zero=0.6, mem_gb=40)
    gpus[0].host.load(fleet.always, cpu_util_pct=97, cpu_pressure_pct=60)


@situation(days=4, may=BESIDE_INPUT_STARVED, look_alike_of="input_starved")
def checkpoints_on_a_slow_disk(fleet: Fleet) -> None:
    """The disks are at their limit with writing; the GPUs work at two thirds."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", util=64.0, zero=0.3)
    gpus[0].host.load(fleet.always, io_pressure_pct=40, disk_write_bytes_per_s=8e8, disk_read_bytes_per_s=1e7)


@situation(days=4, fires="low_efficiency", may=BESIDE_LOW_EFFICIENCY)
def large_user_at_a_seventh(fleet: Fleet) -> None:
    """Half of the fleet is ann's, at 14 %."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", job="2")
    train(fleet, gpus[2:], "ann", util=14.0, zero=0.8)


@situation(days=4, fires="low_efficiency", may=IDLE_BESIDE_LOW_EFFICIENCY)
def notebooks_that_mostly_wait(fleet: Fleet) -> None:
    """Three notebooks of one person: an hour of work in eight."""
    gpus = fleet.host("h1", V100, 4)
    train(fleet, gpus[0], "bob", job="2")
    fleet.run(gpus[1:], "ann", util=fleet.wave(80, period_h=8, on_h=1), mem_gb=28)


@situation(days=4, look_alike_of="low_efficiency")
def pauses_for_evaluation(fleet: Fleet) -> None:
    """Three hours of training, forty minutes on the CPUs."""
    train(fleet, fleet.host("h1", H100, 2), "ann", util=fleet.wave(95, period_h=4, on_h=3.34))


@situation(days=4, may="blind_spot", look_alike_of="low_efficiency held")
def nobody_measured_it(fleet: Fleet) -> None:
    """The driver gives no utilization: unknown is not zero."""
    gpus = fleet.host("h1", V100, 2)
    train(fleet, gpus, "ann", util=10.0)
    for gpu in gpus:
        gpu.override(
            fleet.always,
            gpu_util_pct=None,
            gpu_util_max_pct=None,
            gpu_util_zero_ratio=None,
            gpu_util_coverage_ratio=None,
        )


@situation(days=4, may=f"{IDLE_BESIDE_LOW_EFFICIENCY} never_used", look_alike_of="low_efficiency")
def nobody_in_particular(fleet: Fleet) -> None:
    """A service account's pods at 30 % beside a free card."""
    first, _ = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=np.where(fleet.daily(8, 20), 50, 10), mem_gb=70)


@situation(days=2.5, interval_s=60, fires="stalls")
def checkpoint_every_twenty_minutes(fleet: Fleet) -> None:
    """Four minutes of standing still on all cards, three times an hour."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=np.where(fleet.every(1 / 3, 4 / 60), 0, 96))
    gpus[0].host.load(fleet.always, disk_write_bytes_per_s=5e8)


@situation(days=2.5, interval_s=60, fires="stalls")
def two_nodes_wait_for_a_merge(fleet: Fleet) -> None:
    """Every half hour the parameters of two nodes are averaged over a slow network for five minutes."""
    first, second = fleet.host("h1", A100_80, 2), fleet.host("h2", A100_80, 2)
    train(fleet, first + second, "ann", util=np.where(fleet.every(0.5, 5 / 60), 0, 93), job="81")


@situation(days=2.5, interval_s=60, may=REST_BESIDE_STALLS, look_alike_of="stalls")
def requests_at_random(fleet: Fleet) -> None:
    """Batches come as customers send them: gaps of minutes without any rhythm."""
    gpus = fleet.host("h1", H100, 2)
    rng = np.random.default_rng(7)
    gaps = rng.exponential(5, 500).astype(int) + 1
    ends = np.cumsum(gaps + rng.exponential(25, 500).astype(int))
    minutes = np.arange(fleet.rows)
    still = np.any([(minutes >= end - gap) & (minutes < end) for end, gap in zip(ends, gaps, strict=True)], axis=0)
    train(fleet, gpus, "ann", util=np.where(still, 0, 90))


@situation(days=2.5, interval_s=60, may=REST_BESIDE_STALLS, look_alike_of="stalls")
def a_server_with_a_batch_every_ten_minutes(fleet: Fleet) -> None:
    """The same with heavier batches: eight minutes of work and two until the next is due."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=np.where(fleet.every(1 / 6, 8 / 60), 95, 0), mem_gb=70)


@situation(days=4, fires="throttled")
def fan_failure(fleet: Fleet) -> None:
    """Two of four cards of a host reach their limit for a third of the time."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann")
    for gpu in gpus[:2]:
        gpu.throttle(fleet.every(3, 1), sw_thermal=0.9)


@situation(days=4, fires="throttled")
def cap_set_far_too_low(fleet: Fleet) -> None:
    """One host is capped so low that its cards lose a third of their clock all the time."""
    capped, whole = fleet.host("h1", H100, 2, power_limit_w=350.0), fleet.host("h2", H100, 2)
    train(fleet, whole, "bob", job="5")
    train(fleet, capped, "ann", power_w=345.0)
    for gpu in capped:
        gpu.throttle(fleet.always, power_cap=0.9)


@situation(days=4, may="co_location", look_alike_of="throttled inefficient")
def at_the_power_cap_as_usual(fleet: Fleet) -> None:
    """Full load against the cap all the time: clocks a seventh lower than under light load, as on every such card."""
    gpus, light = fleet.host("h1", H100, 4), fleet.host("h2", H100, 1)
    train(fleet, gpus, "ann", power_w=690.0)
    train(fleet, light, "bob", util=60.0, job="2")
    for gpu in gpus:
        gpu.throttle(fleet.always, power_cap=0.97)
        gpu.override(fleet.always, sm_clock_mhz=1700)


@situation(days=4, look_alike_of="throttled")
def counters_began_again(fleet: Fleet) -> None:
    """The driver is reloaded every day: counters fall to zero, and nothing was slowed down."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann")
    for gpu in gpus:
        gpu.throttle(fleet.between(0, 0.2), sw_thermal=1.0)
        for day in (1, 2, 3):
            gpu.restart(fleet.between(day))
