"""A simulated fleet for the demo and the tests, planned from a seed and written by the same lake code as real rows."""

from __future__ import annotations

from analytics.simulation.people import intensity_csv, labels_csv, offers_csv, owners_csv, prices_csv, requests_csv
from analytics.simulation.placement import Planted, SimulatedFleet
from analytics.simulation.plan import FleetPlan, plan_fleet
from analytics.simulation.queue import SCHEDULER, simulated_queue
from analytics.simulation.tables import write_fleet

__all__ = [
    "SCHEDULER",
    "FleetPlan",
    "Planted",
    "SimulatedFleet",
    "intensity_csv",
    "labels_csv",
    "offers_csv",
    "owners_csv",
    "plan_fleet",
    "prices_csv",
    "requests_csv",
    "simulated_queue",
    "write_fleet",
]
