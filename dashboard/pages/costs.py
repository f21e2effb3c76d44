"""What the need that was observed would cost, bought, reserved and rented, what an hour should cost within the house, and energy and CO2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dash import html

from analytics.language.sentences import tr
from analytics.money.energy import open_intensity
from analytics.plan.carbon import AskedCarbon, Carbon
from analytics.plan.pool_prices import PoolPrices, internal_prices_of, of_scope
from analytics.tables.palette import Palette
from analytics.tables.plan_carbon import better_hours, cannot_rate, carbon_by_team, carbon_parts, parking_power
from analytics.tables.plan_internal_prices import internal_price_table
from analytics.tables.plan_prices import cannot_price, mix_parts, price_mix, price_offers
from analytics.tables.table import Table
from dashboard.error_panels import in_a_line
from dashboard.pages.page import Page, PlacedSection
from dashboard.view import View, problem_of
from fallow.clock import from_ms
from fallow.errors import ConfigError

SectionOf: TypeAlias = Callable[[View], Table | None]


def _prices(view: View) -> Sequence[PoolPrices]:
    return of_scope(view.whole.plan.prices, view.report.scope)


def _mix(view: View) -> Table:
    """Or what is wrong with the table of offers; the rest of the page stands without it."""
    try:
        return price_mix(_prices(view), view.whole.money.currency)
    except ConfigError as error:
        told = problem_of(error, view.reader)
        return cannot_price(in_a_line(view.language, told.message, told.hint))


def _parts(view: View) -> Table | None:
    return mix_parts(_prices(view), view.whole.money.currency)


def _offers(view: View) -> Table | None:
    return price_offers(_prices(view), view.whole.money.currency, from_ms(view.whole.made_ms).date())


def _internal(view: View) -> Table | None:
    return internal_price_table(internal_prices_of(_prices(view), view.zone), view.whole.money.currency)


def _unless_wrong(made_by: SectionOf) -> SectionOf:
    """The section; None where a table cannot be used, which the first section that rests on it says."""

    def section(view: View) -> Table | None:
        try:
            return made_by(view)
        except ConfigError:
            return None

    return section


def _of_carbon(made_by: Callable[[Carbon], Table | None]) -> SectionOf:
    """Of what is made once for a version of the lake, a window and a scope, for all sections and languages."""
    return lambda view: made_by(view.made.of(("carbon", *view.key_of_figures), lambda: _found(view)))


def _found(view: View) -> Carbon:
    asked = AskedCarbon(open_intensity(view.whole.inputs.settings), view.zone)
    return view.whole.plan.carbon(view.report.scope, view.part, asked)


def _carbon(view: View) -> Table | None:
    """Or what is wrong with the file of the grid's intensity."""
    try:
        return _of_carbon(carbon_parts)(view)
    except ConfigError as error:
        told = problem_of(error, view.reader)
        return cannot_rate(in_a_line(view.language, told.message, told.hint))


_CARBON = (
    PlacedSection(_carbon, table="below", wide=True),
    PlacedSection(_unless_wrong(_of_carbon(carbon_by_team)), table="below", first=12, wide=True),
    PlacedSection(_unless_wrong(_of_carbon(parking_power)), table="below", first=12, wide=True),
    PlacedSection(_unless_wrong(_of_carbon(better_hours)), wide=True),
)


class CostsPage(Page):
    path = "/costs"
    name: str = tr("Prices")
    sections = (
        PlacedSection(_mix, table="below", wide=True),
        PlacedSection(_unless_wrong(_parts), table="below", first=12),
        PlacedSection(_unless_wrong(_internal), table="below", first=24),
        PlacedSection(_unless_wrong(_offers), table="below", first=12, wide=True),
        *_CARBON,
    )

    def content(self, view: View, colours: Palette) -> html.Div:
        """For people, for whom nobody buys GPUs apart, a sentence that says so, and their energy."""
        if view.report.scope.is_personal:
            said = tr(
                "GPUs are bought and rented for pools, whoever has them: choose all teams, and a pool or a model."
            )
            panels = [panel for each in _CARBON if (panel := each.panel(view, colours)) is not None]
            return html.Div([html.P(view.translate(said), className="headline"), html.Div(panels, className="panels")])
        return super().content(view, colours)
