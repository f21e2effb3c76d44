"""GPUs that are held or allocated for nothing, and GPUs that only rest."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, Fleet, Gpu, Level, Mask
from tests.findings.scenarios.situations import KERNEL, serve, situation, train

BESIDE_IDLE_WORK = "held ending imbalance partial_use preallocated co_location memory_oversized compute_oversized"
BESIDE_A_SERVER = (
    "held ending preallocated co_location memory_oversized compute_oversized mig_fit low_efficiency inefficient"
)
BESIDE_RESERVED_UNUSED = "releasable_pool ending never_used"
ENDS = "kind,name,team,quota_gpus,project_end\n"
BESIDE_ENDING = "held releasable_pool low_efficiency partial_use imbalance"
BESIDE_PARTIAL_USE = "held releasable_pool low_efficiency memory_oversized ending"


@situation(fires="held", may="ending")
def rank_left_behind_by_its_launcher(fleet: Fleet) -> None:
    """The launcher was killed two days ago; one of its workers waits for the others for ever."""
    first, second = fleet.host("h1", A100_80, 2)
    parent = np.where(fleet.between(-2), 1.0, 4000.0)
    fleet.run(first, "ann", util=np.where(fleet.between(-2), 0, 94), mem_gb=70, parent_pid=parent, cpu_util_pct=0.4)
    train(fleet, second, "bob")


@situation(fires="held", may="ending imbalance")
def process_that_survived_its_job(fleet: Fleet) -> None:
    """The job ended yesterday by its time limit; a process that it had started in the background is still there."""
    gpus = fleet.host("h1", H100, 2)
    fleet.allocation(gpus, "ann", 0, -1, allocation_id="1001", account="ann-lab", state="TIMEOUT")
    train(fleet, gpus[0], "ann", fleet.between(0, -1))
    train(fleet, gpus[1], "ann", util=np.where(fleet.between(-1), 0, 95))
    train(fleet, gpus[0], "bob", fleet.between(-0.9), job="1002")


@situation(fires="held", may=f"{BESIDE_IDLE_WORK} mig_fit")
def kernel_of_a_closed_browser(fleet: Fleet) -> None:
    """The laptop went home on Monday; the kernel did not."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(
        first, "ann", util=np.where(fleet.between(-3), 0, fleet.wave(60, period_h=3, on_h=2.7)), mem_gb=60, **KERNEL
    )
    train(fleet, second, "bob")


@situation(may=f"{BESIDE_IDLE_WORK} mig_fit")
def notebook_over_night(fleet: Fleet) -> None:
    """A kernel that works by day and is left on for the next morning."""
    (gpu,) = fleet.host("ws1", L40S, 1, pool="desk")
    fleet.run(gpu, "ann", util=np.where(fleet.daily(8, 22), 70, 0), mem_gb=30, **KERNEL)


@situation(may=f"{BESIDE_IDLE_WORK} input_starved")
def orphan_that_computes_on_the_cpu(fleet: Fleet) -> None:
    """Started with nohup, its shell closed: it has prepared data on eight CPUs since, and will train on the card."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", fleet.between(-2), mem_gb=3, parent_pid=1, cpu_util_pct=780.0)
    train(fleet, first, "ann", fleet.between(0, -2.1))
    train(fleet, second, "bob")


def _asked(fleet: Fleet, gpu: Gpu, requests_per_s: Level, when: Mask | None = None, **columns: Level | str) -> None:
    """The server's metrics, by its counters."""
    levels = {"running_requests": 0.0, "waiting_requests": 0.0, "kv_cache_used_ratio": 0.0} | columns
    fleet.serving(gpu, when, requests_per_s=requests_per_s, **levels)


@situation(fires="held", may=BESIDE_A_SERVER)
def model_of_a_demo_that_is_over(fleet: Fleet) -> None:
    """It was asked a lot for four days; the last request was three days ago."""
    first, second = fleet.host("k1", H100, 2, pool="serving")
    shown = fleet.between(0, -3)
    serve(fleet, first, util=np.where(shown, 55, 0), mem_gb=70)
    _asked(fleet, first, np.where(shown, 3.0, 0.0))
    train(fleet, second, "ann")


@situation(may=BESIDE_A_SERVER)
def tensor_parallel_without_a_request(fleet: Fleet) -> None:
    """A server over two cards: health checks make them flicker, and no request has come since it was started."""
    gpus = fleet.host("k1", A100_80, 4, pool="serving")
    up = fleet.between(-4)
    serve(fleet, gpus[:2], up, util=0.4, zero=0.98, mem_gb=72, one_process=True, command="sglang")
    for gpu in gpus[:2]:
        _asked(fleet, gpu, 0.0, up, engine="sglang", model="llama-70b")
    train(fleet, gpus[2:], "ann")
    train(fleet, gpus[:2], "ann", fleet.between(0, -4.1), job="1002")


@situation(may=BESIDE_A_SERVER)
def one_request_an_hour(fleet: Fleet) -> None:
    """A report asks once an hour; the metrics count it, utilization hardly shows it."""
    first, second = fleet.host("k1", L40S, 2, pool="serving")
    asked = fleet.every(1, 1 / 12)
    serve(fleet, first, util=np.where(asked, 4, 0), zero=0.9, mem_gb=40)
    _asked(fleet, first, np.where(asked, 1 / 300, 0))
    train(fleet, second, "ann")


@situation(may=BESIDE_A_SERVER)
def seldom_and_without_metrics(fleet: Fleet) -> None:
    """The same without metrics: half a minute of kernels in every second hour."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    fleet.run(first, "mlops", util=np.where(fleet.every(2, 1 / 12), 8, 0), zero=0.9, mem_gb=40, command="vllm")
    train(fleet, second, "ann")


@situation(may=BESIDE_A_SERVER)
def metrics_that_do_not_count(fleet: Fleet) -> None:
    """Only gauges are exported: between two scrapes requests come and go, and the card works every few minutes."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, first, util=np.where(fleet.every(0.5, 1 / 12), 20, 0), zero=0.7, mem_gb=40)
    fleet.serving(first, running_requests=0.0, waiting_requests=0.0)
    train(fleet, second, "ann")


@situation(fires="reserved_unused", may=BESIDE_RESERVED_UNUSED, look_alike_of="held")
def job_that_never_began(fleet: Fleet) -> None:
    """A batch job has had two cards for two days and hangs in its prologue."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", fleet.between(0, -2.2), job="1002")
    fleet.allocation(gpus[2:], "bob", -2, allocation_id="1003", account="bob-lab")


@situation(fires="reserved_unused", may=BESIDE_RESERVED_UNUSED, look_alike_of="held")
def pod_that_sleeps(fleet: Fleet) -> None:
    """A pod was given a card to look around in, and nobody has started anything in it since yesterday morning."""
    first, second = fleet.host("k1", L40S, 2, pool="lab")
    train(fleet, first, "ann")
    train(fleet, second, "ann", fleet.between(0, -1.5))
    fleet.allocation([second], "eve", -1.4, allocation_id="lab/shell-0", scheduler="kubernetes", account="lab")


@situation(may="low_efficiency", look_alike_of="reserved_unused ending")
def pauses_of_an_interactive_job(fleet: Fleet) -> None:
    """Somebody tries things out: processes of an hour, forty minutes of thinking between them."""
    gpus = fleet.host("h1", H100, 2)
    fleet.allocation(gpus, "ann", 0, allocation_id="1001", account="ann-lab")
    train(fleet, gpus, "ann", fleet.every(5 / 3, 1))


@situation(days=15, may=f"low_efficiency {BESIDE_RESERVED_UNUSED}", look_alike_of="reserved_unused")
def lab_reservation_over_a_weekend(fleet: Fleet) -> None:
    """A lab has its cards by contract, and works from Monday to Friday."""
    gpus = fleet.host("h1", L40S, 2, pool="lab")
    fleet.allocation(gpus, "lab", 0, allocation_id="contract-1", scheduler="csv")
    train(fleet, gpus, "ann", fleet.weekdays & fleet.daily(8, 19), job=None)


@situation(may="blind_spot", look_alike_of="reserved_unused held")
def processes_that_cannot_be_seen(fleet: Fleet) -> None:
    """The agent's namespace hides processes; memory in use says that the allocation is in use."""
    gpus = fleet.host("h1", H100, 2)
    fleet.allocation(gpus, "ann", 0, allocation_id="1001", account="ann-lab")
    train(fleet, gpus, "ann")
    for gpu in gpus:
        gpu.override(fleet.always, process_count=None)
        gpu.stays.clear()


@situation(days=19, interval_s=1800, fires="ending held", may=BESIDE_ENDING)
def away_for_longer_than_ever(fleet: Fleet) -> None:
    """Work every day, at most a night between; nothing since five days, and the shell still holds the cards."""
    gpus = fleet.host("h1", H100, 4)
    work = fleet.daily(8, 18) & fleet.between(0, -5)
    fleet.run(gpus[:2], "bob", util=np.where(work, 90, 0), mem_gb=70)
    train(fleet, gpus[2:], "ann")


@situation(days=19, interval_s=1800, fires="ending held", may=BESIDE_ENDING)
def one_tenth_is_left(fleet: Fleet) -> None:
    """Four cards trained until four days ago; since then one runs half an hour in six, and nothing new starts."""
    gpus = fleet.host("h1", H100, 6)
    full = fleet.between(0, -4)
    train(fleet, gpus[0], "bob", util=np.where(full, 95, fleet.wave(95, period_h=6, on_h=0.5)), job="1002")
    train(fleet, gpus[1:4], "bob", util=np.where(full, 95, 0), job="1002")
    train(fleet, gpus[4:], "ann")


@situation(fires="ending", look_alike_of="held", owners=f"{ENDS}user,ann,vision,,\nuser,bob,language,,2026-11-12\n")
def project_that_ended_last_week(fleet: Fleet) -> None:
    """The owners file says that it is over; two cards still work for it."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "bob", job="1002")
    train(fleet, gpus[2:], "ann")


@situation(days=22, interval_s=1800, may=BESIDE_ENDING, look_alike_of="ending")
def weekend(fleet: Fleet) -> None:
    """Monday to Friday, with the cards kept; it was a long weekend's end."""
    gpus = fleet.host("h1", H100, 4)
    fleet.run(
        gpus[:2], "bob", util=np.where(fleet.weekdays & fleet.daily(7, 19) & ~fleet.between(-1), 90, 0), mem_gb=70
    )
    train(fleet, gpus[2:], "ann")


@situation(days=4, fires="partial_use", may=f"{BESIDE_PARTIAL_USE} never_used imbalance")
def two_of_a_whole_node_used(fleet: Fleet) -> None:
    """The job asked for three cards of two nodes each, and its launcher knows the first node."""
    first, second = fleet.host("h1", H100, 4), fleet.host("h2", H100, 4)
    train(fleet, first[:3], "ann", job="62")
    for gpus in (first, second):
        fleet.allocation(gpus[0].host, "ann", 0, allocation_id="62", count=3)


@situation(days=4, fires="partial_use", may=BESIDE_PARTIAL_USE)
def second_node_never_used(fleet: Fleet) -> None:
    """A job got two nodes; its launcher started the workers of the second, but the program only knows one."""
    first, second = fleet.host("h1", H100, 2), fleet.host("h2", H100, 2)
    train(fleet, first + second, "ann", util=(94.0, 94.0, 0.0, 0.0), job="31")


@situation(days=4, fires="partial_use", may=BESIDE_PARTIAL_USE)
def one_worker_of_a_launcher_idles(fleet: Fleet) -> None:
    """A launcher without a scheduler starts four workers; the last never gets any work."""
    gpus = fleet.host("h1", H100, 4)
    fleet.run(gpus, "ann", util=(90.0, 91.0, 90.0, 0.0), mem_gb=70, parent_pid=900)


@situation(days=4, may="held low_efficiency releasable_pool stalls", look_alike_of="partial_use imbalance")
def cards_take_turns(fleet: Fleet) -> None:
    """A model in four parts, batch by batch: each card works a quarter of the time."""
    gpus = fleet.host("h1", H100, 4)
    turns = [fleet.wave(90, period_h=2, on_h=0.5, offset_h=0.5 * number) for number in range(4)]
    train(fleet, gpus, "ann", util=turns)


@situation(days=4, may=f"{BESIDE_PARTIAL_USE} co_location preallocated compute_oversized", look_alike_of="partial_use")
def standby_in_a_pod_of_its_own(fleet: Fleet) -> None:
    """The second replica waits for the first to fail."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=60.0, pod="llm-0")
    serve(fleet, second, util=0.0, pod="llm-1")


@situation(days=4, may=f"{BESIDE_PARTIAL_USE} co_location", look_alike_of="partial_use imbalance")
def two_notebooks_of_one_person(fleet: Fleet) -> None:
    """Two kernels of one notebook server, hours apart: two works, of which one is idle."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=85.0, mem_gb=70, parent_pid=77)
    fleet.run(second, "ann", fleet.between(0.25), mem_gb=70, parent_pid=77)


@situation(days=4, may="imbalance releasable_pool", look_alike_of="partial_use held low_efficiency")
def evaluation_on_the_last_card(fleet: Fleet) -> None:
    """One card of four only evaluates: six minutes an hour."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=(95.0, 95.0, 95.0, fleet.wave(80, period_h=1, on_h=1 / 12)))


@situation(
    days=4,
    may="releasable_pool memory_oversized compute_oversized mig_fit co_location never_used",
    look_alike_of="partial_use low_efficiency held",
)
def screens_on_every_card(fleet: Fleet) -> None:
    """A display server sits on all cards of a workstation and draws on one."""
    gpus = fleet.host("ws1", H100, 2)
    options = {"kind": "graphics", "command": "Xorg", "one_process": True}
    fleet.run(gpus, "root", util=(6.0, 0.0), mem_gb=1, **options)  # type: ignore[arg-type]  # run names each of them
