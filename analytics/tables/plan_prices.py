"""What the need of each pool costs least: what to buy, to reserve and to rent, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date

from analytics.language.language import SentenceList
from analytics.language.quantities import Date, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.money.offers import is_old
from analytics.plan.pool_prices import WEEKS_MIN, PoolPrices
from analytics.plan.price_mix import Mix, MixPart, Option
from analytics.tables.names import card_name, has_several_models, least_to_most, place_name
from analytics.tables.plan_prices_chart import KINDS, mix_chart
from analytics.tables.table import Cell, Column, Table

_TITLE = tr("Rent, reserve or buy?")
_QUESTION = tr(
    "Which GPUs should be bought, reserved and rented for the need that was observed, and what does that cost?"
)


def price_mix(found: Sequence[PoolPrices], currency: str, drawn: int = 0) -> Table:
    """A row for each pool and model; so many of them are drawn."""
    chart = mix_chart(found, drawn)
    return Table(
        name="prices",
        title=_TITLE,
        question=_QUESTION,
        headline=mix_sentence(found, currency),
        columns=(
            *_place_columns(found),
            Column("gpus", tr("GPUs"), "number"),
            Column("most_need", tr("needed"), "words"),
            Column("committed", tr("to have for good"), "words"),
            Column("yearly_cost", tr("{currency} a year", currency=currency), "number"),
            Column("weeks", tr("by its weeks"), "words"),
            Column("now", tr("there now"), "number"),
        ),
        rows=tuple((*_place(found, each), *_row(each)) for each in found),
        chart=chart,
        chart_note=tr("{shown} of {number} pools are drawn; the table lists all.", shown=Number(drawn), number=Number(len(found)))
        if chart is not None and len(found) > drawn else "",
        notes=tuple(_notes(found, currency)),
        wide=True,
    )  # fmt: skip


def mix_sentence(found: Sequence[PoolPrices], currency: str) -> str:
    """What it would cost in all, and what that is made of."""
    if not found:
        return tr("No GPU was seen in a whole hour of the window.")
    mixed = [each for each in found if each.mix is not None]
    if not mixed:
        return tr(
            "No price is known for any of these GPUs: only the need is shown. `fallow prices` says how to state prices and offers."
        )
    cost = _yearly(sum(each.yearly_cost for each in _mixes(mixed)))
    said = tr("The observed need costs least, {cost} {currency} a year, with {parts}.", cost=cost, currency=currency, parts=_in_words(mixed))  # fmt: skip
    now = [each.now_yearly for each in mixed if each.now_yearly is not None]
    if len(now) < len(mixed):
        return said
    if sum(now) < sum(each.yearly_cost for each in _mixes(mixed)):
        return tr(
            "{said} The GPUs that are there now cost {now}: less, for they leave jobs waiting that the need counts.",
            said=said, now=_yearly(sum(now)),
        )  # fmt: skip
    return tr("{said} The GPUs that are there now cost {now}.", said=said, now=_yearly(sum(now)))


def _in_words(mixed: Sequence[PoolPrices]) -> str:
    own, bought, reserved, rented, spot = (
        sum(part.gpus for mix in _mixes(mixed) for part in mix.parts if part.option.offer.kind == kind) for kind in KINDS
    )  # fmt: skip
    said = [
        tr_many("{number} GPU as now", "{number} GPUs as now", own) if own else "",
        tr_many("{number} bought", "{number} bought", bought) if bought else "",
        tr_many("{number} reserved", "{number} reserved", reserved) if reserved else "",
    ]
    known = [each for each in said if each]
    if rented or spot:
        known.append(tr("the rest rented by the hour") if known else tr("all of it rented by the hour"))
    return SentenceList(known or [tr("no GPU at all")], ", ")


def cannot_price(wrong: str) -> Table:
    """Where the table of offers cannot be used."""
    return Table(
        name="prices",
        title=_TITLE,
        question=_QUESTION,
        headline=tr("There is no answer: the table of offers cannot be used. {wrong}", wrong=wrong),
    )


def mix_parts(found: Sequence[PoolPrices], currency: str) -> Table | None:
    """A row for each part of each mix; None without any."""
    rows = [
        (*_place(found, each), *_part_row(part, each.mix))
        for each in found
        if each.mix is not None
        for part in each.mix.parts
    ]
    if not rows:
        return None
    return Table(
        name="price-mix",
        title=tr("What the mix is made of"),
        question=tr("How many GPUs of each kind, how well are they used, and what do they cost?"),
        headline=tr("What is used in most hours comes first: these GPUs are worth having for good.")
        if any(each.mix is not None and each.mix.committed_gpus for each in found)
        else tr("No GPU is worth having for good at these prices, or none is offered so."),
        columns=(
            *_place_columns(found),
            Column("kind", tr("how"), "words"),
            Column("source", tr("source"), "name"),
            Column("gpus", tr("GPUs"), "number"),
            Column("used_share", tr("in use"), "share"),
            Column("yearly_cost", tr("{currency} a year", currency=currency), "number"),
        ),
        rows=tuple(rows),
    )  # fmt: skip


def price_offers(found: Sequence[PoolPrices], currency: str, today: date) -> Table | None:
    """A row for each option of each pool and model; None where no option is known."""
    rows = [(*_place(found, each), *_option_row(each, option, today)) for each in found for option in each.options]
    if not rows:
        return None
    old = sum(is_old(option.offer, today) for each in found for option in each.options)
    return Table(
        name="price-offers",
        title=tr("Offers and break-even"),
        question=tr("From which use on is a GPU worth having for good, and what would each offer cost alone?"),
        headline=tr_many(
            "{number} price is older than 90 days, or has no date: ask again before you sign.",
            "{number} prices are older than 90 days, or have no date: ask again before you sign.", old,
        ) if old else tr("No price is older than 90 days."),
        columns=(
            *_place_columns(found),
            Column("kind", tr("how"), "words"),
            Column("source", tr("source"), "name"),
            Column("hourly", tr("{currency} an hour", currency=currency), "number"),
            Column("date", tr("date"), "words"),
            Column("pays_from", tr("pays from"), "words"),
            Column("alone", tr("all of it so"), "number"),
        ),
        rows=tuple(rows),
        notes=tuple(_offer_notes(found)),
        wide=True,
    )  # fmt: skip


def _mixes(found: Sequence[PoolPrices]) -> list[Mix]:
    return [each.mix for each in found if each.mix is not None]


def _place_columns(found: Sequence[PoolPrices]) -> tuple[Column, ...]:
    """The model only where some pool has several: there is little room."""
    pool = Column("pool", tr("pool"), "pool")
    return (pool, Column("model", tr("model"), "name")) if _has_several(found) else (pool,)


def _place(found: Sequence[PoolPrices], pool: PoolPrices) -> tuple[Cell, ...]:
    name = place_name(pool.curve.pool)
    return (name, card_name(pool.curve.model)) if _has_several(found) else (name,)


def _has_several(found: Sequence[PoolPrices]) -> bool:
    return has_several_models([(each.curve.pool, each.curve.model) for each in found])


def _yearly(cost: float) -> Number:
    """Whole units: cents of an estimate say nothing."""
    return Number(round(cost))


def _row(pool: PoolPrices) -> tuple[Cell, ...]:
    need, mix = pool.curve.hours["need"].to_numpy(), pool.mix
    costs = [each.yearly_cost for each in pool.weeks]
    return (
        Number(pool.curve.gpus),
        tr("{mean}, at most {most}", mean=Number(float(need.mean()), 1), most=Number(float(need.max())))
        if len(need)
        else None,
        None if mix is None else _committed(pool, mix),
        None if mix is None else _yearly(mix.yearly_cost),
        least_to_most(_yearly(min(costs)), _yearly(max(costs))) if len(costs) >= WEEKS_MIN else None,
        None if pool.now_yearly is None else _yearly(pool.now_yearly),
    )


def _committed(pool: PoolPrices, mix: Mix) -> Cell:
    gpus = [each.committed_gpus for each in pool.weeks]
    own = Number(mix.committed_gpus)
    if len(gpus) < WEEKS_MIN:
        return own
    return tr("{gpus} ({least} to {most})", gpus=own, least=Number(min(gpus)), most=Number(max(gpus)))


def _part_row(part: MixPart, mix: Mix) -> tuple[Cell, ...]:
    offer = part.option.offer
    return (
        KINDS[offer.kind], offer.source, Number(part.gpus),
        Share(part.gpu_hours / (part.gpus * mix.hours)), _yearly(mix.yearly(part.cost)),
    )  # fmt: skip


def _option_row(pool: PoolPrices, option: Option, today: date) -> tuple[Cell, ...]:
    offer, alone = option.offer, pool.alone_yearly(option)
    return (
        KINDS[offer.kind], offer.source,
        Number(option.fixed + option.used, 3), _dated(option, today), _pays_from(pool, option), "" if alone is None else _yearly(alone),
    )  # fmt: skip


def _dated(option: Option, today: date) -> Cell:
    day = option.offer.date
    if day is None:
        return tr("not dated") if is_old(option.offer, today) else ""
    return tr("{day}, old", day=Date(day)) if is_old(option.offer, today) else Date(day)


def _pays_from(pool: PoolPrices, option: Option) -> Cell:
    """The use from which on it is cheaper than the cheapest by the hour."""
    if not option.is_committed:
        return ""
    if pool.rented is None:
        return None
    share = option.pays_from(pool.rented.used)
    return tr("never") if share is None else Share(share, 0)


def _notes(found: Sequence[PoolPrices], currency: str) -> Iterator[str]:
    if not found:
        return
    yield tr(
        "Need: GPUs in use, each hour at its most, and those that jobs waited for, on average over the hour. A year is taken to be like these {hours} hours: a few weeks say little of a year, and nothing of growth (`fallow plan forecast`).",
        hours=Number(max(each.curve.hours.height for each in found)),
    )  # fmt: skip
    if unseen := sum(each.curve.unseen for each in found):
        yield tr_many(
            "{number} hour of a pool was left out: more than a tenth of its GPUs were not observed.",
            "{number} hours of a pool were left out: more than a tenth of its GPUs were not observed.", unseen,
        )  # fmt: skip
    if any(len(each.weeks) >= WEEKS_MIN for each in found):
        yield tr(
            "In brackets and by its weeks: the least and the most if one whole week of the window stood for the year."
        )
    else:
        yield tr("There is no range: that takes two whole weeks of which 90 % was observed.")
    if unpriced := sum(each.mix is None for each in found):
        yield tr_many(
            "Of {number} pool only the need is known: no price is, or none for work that must not be interrupted.",
            "Of {number} pools only the need is known: no price is, or none for work that must not be interrupted.", unpriced,
        )  # fmt: skip
    if any(each.now_yearly is not None for each in found):
        yield tr(
            "As now: the site's price in force, with its write-off. GPUs that are paid already cost less than that to keep."
        )
    both = [(each.mix.yearly_cost, each.with_taken.yearly_cost) for each in found if each.mix and each.with_taken]
    if (more := sum(after - before for before, after in both)) >= 1:
        yield tr(
            "What was held or reserved without use is no need here: with it, the cheapest mix would cost {more} {currency} a year more.",
            more=_yearly(more), currency=currency,
        )  # fmt: skip
    if all((each.curve.hours["firm"] == each.curve.hours["need"]).all() for each in found):
        yield tr("Nobody says whose work may be interrupted (a priority class such as best-effort in the owners table, or --spot-share): nothing is put on spot GPUs.")  # fmt: skip


def _offer_notes(found: Sequence[PoolPrices]) -> Iterator[str]:
    yield tr("Pays from: the share of the hours in which a GPU has to be used so that it costs less than the cheapest one on demand. Spot: per hour of finished work, with what interruptions lose.")  # fmt: skip
    powers = [each.power for each in found if any(option.offer.kind == "buy" for option in each.options)]
    if any(each is not None for each in powers):
        yield tr("GPUs to buy carry the electricity that they draw; prices in force, reserved and rented ones are taken as they stand, with or without it.")  # fmt: skip
    if any(each is None for each in powers):
        yield tr("The power or its price is not known for some GPUs to buy: their cost has no energy in it.")
    if any(each is not None and not each.is_measured for each in powers):
        yield tr(
            "Some GPUs to buy are taken to draw the power limit of their card all the time: what they draw was not measured."
        )
    if unrated := sum(len(each.unrated) for each in found):
        yield tr_many(
            "{number} spot offer was left out: it does not say how often its GPUs are taken away, or no work would be finished on them.",
            "{number} spot offers were left out: they do not say how often their GPUs are taken away, or no work would be finished on them.", unrated,
        )  # fmt: skip
