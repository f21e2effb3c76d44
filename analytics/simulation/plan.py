"""The whole fleet before its first row, from the seed: hosts, stays, allocations, planted situations, and scenes.

A scene takes its GPUs for a few days; ordinary work uses the other GPUs, or continues after the scene.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from analytics.simulation.catalog import BUSY_SERVING, NOTEBOOK, TUNED, Behaviour, IntervalLengths, Knots, build_hosts
from analytics.simulation.placement import HostPlan, PlacementBoard, Planted, SimulatedFleet
from analytics.simulation.stays import SimulatedServer, Stay
from fallow.clock import DAY_MS, HOUR_MS

SHOWN_FROM_DAYS = 14
"""Scenes need several days; shorter fleets have only the planted situations."""

PROJECT_OVER = "nav-challenge"
PROJECTS = {
    PROJECT_OVER: ("robotics", -2),
    "voice-distillation": ("speech", 3),
    "shop-embeddings": ("ranking", 5),
    "gripper-sweeps": ("robotics", 9),
}
"""Accounts of projects with an end: their team, and the days from the end of the period to that end."""

_STALLING = replace(
    TUNED,
    busy=IntervalLengths(480.0, 0.04, max_s=600.0),
    idle=IntervalLengths(130.0, 0.04),
    startup_s=40.0,
    kept_ratio=0.9,
)
_STARVED = replace(
    TUNED,
    busy=IntervalLengths(5_400.0, 0.3),
    idle=IntervalLengths(20.0, 0.3),
    level_pct=Knots((0.0, 1.0), (30.0, 55.0)),
    intensity_ratio=Knots((0.0, 1.0), (0.25, 0.4)),
    bursty_ratio=0.5,
)
_SMALL = replace(
    TUNED,
    level_pct=Knots((0.0, 1.0), (44.0, 62.0)),
    intensity_ratio=Knots((0.0, 1.0), (0.13, 0.2)),
    mem_ratio=Knots((0.0, 1.0), (0.10, 0.11)),
)
_LIGHT = replace(
    TUNED,
    level_pct=Knots((0.0, 1.0), (6.0, 14.0)),
    intensity_ratio=Knots((0.0, 1.0), (0.04, 0.1)),
    mem_ratio=Knots((0.0, 1.0), (0.17, 0.19)),
    bursty_ratio=0.03,
)
_SPINNING = replace(TUNED, level_pct=Knots((0.0, 1.0), (96.0, 100.0)), intensity_ratio=Knots((0.0, 1.0), (0.04, 0.12)))
_RESERVING = replace(BUSY_SERVING, mem_ratio=Knots((0.0, 1.0), (0.912, 0.912)), startup_s=90.0)


@dataclass(frozen=True)
class _Scene:
    """A workload of the showcase: GPUs of a pool, its time as shares of the period, and its stay's unusual parts."""

    pool: str
    count: int
    span: tuple[float, float]
    behaviour: Behaviour
    user: str
    account: str
    name: str
    work: str = "training"
    command: str = "python3"
    unused: int = 0
    idle_from: float | None = None
    rest: dict[str, Any] | None = None


_SCENES = (
    _Scene("train", 4, (0.15, 0.34), TUNED, "mei", "robotics", "robotics-actor-critic",
            rest={"pace": (1.0, 0.34, 0.3, 0.32)}),
    _Scene("train", 4, (0.36, 0.57), _STALLING, "bjorn", "language", "language-pretrain-3b"),
    _Scene("train", 4, (0.6, 0.7), TUNED, "chloe", "language", "language-eval-suite", unused=2),
    _Scene("train-old", 2, (0.2, 0.43), _STARVED, "ines", "vision", "vision-augment", rest={"starved": True}),
    _Scene("train", 1, (0.4, 1.0), _SMALL, "kavya", "voice-distillation", "speech-distill"),
    _Scene("train", 2, (0.72, 1.0), _SPINNING, "quinn", "shop-embeddings", "ranking-embeddings"),
    _Scene("train-old", 1, (0.45, 1.0), _LIGHT, "nuno", "gripper-sweeps", "robotics-sweep-a"),
    _Scene("train-old", 1, (0.45, 1.0), _LIGHT, "nuno", "gripper-sweeps", "robotics-sweep-b"),
    _Scene("serving", 1, (0.0, 1.0), _RESERVING, "svc-speech", "speech", "voice-notes-7d9f4c6b8-x2kqp", "serving",
            "vllm", idle_from=0.72,
            rest={"server": SimulatedServer("mistralai/Mistral-7B-Instruct-v0.3", "vllm", 0.35)}),
    _Scene("serving", 1, (0.0, 1.0), _RESERVING, "svc-language", "language", "summary-5c7b9d7f6-9wzlm", "serving",
            "vllm", rest={"server": SimulatedServer("meta-llama/Llama-3.1-8B-Instruct", "vllm", 0.22)}),
    _Scene("legacy", 2, (0.08, 1.0), TUNED, "pavel", PROJECT_OVER, "nav-planner",
            idle_from=1 + PROJECTS[PROJECT_OVER][1] / 14),
    _Scene("legacy", 1, (0.6, 1.0), NOTEBOOK, "olga", "robotics", "", "shell", idle_from=0.78,
            rest={"orphaned": True, "arguments": "python3 train.py --config try.yaml"}),
)  # fmt: skip


def play(board: PlacementBoard) -> None:
    """Place every scene that finds GPUs, the failures of hosts, and the host that was added late."""
    _hosts(board)
    for nth, scene in enumerate(_SCENES):
        span = (board.at(scene.span[0]), board.at(scene.span[1]) if scene.span[1] < 1 else board.fleet.until_ms)
        if found := board.stage(scene.pool, scene.count, span):
            host, gpus = found
            board.staged[host.name].append(_stay(board, scene, nth, gpus, span))


def _stay(board: PlacementBoard, scene: _Scene, nth: int, gpus: tuple[int, ...], span: tuple[int, int]) -> Stay:
    job = scene.work == "training"
    return Stay(
        *span,
        gpus,
        scene.behaviour,
        scene.work,
        scene.user,
        scene.account,
        scene.name,
        job_id=str(910_000 + nth) if job else "",
        command=scene.command,
        seed=board.fleet.seed * 1000 + 700 + nth,
        allocated=job or scene.work == "serving",
        unused=gpus[len(gpus) - scene.unused :] if scene.unused else (),
        idle_from_ms=None if scene.idle_from is None else board.at(scene.idle_from),
        **(scene.rest or {}),
    )


def _hosts(board: PlacementBoard) -> None:
    """Place two cards without air, an agent that was dead for long, and a host that was never used after its start."""
    if found := board.stage("train-old", 1, (board.at(0.3), board.fleet.until_ms)):
        host, _ = found
        working = [gpu.index for gpu in host.gpus if gpu.index not in board.taken[host.name]]
        board.hot[host.name] |= dict.fromkeys(working[-2:], board.at(0.3))
    legacy = [host for host in board.hosts if host.pool.name == "legacy"]
    if legacy and legacy[-1].name not in board.outages:
        start_ms = board.at(0.22)
        board.outages[legacy[-1].name] = (start_ms, start_ms + DAY_MS * board.fleet.days // 8 + HOUR_MS)
    for each in board.planted:
        host = next(host for host in board.hosts if host.name == each.host)
        if each.kind == "never_used" and len(each.gpus) == len(host.gpus):
            board.added[host.name] = board.at(0.18)


@dataclass(frozen=True)
class FleetPlan:
    """The fleet, a plan per host, and the planted situations."""

    fleet: SimulatedFleet
    hosts: tuple[HostPlan, ...]
    planted: tuple[Planted, ...]


def plan_fleet(fleet: SimulatedFleet) -> FleetPlan:
    """Return the plan of a fleet; the same fleet gives the same plan.

    A situation of each kind per 256 GPUs; situations that do not fit are left out.
    """
    hosts = build_hosts(fleet.gpus, fleet.seed, fleet.pools)
    board = PlacementBoard(fleet, hosts, fleet.habits)
    for nth in range(1 + fleet.gpus // 256):
        board.held_notebook(nth)
        board.never_used()
        board.lost_gpu(nth)
        board.reserved_block(nth)
        board.agent_outage(nth)
    if fleet.showcase and fleet.days >= SHOWN_FROM_DAYS:
        play(board)
    return FleetPlan(fleet, tuple(board.host_plan(host) for host in hosts), tuple(board.planted))
