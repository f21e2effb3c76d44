"""More GPUs in a pool than were ever needed at once: the conservative reserve.

Look-alikes that it leaves alone: nightly and weekly peaks, demand that has just grown, evaluation hours in production,
pools of a few cards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import plain
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import UNUSED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.model import (
    Context,
    EvidenceValue,
    Finding,
    HistoryNeed,
    Label,
    Rule,
    Value,
    of_gpus,
    whole_gpus,
)
from analytics.workloads.pool_need import POOL_MIN_GPUS, PoolNeed, history_start_ms, pool_needs
from analytics.workloads.reclaimable import reclaimable
from analytics.workloads.surplus import (
    BLOCKS,
    HISTORY_MAX_DAYS,
    HISTORY_MIN_DAYS,
    MARGIN,
    NEXT_WEEK_MIN,
    QUANTILE,
    QUANTILE_PROD,
    RECENT_MS,
    UNKNOWN_MAX,
    Backtest,
    PoolSurplus,
)
from analytics.workloads.window_end import claimed_by_count, counted_gpus
from fallow.clock import DAY_MS, MINUTE_MS

_KEYS = (
    "pool",
    "model",
    "pool_gpus",
    "needed_at_once_gpus",
    "needed_at_once_max_gpus",
    "needed_quantile",
    "needed_with_reserve_gpus",
    "surplus_low_gpus",
    "surplus_gpus",
    "surplus_high_gpus",
    "surplus_free_now_gpus",
    "backtest_surplus_gpus",
    "backtest_enough_gpus",
    "backtest_hours",
    "backtest_exceeded_hours",
    "backtest_needed_max_gpus",
    *(f"surplus_gpus_in_blocks_of_{size}" for size in BLOCKS),
    "surplus_blocks",
)


def _surplus_words(_: Mapping[str, Value], finding: Finding) -> list[str]:
    """What there is, what was needed, what that leaves, whether last week's answer held, and in which blocks it is."""
    surplus = finding.surplus
    if surplus is None:
        return []
    found, free = surplus.estimate, surplus.free_now
    low, high = found.next_week
    need, most = whole_gpus(found.need), whole_gpus(found.largest)
    needed = tr("at most {number} needed at once", number=most)
    if need != most:
        share = Share(found.quantile, 0)
        needed = tr("{needed} ({number} for {share} of the hours)", needed=needed, number=need, share=share)
    blocks = [
        tr("{number} in blocks of {size}", number=Number(float(number)), size=size)
        for size, number in surplus.in_blocks.items()
        if number and size > 1
    ]
    return [
        tr(
            "pool {pool}, {model}: {there} GPUs, {needed}, {reserve} with the reserve: a surplus of {point} ({next_week})",
            pool=plain(surplus.pool),
            model=plain(surplus.model),
            there=whole_gpus(found.gpus),
            needed=needed,
            reserve=Number(found.wanted),
            point=Number(found.left),
            next_week=tr("next week {low} to {high}", low=Number(low), high=Number(high))
            if low is not None
            else tr("next week's interval is not known: that takes two weeks of history"),
        ),
        tr("{number} of these free now", number=Number(free)) if free else tr("none of these free now"),
        _backtest_words(surplus.backtest),
        *([SentenceList(blocks, ", ")] if blocks else []),
        tr("by host: {hosts}", hosts=plain(_by_host(surplus, ", "), 400)),
    ]


def _backtest_words(tested: Backtest | None) -> Sentence:
    if tested is None:
        return tr("no back-test: it needs 14 days in which the pool was observed")
    enough = Number(tested.enough)
    said = tr("it found no surplus")
    if tested.surplus:
        said = tr("it found {enough} GPUs enough and a surplus of {spare}", enough=enough, spare=Number(tested.surplus))
    return tr(
        "back-test of the estimate of a week earlier: {said}; more than {enough} were needed at once in {exceeded} of the {hours} h since, at most {most}",
        said=said,
        enough=enough,
        exceeded=Number(tested.exceeded),
        hours=Number(tested.hours),
        most=whole_gpus(tested.largest),
    )


def _by_host(surplus: PoolSurplus, between: str) -> str:
    """`h1 8+2; h2 1`: what the GPUs of each host are good for."""
    return between.join(f"{host} {_blocks(number)}" for host, number in surplus.gpus_by_host.items())


def standing_surplus_findings(context: Context) -> Iterator[Finding]:
    """GPUs of one model in one pool beyond what was needed at once: one finding per pool and model."""
    for need in pool_needs(context).values():
        estimated = need.estimate
        if need.count >= POOL_MIN_GPUS and estimated is not None and estimated.left >= 1:
            gpus, since_ms = need.gpus, history_start_ms(context)
            named = _first_to_go(context, need).head(estimated.left)
            rows = context.inside.stretches.filter(
                pl.col("state").is_in(UNUSED) & pl.col("gpu").is_in(named["gpu"].implode())
            )
            if rows.is_empty():
                continue
            watched = ~pl.col("holder_source").is_in(NOBODY_LOOKED).fill_null(value=False)
            # which of a host's free GPUs a claim counts nobody can say
            counted = pl.col("host").is_in(list(counted_gpus(context)))
            free = named.filter((pl.col("state") == "free") & watched & ~counted)
            doubtful = named.filter((pl.col("state") == "free") & counted)["host"].unique()
            per_host = named.group_by("host").len("gpus").sort("gpus", "host", descending=[True, False])
            hosts = dict(per_host.iter_rows())
            whole = [host for host, number in hosts.items() if number == gpus.filter(pl.col("host") == host).height]
            surplus = PoolSurplus(need.pool, need.model, estimated, need.backtest(), free.height, hosts)
            finding = finding_of(
                context,
                STANDING_SURPLUS,
                rows,
                subject=f"{need.pool}: {need.model}",
                numbers=_surplus_numbers(surplus),
                failed=[_unsure(surplus), claimed_by_count(context, doubtful)],
                next_command=watch_command(next(iter(hosts))),
                reclaimable_gpus=free["gpu"].sort().to_list(),
                since_ms=since_ms,
                gpus=named["gpu"].sort().to_list(),
                host="",
                is_promised=False,  # the back-test of the estimate says how sure it is
                notes=[_whole_hosts(whole)] if whole else [],
            )
            yield replace(finding, surplus=surplus)


STANDING_SURPLUS = Rule(
    name="standing_surplus",
    category="reclaim",
    sentence=of_gpus("beyond what the pool needed at once"),
    kinds=(waste.SURPLUS,),
    precedence=10,
    of_pool=True,
    history=HistoryNeed(HISTORY_MIN_DAYS * DAY_MS),
    thresholds={
        "reserve": f"N - ceil(Q(D) * {1 + MARGIN:g} * (1 + 1/days)); D: GPUs active in the last {RECENT_MS // MINUTE_MS} min, highest "
        f"in each hour of up to {HISTORY_MAX_DAYS} days and, if that is more, of the last 7 (facts of the field; the last week is ours)",
        "quantile": f"{QUANTILE:g}, {QUANTILE_PROD:g} for pools with `prod` in their name",
        "next week": f"the interval holds what next week leaves, without a reserve, in {NEXT_WEEK_MIN:.0%} of all weeks: as far off as the "
        "estimates of the weeks before were, in all pools together (conformal prediction over rolling origins; Lei et al. 2018)",
        "history": f"at least {HISTORY_MIN_DAYS} days of hours in which at most {UNKNOWN_MAX:.0%} of the pool was unknown (a whole week)",
        "back-test": "the estimate of one week earlier against each hour since: it held where more was needed at once no more often than "
        "its quantile allows (facts of the field); it takes a week of hours before as well",
        "pool": f"at least {POOL_MIN_GPUS} GPUs (one whole host; of fewer, rules on single GPUs say it all; ours)",
    },
    labels=(Label(_KEYS, _surplus_words),),
    find=standing_surplus_findings,
)


def _surplus_numbers(surplus: PoolSurplus) -> dict[str, EvidenceValue]:
    found, tested = surplus.estimate, surplus.backtest
    return {
        "pool": surplus.pool,
        "model": surplus.model,
        "pool_gpus": found.gpus,
        "needed_at_once_gpus": found.need,
        "needed_at_once_max_gpus": found.largest,
        "needed_quantile": found.quantile,
        "needed_with_reserve_gpus": found.wanted,
        "surplus_low_gpus": found.next_week[0],
        "surplus_gpus": found.left,
        "surplus_high_gpus": found.next_week[1],
        "surplus_free_now_gpus": surplus.free_now,
        "history_days": found.days,
        **(
            {"backtest_hours": None}
            if tested is None
            else {
                "backtest_surplus_gpus": tested.surplus,
                "backtest_enough_gpus": tested.enough,
                "backtest_hours": tested.hours,
                "backtest_exceeded_hours": tested.exceeded,
                "backtest_needed_max_gpus": tested.largest,
            }
        ),
        **{f"surplus_gpus_in_blocks_of_{size}": number for size, number in surplus.in_blocks.items()},
        "surplus_blocks": _by_host(surplus, "; "),
    }


def _unsure(surplus: PoolSurplus) -> list[str]:
    """Fails where the surplus shrinks if unknown time was need, or where last week's estimate did not hold."""
    failed: list[str] = []
    low, point = surplus.estimate.left_if_unknown_is_need, surplus.estimate.left
    if low < (point + 1) // 2:
        failed.append(
            tr("if unobserved time counts as need, only {low} of {point} remain", low=Number(low), point=Number(point))
        )
    tested = surplus.backtest
    if tested is not None and not tested.held:
        failed.append(
            tr(
                "last week's estimate did not hold: {enough} GPUs should have been enough, but more were needed at once in {exceeded} of {hours} hours since",
                enough=Number(tested.enough),
                exceeded=Number(tested.exceeded),
                hours=Number(tested.hours),
            )
        )
    return failed


def _whole_hosts(hosts: Sequence[str]) -> Sentence:
    return tr_many(
        "{number} host could go as a whole: {hosts}",
        "{number} hosts could go as a whole: {hosts}",
        len(hosts),
        hosts=", ".join(hosts),
    )


def _first_to_go(context: Context, need: PoolNeed) -> pl.DataFrame:
    """Whole GPUs that are not split: those that are safe to give back first, then those with the least active time."""
    safe = list(reclaimable(context).safe_gpus)
    return need.gpus.filter(pl.col("gpu_share") == 1).sort(~pl.col("gpu").is_in(safe), "used_ms", "host", "gpu")


def _blocks(number: int) -> str:
    """`8+2+1`: what a number of GPUs of one host is good for."""
    parts = []
    for size in BLOCKS:
        parts += [str(size)] * (number // size)
        number %= size
    return "+".join(parts)
