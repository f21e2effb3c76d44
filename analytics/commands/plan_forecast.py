"""`fallow plan forecast`: the demand to come, the day on which each pool is full, and until when to order."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from datetime import date

from analytics.commands.plan_inputs import PlanInputs, add_plan_arguments, open_plan, show_plan, show_plan_json
from analytics.plan.demand_series import HISTORY_MS
from analytics.plan.forecast import LEVELS, ForecastTest
from analytics.plan.order_date import HORIZON_DAYS, Crossing, PoolOutlook, lead_days, of_scope, outlooks
from analytics.tables.plan_forecast import order_dates
from fallow.clock import DAY_MS, parse_duration_ms
from fallow.csv_text import csv_of
from fallow.errors import UsageError
from fallow.output import show

_HORIZON_MAX_DAYS = 366
_EDGES = tuple(f"{edge}_{level}" for level in LEVELS for edge in ("low", "high"))
_COLUMNS = ("pool", "model", "day", "gpus_there", "observed", "method", "forecast", *_EDGES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_plan_arguments(parser, csv_of="pool, model and day")
    parser.add_argument(
        "--horizon", metavar="TIME", default=f"{HORIZON_DAYS}d", help="how far ahead, such as 13w (the default) or 30d"
    )
    parser.add_argument(
        "--lead-time",
        metavar="[POOL=]TIME",
        action="append",
        default=[],
        help="from an order to GPUs in use, such as 12w, or a100=26w for one pool; may be repeated (or plan.lead_time)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the forecast."""
    horizon_days = _horizon(args.horizon)
    leads = dict(map(_lead, args.lead_time))
    plan = open_plan(args, HISTORY_MS)
    if plan.scope.is_personal:
        raise UsageError("a forecast is of GPUs, whoever has them", "leave out --team and --holder, or name a --pool")
    found = _outlooks(plan, horizon_days, leads)
    if args.json:
        show_plan_json(plan, {"horizon_days": horizon_days, "pools": [_as_json(each) for each in found]})
    elif args.csv:
        show(csv_of(_COLUMNS, (row for each in found for row in _rows(each))), end="")
    else:
        show_plan(plan, [order_dates(found)])
    return 0


def _horizon(text: str) -> int:
    days = -(-parse_duration_ms(text) // DAY_MS)
    if days > _HORIZON_MAX_DAYS:
        raise UsageError(f"--horizon {text} is more than a year ahead", "give 52w or less")
    return days


def _lead(text: str) -> tuple[str, int]:
    """The pool, empty for all of them, and its days."""
    pool, _, time = text.rpartition("=")
    return pool, -(-parse_duration_ms(time) // DAY_MS)


def _outlooks(plan: PlanInputs, horizon_days: int, leads: Mapping[str, int]) -> tuple[PoolOutlook, ...]:
    series = plan.whole.plan.demand
    pools = {each.pool for each in series}
    if unknown := sorted(leads.keys() - pools - {""}):
        raise UsageError(
            f"--lead-time names the pool {unknown[0]}, which has no GPU here", f"there are {', '.join(sorted(pools))}"
        )
    everywhere = leads.get("", lead_days(plan.whole.inputs.settings))
    return of_scope(outlooks(series, horizon_days, everywhere, leads), plan.scope)


def _as_json(pool: PoolOutlook) -> dict[str, object]:
    series, found, likely = pool.series, pool.forecast, None if pool.full is None else pool.full.likely
    return {
        "pool": series.pool,
        "model": series.model,
        "gpus": series.capacity,
        "known_days": series.known_days,
        "full_days": series.full_days,
        "idle_given_safe_to_give_back": series.idle_given,
        "method": None if found.fan is None else found.fan.method,
        "more_from": _day(found.more_from),
        "test": None if found.test is None else _test_json(found.test),
        "full": _crossing_json(pool.full),
        "full_after_return": _crossing_json(pool.full_after_return),
        "lead_days": pool.lead_days,
        "order_by": None if likely is None else str(pool.order_by(likely)),
        "days_late": None if likely is None else pool.days_late(likely),
        "days": [{name: row[name] for name in _COLUMNS[2:] if name in row} for row in _rows(pool)],
    }


def _test_json(test: ForecastTest) -> dict[str, object]:
    return {
        "origins": test.origins,
        "days": test.days,
        "mean_absolute_error_gpus": test.errors,
        "relative_to_seasonal_naive": test.relative_error,
        "inside": {str(level): share for level, share in test.inside.items()},
    }


def _crossing_json(found: Crossing | None) -> dict[str, str | None] | None:
    if found is None:
        return None
    return {"earliest": _day(found.earliest), "likely": _day(found.likely), "latest": _day(found.latest)}


def _rows(pool: PoolOutlook) -> Iterator[dict[str, object]]:
    """The days that were, then those to come."""
    series, fan = pool.series, pool.forecast.fan
    about = {"pool": series.pool, "model": series.model, "gpus_there": series.capacity}
    for place, observed in enumerate(series.gpus):
        yield {**about, "day": str(series.day(place)), "observed": observed}
    if fan is None:
        return
    for ahead, middle in enumerate(fan.middle):
        edges = {
            name: side[level][ahead]
            for level in LEVELS
            for name, side in ((f"low_{level}", fan.low), (f"high_{level}", fan.high))
        }
        day = str(series.day(len(series.gpus) + ahead))
        yield {**about, "day": day, "method": fan.method, "forecast": middle, **edges}


def _day(day: date | None) -> str | None:
    return None if day is None else str(day)
