"""Money and energy as plain text of at most 100 columns."""

from __future__ import annotations

from decimal import Decimal

from analytics.inventory import NO_POOL, UNKNOWN_MODEL
from analytics.language.language import ENGLISH, Language
from analytics.language.plain_text import PAGE_COLUMNS, plain, wrap
from analytics.language.quantities import GpuHours, Number
from analytics.language.sentences import tr, tr_many
from analytics.money.window_money import Money, PriceBasis
from analytics.tables.money_basis import energy_sentences, price_source
from fallow.schema import STATES

WIDTH = PAGE_COLUMNS
_SHOWN = 8
"""Prices that are listed before `fallow prices` is named."""


def amount(cents: int | None, language: Language = ENGLISH) -> str:
    """`1,234.56`, or `-` for what has no price."""
    return "-" if cents is None else language.number(Decimal(cents) / 100, 2)


def state_amounts(money: Money, language: Language = ENGLISH) -> dict[str, str]:
    """What each state cost, and `total`; empty where nothing has a price."""
    total = money.accounts.total
    if total.paid_cents is None:
        return {}
    spent = {state: amount(total.state_cents[state], language) for state in STATES}
    return spent | {"total": amount(total.paid_cents, language)}


def basis_lines(money: Money, width: int = WIDTH, language: Language = ENGLISH) -> list[str]:
    """Which prices the money rests on, and which are missing; where a price is from is cut to the width."""
    said = language.translate
    priced = [each for each in money.basis if each.price is not None]
    heading = tr("prices in {currency} per GPU-hour", currency=money.currency)
    lines = [said(heading if priced else tr("no price is known: nothing is said of money"))]
    listed = len({gpu for each in priced if each.price and each.price.origin == "catalog" for gpu in each.names})
    if listed:
        lines += wrap(
            said(
                tr_many(
                    "{number} GPU at public on-demand prices, which are not what you pay: name your own in money.prices",
                    "{number} GPUs at public on-demand prices, which are not what you pay: name your own in money.prices",
                    listed,
                )
            ),
            width, "  ", "  ",
        )  # fmt: skip
    lines += [_basis_line(each, width, language) for each in priced[:_SHOWN]]
    if len(priced) > _SHOWN:
        more = tr("and {number} more: `fallow prices --lake ...` lists all", number=Number(len(priced) - _SHOWN))
        lines.append(f"  {said(more)}")
    lines += _missing_lines(money, language, width)
    if money.missing and priced:
        unpriced = tr(
            "their {hours} GPU-hours are in no sum of money", hours=GpuHours(round(money.accounts.total.unpriced_ms))
        )
        lines += wrap(said(unpriced), width, "  ", "  ")
    return lines


def _missing_lines(money: Money, language: Language, width: int) -> list[str]:
    """The models and pools without a price."""
    lines = []
    for each in money.missing[:_SHOWN]:
        without = tr_many(
            "no price: {number} GPU {model} ({pool})", "no price: {number} GPUs {model} ({pool})", each.gpus,
            model=_known(each.model, UNKNOWN_MODEL), pool=_known(each.pool, NO_POOL),
        )  # fmt: skip
        lines += wrap(language.translate(without), width, "  ", "    ")
    if len(money.missing) > _SHOWN:
        more = tr("and {number} more without a price", number=Number(len(money.missing) - _SHOWN))
        lines.append(f"  {language.translate(more)}")
    if money.needs_exchange:
        lines.append(f"  {language.translate('the catalog is in USD: add an exchange line (docs/money.md)')}")
    return lines


def _known(name: str, otherwise: str) -> str:
    """A name as it is; the words that stand for none can be said in any language."""
    return tr(otherwise) if name == otherwise else plain(name)


def energy_lines(money: Money, width: int = WIDTH, language: Language = ENGLISH) -> list[str]:
    """The sentences of `energy_sentences` on lines of at most so many columns, all but the first two columns in."""
    first, *others = map(language.translate, energy_sentences(money))
    return [*wrap(first, width, "", "  "), *(line for each in others for line in wrap(each, width, "  ", "  "))]


def _basis_line(basis: PriceBasis, width: int, language: Language) -> str:
    price = basis.price
    if price is None:
        raise ValueError(basis.model)
    what = plain(
        f"{language.translate(_known(basis.model, UNKNOWN_MODEL))} ({language.translate(_known(basis.pool, NO_POOL))})",
        33,
    )
    # the commands print days as machines sort them; no other form of one is longer than `21 sept. 2025`
    english = language.code == "en"
    day = "" if price.date is None else price.date.isoformat() if english else language.date(price.date)
    start = f"  {language.number(basis.gpus):>5}  {what:<33}  {language.number(price.hourly, 4):>8}  {day:<{10 if english else 13}}  "
    room, whole = width - len(start), price_source(price)
    # half of how a price was stated says nothing: `fallow prices` has it all
    return start + (whole if len(plain(whole, room + 1)) <= room else plain(price.source, room))
