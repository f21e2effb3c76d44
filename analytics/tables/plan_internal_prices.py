"""What an hour of a pool should cost internally, by time and priority, and what off-peak prices would have moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analytics.language.sentences import GpuHours, Number, Share, tr, tr_many
from analytics.plan.purchase import WEIGHTS, InternalPrices, Priority
from analytics.plan.replay.comparisons import ShiftedWork
from analytics.plan.replay.replay_base import ReplayBase
from analytics.tables.names import card_name, place_name
from analytics.tables.plan_replay_check import P95_WAIT, refusal, words
from analytics.tables.table import Column, Table, column, column_of, fact, for_programs, single
from fallow.clock import HOUR_MS


def clock(minutes: int) -> str:
    """Return a time of the day such as `08:30`."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


_TITLES: dict[Priority, str] = {"urgent": tr("urgent"), "normal": tr("normal"), "deferrable": tr("deferrable")}


def internal_price_table(found: Sequence[InternalPrices], currency: str) -> Table | None:
    """A row for each hour of the day, of the pool whose demand varies most; None without a schedule."""
    if not found:
        return None
    most = max(found, key=lambda each: each.spread)
    return Table(
        name="internal_prices",
        title=tr("Internal prices by hour"),
        question=tr("What should a GPU-hour cost internally, so that work that can wait runs when GPUs are idle?"),
        headline=_swing(most),
        columns=(
            column("hour", tr("hour"), "words", lambda hour: clock(60 * hour)),
            column("load", tr("GPUs in demand"), "share_bar", lambda hour: Share(most.load[hour], 0)),
            *(_price_column(most, name) for name in WEIGHTS),
        ),
        rows=tuple(range(len(most.load))),
        notes=tuple(_notes(found, most, currency)),
    )


def _price_column(prices: InternalPrices, name: Priority) -> Column:
    """Over the flat price where that is not known."""
    flat = 1.0 if prices.flat is None else prices.flat
    costs = [Number(each * flat, 2) for each in prices.factors[name]]
    return column(name, _TITLES[name], "number", costs.__getitem__)


def price_factors(found: Sequence[InternalPrices]) -> Table:
    """Return for programs the prices of all pools over the flat one, by the hour of the day."""
    columns = (
        fact("pool", "pool"),
        fact("model", "name"),
        fact("flat", "number"),
        fact("load", "number", json_type="array"),
        fact("factors", "words", json_type="object"),
    )
    return for_programs("internal_price_factors", columns, found)


def _swing(prices: InternalPrices) -> str:
    costs = prices.factors["normal"]
    return tr(
        "{pool}, {model}: demand is {least} of the GPUs in the quietest hour of the day and {most} in the busiest. The"
        " same work would pay {saved} less in the quietest hour.",
        pool=place_name(prices.pool),
        model=card_name(prices.model),
        least=Share(min(prices.load), 0),
        most=Share(max(prices.load), 0),
        saved=Share(1 - min(costs) / max(costs), 0),
    )


def _notes(found: Sequence[InternalPrices], most: InternalPrices, currency: str) -> Iterator[str]:
    if most.flat is None:
        yield tr("Multiples of the flat price, which is unknown for this pool.")
    else:
        yield tr(
            "{currency} per GPU-hour in use. The flat price is {flat}.", currency=currency, flat=Number(most.flat, 2)
        )
    yield tr(
        "Price = flat price x (1/2 + share of the GPUs in demand in that hour) x {urgent} for urgent, {normal} for"
        " normal and {deferrable} for deferrable work. Prices are scaled so that the observed demand pays the same"
        " total. The weights are a choice.",
        **{name: Number.as_given(weight) for name, weight in WEIGHTS.items()},
    )
    yield tr(
        "The table shows the prices. `fallow plan purchase --off-peak 20:00-08:00` shows how much work they could have"
        " moved."
    )
    if len(found) > 1:
        yield tr(
            "This is the pool whose demand varies most, of {number} pools. Choose a pool to see another.",
            number=len(found),
        )


def shifted_work_table(base: ReplayBase, found: ShiftedWork, currency: str) -> Table:
    """The GPU-hours of deferrable work in each hour of the day, today and with these hours."""
    return Table(
        name="shifted_work",
        title=tr("Work that off-peak prices could have moved"),
        question=tr("When would work that can wait have run, if it had started only in the cheap hours?"),
        headline=_moved(found),
        columns=(
            column("hour", tr("hour"), "words", lambda hour: clock(60 * hour)),
            column("today_gpu_hours", tr("replay of today"), "gpu_hours", lambda hour: found.by_hour[hour][0]),
            column("then_gpu_hours", tr("with the change"), "gpu_hours", lambda hour: found.by_hour[hour][1]),
        ),
        rows=tuple(range(len(found.by_hour))),
        lines=tuple(_lines(base, found, currency)),
        notes=(
            tr(
                "GPU-hours of jobs that can wait, by the hour of the day in which they had GPUs. Every such job starts"
                " in the cheap hours and continues into the day if it takes longer. All users are assumed to wait, so"
                " this is the most that prices could move. A rule decides which jobs can wait (docs/planning.md), not"
                " their owners."
            ),
        ),
    )


def shifted_work_figures(found: ShiftedWork) -> Table:
    """Return for programs the figures in the lines of `shifted_work_table`."""
    waits, paid = found.waits or (None, None), found.paid or (None, None)
    columns = (
        fact("jobs_that_can_wait", "count", "jobs"),
        fact("jobs_put_off", "count", "postponed"),
        fact("today_price_per_gpu_hour", "number", lambda _: paid[0]),
        fact("then_price_per_gpu_hour", "number", lambda _: paid[1]),
        column_of(lambda _: waits[0], P95_WAIT, "today_p95_wait_s"),
        column_of(lambda _: waits[1], P95_WAIT, "then_p95_wait_s"),
    )
    return single("shifted_work_figures", columns, found)


def _moved(found: ShiftedWork) -> str:
    if not found.jobs:
        return tr("No job in this window is known to be able to wait.")
    today, then = found.peak_ms()
    return tr(
        "Outside {since} to {until}, jobs that can wait would have used {then} GPU-hours instead of {today}: {share}"
        " less.",
        since=clock(found.off_peak.since_min),
        until=clock(found.off_peak.until_min),
        then=GpuHours(then),
        today=GpuHours(today),
        share=Share(1 - then / today if today else None),
    )


def _lines(base: ReplayBase, found: ShiftedWork, currency: str) -> Iterator[str]:
    yield tr_many("{number} of {jobs} jobs that can wait would have started later.", found.postponed, jobs=found.jobs)
    late = sum(today - then for today, then in found.by_hour)
    if late >= HOUR_MS:
        yield tr("{hours} GPU-hours of this work would have run after the end of the window.", hours=GpuHours(late))
    if found.paid is not None:
        today, then = (Number(each, 3) for each in found.paid)
        yield tr(
            "At the internal prices, a GPU-hour of this work would have cost {then} {currency} instead of {today}.",
            then=then,
            today=today,
            currency=currency,
        )
    refused = refusal(base.check)
    if found.waits is None:
        yield refused or tr("The queue wait of these jobs is not estimated.")
        return
    before, after = (each.p95_ms for each in found.waits)
    if before is not None and after is not None:
        yield tr(
            "95 % of these jobs would have started within {then} instead of {today}.",
            then=words(after),
            today=words(before),
        )
