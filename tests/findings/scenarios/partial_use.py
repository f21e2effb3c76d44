"""Jobs that use all of their GPUs, and jobs that do not."""

from __future__ import annotations

from tests.findings.scenarios.builder import H100, Fleet
from tests.findings.scenarios.situations import serve, situation, train

DAYS = 4
IDLE_GPUS = "held standing_surplus loaded_no_traffic low_efficiency memory_oversized wind_down zombie_holder"


def every_card_grabbed_one_used(fleet: Fleet) -> None:
    """A framework takes memory on every card that it sees and computes on the first."""
    gpus = fleet.host("h1", H100, 4)
    fleet.run(gpus, "ann", util=(92.0, 0.0, 0.0, 0.0), mem_gb=70, one_process=True)


def second_node_never_used(fleet: Fleet) -> None:
    """A job got two nodes; its launcher started the workers of the second, but the program only knows one."""
    first, second = fleet.host("h1", H100, 2), fleet.host("h2", H100, 2)
    train(fleet, first + second, "ann", util=(94.0, 94.0, 0.0, 0.0), job="31")


def pod_with_one_gpu_too_many(fleet: Fleet) -> None:
    """The manifest says two, the server is started for one."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=(55.0, 0.0))


def one_worker_of_a_launcher_idles(fleet: Fleet) -> None:
    """A launcher without a scheduler starts four workers; the last never gets any work."""
    gpus = fleet.host("h1", H100, 4)
    fleet.run(gpus, "ann", util=(90.0, 91.0, 90.0, 0.0), mem_gb=70, parent_pid=900)


def cards_take_turns(fleet: Fleet) -> None:
    """A model in four parts, batch by batch: each card works a quarter of the time."""
    gpus = fleet.host("h1", H100, 4)
    turns = [fleet.wave(90, period_h=2, on_h=0.5, offset_h=0.5 * number) for number in range(4)]
    train(fleet, gpus, "ann", util=turns)


def standby_in_a_pod_of_its_own(fleet: Fleet) -> None:
    """The second replica waits for the first to fail."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, first, util=60.0, pod="llm-0")
    serve(fleet, second, util=0.0, pod="llm-1")


def debugging_on_one_of_four(fleet: Fleet) -> None:
    """Forty minutes of trying things out on the first of four cards."""
    gpus = fleet.host("h1", H100, 4)
    short = fleet.between(-1, -1 + 40 / 1440)
    train(fleet, gpus, "ann", fleet.between(0, -1), job="40")
    train(fleet, gpus, "bob", short, util=(35.0, 0.0, 0.0, 0.0), job="41")


def two_notebooks_of_one_person(fleet: Fleet) -> None:
    """Two kernels of one notebook server, hours apart: two works, of which one is idle."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", util=85.0, mem_gb=70, parent_pid=77)
    fleet.run(second, "ann", fleet.between(0.25), mem_gb=70, parent_pid=77)


def evaluation_on_the_last_card(fleet: Fleet) -> None:
    """One card of four only evaluates: six minutes an hour."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", util=(95.0, 95.0, 95.0, fleet.wave(80, period_h=1, on_h=1 / 12)))


def two_servers_started_at_boot(fleet: Fleet) -> None:
    """The system starts both at the same moment; nobody calls the second."""
    first, second = fleet.host("h1", H100, 2, pool="serving")
    for gpu, util in ((first, 70.0), (second, 0.0)):
        fleet.run(gpu, "svc", util=util, mem_gb=60, parent_pid=1, command="vllm")


def still_loading(fleet: Fleet) -> None:
    """The first card reads the weights for 50 minutes at the end of the window, the others wait for it."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus, "ann", fleet.between(0, -1), job="50")
    train(fleet, gpus, "ann", fleet.between(-50 / 1440), util=(30.0, 0.0, 0.0, 0.0), job="51")


def screens_on_every_card(fleet: Fleet) -> None:
    """A display server sits on all cards of a workstation and draws on one."""
    gpus = fleet.host("ws1", H100, 2)
    options = {"kind": "graphics", "command": "Xorg", "one_process": True}
    fleet.run(gpus, "root", util=(6.0, 0.0), mem_gb=1, **options)  # type: ignore[arg-type]  # run names each of them


def pipeline_with_a_rare_stage(fleet: Fleet) -> None:
    """The re-ranking model on the second card is called now and then."""
    gpus = fleet.host("h1", H100, 2, pool="serving")
    serve(fleet, gpus, util=(50.0, fleet.wave(60, period_h=6, on_h=0.5)))


def four_asked_of_slurm_one_used(fleet: Fleet) -> None:
    """Accounting says that the job has four of the node's eight cards; its processes are on the first."""
    gpus = fleet.host("h1", H100, 8)
    train(fleet, gpus[0], "ann", job="60")
    train(fleet, gpus[4:], "bob", job="61")
    fleet.claim(gpus[0].host, "ann", 0, claim_id="60", count=4)


def two_of_a_whole_node_used(fleet: Fleet) -> None:
    """The job asked for three cards of two nodes each, and its launcher knows the first node."""
    first, second = fleet.host("h1", H100, 4), fleet.host("h2", H100, 4)
    train(fleet, first[:3], "ann", job="62")
    for gpus in (first, second):
        fleet.claim(gpus[0].host, "ann", 0, claim_id="62", count=3)


def two_asked_of_slurm_two_used(fleet: Fleet) -> None:
    """Accounting says how many, and the processes are on as many; the node's other cards are nobody's."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann", job="63")
    fleet.claim(gpus[0].host, "ann", 0, claim_id="63", count=2)


def work_that_lost_the_name_of_its_job(fleet: Fleet) -> None:
    """Two cards asked for and used; of the process in the container nobody can say which job it belongs to."""
    first, second, *_ = gpus = fleet.host("h1", H100, 4)
    train(fleet, first, "ann", job="64")
    fleet.run(second, "ann", util=90.0, mem_gb=60, container_id="c1")
    fleet.claim(gpus[0].host, "ann", 0, claim_id="64", count=2)


SCENARIOS = (
    situation(four_asked_of_slurm_one_used, days=DAYS, fires="partial_use", may=f"{IDLE_GPUS} never_used imbalance"),
    situation(two_of_a_whole_node_used, days=DAYS, fires="partial_use", may=f"{IDLE_GPUS} never_used imbalance"),
    situation(
        two_asked_of_slurm_two_used,
        days=DAYS,
        may=f"{IDLE_GPUS} never_used",
        look_alike_of="partial_use reserved_unused",
    ),
    situation(
        work_that_lost_the_name_of_its_job,
        days=DAYS,
        may=f"{IDLE_GPUS} never_used",
        look_alike_of="partial_use reserved_unused",
    ),
    situation(every_card_grabbed_one_used, days=DAYS, fires="partial_use", may=IDLE_GPUS),
    situation(second_node_never_used, days=DAYS, fires="partial_use", may=IDLE_GPUS),
    situation(
        pod_with_one_gpu_too_many,
        days=DAYS,
        fires="partial_use",
        may=f"{IDLE_GPUS} preallocated compute_oversized co_location",
    ),
    situation(one_worker_of_a_launcher_idles, days=DAYS, fires="partial_use", may=IDLE_GPUS),
    situation(
        cards_take_turns,
        days=DAYS,
        may="held low_efficiency standing_surplus stalls",
        look_alike_of="partial_use imbalance",
    ),
    situation(
        standby_in_a_pod_of_its_own,
        days=DAYS,
        may=f"{IDLE_GPUS} co_location preallocated compute_oversized",
        look_alike_of="partial_use",
    ),
    situation(
        debugging_on_one_of_four, days=DAYS, may="wind_down standing_surplus", look_alike_of="partial_use imbalance"
    ),
    situation(
        two_notebooks_of_one_person, days=DAYS, may=f"{IDLE_GPUS} co_location", look_alike_of="partial_use imbalance"
    ),
    situation(
        evaluation_on_the_last_card,
        days=DAYS,
        may="imbalance standing_surplus",
        look_alike_of="partial_use held low_efficiency",
    ),
    situation(
        two_servers_started_at_boot,
        days=DAYS,
        may=f"{IDLE_GPUS} co_location preallocated",
        look_alike_of="partial_use",
    ),
    situation(still_loading, days=DAYS, may="standing_surplus wind_down", look_alike_of="partial_use held imbalance"),
    situation(
        screens_on_every_card,
        days=DAYS,
        may="standing_surplus memory_oversized compute_oversized mig_fit co_location never_used",
        look_alike_of="partial_use low_efficiency held",
    ),
    situation(
        pipeline_with_a_rare_stage,
        days=DAYS,
        may=f"{IDLE_GPUS} preallocated compute_oversized co_location",
        look_alike_of="partial_use imbalance",
    ),
)
