"""The site's own tables as they are in force: prices, and the teams of the owners file."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import Date, Number
from analytics.language.sentences import tr, tr_many
from analytics.money.in_force import gpus_at, in_force
from analytics.money.prices import Price
from analytics.money.window_money import PriceBasis, newest_basis, open_prices
from analytics.report.model import Whole
from analytics.tables.money_basis import price_source
from analytics.tables.names import place_name
from analytics.tables.table import Cell, Column, Table

_KINDS = {"account": tr("accounts"), "namespace": tr("namespaces"), "user": tr("users")}
_ORIGINS = {"site": tr("the site's own"), "catalog": tr("public list price")}


def prices_in_force(whole: Whole, team: str | None) -> Table:
    """What the site states and what its GPUs cost come first; `shown` is how many these are, before the rest of the catalog.

    Who may see one `team` is not told how many GPUs of a fleet there are.
    """
    basis: Sequence[PriceBasis] = () if team is not None else newest_basis(whole.inventory, whole.money.costs)
    prices = in_force(open_prices(whole.inputs.settings))
    used = [price for price in prices if price.origin == "site" or gpus_at(price, basis)]
    others = [price for price in prices if price not in used]
    missing = [each for each in basis if each.price is None]
    lacking = tr_many("{number} group of GPUs has no price.", "{number} groups of GPUs have no price.", len(missing))
    return Table(
        name="prices",
        title=tr("Prices in force"),
        question=tr("What does a GPU-hour cost, since when, and who says so? In {currency}.", currency=whole.money.currency),
        headline=(lacking if missing else tr("Every GPU has a price.")) if basis else "",
        columns=(
            Column("model", tr("model"), "name"),
            Column("pool", tr("pool"), "pool"),
            Column("hourly", tr("per GPU-hour"), "money"),
            Column("date", tr("date"), "moment"),
            Column("origin", tr("origin"), "words"),
            Column("source", tr("source"), "sentence"),
            Column("gpus", tr("GPUs"), "count"),
        ),
        rows=tuple(_price(each, basis) for each in (*used, *others)),
        shown=len(used),
        rest=tr_many("{number} other list price", "{number} other list prices", len(others)),
        lines=tuple(
            tr_many("no price: {number} GPU {model} ({pool})", "no price: {number} GPUs {model} ({pool})", each.gpus,
                     model=place_name(each.model), pool=place_name(each.pool))
            for each in missing
        ),
        wide=True,
    )  # fmt: skip


def _price(price: Price, basis: Sequence[PriceBasis]) -> tuple[Cell, ...]:
    return (
        plain(price.model) if price.model else tr("any model"),
        plain(price.pool) if price.pool else tr("any pool"),
        tr("{number} {currency}", number=Number(price.hourly, 4), currency=price.currency),
        Date(price.date) if price.date else tr("not stated"),
        _ORIGINS[price.origin],
        plain(price_source(price), 200),
        Number(gpus_at(price, basis)) if basis else "",
    )


def owners(whole: Whole, own_team: str | None) -> Table:
    """Teams and how many lines each has; who may see one team sees that one."""
    teams = [team for team in whole.money.owners.teams().values() if own_team in (None, team.name)]
    return Table(
        name="owners",
        title=tr("Owners"),
        question=tr("Which teams does the owners file name, and how many lines has each?"),
        headline=tr_many("{number} team.", "{number} teams.", len(teams))
        if teams
        else tr("No owners file is set: nothing is said of teams."),
        columns=(
            Column("team", tr("team"), "name"),
            Column("organisation", tr("organisation"), "name"),
            *(Column(kind, title, "count") for kind, title in _KINDS.items()),
            Column("quota_gpus", tr("quota, GPUs"), "number"),
        ),
        rows=tuple(
            (
                plain(team.name),
                plain(team.organisation or ""),
                *(Number(sum(owner.kind == kind for owner in team.owners)) for kind in _KINDS),
                tr("none") if team.quota_gpus is None else Number(team.quota_gpus),
            )
            for team in teams
        ),
        wide=True,
    )
