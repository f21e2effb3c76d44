"""Processes that have outlived their purpose, and processes that only look like it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

KERNEL: dict[str, Any] = {"command": "python3", "arguments": "python3 -m ipykernel_launcher -f kernel.json"}


def rank_left_behind_by_its_launcher(fleet: Fleet) -> None:
    """The launcher was killed two days ago; one of its workers waits for the others for ever."""
    first, second = fleet.host("h1", A100_80, 2)
    parent = np.where(fleet.between(-2), 1.0, 4000.0)
    fleet.run(first, "ann", util=np.where(fleet.between(-2), 0, 94), mem_gb=70, parent_pid=parent, cpu_util_pct=0.4)
    train(fleet, second, "bob")


def process_that_survived_its_job(fleet: Fleet) -> None:
    """The job ended yesterday by its time limit; a process that it had started in the background is still there."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, -1, claim_id="1001", account="ann-lab", state="TIMEOUT")
    train(fleet, gpus[0], "ann", fleet.between(0, -1))
    train(fleet, gpus[1], "ann", util=np.where(fleet.between(-1), 0, 95))
    train(fleet, gpus[0], "bob", fleet.between(-0.9), job="1002")


def hub_pod_since_the_week_before(fleet: Fleet) -> None:
    """A notebook in a hub: its owner has been away for four days, the model is in memory."""
    first, second = fleet.host("k1", L40S, 2, pool="lab")
    train(fleet, second, "bob")
    fleet.run(
        first, "jovyan", util=np.where(fleet.between(-4), 0, fleet.wave(70, period_h=6, on_h=5)), mem_gb=30, pod="jupyter-eve",
        namespace="hub", container_id="c1", pod_labels='{"component": "singleuser-server"}',
    )  # fmt: skip


def kernel_of_a_closed_browser(fleet: Fleet) -> None:
    """The laptop went home on Monday; the kernel did not."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(
        first, "ann", util=np.where(fleet.between(-3), 0, fleet.wave(60, period_h=3, on_h=2.7)), mem_gb=60, **KERNEL
    )
    train(fleet, second, "bob")


def service_of_systemd(fleet: Fleet) -> None:
    """A speech service of the site: parent 1 from the start, and nobody has spoken for two days."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    fleet.run(
        first, "svc-speech", util=np.where(fleet.between(-2), 0, 40), mem_gb=30, command="asr-server", parent_pid=1
    )
    train(fleet, second, "bob")


def mps_daemon_between_two_jobs(fleet: Fleet) -> None:
    """MPS keeps its own context on each card while nobody uses it."""
    gpus = fleet.host("h1", A100_80, 2)
    for gpu in gpus:
        fleet.run(gpu, "root", mem_gb=0.03, kind="mps", command="nvidia-cuda-mps", parent_pid=1)
    train(fleet, gpus, "ann", fleet.between(0, -2), job=None)
    train(fleet, gpus[0], "bob", fleet.between(-2), job=None)


def notebook_over_night(fleet: Fleet) -> None:
    """A kernel that works by day and is left on for the next morning."""
    (gpu,) = fleet.host("ws1", L40S, 1, pool="desk")
    fleet.run(gpu, "ann", util=np.where(fleet.daily(8, 22), 70, 0), mem_gb=30, **KERNEL)


def orphan_that_computes_on_the_cpu(fleet: Fleet) -> None:
    """Started with nohup, its shell closed: it has prepared data on eight CPUs since, and will train on the card."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", fleet.between(-2), mem_gb=3, parent_pid=1, cpu_util_pct=780.0)
    train(fleet, first, "ann", fleet.between(0, -2.1))
    train(fleet, second, "bob")


def job_that_still_runs(fleet: Fleet) -> None:
    """Idle for a day, and its job goes on: whoever holds it is known, alive and has been given the card."""
    gpus = fleet.host("h1", H100, 2)
    fleet.claim(gpus, "ann", 0, claim_id="1001", account="ann-lab")
    train(fleet, gpus[0], "ann")
    train(fleet, gpus[1], "ann", util=np.where(fleet.between(-1), 0, 95))


def server_in_a_pod_of_its_own(fleet: Fleet) -> None:
    """An inference server that has had no request for a day: no zombie, but a server without traffic."""
    first, second = fleet.host("k1", L40S, 2, pool="serving")
    serve(fleet, first, util=np.where(fleet.between(-1.3), 0, 50), mem_gb=39)
    train(fleet, second, "ann")


HELD = (
    "held wind_down imbalance partial_use loaded_no_traffic preallocated co_location memory_oversized compute_oversized"
)

SCENARIOS = (
    situation(rank_left_behind_by_its_launcher, fires="zombie_holder held", may="wind_down"),
    situation(process_that_survived_its_job, fires="zombie_holder held", may="wind_down imbalance"),
    situation(hub_pod_since_the_week_before, fires="zombie_holder held", may=f"{HELD} mig_fit".replace("held ", "")),
    situation(kernel_of_a_closed_browser, fires="zombie_holder held", may=f"{HELD} mig_fit".replace("held ", "")),
    situation(service_of_systemd, may=f"{HELD} mig_fit", look_alike_of="zombie_holder"),
    situation(mps_daemon_between_two_jobs, may="held imbalance", look_alike_of="zombie_holder"),
    situation(notebook_over_night, may=f"{HELD} mig_fit", look_alike_of="zombie_holder"),
    situation(orphan_that_computes_on_the_cpu, may=f"{HELD} input_starved", look_alike_of="zombie_holder"),
    situation(job_that_still_runs, may=f"{HELD}", look_alike_of="zombie_holder reserved_unused"),
    situation(server_in_a_pod_of_its_own, may=f"{HELD} mig_fit", look_alike_of="zombie_holder"),
)
