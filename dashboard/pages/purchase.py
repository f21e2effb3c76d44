"""What the observed demand would cost, bought, reserved and rented; internal prices; and energy and CO2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from analytics.language.sentences import tr
from analytics.money.energy import open_intensity
from analytics.plan.carbon import AskedCarbon, Carbon
from analytics.plan.purchase import PoolPurchase, internal_prices_of, of_scope
from analytics.tables.plan_carbon import better_hours, cannot_rate, carbon_by_team, carbon_parts, parking_power
from analytics.tables.plan_internal_prices import internal_price_table
from analytics.tables.plan_purchase import cannot_price, mix_parts, purchase_mix, purchase_offers
from analytics.tables.table import Table
from dashboard.error_panels import error_line
from dashboard.pages.page import Page, PlacedSection, TablesPage
from dashboard.view import View
from fallow.clock import from_ms
from fallow.errors import ConfigError

SectionOf: TypeAlias = Callable[[View], Table | None]


def _purchases(view: View) -> Sequence[PoolPurchase]:
    return of_scope(view.whole.purchases, view.report.scope)


def _priced(make: Callable[[Sequence[PoolPurchase], str], Table | None]) -> SectionOf:
    return lambda view: make(_purchases(view), view.whole.money.currency)


def _mix(view: View) -> Table:
    return purchase_mix(_purchases(view), view.whole.money.currency, view.part.summary.totals)


def unless_wrong(make: SectionOf, instead: Callable[[str], Table] | None = None) -> SectionOf:
    """Return the section; if a site's table is unusable, what `instead` makes of the reason: the page still opens."""

    def section(view: View) -> Table | None:
        try:
            return make(view)
        except ConfigError as error:
            return None if instead is None else instead(error_line(view, error))

    return section


def _of_carbon(make: Callable[[Carbon], Table | None]) -> SectionOf:
    """Return the section that `make` makes of the carbon figures, which all sections and languages share."""
    return lambda view: make(view.kept("carbon", lambda: _carbon(view)))


def _carbon(view: View) -> Carbon:
    asked = AskedCarbon(open_intensity(view.whole.inputs.settings), view.zone)
    return view.whole.plan.carbon(view.report.scope, view.part, asked)


internal_prices = unless_wrong(
    lambda view: (
        None
        if view.report.scope.is_personal
        else internal_price_table(internal_prices_of(_purchases(view), view.zone), view.whole.money.currency)
    )
)
"""The internal prices of the pools by hour; None for people, who have no pools."""

PURCHASE = Page(
    "/purchase",
    tr("Purchase"),
    TablesPage(
        (PlacedSection(unless_wrong(_mix, cannot_price), table="below"),),
        more=(
            PlacedSection(unless_wrong(_priced(mix_parts)), table="below", first=12),
            PlacedSection(
                unless_wrong(
                    lambda view: purchase_offers(
                        _purchases(view), view.whole.money.currency, from_ms(view.whole.generated_ms).date()
                    )
                ),
                table="below",
                first=12,
            ),
        ),
        for_people=tr("GPUs are bought and rented for pools, not for teams: choose all teams, and a pool or a model."),
    ),
    question=tr("Is it cheapest to buy, reserve or rent?"),
)

ENERGY = Page(
    "/energy",
    tr("Energy"),
    TablesPage(
        (
            PlacedSection(unless_wrong(_of_carbon(carbon_parts), cannot_rate), table="below"),
            PlacedSection(unless_wrong(_of_carbon(carbon_by_team)), table="below", first=8),
        ),
        more=(
            PlacedSection(unless_wrong(_of_carbon(parking_power)), table="below", first=12),
            PlacedSection(unless_wrong(_of_carbon(better_hours))),
        ),
    ),
    question=tr("How much energy and CO2 did the GPUs take?"),
)
