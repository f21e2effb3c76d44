"""A simulated fleet for the demo and the tests: planned from a seed, written through the same lake code as real rows."""

from __future__ import annotations

from analytics.simulation.people import owners_csv, prices_csv
from analytics.simulation.placement import Fleet, Planted
from analytics.simulation.plan import Plan, plan_fleet
from analytics.simulation.write import FleetSummary, write_fleet

__all__ = ["Fleet", "FleetSummary", "Plan", "Planted", "owners_csv", "plan_fleet", "prices_csv", "write_fleet"]
