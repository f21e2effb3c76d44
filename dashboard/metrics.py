"""The dashboard's `/metrics`: ledger and recommendations of a window, as Prometheus text. Source of docs/metrics.md.

All families are gauges of a window that moves with the data: none is a counter, and sums over time mean nothing. The
route is open to readers of the pages and to programs with a token. Unknown values are absent, never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from flask import Response, request

from analytics.decide.recommendations import Recommendation, Recommendations
from analytics.ledger.summary import Totals
from analytics.money.accounts import Account
from analytics.report.report import Report
from analytics.states import UNUSED
from analytics.tables.accounts import COST_PARTS
from analytics.tables.table import record
from analytics.workloads.pool_demand import FleetDemand, PoolDemand
from dashboard.access.people import person
from dashboard.access.tokens import METRICS
from dashboard.api.parameters import WINDOW_AND_SCOPE, parse_request
from dashboard.error_panels import problem_line
from dashboard.source import LakeSource
from dashboard.view import Problem, View
from fallow import __version__
from fallow.clock import HOUR_MS, SECOND_MS, SystemClock
from fallow.errors import FallowError
from fallow.exposition import ExposedSamples, Family, label_text, negotiate

_HOURS, _MONEY, _MONEY_A_YEAR = "GPU-hours", "`currency`", "`currency` a year"

VERSION = Family("fallow_dashboard_info", "1", "Version of fallow that answers", "fallow")
DATA_END = Family("fallow_data_end_timestamp_seconds", "s", "End of the newest row of the lake", "`gpu.time`")
DATA_AGE = Family("fallow_data_age_seconds", "s", "Age of that row at the scrape", "dashboard's clock")
STALE = Family(
    "fallow_data_stale",
    "0 or 1",
    "Whether the lake cannot be read: the figures are of the last version that was read",
    "lake",
)
WINDOW_START = Family("fallow_window_start_timestamp_seconds", "s", "Start of the window of all figures", "address")
WINDOW_END = Family("fallow_window_end_timestamp_seconds", "s", "End of that window", "address")

GPUS = Family("fallow_ledger_gpus", "1", "GPUs of the window", "ledger")
SIMULATED = Family("fallow_ledger_simulated_gpus", "1", "Of these GPUs, those that a simulation made", "ledger")
GPU_HOURS = Family(
    "fallow_ledger_gpu_hours", _HOURS, "GPU time of the window by state; the states add up to the whole", "ledger"
)
UNCONFIRMED = Family(
    "fallow_ledger_unconfirmed_gpu_hours",
    _HOURS,
    "Part of an idle state that only samples at single moments show as idle",
    "ledger",
)
COVERAGE = Family("fallow_ledger_coverage_ratio", "ratio", "Observed share of the window's GPU time", "ledger")
SAMPLED = Family(
    "fallow_ledger_sampled_ratio",
    "ratio",
    "Share of the observed time that only samples at single moments cover",
    "ledger",
)
COST = Family(
    "fallow_ledger_cost",
    _MONEY,
    "What the GPU time cost, by part: used, stalled, held, reserved, free, unavailable, unknown",
    "ledger and prices",
)
UNPRICED = Family(
    "fallow_ledger_unpriced_gpu_hours", _HOURS, "GPU time without a price, which is in no cost", "ledger and prices"
)

RECOMMENDATIONS = Family(
    "fallow_recommendations",
    "1",
    "Recommendations; `ranked` is true where they free a known GPU time and are not snoozed",
    "recommendations",
)
RECOMMENDATION_GPUS = Family(
    "fallow_recommendation_gpus", "1", "GPUs to act on now; a GPU is in one recommendation", "recommendations"
)
RECOMMENDATION_HOURS = Family(
    "fallow_recommendation_gpu_hours",
    _HOURS,
    "Wasted time of the window that recommendations are about, without overlap",
    "recommendations",
)
RECOMMENDATION_UNCONFIRMED = Family(
    "fallow_recommendation_unconfirmed_gpu_hours",
    _HOURS,
    "Part of that time that only samples at single moments show as idle",
    "recommendations",
)
RECOMMENDATION_COST = Family(
    "fallow_recommendation_cost", _MONEY, "What the wasted time with a known price cost", "recommendations"
)
FREED = Family(
    "fallow_recommendation_freed_per_year",
    _MONEY_A_YEAR,
    "GPU time that ranked recommendations free, at its price: `bound` is low, point or high",
    "recommendations",
)
CASH = Family(
    "fallow_recommendation_cash_per_year",
    _MONEY_A_YEAR,
    "Spending that ranked recommendations end: `bound` is low, point or high; absent where unknown. Never add it to the"
    " freed time",
    "recommendations",
)
WASTE = Family(
    "fallow_waste_gpu_hours",
    _HOURS,
    "All wasted time of the window; `actionable` is true for the part that recommendations are about",
    "recommendations",
)

RELEASABLE = Family(
    "fallow_releasable_gpus",
    "1",
    "GPUs that pools can release now; absent where the demand is not known",
    "recommendations",
)
RECLAIMABLE = Family(
    "fallow_reclaimable_gpus",
    "1",
    "Held or reserved GPUs that findings of at least medium confidence name as reclaimable",
    "recommendations",
)
FREE_NOW = Family(
    "fallow_free_gpus",
    "1",
    "Unallocated GPUs at the end of the window, before reserve and blocks",
    "recommendations",
)
RESERVE = Family(
    "fallow_reserve_gpus",
    "1",
    "Of the free and reclaimable GPUs, those that are kept for the peak demand",
    "recommendations",
)

FAMILIES = tuple(each for each in globals().values() if isinstance(each, Family))
"""All families, in the order of an answer."""

MOST_POOLS = 50
OTHER_POOLS = "(others)"
"""The label of all pools beyond MOST_POOLS: the pools with the least wasted time, or with the fewest GPUs."""


def collect(view: View, now_ms: int, *, is_stale: bool) -> ExposedSamples:
    """Return the samples of a view; values that are unknown in its window are left out."""
    samples = ExposedSamples()
    report = view.report
    samples.add(VERSION, 1, label_text({"version": __version__}))
    samples.add(DATA_END, view.as_of_ms / SECOND_MS)
    samples.add(DATA_AGE, (now_ms - view.as_of_ms) / SECOND_MS)
    samples.add(STALE, is_stale)
    samples.add(WINDOW_START, report.ledger.seen.since_ms / SECOND_MS)
    samples.add(WINDOW_END, report.ledger.seen.until_ms / SECOND_MS)
    samples.add(COVERAGE, report.ledger.summary.coverage)
    if report.ledger.is_empty:  # without observations, figures are unknown and not 0
        return samples
    _add_ledger(samples, report)
    found = report.recommendations
    _add_recommendations(samples, found)
    if found.fleet is not None:
        _add_pools(samples, found.fleet)
    return samples


def _add_ledger(samples: ExposedSamples, report: Report) -> None:
    totals: Totals = report.ledger.summary.totals
    samples.add(GPUS, totals.gpus)
    samples.add(SIMULATED, report.heading.simulated_gpus)
    for state, spent_ms in totals.state_ms.items():
        samples.add(GPU_HOURS, spent_ms / HOUR_MS, label_text({"state": state}))
    for state in UNUSED:
        samples.add(UNCONFIRMED, totals.unconfirmed_ms.get(state, 0) / HOUR_MS, label_text({"state": state}))
    samples.add(SAMPLED, totals.sampled)
    paid: Account = report.money.accounts.total
    parts: Mapping[str, Any] = record(COST_PARTS, paid)
    for part, amount in parts.items():
        samples.add(COST, amount, label_text({"part": part, "currency": report.money.currency}))
    samples.add(UNPRICED, paid.unpriced_ms / HOUR_MS)


def _add_recommendations(samples: ExposedSamples, found: Recommendations) -> None:
    kept = _kept_pools((each.pool, each.gpu_ms) for each in found.listed)
    groups: dict[tuple[str, str, str, bool], list[Recommendation]] = defaultdict(list)
    for each in found.listed:
        groups[each.kind.name, each.action, _pool_label(each.pool, kept), each.ranked].append(each)
    for (kind, action, pool, is_ranked), listed in sorted(groups.items()):
        named = {"kind": kind, "action": action, "pool": pool, "ranked": str(is_ranked).lower()}
        _add_group(samples, named, replace(found, listed=tuple(listed)), found.waste.currency)
    waste = found.waste
    for is_actionable, spent_ms in (
        ("true", waste.gpu_ms - waste.not_actionable_ms),
        ("false", waste.not_actionable_ms),
    ):
        samples.add(WASTE, spent_ms / HOUR_MS, label_text({"actionable": is_actionable}))


def _add_group(samples: ExposedSamples, named: dict[str, str], own: Recommendations, currency: str) -> None:
    labels = label_text(named)
    samples.add(RECOMMENDATIONS, len(own.listed), labels)
    samples.add(RECOMMENDATION_GPUS, sum(len(each.gpus_now) for each in own.listed), labels)
    samples.add(RECOMMENDATION_HOURS, sum(each.gpu_ms for each in own.listed) / HOUR_MS, labels)
    unconfirmed_ms = sum(each.unconfirmed_ms for each in own.listed)
    samples.add(RECOMMENDATION_UNCONFIRMED, unconfirmed_ms / HOUR_MS, labels)
    cents = [each.cents for each in own.listed if each.cents is not None]
    samples.add(RECOMMENDATION_COST, sum(cents) / 100 if cents else None, label_text(named | {"currency": currency}))
    # only ranked recommendations have a known value
    of_value = {name: value for name, value in named.items() if name != "ranked"} | {"currency": currency}
    value = own.value
    for family, estimate in ((FREED, value and value.freed), (CASH, value and value.cash)):
        for bound in ("low", "point", "high"):
            amount = None if estimate is None else getattr(estimate, bound)
            samples.add(family, amount, label_text(of_value | {"bound": bound}))


def _add_pools(samples: ExposedSamples, found: FleetDemand) -> None:
    """Add the figures of pools, but not of a pool with unknown demand, or of OTHER_POOLS if it contains such a pool."""
    kept = _kept_pools((each.pool, each.gpus) for each in found.pools)
    for family, read in _POOL_FAMILIES:
        by_pool: dict[str, list[int | None]] = defaultdict(list)
        for each in found.pools:
            by_pool[_pool_label(each.pool, kept)].append(read(each))
        for pool, values in sorted(by_pool.items()):
            known = [each for each in values if each is not None]
            total = sum(known) if len(known) == len(values) else None
            samples.add(family, total, label_text({"pool": pool}))


_POOL_FAMILIES: tuple[tuple[Family, Callable[[PoolDemand], int | None]], ...] = (
    (RELEASABLE, lambda pool: None if pool.release is None else len(pool.release.now)),
    (RECLAIMABLE, lambda pool: pool.reclaimable_now),
    (FREE_NOW, lambda pool: pool.free_now),
    (RESERVE, lambda pool: pool.reserve),
)


def _kept_pools(sizes: Iterable[tuple[str, float]]) -> frozenset[str]:
    """Return the largest pools, which keep their names."""
    size: dict[str, float] = defaultdict(float)
    for pool, each in sizes:
        size[pool] += each
    return frozenset(sorted(size, key=lambda pool: (-size[pool], pool))[:MOST_POOLS])


def _pool_label(pool: str, kept: frozenset[str]) -> str:
    return pool if pool in kept else OTHER_POOLS


def serve_metrics(server: Any, source: LakeSource) -> None:
    """Add the route; window and scope are those of the pages' addresses, as in `/metrics?span=24h&pool=train`."""

    def answer() -> Response:
        search, reader = request.query_string.decode(errors="replace"), person()
        try:
            asked = parse_request(list(request.args.items(multi=True)), WINDOW_AND_SCOPE)
            look = source.look(asked.query, reader, findings=False)
            if isinstance(look, Problem):
                return _refusal(source, search, look)
            content_type = negotiate(request.headers.get("Accept", ""))
            samples = collect(look, SystemClock().now_ms(), is_stale=source.stale_because is not None)
            return Response(samples.render(content_type), content_type=content_type)
        except FallowError as error:
            return _refusal(source, search, source.problem(error, reader))

    server.add_url_rule(METRICS, "metrics", answer, methods=["GET"])


def _refusal(source: LakeSource, search: str, found: Problem) -> Response:
    sentence = problem_line(source, search, found)
    return Response(f"fallow: {sentence}\n", status=503 if found.is_passing else 409, mimetype="text/plain")
