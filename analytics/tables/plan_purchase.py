"""The cheapest way to serve each pool's demand: GPUs to buy, to reserve and to rent, and the basis of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from operator import itemgetter

from analytics.language.sentences import Date, Number, SentenceList, Share, tr, tr_many
from analytics.ledger.summary import Totals
from analytics.money.offers import GpuOffer, is_old
from analytics.plan.purchase import WEEKS_MIN, PoolPurchase
from analytics.plan.purchase_mix import Mix, Option
from analytics.proportions import whole_ceil
from analytics.tables.chart import Chart, ChartPlace, Level, Line, Panel
from analytics.tables.names import GPUS, POOL, card_name, least_to_most, model_if_several, place_name
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Cell, Column, Table, column, column_of, fact, for_programs, rows_column

_POINTS = 100
KINDS = {
    "own": tr("current"),
    "buy": tr("bought"),
    "reserved": tr("reserved"),
    "on_demand": tr("on demand"),
    "spot": tr("spot"),
}
_COLOURS = {"own": "reserved", "buy": "active", "reserved": "held"}
_DRAWN = 6
_TITLE = tr("Buy, reserve or rent")
_QUESTION = tr("Which GPUs should be bought, reserved and rented for the observed demand, and what does that cost?")


def purchase_mix(found: Sequence[PoolPurchase], currency: str, totals: Totals) -> Table:
    """Return a row per pool and model; the first few get a chart. `totals` are those of all their GPUs."""
    chart = mix_chart(found)
    return Table(
        name="purchase",
        title=_TITLE,
        question=_QUESTION,
        headline=mix_sentence(found, currency),
        columns=(
            *_place_columns(found),
            column("gpus", tr("GPUs"), "number", "curve.gpus"),
            column("needed", tr("demand"), "words", _needed, audience="people"),
            column("committed", tr("to own or reserve"), "words", _committed, audience="people"),
            *(column_of("mix", each) for each in _mix_columns(currency)),
            column("weeks", tr("range over weeks"), "words", _weeks, audience="people"),
            column("now_yearly_cost", tr("current GPUs"), "number", "now_yearly"),
        ),
        rows=tuple(found),
        chart=chart,
        chart_note=tr("{shown} of {number} pools are drawn; the table lists all.", shown=_DRAWN, number=len(found))
        if chart is not None and len(found) > _DRAWN
        else "",
        notes=(*_notes(found, currency), *(sampled_note([totals]) if found else ())),
        wide=True,
    )


def mix_sentence(found: Sequence[PoolPurchase], currency: str) -> str:
    """Return the total cost and its parts, as a sentence."""
    if not found:
        return tr("No GPU was observed for a whole hour of this window.")
    mixed = [each for each in found if each.mix is not None]
    priced = [each for each in found if each.options]
    if not any(each.whole_weeks for each in priced or found):
        return tr("No yearly cost is known: it needs a whole week, observed for at least 90 %.")
    if not mixed:
        return tr(
            "No price is known for any of these GPUs, so only the demand is shown. `fallow prices` explains how to set"
            " prices and offers."
        )
    cost = _yearly(sum(each.yearly_cost for each in _mixes(mixed)))
    cheapest = tr(
        "The cheapest mix for the observed demand costs {cost} {currency} a year: {parts}.",
        cost=cost,
        currency=currency,
        parts=_parts_sentence(mixed),
    )
    now = [each.now_yearly for each in mixed if each.now_yearly is not None]
    if len(now) < len(mixed):
        return cheapest
    if sum(now) < sum(each.yearly_cost for each in _mixes(mixed)):
        return tr(
            "{mix} The current GPUs cost {now}: less, because they leave jobs waiting that the demand counts.",
            mix=cheapest,
            now=_yearly(sum(now)),
        )
    return tr("{mix} The current GPUs cost {now}.", mix=cheapest, now=_yearly(sum(now)))


def _parts_sentence(mixed: Sequence[PoolPurchase]) -> str:
    own, bought, reserved, rented, spot = (
        sum(part.gpus for mix in _mixes(mixed) for part in mix.parts if part.option.offer.kind == kind)
        for kind in KINDS
    )
    known = [
        *([tr_many("{number} current {GPU|GPUs}", own)] if own else []),
        *([tr_many("{number} bought", bought)] if bought else []),
        *([tr_many("{number} reserved", reserved)] if reserved else []),
    ]
    if rented or spot:
        known.append(tr("the others rented by the hour") if known else tr("all rented by the hour"))
    return SentenceList(known or [tr("no GPUs")], ", ")


def mix_chart(found: Sequence[PoolPurchase]) -> Chart | None:
    """Return a panel for each of the first pools with a mix and any demand; None without such a pool.

    A panel shows the demand curve, and the ends of the parts.
    """
    drawn = [(each, each.mix) for each in found if each.mix is not None and each.mix.parts][:_DRAWN]
    if not drawn:
        return None
    shares = [place / _POINTS for place in range(_POINTS + 1)]
    places = tuple(ChartPlace(tr("in {share} of the hours", share=Share(each, 0)), Share(each, 0)) for each in shares)
    panels = tuple(_panel(pool, mix, shares, places) for pool, mix in drawn)
    return Chart(panels, across=tr("share of hours with at least this many"))


def _panel(pool: PoolPurchase, mix: Mix, shares: Sequence[float], places: tuple[ChartPlace, ...]) -> Panel:
    need = pool.curve.hours["need"].sort(descending=True)
    values = tuple(float(need[min(int(share * need.len()), need.len() - 1)]) for share in shares)
    title = tr(
        "{pool}, {model}: {gpus} GPUs",
        pool=place_name(pool.curve.pool),
        model=card_name(pool.curve.model),
        gpus=Number(pool.curve.gpus),
    )
    line = Line(tr("GPUs in demand"), "low", values, shown=tuple(map(Number, values)))
    return Panel(title, (*_levels(mix), line), places)


def _levels(mix: Mix) -> Iterator[Level]:
    """Yield a line at the end of each committed part; demand above the last line is rented by the hour."""
    gpus = 0
    for part in mix.parts:
        if part.option.is_committed:
            gpus += part.gpus
            kind = part.option.offer.kind
            name = tr("{kind}: up to {gpus} GPUs", kind=KINDS[kind], gpus=gpus)
            # the name is below the line, because the curve begins above it
            yield Level(name, _COLOURS[kind], gpus, is_above=False)


def cannot_price(error: str) -> Table:
    """Return the table that reports an error in the table of offers."""
    return Table(
        name="purchase",
        title=_TITLE,
        question=_QUESTION,
        headline=tr("No answer: the table of offers cannot be used. {error}", error=error),
    )


def mix_parts(found: Sequence[PoolPurchase], currency: str) -> Table | None:
    """Return a row per part of each mix; None without any."""
    rows = tuple((pool, part) for pool in found if pool.mix is not None for part in pool.mix.parts)
    if not rows:
        return None
    return Table(
        name="purchase_mix",
        title=tr("GPUs of the cheapest mix"),
        question=tr("How many GPUs of each kind, how much are they used, and what do they cost?"),
        headline=tr("What is used in most hours comes first: these GPUs are worth having for good.")
        if any(each.mix is not None and each.mix.committed_gpus for each in found)
        else tr("No GPU is worth having for good at these prices, or none is offered so."),
        columns=(
            *(column_of(_POOL, each) for each in _place_columns(found)),
            *(column_of(_ITEM, each) for each in _part_columns(currency)),
        ),
        rows=rows,
        notes=(tr("A GPU that is rented on demand in some hours and as spot in others counts in both rows."),),
    )


_POOL, _ITEM = itemgetter(0), itemgetter(1)
"""Rows below a pool are pairs of its PoolPurchase and a part of its mix, or one of its options."""

_OFFER = (
    column("kind", tr("kind"), "words", lambda option: KINDS[option.offer.kind], "offer.kind"),
    column("source", tr("source"), "name", "offer.source"),
    fact("provider", "name", "offer.provider"),
)


def _part_columns(currency: str) -> tuple[Column, ...]:
    return (
        *(column_of("option", each) for each in _OFFER),
        GPUS,
        column("used_share", tr("time in use"), "share"),
        _yearly_cost(currency),
        fact("gpu_hours", "number"),
        fact("cost", "number"),
    )


def _mix_columns(currency: str) -> tuple[Column, ...]:
    return _yearly_cost(currency), fact("committed_gpus", "count"), fact("cost", "number"), fact("hours", "count")


def _yearly_cost(currency: str) -> Column:
    """Return the column of the yearly cost, in whole units for people: cents of an estimate say nothing."""
    return column("yearly_cost", tr("{currency} a year", currency=currency), "number")


def purchase_offers(found: Sequence[PoolPurchase], currency: str, today: date) -> Table | None:
    """Return a row per option of each pool and model; None without a known option."""
    rows = tuple((pool, option) for pool in found for option in pool.options)
    if not rows:
        return None
    old = sum(is_old(option.offer, today) for _, option in rows)
    offer = (
        *_OFFER,
        column("hourly", tr("{currency} an hour", currency=currency), "number", lambda each: Number(each.hourly, 3)),
        fact("fixed_hourly", "number", "fixed"),
        fact("used_hourly", "number", "used"),
        fact("years", "number", "offer.years"),
        column(
            "date",
            tr("date"),
            "words",
            lambda each: _dated(each.offer, today),
            lambda each: each.offer.date and str(each.offer.date),
        ),
        fact("is_old", "words", lambda each: is_old(each.offer, today), "boolean"),
    )
    return Table(
        name="purchase_offers",
        title=tr("Offers and break-even"),
        question=tr("From what use is a GPU worth owning or reserving, and what would each offer cost alone?"),
        headline=(
            tr_many(
                "{number} {price is|prices are} older than 90 days or {has|have} no date. Ask for {a new quote|new"
                " quotes} before you sign.",
                old,
            )
            if old
            else tr("No price is older than 90 days.")
        ),
        columns=(
            *(column_of(_POOL, each) for each in _place_columns(found)),
            *(column_of(_ITEM, each) for each in offer),
            column("pays_from_share", tr("break-even"), "words", _pays_from, _pays_from_share, json_type="number"),
            column(
                "alone_yearly_cost", tr("cost alone"), "number", lambda row: row[0].alone_yearly(row[1]), missing=""
            ),
        ),
        rows=rows,
        notes=tuple(_offer_notes(found)),
        wide=True,
    )


def need_figures(found: Sequence[PoolPurchase], currency: str) -> Table:
    """Return for programs each pool's demand curve, the mixes of each demand and week, and the spot offers left out."""
    curve = (fact("gpus", "number", itemgetter(0)), fact("hours", "count", itemgetter(1)))
    mix = (*_mix_columns(currency), rows_column("parts", _part_columns(currency), "parts"))
    columns = (
        *_place_columns(found),
        fact("currency", "words", lambda _: currency),
        fact("hours", "count", "curve.hours.height"),
        fact("unseen_hours", "count", "curve.unseen"),
        rows_column("curve", curve, lambda pool: pool.curve.duration.iter_rows()),
        rows_column("mix_with_unused", mix, lambda pool: () if pool.with_taken is None else (pool.with_taken,)),
        rows_column("weeks", mix, "weeks"),
        rows_column("spot_left_out", (fact("provider", "name"), fact("source", "name")), "unrated"),
    )
    return for_programs("purchase_needs", columns, found)


def _mixes(found: Sequence[PoolPurchase]) -> list[Mix]:
    return [each.mix for each in found if each.mix is not None]


def _place_columns(found: Sequence[PoolPurchase]) -> tuple[Column, ...]:
    """Return the place columns of PoolPurchase. People see the model only if a pool has several, to save room."""
    model = model_if_several([each.curve for each in found])
    return column_of("curve", POOL), column_of("curve", model)


def _yearly(cost: float) -> Number:
    """Return the cost in whole units: cents of an estimate say nothing."""
    return Number(round(cost))


def _needed(pool: PoolPurchase) -> Cell:
    need = pool.curve.hours["need"].to_numpy()
    if not len(need):
        return None
    # as in the mix: a job that waits for a part of an hour needs a part of a GPU
    most = whole_ceil(float(need.max()))
    return tr("{mean}, at most {most}", mean=Number(float(need.mean()), 1), most=Number(most))


def _weeks(pool: PoolPurchase) -> Cell:
    costs = [each.yearly_cost for each in pool.weeks]
    return least_to_most(_yearly(min(costs)), _yearly(max(costs))) if len(costs) >= WEEKS_MIN else None


def _committed(pool: PoolPurchase) -> Cell:
    gpus = [each.committed_gpus for each in pool.weeks]
    own = None if pool.mix is None else Number(pool.mix.committed_gpus)
    if own is None or len(gpus) < WEEKS_MIN:
        return own
    return tr("{gpus} ({least} to {most})", gpus=own, least=min(gpus), most=max(gpus))


def _dated(offer: GpuOffer, today: date) -> Cell:
    if offer.date is None:
        return tr("no date") if is_old(offer, today) else ""
    return tr("{day} (old)", day=Date(offer.date)) if is_old(offer, today) else Date(offer.date)


def _pays_from(row: tuple[PoolPurchase, Option]) -> Cell:
    """Return the use from which the option is cheaper than the cheapest rent by the hour."""
    pool, option = row
    if not option.is_committed:
        return ""
    if pool.rented is None:
        return None
    share = option.pays_from(pool.rented.used)
    return tr("never") if share is None else Share(share, 0)


def _pays_from_share(row: tuple[PoolPurchase, Option]) -> object:
    cell = _pays_from(row)
    return cell.ratio if isinstance(cell, Share) else None


def _notes(found: Sequence[PoolPurchase], currency: str) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "Demand: GPUs that work, GPUs that queued jobs could have used, and held or reserved GPUs unless a finding says"
        " that they may go. The highest value of each hour counts."
    )
    if mixed := [each for each in found if each.mix is not None]:
        yield tr(
            "The year is assumed to be like these {hours} hours. A few weeks say little about a year, and nothing about"
            " growth (`fallow plan forecast`).",
            hours=max(each.curve.hours.height for each in mixed),
        )
    if unseen := sum(each.curve.unseen for each in found):
        yield tr_many(
            "{number} {hour|hours} of a pool {is|are} left out: more than a tenth of its GPUs were not observed.",
            unseen,
        )
    if any(len(each.weeks) >= WEEKS_MIN for each in found):
        yield tr("Ranges: the lowest and the highest result if a single whole week of the window stood for the year.")
    elif any(each.weeks for each in found):
        yield tr("No range is shown: it needs two whole weeks, observed for at least 90 %.")
    short = sum(not each.whole_weeks for each in found)
    if 0 < short < len(found):
        yield tr_many(
            "{number} {pool has|pools have} no yearly cost: it needs a whole week, observed for at least 90 %.", short
        )
    if unpriced := sum(each.whole_weeks > 0 and each.mix is None for each in found):
        yield tr_many(
            "{number} {pool has|pools have} no cost: no price is known, or none for work that must not be interrupted.",
            unpriced,
        )
    if any(each.now_yearly is not None for each in found):
        yield tr(
            "Current: the site's price in force, including depreciation. GPUs that are already paid for cost less to"
            " keep."
        )
    both = [(each.mix.yearly_cost, each.with_taken.yearly_cost) for each in found if each.mix and each.with_taken]
    if (more := sum(after - before for before, after in both)) >= 1:
        yield tr(
            "The demand excludes GPUs that findings say may go. With them, the cheapest mix would cost {more}"
            " {currency} a year more.",
            more=_yearly(more),
            currency=currency,
        )
    if all((each.curve.hours["firm"] == each.curve.hours["need"]).all() for each in found):
        yield tr(
            "Spot GPUs are not used, because no work is marked as interruptible (a priority class such as best-effort"
            " in the owners table, or --spot-share)."
        )


def _offer_notes(found: Sequence[PoolPurchase]) -> Iterator[str]:
    yield tr(
        "Break-even: the share of hours in which a GPU must be used to cost less than the cheapest on-demand GPU. Cost"
        " alone: the yearly cost if this option served all demand. Spot: the price of an hour of finished work,"
        " including work lost to interruptions."
    )
    powers = [each.power for each in found if any(option.offer.kind == "buy" for option in each.options)]
    if any(each is not None for each in powers):
        yield tr(
            "The cost of GPUs to buy includes their electricity. Current, reserved and rented prices are used as given,"
            " with or without electricity."
        )
    if any(each is None for each in powers):
        yield tr(
            "For some GPUs to buy, the power or the electricity price is unknown, so their cost excludes electricity."
        )
    if any(each is not None and not each.is_measured for each in powers):
        yield tr(
            "Some GPUs to buy are assumed to draw the power limit of their card all the time, because their power was"
            " not measured."
        )
    if unrated := sum(len(each.unrated) for each in found):
        yield tr_many(
            "{number} spot {offer is|offers are} left out: {its|their} interruption {rate is|rates are} unknown, or no"
            " work would finish on {its|their} GPUs.",
            unrated,
        )
