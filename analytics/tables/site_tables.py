"""The site's own tables in force: prices, offers and the teams of the owners file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from analytics.language.sentences import Date, Number, plain, tr, tr_many
from analytics.money.offers import OLD_AFTER, GpuOffer, is_old
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.money.window_money import PriceBasis, gpus_at, in_force
from analytics.tables.money_basis import price_source
from analytics.tables.names import card_name, place_name
from analytics.tables.plan_purchase import KINDS
from analytics.tables.table import Column, Table, column, fact

_KINDS = {"account": tr("accounts"), "namespace": tr("namespaces"), "user": tr("users")}
_ORIGINS = {"site": tr("the site's own"), "catalog": tr("public list price")}


def prices_in_force(book: PriceBook, basis: Sequence[PriceBasis]) -> Table:
    """Return every price with the number of GPUs that have it.

    A document lists the site's prices and those of its own GPUs.
    """
    prices = in_force(book)
    used = [price for price in prices if price.origin == "site" or gpus_at(price, basis)]
    others = [price for price in prices if price not in used]
    missing = [each for each in basis if each.price is None]
    lacking = tr_many("{number} {group|groups} of GPUs {has|have} no price.", len(missing))
    return Table(
        name="prices",
        title=tr("Prices in force"),
        question=tr(
            "What does a GPU-hour cost, since when, and from which source? In {currency}.", currency=book.currency
        ),
        headline=(lacking if missing else tr("Every GPU has a price.")) if basis else "",
        columns=(
            column("model", tr("model"), "name", lambda price: plain(price.model or "") or tr("any model"), "model"),
            column("pool", tr("pool"), "pool", lambda price: plain(price.pool or "") or tr("any pool"), "pool"),
            column(
                "price_per_gpu_hour",
                tr("per GPU-hour"),
                "money",
                lambda price: tr("{number} {currency}", number=Number(price.hourly, 4), currency=price.currency),
                lambda price: float(price.hourly),
            ),
            fact("currency", "words"),
            column("as_of", tr("date"), "moment", "date", missing=tr("not stated")),
            column("origin", tr("origin"), "words", lambda price: _ORIGINS[price.origin], "origin"),
            column("source", tr("source"), "sentence", lambda price: plain(price_source(price), 200)),
            column("gpus", tr("GPUs"), "count", lambda price: Number(gpus_at(price, basis)) if basis else ""),
        ),
        rows=(*used, *others),
        shown=len(used),
        rest=tr_many("{number} other list {price|prices}", len(others)),
        lines=tuple(
            tr_many(
                "no price: {number} {GPU|GPUs} {model} ({pool})",
                each.gpus,
                model=card_name(each.model),
                pool=place_name(each.pool),
            )
            for each in missing
        ),
        wide=True,
    )


def offers(found: Sequence[GpuOffer], currency: str, today: date) -> Table | None:
    """Return other offers for GPUs; None without a table of offers."""
    if not found:
        return None
    old = sum(is_old(each, today) for each in found)
    return Table(
        name="offers",
        title=tr("Offers"),
        question=tr("What do other offers charge for GPUs?"),
        headline=tr_many(
            "{old} of {number} {offer is|offers are} older than {day}, or {has|have} no date.",
            len(found),
            old=old,
            day=Date(today - OLD_AFTER),
        ),
        columns=(
            column("kind", tr("how"), "words", lambda offer: KINDS[offer.kind], "kind"),
            column("provider", tr("provider"), "name", lambda offer: plain(offer.provider), "provider"),
            column("model", tr("model"), "name", lambda offer: plain(offer.model), "model"),
            column("price_per_gpu_hour", tr("{currency} per GPU-hour", currency=currency), "money", "hourly", digits=4),
            column("as_of", tr("date"), "moment", "date", missing=tr("not stated")),
            column(
                "is_old",
                tr("old"),
                "words",
                lambda offer: tr("old") if is_old(offer, today) else "",
                lambda offer: is_old(offer, today),
                json_type="boolean",
            ),
            column("source", tr("source"), "sentence", lambda offer: plain(offer.source, 200)),
            fact("years", "number"),
            fact("interruptions_per_day", "number"),
        ),
        rows=tuple(found),
        wide=True,
    )


def owners(found: Owners, own_team: str | None) -> Table:
    """Return the teams and their number of entries. A reader of one team sees only that team."""
    teams = tuple(team for team in found.teams().values() if own_team in (None, team.name))

    def lines_column(kind: str) -> Column:
        return column(f"{kind}s", _KINDS[kind], "count", lambda team: sum(owner.kind == kind for owner in team.owners))

    return Table(
        name="owners",
        title=tr("Owners"),
        question=tr("Which teams does the owners file name, and how many entries does each team have?"),
        headline=tr_many("{number} {team|teams}.", len(teams))
        if teams
        else tr("No owners file is set, so teams are not known."),
        columns=(
            column("team", tr("team"), "name", lambda team: plain(team.name), "name"),
            column("organisation", tr("organisation"), "name", lambda team: plain(team.organisation or "")),
            *map(lines_column, _KINDS),
            column("quota_gpus", tr("quota, GPUs"), "number", missing=tr("none")),
        ),
        rows=teams,
        wide=True,
    )
