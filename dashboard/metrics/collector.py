"""From a view to the samples of one answer. Unknown values are absent, never 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from analytics.decide.opportunities import Opportunities, Opportunity
from analytics.ledger.summary import Totals
from analytics.money.accounts import Account
from analytics.render.money_json import parts
from analytics.report.model import Report
from analytics.states import UNUSED
from analytics.workloads.reclaimable import Reclaimable
from dashboard.decisions import opportunities_of
from dashboard.metrics import catalogue
from dashboard.view import View
from fallow import __version__
from fallow.clock import HOUR_MS, SECOND_MS
from fallow.exposition import ExposedSamples, label_text

MOST_POOLS = 50
OTHER_POOLS = "(others)"
"""Stands for the pools beyond MOST_POOLS together: those with the least wasted time, and with the fewest GPUs."""


def collect(view: View, now_ms: int, *, is_stale: bool) -> ExposedSamples:
    """The samples of a view: what is known of its window, and nothing else."""
    samples = ExposedSamples()
    report = view.report
    samples.add(catalogue.VERSION, 1, label_text({"version": __version__}))
    samples.add(catalogue.DATA_END, view.as_of_ms / SECOND_MS)
    samples.add(catalogue.DATA_AGE, (now_ms - view.as_of_ms) / SECOND_MS)
    samples.add(catalogue.STALE, is_stale)
    samples.add(catalogue.WINDOW_START, report.seen.since_ms / SECOND_MS)
    samples.add(catalogue.WINDOW_END, report.seen.until_ms / SECOND_MS)
    samples.add(catalogue.COVERAGE, report.summary.coverage)
    if report.is_empty:  # figures of nothing that was seen are not 0
        return samples
    _ledger(samples, report)
    found = opportunities_of(view)
    _opportunities(samples, found)
    if found.reclaimable is not None:
        _reclaimable(samples, found.reclaimable)
    return samples


def _ledger(samples: ExposedSamples, report: Report) -> None:
    totals: Totals = report.summary.totals
    samples.add(catalogue.GPUS, totals.gpus)
    samples.add(catalogue.SIMULATED, report.simulated_gpus)
    for state, spent_ms in totals.state_ms.items():
        samples.add(catalogue.GPU_HOURS, spent_ms / HOUR_MS, label_text({"state": state}))
    for state in UNUSED:
        samples.add(catalogue.UNCONFIRMED, totals.unconfirmed_ms.get(state, 0) / HOUR_MS, label_text({"state": state}))
    samples.add(catalogue.SAMPLED, totals.sampled)
    paid: Account = report.money.accounts.total
    for part, amount in parts(paid).items():
        samples.add(catalogue.COST, amount, label_text({"part": part, "currency": report.money.currency}))
    samples.add(catalogue.UNPRICED, paid.unpriced_ms / HOUR_MS)


def _opportunities(samples: ExposedSamples, found: Opportunities) -> None:
    kept = _kept_pools((each.pool, each.gpu_ms) for each in found.listed)
    groups: dict[tuple[str, str, str, bool], list[Opportunity]] = defaultdict(list)
    for each in found.listed:
        groups[each.kind, each.action, _shown(each.pool, kept), each.ranked].append(each)
    for (kind, action, pool, is_ranked), listed in sorted(groups.items()):
        named = {"kind": kind, "action": action, "pool": pool, "ranked": str(is_ranked).lower()}
        _group(samples, named, replace(found, listed=tuple(listed)), found.waste.currency)
    waste = found.waste
    for is_actionable, spent_ms in (
        ("true", waste.gpu_ms - waste.not_actionable_ms),
        ("false", waste.not_actionable_ms),
    ):
        samples.add(catalogue.WASTE, spent_ms / HOUR_MS, label_text({"actionable": is_actionable}))


def _group(samples: ExposedSamples, named: dict[str, str], own: Opportunities, currency: str) -> None:
    labels = label_text(named)
    samples.add(catalogue.OPPORTUNITIES, len(own.listed), labels)
    samples.add(catalogue.OPPORTUNITY_GPUS, sum(len(each.gpus_now) for each in own.listed), labels)
    samples.add(catalogue.OPPORTUNITY_HOURS, sum(each.gpu_ms for each in own.listed) / HOUR_MS, labels)
    unconfirmed_ms = sum(each.unconfirmed_ms for each in own.listed)
    samples.add(catalogue.OPPORTUNITY_UNCONFIRMED, unconfirmed_ms / HOUR_MS, labels)
    cents = [each.cents for each in own.listed if each.cents is not None]
    samples.add(
        catalogue.OPPORTUNITY_COST, sum(cents) / 100 if cents else None, label_text(named | {"currency": currency})
    )
    # only those that are ranked are known to save anything
    of_saving = {name: value for name, value in named.items() if name != "ranked"} | {"currency": currency}
    for bound in ("low", "point", "high"):
        amount = None if own.saving is None else getattr(own.saving, bound)
        samples.add(catalogue.SAVING, amount, label_text(of_saving | {"bound": bound}))


def _reclaimable(samples: ExposedSamples, found: Reclaimable) -> None:
    """By pool; a pool whose need is not known has no number, and so have the others together where one of them has none."""
    kept = _kept_pools((each.pool, each.gpus) for each in found.pools)
    for family, name in (
        (catalogue.RECLAIMABLE, "safe"),
        (catalogue.IDLE_NOW, "idle_now"),
        (catalogue.RESERVE, "reserve"),
    ):
        by_pool: dict[str, list[int | None]] = defaultdict(list)
        for each in found.pools:
            by_pool[_shown(each.pool, kept)].append(getattr(each, name))
        for pool, values in sorted(by_pool.items()):
            samples.add(family, _sum(values), label_text({"pool": pool}))


def _sum(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if len(known) == len(values) else None


def _kept_pools(sizes: Iterable[tuple[str, float]]) -> frozenset[str]:
    """The largest pools, which keep their names."""
    size: dict[str, float] = defaultdict(float)
    for pool, each in sizes:
        size[pool] += each
    return frozenset(sorted(size, key=lambda pool: (-size[pool], pool))[:MOST_POOLS])


def _shown(pool: str, kept: frozenset[str]) -> str:
    return pool if pool in kept else OTHER_POOLS
