"""Claims without a process, and claims that only pause."""

from __future__ import annotations

from tests.findings.scenarios.builder import H100, L40S, Fleet
from tests.findings.scenarios.situations import situation, train


def job_that_never_began(fleet: Fleet) -> None:
    """A batch job has had two cards for two days and hangs in its prologue."""
    gpus = fleet.host("h1", H100, 4)
    train(fleet, gpus[:2], "ann")
    train(fleet, gpus[2:], "bob", fleet.between(0, -2.2), job="1002")
    fleet.claim(gpus[2:], "bob", -2, claim_id="1003", account="bob-lab")


def pod_that_sleeps(fleet: Fleet) -> None:
    """A pod was given a card to look around in, and nobody has started anything in it since yesterday morning."""
    first, second = fleet.host("k1", L40S, 2, pool="lab")
    train(fleet, first, "ann")
    train(fleet, second, "ann", fleet.between(0, -1.5))
    fleet.claim([second], "eve", -1.4, claim_id="lab/shell-0", scheduler="kubernetes", account="lab")


def reservation_of_a_course(fleet: Fleet) -> None:
    """Cards have been kept for a course for six days; it has not begun."""
    gpus = fleet.host("h1", L40S, 4, pool="lab")
    train(fleet, gpus, "ann", fleet.between(0, 1.9))
    fleet.claim(gpus[2:], "course", 2, claim_id="course-7", scheduler="csv")
    train(fleet, gpus[:2], "ann", fleet.between(2))


def work_is_over_and_the_job_is_not(fleet: Fleet) -> None:
    """The training ended after two days; the job's script waits for something else since."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="1001", account="ann-lab")
    train(fleet, gpus, "ann", fleet.between(0, 2))


def pauses_of_an_interactive_job(fleet: Fleet) -> None:
    """Somebody tries things out: processes of an hour, forty minutes of thinking between them."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="1001", account="ann-lab")
    train(fleet, gpus, "ann", fleet.every(5 / 3, 1))


def lab_reservation_over_a_weekend(fleet: Fleet) -> None:
    """A lab has its cards by contract, and works from Monday to Friday."""
    gpus = fleet.host("h1", L40S, 2, pool="lab")
    fleet.claim(gpus, "lab", 0, claim_id="contract-1", scheduler="csv")
    train(fleet, gpus, "ann", fleet.weekdays & fleet.daily(8, 19), job=None)


def claim_that_has_ended(fleet: Fleet) -> None:
    """The job is long over, and its cards are free since."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, 4, claim_id="1001", account="ann-lab")
    train(fleet, gpus, "ann", fleet.between(0, 4))
    train(fleet, gpus[0], "bob", fleet.between(4.1), job="1002")


def processes_that_cannot_be_seen(fleet: Fleet) -> None:
    """The agent's namespace hides processes; memory in use says that the claim is in use."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="1001", account="ann-lab")
    train(fleet, gpus, "ann")
    for gpu in gpus:
        gpu.override(fleet.always, process_count=None)
        gpu.stays.clear()


IDLE = "standing_surplus wind_down never_used"

SCENARIOS = (
    situation(job_that_never_began, fires="reserved_unused", may=IDLE, look_alike_of="held zombie_holder"),
    situation(pod_that_sleeps, fires="reserved_unused", may=IDLE, look_alike_of="held zombie_holder"),
    situation(reservation_of_a_course, fires="reserved_unused", may=IDLE, look_alike_of="held"),
    situation(work_is_over_and_the_job_is_not, fires="reserved_unused", may=IDLE, look_alike_of="held zombie_holder"),
    situation(pauses_of_an_interactive_job, may="low_efficiency", look_alike_of="reserved_unused wind_down"),
    situation(lab_reservation_over_a_weekend, days=15, may=f"low_efficiency {IDLE}", look_alike_of="reserved_unused"),
    situation(claim_that_has_ended, look_alike_of="reserved_unused never_used wind_down"),
    situation(processes_that_cannot_be_seen, may="blind_spot", look_alike_of="reserved_unused held"),
)
