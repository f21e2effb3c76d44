"""`fallow plan carbon`: energy and CO2 of use and of parking, and what moving work by hours would save."""

from __future__ import annotations

import argparse

from analytics.commands.plan_inputs import add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.money.energy import MJ_PER_KWH
from analytics.money.grid_intensity import open_intensity
from analytics.plan.carbon import SHIFT_HOURS, AskedCarbon, Carbon, ParkingPower
from analytics.plan.carbon_sum import CarbonSum
from analytics.plan.deferral import Deferral
from analytics.tables.plan_carbon import carbon_sections
from fallow.clock import HOUR_MS, parse_duration_ms
from fallow.errors import UsageError

_MOST_HOURS = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser)
    parser.add_argument(
        "--intensity",
        metavar="FILE|NUMBER",
        help="g of CO2 per kWh of the grid: a CSV file by the hour, or one number (or plan.carbon)",
    )
    parser.add_argument(
        "--shift", metavar="TIME", default=f"{SHIFT_HOURS}h", help=f"by how much work may be moved (default: {SHIFT_HOURS}h)"
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Prints the sums, the teams, what parking costs and what other hours would save."""
    most_hours = _hours(args.shift)
    plan = open_plan(args)
    intensity = open_intensity(plan.whole.inputs.settings, args.intensity)
    found = plan.whole.plan.carbon(plan.scope, plan.part, AskedCarbon(intensity, plan.speaks.zone, most_hours))
    if args.json:
        show_plan_json(plan, _as_json(found))
    else:
        show_plan(plan, carbon_sections(found))
    return 0


def _hours(text: str) -> int:
    hours, rest = divmod(parse_duration_ms(text), HOUR_MS)
    if rest or not 1 <= hours <= _MOST_HOURS:
        raise UsageError(f"--shift {text} is not a number of whole hours up to {_MOST_HOURS}h", "give 12h, for example")
    return hours


def _as_json(found: Carbon) -> dict[str, object]:
    intensity = found.intensity
    return {
        "pue": found.grid.pue,
        "intensity": {
            "source": intensity.source,
            "is_hourly": intensity.flat is None,
            "mean_g_per_kwh": found.mean_g_per_kwh,
            "hours": found.hours,
            "known_hours": found.known_hours,
        },
        "counter_share": found.counter_share,
        "all": _sum_json(found.total),
        "parts": {part: _sum_json(each) for part, each in found.parts.items()},
        "teams": [
            {"name": each.label, **_sum_json(each.total), "parts": {part: _sum_json(own) for part, own in each.parts.items()}}
            for each in found.teams
        ],
        "parking": None if found.parking is None else [_parking_json(found, each) for each in found.parking],
        "deferral": None if found.deferral is None else _deferral_json(found.deferral),
    }  # fmt: skip


def _sum_json(each: CarbonSum) -> dict[str, object]:
    return {
        "gpu_hours": each.energy.total_ms / HOUR_MS,
        "kwh": each.kwh,
        "known_share": each.energy.known_share,
        "co2_kg": each.co2_kg,
        "rated_share": each.rated_share,
    }


def _parking_json(found: Carbon, each: ParkingPower) -> dict[str, object]:
    return {
        "model": each.model,
        "free_w": each.free_w,
        "held_w": each.held_w,
        "free_gpu_hours": each.free_ms / HOUR_MS,
        "held_gpu_hours": each.held_ms / HOUR_MS,
        "extra_kwh": each.extra.kwh,
        "extra_co2_kg": each.extra.co2_kg,
        "year_kwh": found.year_kwh(each.extra_w),
        "year_co2_kg": found.year_co2_kg(each.extra_w),
        "year_cost": found.year_cost(each.extra_w),
    }


def _deferral_json(deferral: Deferral) -> dict[str, object]:
    return {
        "most_hours": deferral.most_hours,
        "work": _sum_json(deferral.work),
        "moved_kwh": deferral.moved_mj / MJ_PER_KWH,
        "saved_kg": deferral.saved_g / 1000,
        "saved_kg_at_most": deferral.most_saved_g / 1000,
        "models_without_free_power": list(deferral.without_floor),
        "hours": [
            {
                "hour": each.hour,
                "g_per_kwh": each.g_per_kwh,
                "free_gpus": each.free_gpus,
                "kwh": each.mj / MJ_PER_KWH,
                "best_kwh": each.best_mj / MJ_PER_KWH,
            }
            for each in deferral.hours
        ],
    }
