"""The whole fleet before its first row: hosts, stays, claims and the planted situations, all from the seed."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.simulation.layout import build_hosts
from analytics.simulation.placement import HostPlan, PlacementBoard, Planted, SimulatedFleet
from analytics.simulation.scenes import SHOWN_FROM_DAYS, play


@dataclass(frozen=True)
class FleetPlan:
    """The fleet, one plan per host, and what was planted."""

    fleet: SimulatedFleet
    hosts: tuple[HostPlan, ...]
    planted: tuple[Planted, ...]


def plan_fleet(fleet: SimulatedFleet) -> FleetPlan:
    """The plan of a fleet; the same fleet gives the same plan. One of each situation per 256 GPUs, as far as they fit."""
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
