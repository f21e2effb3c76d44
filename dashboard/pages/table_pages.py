"""The pages that are lists of tables: overview, right-size, capacity, queue, allocation, comparison and data quality."""

from __future__ import annotations

from functools import partial

from dash import dcc, html

from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import totals_by
from analytics.plan.allocation import FleetAllocation
from analytics.plan.queue_waits import GROUPS, Waits
from analytics.plan.reallocation import Reallocation
from analytics.report.compare import compare, days_against, window_against
from analytics.tables.card_fit import card_fit
from analytics.tables.compare import comparison, pool_comparison
from analytics.tables.coverage import coverage_by, coverage_by_day, silent_hosts
from analytics.tables.days import days
from analytics.tables.demand import demand_curve
from analytics.tables.gangs import gang_staircase
from analytics.tables.give_back import give_back
from analytics.tables.goals import goals
from analytics.tables.idle import idle
from analytics.tables.method import data_quality, first_remarks
from analytics.tables.moves import moves
from analytics.tables.off_peak import off_peak
from analytics.tables.packings import packed_cards, packing_list
from analytics.tables.palette import Palette
from analytics.tables.plan_allocation import owner_table, starving_table
from analytics.tables.plan_defrag import fragmentation_table, moves_table, room_for_jobs
from analytics.tables.plan_endings import endings_table
from analytics.tables.plan_forecast import order_dates
from analytics.tables.plan_old_cards import old_cards_on_page, tokens_on_page
from analytics.tables.plan_queue import goodput_table, idle_while_waiting, wait_causes, wait_table
from analytics.tables.plan_reallocation import balance_table, cannot_propose, left_table, proposal_table, unserved_table
from analytics.tables.plan_uptake import uptake_table
from analytics.tables.point_samples import point_samples
from analytics.tables.recommendations import first_recommendations
from analytics.tables.table import Table
from analytics.tables.waterfall import waterfall
from analytics.tables.weeks import quarter
from analytics.tables.wording import headline
from dashboard.actions import annotations_about, annotations_in_sight
from dashboard.error_panels import error_line
from dashboard.pages.page import Page, PlacedSection, TablesPage, all_findings, panels
from dashboard.render.panel import section_panel
from dashboard.render.tiles import tiles
from dashboard.times import day_fields, days_of
from dashboard.view import View
from fallow.clock import Window
from fallow.errors import ConfigError


def _first_decisions(view: View) -> dict[str, str]:
    found, findings = view.report.recommendations, len(view.report.review.shown)
    decisions = tr_many(
        "{number} decision with its evidence",
        "All {number} decisions with their evidence",
        len(found.ranked) + len(found.to_look_at),
    )
    evidence = tr_many(
        "{number} finding with its evidence and command", "All {number} findings with evidence and commands", findings
    )
    return {"/recommendations": decisions, "/findings": evidence}


_FIRST = PlacedSection(lambda view: first_recommendations(view.report.recommendations), onward=_first_decisions)
_OVERVIEW = (
    PlacedSection(lambda view: waterfall(view.report.ledger)),
    PlacedSection(lambda view: days(view.report.breakdown, annotations_in_sight(view))),
    PlacedSection(lambda view: quarter(view.report.quarter, annotations_about(view))),
    PlacedSection(lambda view: idle(view.report.ledger)),
    PlacedSection(lambda view: goals(view.report.quarter)),
    PlacedSection(
        lambda view: first_remarks(view.report.quality),
        onward=lambda view: {"/quality": tr("The quality of the data")} if view.report.quality else {},
    ),
)


def _overview(view: View, colours: Palette) -> html.Div:
    """Headline and the first decisions, then tiles and charts."""
    return html.Div(
        [
            html.P(headline(view.report), className="headline"),
            html.Div(_FIRST.panel(view, colours), className="panels"),
            tiles(view, colours),
            html.Div(panels(view, colours, _OVERVIEW), className="panels"),
        ]
    )


OVERVIEW = Page("/", tr("Overview"), _overview)

RIGHT_SIZE = Page(
    "/right-size",
    tr("Right-size"),
    TablesPage(
        (
            PlacedSection(
                lambda view: packing_list(view.report.recommendations, for_people=view.report.scope.is_personal)
            ),
            PlacedSection(lambda view: packed_cards(view.report.recommendations.sizing.packings), first=20),
            PlacedSection(lambda view: card_fit(view.report)),
            PlacedSection(
                lambda view: moves(view.report.recommendations, view.report.review.shown), onward=all_findings
            ),
            PlacedSection(lambda view: old_cards_on_page(view.report)),
            PlacedSection(lambda view: tokens_on_page(view.report)),
        ),
        export="works",
    ),
)


_DRAWN = 6
"""Pools whose forecast the page draws."""

CAPACITY = Page(
    "/capacity",
    tr("Capacity"),
    TablesPage(
        (
            PlacedSection(lambda view: goals(view.report.quarter)),
            PlacedSection(lambda view: demand_curve(view.report), wide=True),
            PlacedSection(lambda view: give_back(view.report.recommendations.reclaimable), table="below", wide=True),
            PlacedSection(lambda view: order_dates(view.report.outlooks, _DRAWN), table="below", wide=True),
            PlacedSection(lambda view: gang_staircase(view.report.gangs, view.part.summary.totals), table="beside"),
            PlacedSection(lambda view: room_for_jobs(view.report.rooms), wide=True),
            PlacedSection(
                lambda view: moves_table(view.report.rooms, view.report.money.costs.currency), table="below", wide=True
            ),
            PlacedSection(lambda view: fragmentation_table(view.report.rooms)),
            PlacedSection(
                lambda view: off_peak(view.report.off_peak, view.report.heading, view.report.ledger), wide=True
            ),
        ),
        for_people=tr("Capacity is that of GPUs, whoever has them: choose all teams, and a pool or a model."),
    ),
)


def _waits(view: View) -> Waits:
    return view.whole.plan.waits_of(view.report.scope)


def _waits_by(group: str, view: View) -> Table | None:
    return wait_table(_waits(view), group)


def _idle_while_waiting(view: View) -> Table | None:
    """None for people, who have no pools."""
    scope = view.report.scope
    return None if scope.is_personal else idle_while_waiting(_waits(view), view.whole.plan.open_ms(scope, view.part))


def _goodput(view: View) -> Table | None:
    plan, scope = view.whole.plan, view.report.scope
    return goodput_table(_waits(view), plan.used_share(scope, view.part), plan.open_ms(scope, view.part))


QUEUE = Page(
    "/queue",
    tr("Queue"),
    TablesPage(
        (
            PlacedSection(lambda view: wait_causes(_waits(view)), table="below"),
            *(PlacedSection(partial(_waits_by, group), table="below", first=8) for group in GROUPS),
            PlacedSection(_idle_while_waiting, table="below"),
            PlacedSection(_goodput, table="below"),
        )
    ),
)


def _allocation(view: View) -> FleetAllocation:
    """Made once for all sections, and for all who see the same."""
    return view.kept(
        "allocation", lambda: view.whole.plan.allocation(view.report.scope, view.part, view.report.ledger.seen)
    )


def _proposal(view: View) -> Reallocation | None:
    """None without a requests file, and where it cannot be used, which `_request_error` says."""
    try:
        return view.whole.reallocation(view.report.scope)
    except ConfigError:
        return None


def _request_error(view: View) -> Table | None:
    """What is wrong with the requests file; the rest of the page stands without it."""
    try:
        view.whole.reallocation(view.report.scope)
    except ConfigError as error:
        return cannot_propose(error_line(view, error))
    return None


ALLOCATION = Page(
    "/allocation",
    tr("Allocation"),
    TablesPage(
        (
            PlacedSection(lambda view: endings_table(_allocation(view)), table="below", first=10),
            PlacedSection(_request_error, wide=True),
            PlacedSection(lambda view: proposal_table(_proposal(view)), table="below", first=20),
            PlacedSection(lambda view: unserved_table(_proposal(view)), table="below", first=10),
            PlacedSection(lambda view: balance_table(_proposal(view)), table="below", first=10),
            PlacedSection(lambda view: left_table(_proposal(view)), table="below", first=10),
            PlacedSection(lambda view: starving_table(_allocation(view), on_page=True), table="below", first=8),
            PlacedSection(lambda view: owner_table(_allocation(view)), table="below", first=20),
            PlacedSection(lambda view: uptake_table(_allocation(view)), table="below"),
        )
    ),
)

_CHOICES = {"before": tr("the time just before"), "13w": tr("the same days 13 weeks earlier")}


def _compare(view: View, colours: Palette) -> html.Div:
    """The choices, then both windows figure by figure and pool by pool; what is compared with is the address's `against`."""
    now, chosen = (
        Window(view.report.ledger.seen.since_ms, view.report.ledger.seen.until_ms),
        view.query.against or "before",
    )
    other = window_against(now, chosen, view.zone)
    found = compare(view.whole, view.report.scope, now, other)
    tables = [
        section_panel(view, colours, each) for each in (comparison(found), pool_comparison(found)) if each is not None
    ]
    return html.Div([_compared_with(view, chosen, other), html.Div(tables, className="panels")])


def _compared_with(view: View, chosen: str, other: Window) -> html.Div:
    """What there is to compare with, and a form for any days; the chosen one is marked."""
    first, last = (str(day) for day in days_of(other, view.zone))
    are_days = days_against(chosen) is not None
    days_chosen = html.Summary(
        f"{first} - {last}" if are_days else tr("any days"), className="here" if are_days else ""
    )
    return html.Div(
        [
            html.Span(tr("Compare with"), className="hint"),
            *(
                html.Span(words, className="here", **{"aria-current": "true"})
                if name == chosen
                else dcc.Link(words, href="/compare" + view.query.but(against=name).search)
                for name, words in _CHOICES.items()
            ),
            html.Details(
                [days_chosen, html.Form(day_fields(view, "against", first, last), id="against-form")],
                className="any-days in-line",
            ),
        ],
        className="against",
        role="group",
        **{"aria-label": tr("Compare with")},
    )


COMPARE = Page("/compare", tr("Compare"), _compare)

_QUALITY = (
    PlacedSection(lambda view: data_quality(view.report.quality)),
    PlacedSection(lambda view: point_samples(view.report.ledger)),
    PlacedSection(lambda view: silent_hosts(view.report.ledger.seen)),
)
_COVERAGE = (
    PlacedSection(lambda view: coverage_by_day(view.report.breakdown.by["day"])),
    PlacedSection(lambda view: coverage_by("pool", view.report.breakdown.by["pool"])),
    PlacedSection(lambda view: coverage_by("model", view.report.breakdown.by["model"])),
    PlacedSection(lambda view: coverage_by("host", totals_by(view.part.inside.stretches, "host"))),
)


def _quality(view: View, colours: Palette) -> html.Div:
    """For a team or a user why there is none of it."""
    if view.report.scope.is_personal:
        sentence = tr("The quality of the data is not shown for a single team: it names hosts and people of others.")
        return html.Div(html.P(sentence, className="headline"))
    seen = view.report.ledger.seen
    observed = tr(
        "{share} of the GPU time of this window was observed, over {gpus} GPUs. The rest counts in no share: {unknown} GPU-hours are unknown, {outside} before a host's first row or after its last.",
        share=Share(seen.share),
        gpus=Number(seen.gpus),
        unknown=GpuHours(view.report.ledger.summary.totals.state_ms["unknown"]),
        outside=GpuHours(seen.outside_ms),
    )
    # days are many and pools few: in two columns of their own no card has to be as tall as its neighbour
    shares = html.Div([each.panel(view, colours) for each in _COVERAGE], className="balanced")
    shown = [*panels(view, colours, _QUALITY), shares]
    return html.Div([html.P(observed, className="headline"), html.Div(shown, className="panels")])


QUALITY = Page("/quality", tr("Data quality"), _quality)
