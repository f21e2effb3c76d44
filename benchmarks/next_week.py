"""`python -m benchmarks next-week [PATH...]`: the interval for next week's peak demand, against what the week became.

Fleets are asked at the ends of up to four weeks, from what was known then, and judged by the week after. The constants
were chosen on other seeds, with the traces in view. PATH are CSV files of the traces that docs/evaluate.md names;
without them their stored figures stay. A trace's pool is as large as its largest demand. The interval is compared with
the one that it replaced: the larger of last week's and the last four weeks' peaks, and around it the whole fleet's
large misses, which grow with the square root of the GPUs. Stored in benchmarks/next_week.json; docs/calibration.md
shows its sums.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.capacity.next_week import HISTORY_MIN_DAYS, Floats, PoolHours, peak_demand, weeks_ahead
from analytics.capacity.peak_demand import UNKNOWN_MAX
from analytics.proportions import wilson
from analytics.simulation import plan_fleet
from benchmarks.calibration_page import write_page
from benchmarks.demand_traces import hours_of
from benchmarks.fleet_kinds import KINDS, FleetOfKind
from fallow.clock import DAY_MS, HOUR_MS, WEEK_MS

UNTIL_MS = 20_777 * DAY_MS
SIMULATED = tuple((gpus, days, seed) for gpus in (48, 128, 256) for days, seed in ((35, 11), (63, 12)))
STRANGERS = range(301, 341)
MOMENTS = 4
QUANTILE = 0.95
PROMISED = 0.9
"""Share of weeks that the interval is to hold."""
NARROW = 0.15
"""Of the pool: how wide an interval may be to be of use."""
SIZES = ((8, "8 and fewer"), (16, "9 to 16"), (32, "17 to 32"), (63, "33 to 63"), (math.inf, "64 and more"))
ALL = "all"
STORED = Path(__file__).parent / "next_week.json"

Pools: TypeAlias = Mapping[str, PoolHours]
Interval: TypeAlias = tuple[float, float, float]
Method: TypeAlias = Callable[[Pools, int], Mapping[str, Interval | None]]


@dataclass(frozen=True)
class Fleet:
    """Pools with the hours of their whole time, which ends at `until_ms`."""

    source: str
    pools: Pools
    until_ms: int


@dataclass(frozen=True)
class Judged:
    """What a method reported of a pool's week, and what the week became, in shares of the pool."""

    low: float
    point: float
    high: float
    became: float


def simulated() -> Iterator[Fleet]:
    """Yield fleets of every kind. Demand is what people hold, worked or not."""
    for kind in KINDS:
        for gpus, days, seed in SIMULATED:
            fleet = FleetOfKind(
                gpus=gpus,
                days=days + 7,
                seed=100 * seed + len(kind),
                interval_ms=600_000,
                until_ms=UNTIL_MS,
                kind=kind,
            )
            pools, spans = defaultdict[str, int](int), defaultdict[str, list[tuple[int, int, float]]](list)
            for plan in plan_fleet(fleet).hosts:
                pools[plan.host.pool.name] += len(plan.host.gpus)
                spans[plan.host.pool.name] += [
                    (stay.start_ms, stay.end_ms, float(len(stay.gpus))) for stay in plan.stays
                ]
            yield Fleet(
                f"simulated: {kind}", {pool: _held(spans[pool], pools[pool], fleet) for pool in pools}, UNTIL_MS
            )


def _held(spans: list[tuple[int, int, float]], gpus: int, fleet: FleetOfKind) -> PoolHours:
    rows = pl.DataFrame(spans, {"time": pl.Int64, "end": pl.Int64, "gpu_share": pl.Float64}, orient="row")
    most = hourly_most(rows.with_columns(of=pl.lit(0)), ("of",), fleet.since_ms, fleet.until_ms)
    return PoolHours(most.select("time", demand="most", unknown=pl.lit(0.0)), gpus, QUANTILE, gpus)


def strangers() -> Iterator[Fleet]:
    """Yield fleets of mixed people. Demand is what they hold, worked or not; the hosts' outages are unknown."""
    from benchmarks.strangers_fleet import LEAD, PER_HOST, made_world, time_ms
    from benchmarks.strangers_people import DAY, HOUR

    for seed in STRANGERS:
        world = made_world(seed)
        end = LEAD + (world.days + 7) * DAY
        until_ms, places = int(time_ms(end)), defaultdict[str, list[int]](list)
        unseen = np.repeat(world.unseen, PER_HOST, axis=0)[:, LEAD:end]
        taken = ((world.util_pct > 0) | world.process | world.allocated)[:, LEAD:end] & ~unseen
        for place, gpu in enumerate(world.gpus):
            places[f"{gpu.pool} {gpu.card.model}"].append(place)
        pools = {}
        for pool, own in places.items():
            demand, unknown = (each[own].sum(axis=0).reshape(-1, HOUR).max(axis=1) for each in (taken, unseen))
            time = np.arange(until_ms - len(demand) * HOUR_MS, until_ms, HOUR_MS)
            hours = pl.DataFrame({"time": time, "demand": demand.astype(float), "unknown": unknown})
            pools[pool] = PoolHours(hours, len(own), QUANTILE, len(own))
        yield Fleet("strangers", pools, until_ms)


def traces(paths: list[Path]) -> Iterator[Fleet]:
    """Yield a fleet of all series of each kind of trace."""
    for name, series in hours_of(paths).items():
        until_ms = min(int(each["time"].to_numpy()[-1]) for each in series) + HOUR_MS
        pools = {
            str(number): PoolHours(each.select("time", demand="most", unknown=pl.lit(0.0)), most, QUANTILE, None)
            for number, each in enumerate(series)
            if (most := float(each["most"].to_numpy().max()))
        }
        yield Fleet(f"trace: {name}", pools, until_ms)


def method_now(pools: Pools, until_ms: int) -> dict[str, Interval | None]:
    """Return the intervals of `weeks_ahead`."""
    weeks = weeks_ahead(pools, until_ms)
    return {pool: None if week is None else (week.low, week.point, week.high) for pool, week in weeks.items()}


def method_before(pools: Pools, until_ms: int) -> dict[str, Interval | None]:
    """Return the interval that this one replaced, in whole GPUs."""
    points, misses = dict[str, float](), list[list[float]]()
    for name, pool in pools.items():
        known = _known(pool, until_ms - 5 * WEEK_MS, until_ms)
        days = range(7, min(28, len(known) // 24 - 7) + 1)
        points[name] = _largest(known, pool)
        ends = [(known[: -24 * back], known[-24 * back :][:168]) for back in days]
        misses.append(
            [
                (peak_demand(after, pool.quantile) - _largest(before, pool)) / math.sqrt(pool.gpus)
                for before, after in ends
            ]
        )
    weeks = sum(1 + (len(each) - 1) / 7 for each in misses if each)
    if not weeks:
        return dict.fromkeys(pools)
    above = np.concatenate(misses)
    above = np.sort(above[np.isfinite(above)])
    place = math.ceil(round(min(1.0, math.ceil((weeks + 1) * 0.95) / weeks) * len(above), 6)) - 1
    low, high = (max(0.0, float(np.sort(side * above)[place])) for side in (-1, 1))
    found = dict[str, Interval | None]()
    for name, pool in pools.items():
        most, root = math.inf if pool.capacity is None else pool.capacity, math.sqrt(pool.gpus)
        edges = (max(0.0, points[name] - low * root), min(most, points[name] + high * root))
        found[name] = None if math.isnan(points[name]) else (math.ceil(edges[0]), points[name], math.ceil(edges[1]))
    return found


def _largest(hours: Floats, pool: PoolHours) -> float:
    return max(peak_demand(hours[-672:], pool.quantile), peak_demand(hours[-168:], pool.quantile))


def _known(pool: PoolHours, since_ms: int, until_ms: int) -> Floats:
    """Return the demand of each hour, the last one last, NaN where it is not known; from the first recorded hour on."""
    inside = pool.hours.filter(
        pl.col("time").is_between(since_ms, until_ms, closed="left"), pl.col("unknown") <= UNKNOWN_MAX * pool.gpus
    )
    place = ((inside["time"] - until_ms) // HOUR_MS).to_numpy()
    demand = np.full(-int(place.min(initial=0)), np.nan)
    demand[place] = inside["demand"].to_numpy()
    return demand


def judged(fleets: Iterable[Fleet], method: Method) -> dict[str, dict[str, list[Judged]]]:
    """Return by source and by size of pool what became of each pool's weeks."""
    found: dict[str, dict[str, list[Judged]]] = {"kind": defaultdict(list), "pool": defaultdict(list)}
    for fleet in fleets:
        first_ms = min(int(pool.hours["time"].to_numpy()[0]) for pool in fleet.pools.values())
        for back in range(1, MOMENTS + 1):
            moment_ms = fleet.until_ms - back * WEEK_MS
            if moment_ms - first_ms < HISTORY_MIN_DAYS * DAY_MS:
                break
            said = method(fleet.pools, moment_ms)
            for name, pool in fleet.pools.items():
                became, interval = peak_demand(_known(pool, moment_ms, moment_ms + WEEK_MS), pool.quantile), said[name]
                if interval is not None and not math.isnan(became):
                    each = Judged(*(value / pool.gpus for value in (*interval, became)))
                    size = next(words for most, words in SIZES if pool.gpus <= most)
                    for rows in (found["kind"][ALL], found["kind"][fleet.source], found["pool"][size]):
                        rows.append(each)
    return found


def figures(rows: list[Judged]) -> dict[str, float]:
    """Return coverage, width, the pinball loss of both edges at 5 and 95 %, and how often an edge is the point.

    An edge that is the point counts only where demand could go further: not at 0, and not at the whole pool.
    """
    low, point, high, became = (
        np.array([getattr(row, name) for row in rows]) for name in ("low", "point", "high", "became")
    )
    width, share = high - low, (1 - PROMISED) / 2
    below, above = became - low, became - high
    loss = np.maximum(share * below, (share - 1) * below) + np.maximum((1 - share) * above, -share * above)
    held = float(np.mean((below >= -1e-9) & (above <= 1e-9)))
    return {
        "weeks": len(rows),
        "held_ratio": round(held, 3),
        "held_low_ratio": round(wilson(held, len(rows))[0], 3),
        "held_high_ratio": round(wilson(held, len(rows))[1], 3),
        "width_ratio": round(float(np.mean(width)), 3),
        "narrow_ratio": round(float(np.mean(width <= NARROW)), 3),
        "low_is_point_ratio": round(float(np.mean((low >= point - 1e-9) & (point > 0))), 3),
        "high_is_point_ratio": round(float(np.mean((high <= point + 1e-9) & (point < 1))), 3),
        "miss_ratio": round(float(np.mean(np.abs(became - point))), 4),
        "loss_ratio": round(float(np.mean(loss)), 4),
    }


def measured(fleets: list[Fleet]) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """Return `figures` by grouping, group and method."""
    now, before = (judged(fleets, method) for method in (method_now, method_before))
    return {
        by: {group: {"now": figures(now[by][group]), "before": figures(before[by][group])} for group in now[by]}
        for by in now
    }


def main(paths: list[str]) -> int:
    """Measures, prints and stores."""
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    stored |= {"simulated": measured(list(simulated())), "strangers": measured(list(strangers()))}
    if paths:
        stored["traces"] = measured(list(traces([Path(path) for path in paths])))
    STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    write_page()
    print(json.dumps(stored, indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
