"""GPUs at rest that are bound to work elsewhere: what the rules say of them is so, and nothing of it can be taken back."""

from __future__ import annotations

import json

from tests.findings.scenarios.builder import A100_80, H100, Fleet
from tests.findings.scenarios.situations import situation, train

KERNEL = {"command": "python3", "arguments": "train.py"}


def last_task_of_an_array(fleet: Fleet) -> None:
    """The last task of a sweep has the array's own id and hangs; the first works."""
    first, last = fleet.host("h1", H100, 2)
    fleet.run(last, "ann", mem_gb=60, slurm_job_id="36", slurm_account="ann-lab", **KERNEL)
    train(fleet, first, "ann", job="37")


def heterogeneous_job_whose_leader_waits(fleet: Fleet) -> None:
    """The first component was given a card and serves the others from the CPU."""
    leader, worker = fleet.host("h1", H100, 2)
    train(fleet, leader, "bob", fleet.between(0, -3), job="20")
    fleet.claim([leader], "ann", -2, claim_id="60", account="ann-lab")
    fleet.claim([worker], "ann", -2, claim_id="61", account="ann-lab")
    train(fleet, worker, "ann", job="61")


def rank_that_waits_for_the_evaluation(fleet: Fleet) -> None:
    """One launcher's two ranks: one has waited for a day while the other evaluates."""
    first, second = fleet.host("h1", A100_80, 2)
    started = fleet.moment(0)
    waits = fleet.between(-1)
    for gpu, pid, util in ((first, 100, 95.0), (second, 101, 95.0)):
        level = fleet.level(util) if gpu is second else fleet.level(util) * ~waits
        fleet.run(gpu, "ann", util=level, mem_gb=60, pid=pid, parent_pid=50, started=started, **KERNEL)


def job_with_a_host_that_nobody_watches(fleet: Fleet) -> None:
    """Two hosts of one job, and the agent runs on one of them."""
    gpu, other = fleet.host("h1", H100, 2)
    (hidden,) = fleet.host("h2", H100, 1)
    hidden.host.outage(fleet.always)
    fleet.run(gpu, "ann", mem_gb=60, slurm_job_id="50", slurm_account="ann-lab", **KERNEL)
    fleet.claim([gpu], "ann", 0, claim_id="50", account="ann-lab")
    fleet.claim(hidden.host, "ann", 0, claim_id="50", account="ann-lab", count=8)
    train(fleet, other, "bob", job="20")


def worker_of_a_training_job(fleet: Fleet) -> None:
    """One of two workers has had nothing to do for days: the other goes on, and would end with it."""
    labels = json.dumps({"training.kubeflow.org/job-name": "t1", "training.kubeflow.org/replica-type": "worker"})
    for number, name in enumerate(("k1", "k2")):
        (gpu,) = fleet.host(name, H100, 1)
        fleet.run(
            gpu, "ann", util=95.0 * number, mem_gb=60, pod=f"t1-worker-{number}", namespace="ml", container_id=name,
            pod_labels=labels, **KERNEL,
        )  # fmt: skip


def cards_that_a_contract_counts(fleet: Fleet) -> None:
    """Four of eight cards are somebody's by contract, which says a number and no card; none was ever used."""
    gpus = fleet.host("h1", H100, 8)
    fleet.claim(gpus[0].host, "lab", 0, claim_id="contract-1", scheduler="csv", count=4)


RESTS = "wind_down imbalance partial_use preallocated standing_surplus low_efficiency stalls input_starved"

SCENARIOS = (
    situation(last_task_of_an_array, fires="held", may=RESTS, look_alike_of="zombie_holder"),
    situation(heterogeneous_job_whose_leader_waits, fires="reserved_unused", may=RESTS, look_alike_of="zombie_holder"),
    situation(rank_that_waits_for_the_evaluation, fires="held", may=RESTS, look_alike_of="zombie_holder"),
    situation(job_with_a_host_that_nobody_watches, fires="held", may=RESTS, look_alike_of="zombie_holder"),
    situation(worker_of_a_training_job, fires="held", may=RESTS, look_alike_of="zombie_holder"),
    situation(
        cards_that_a_contract_counts, fires="never_used", may="standing_surplus", look_alike_of="reserved_unused"
    ),
)
