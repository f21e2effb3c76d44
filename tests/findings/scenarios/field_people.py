"""Situations from the field: what people, their notebooks and their hosts' daemons do."""

from __future__ import annotations

import numpy as np

from tests.findings.scenarios.builder import A100_40, A100_80, H100, L40S, Fleet
from tests.findings.scenarios.situations import KERNEL, situation, train

AT_WORK = "held ending"


@situation(
    fires="held",
    may="low_efficiency ending",
    look_alike_of="preallocated never_used releasable_pool",
)
def notebook_held_for_days(fleet: Fleet) -> None:
    """A kernel with 60 GB in memory since Monday, and no cell has been run since."""
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "ann", fleet.between(-4), util=np.where(fleet.between(-4, -3.9), 60, 0), mem_gb=66, **KERNEL)
    train(fleet, first, "bob", fleet.between(0, -4.2))
    train(fleet, second, "bob")


@situation(may="low_efficiency stalls", look_alike_of=f"{AT_WORK} never_used releasable_pool")
def notebook_in_use(fleet: Fleet) -> None:
    """Cells run for ten minutes of every forty, on weekdays; the kernel is shut down in the evening."""
    gpus = fleet.host("h1", A100_40, 2)
    working = fleet.weekdays & fleet.daily(8, 19)
    fleet.run(gpus, "ann", working, util=fleet.wave(88, period_h=40 / 60, on_h=20 / 60), mem_gb=34, **KERNEL)


@situation(look_alike_of=f"{AT_WORK} stalls releasable_pool")
def debugging(fleet: Fleet) -> None:
    """Start, look, mend: a process for 15 minutes of every 30 through the working day, with work in a part of it."""
    gpus = fleet.host("h1", A100_40, 2)
    there = fleet.weekdays & fleet.daily(8, 18) & fleet.every(0.5, 0.25)
    fleet.run(gpus, "ann", there, util=fleet.wave(80, period_h=0.5, on_h=1 / 6), mem_gb=34)


@situation(fires="held", may="low_efficiency", look_alike_of="preallocated never_used")
def left_behind_after_logout(fleet: Fleet) -> None:
    """The session ended five days ago, soon after the process began; init owns it, with its memory and without work."""
    first, second = fleet.host("h1", A100_80, 2)
    train(fleet, first, "bob", fleet.between(0, -5.1))
    parent = np.where(fleet.between(-4.9), 1.0, 4000.0)
    fleet.run(first, "ann", fleet.between(-5), mem_gb=68, parent_pid=parent, cpu_util_pct=0.0)
    train(fleet, second, "bob")


@situation(look_alike_of=f"{AT_WORK} low_efficiency")
def nohup_that_works(fleet: Fleet) -> None:
    """Started with nohup, its shell long closed: it is owned by init and does its work."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", job=None, parent_pid=1)


@situation(look_alike_of=f"{AT_WORK} partial_use co_location")
def display_server(fleet: Fleet) -> None:
    """A workstation: Xorg and the desktop are always there, work is there by day."""
    (gpu,) = fleet.host("ws1", L40S, 1, pool="desk")
    fleet.run(gpu, "root", mem_gb=0.06, kind="graphics", command="Xorg", parent_pid=1)
    fleet.run(gpu, "gdm", mem_gb=0.04, kind="graphics", command="gnome-shell", parent_pid=1)
    train(fleet, gpu, "ann", fleet.daily(8, 20), job=None)


@situation(look_alike_of=f"{AT_WORK} memory_oversized co_location partial_use")
def monitoring_daemon(fleet: Fleet) -> None:
    """A monitoring daemon has a small context on every GPU, for ever; jobs run beside it by day."""
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, "root", mem_gb=0.3, command="nv-hostengine", parent_pid=1, cpu_util_pct=1.5)
    train(fleet, gpus, "ann", fleet.daily(6, 22))


@situation(look_alike_of=f"{AT_WORK} co_location partial_use memory_oversized")
def two_people_on_one_gpu(fleet: Fleet) -> None:
    """Both work on one card at the same time."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", util=45.0, mem_gb=33)
    fleet.run(first, "bob", util=38.0, mem_gb=36)
    train(fleet, second, "cem")


@situation(look_alike_of=f"{AT_WORK} co_location partial_use")
def guest_without_work(fleet: Fleet) -> None:
    """Ann's process rests beside Bob's, which works: the card is not idle."""
    first, second = fleet.host("h1", A100_80, 2)
    fleet.run(first, "ann", mem_gb=2)
    train(fleet, first, "bob", mem_gb=66)
    train(fleet, second, "cem")


@situation(may="stalls", look_alike_of=f"{AT_WORK} input_starved")
def tokenising_between_epochs(fleet: Fleet) -> None:
    """Fifty minutes on the CPU before each epoch, with the model in memory and one CPU busy."""
    gpus = fleet.host("h1", A100_80, 2)
    train(fleet, gpus, "ann", util=fleet.wave(94, period_h=6, on_h=5.17), cpu_util_pct=800.0)


@situation(fires="held", may="blind_spot", look_alike_of="ending")
def held_by_nobody_known(fleet: Fleet) -> None:
    """The agent sees no processes: 60 GB in memory stand for somebody for three days."""
    first, second = fleet.host("h1", H100, 2)
    train(fleet, first, "bob", fleet.between(0, -3.2))
    fleet.run(first, None, fleet.between(-3), mem_gb=66)
    train(fleet, second, "bob")
    hidden = fleet.between(-3)
    first.override(hidden, process_count=None)
    first.stays = [stay for stay in first.stays if not stay.when[-1]]


@situation(look_alike_of=f"{AT_WORK} stalls input_starved")
def ends_and_comes_back(fleet: Fleet) -> None:
    """Out of memory after 20 minutes, and again from the start five minutes later."""
    gpus = fleet.host("h1", H100, 2)
    train(fleet, gpus, "ann", ~fleet.every(25 / 60, 5 / 60), util=88.0)
