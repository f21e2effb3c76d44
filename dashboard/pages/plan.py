"""The planner's pages: release or order, room for jobs, queue, who starves, what comes free, and which card."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from analytics.language.sentences import tr
from analytics.plan.allocation import FleetAllocation
from analytics.plan.queue_waits import GROUPS, QueueWaits
from analytics.plan.reallocation import Reallocation
from analytics.tables.card_fit import card_fit
from analytics.tables.demand import demand_curve
from analytics.tables.gangs import gang_staircase
from analytics.tables.goals import goals
from analytics.tables.moves import moves
from analytics.tables.off_peak import off_peak
from analytics.tables.packings import packed_cards, packing_list
from analytics.tables.plan_allocation import owner_table, starving_table
from analytics.tables.plan_defrag import fragmentation_table, moves_table, room_for_jobs
from analytics.tables.plan_endings import endings_table
from analytics.tables.plan_forecast import order_dates
from analytics.tables.plan_old_cards import old_cards_on_page, tokens_on_page
from analytics.tables.plan_queue import goodput_table, idle_while_waiting, wait_causes, wait_table
from analytics.tables.plan_reallocation import balance_table, cannot_propose, left_table, proposal_table, unserved_table
from analytics.tables.plan_uptake import uptake_table
from analytics.tables.table import Table
from analytics.tables.verdicts import pool_verdicts
from dashboard.pages.page import Page, PlacedSection, TablesPage, all_findings
from dashboard.pages.purchase import SectionOf, unless_wrong
from dashboard.view import View

_DRAWN = 6
"""Pools whose forecast the page draws."""
_OF_GPUS = tr("Capacity counts GPUs, not teams: choose all teams, and a pool or a model.")

CAPACITY = Page(
    "/capacity",
    tr("Release or order"),
    TablesPage(
        (PlacedSection(lambda view: pool_verdicts(view.report.recommendations.fleet), table="below"),),
        more=(
            PlacedSection(lambda view: order_dates(view.report.pools, _DRAWN), table="below"),
            PlacedSection(lambda view: demand_curve(view.report)),
            PlacedSection(lambda view: goals(view.report.quarter)),
            PlacedSection(lambda view: off_peak(view.report.off_peak, view.report.heading, view.report.ledger)),
        ),
        for_people=_OF_GPUS,
    ),
    question=tr("How many GPUs can be released, and when must more be ordered?"),
)

ROOM = Page(
    "/room",
    tr("Room for jobs"),
    TablesPage(
        (PlacedSection(lambda view: gang_staircase(view.report.gangs, view.part.summary.totals), table="beside"),),
        more=(
            PlacedSection(lambda view: room_for_jobs(view.report.rooms)),
            PlacedSection(lambda view: moves_table(view.report.rooms, view.report.money.costs.currency), table="below"),
            PlacedSection(lambda view: fragmentation_table(view.report.rooms)),
        ),
        for_people=_OF_GPUS,
    ),
    question=tr("Which jobs could start now, and what would make room for larger ones?"),
)


def _waits(view: View) -> QueueWaits:
    return view.whole.plan.waits_of(view.report.scope)


def _waits_by(group: str, view: View) -> Table | None:
    return wait_table(_waits(view), group)


def _idle_while_waiting(view: View) -> Table | None:
    """Return the table; None for a team or a user, who have no pools."""
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
            PlacedSection(partial(_waits_by, GROUPS[0]), table="below", first=8, wide=True),
        ),
        more=(
            *(PlacedSection(partial(_waits_by, group), table="below", first=8) for group in GROUPS[1:]),
            PlacedSection(_idle_while_waiting, table="below"),
            PlacedSection(_goodput, table="below"),
        ),
    ),
    question=tr("Did jobs wait because GPUs were short?"),
)


def _allocation(view: View) -> FleetAllocation:
    """Return the allocation, which is computed once for all sections and all readers of the same figures."""
    return view.kept(
        "allocation", lambda: view.whole.plan.allocation(view.report.scope, view.part, view.report.ledger.seen)
    )


def _of_proposal(
    make: Callable[[Reallocation | None], Table | None], instead: Callable[[str], Table] | None = None
) -> SectionOf:
    """Return the section of a proposal: empty without a requests file; `instead` shows a fault of the file."""
    return unless_wrong(lambda view: make(view.whole.reallocation(view.report.scope)), instead)


ALLOCATION = Page(
    "/allocation",
    tr("Starve or hoard"),
    TablesPage(
        (
            PlacedSection(lambda view: starving_table(_allocation(view), on_page=True), table="below", first=6),
            PlacedSection(lambda view: owner_table(_allocation(view)), table="below", first=10),
        ),
        more=(PlacedSection(lambda view: uptake_table(_allocation(view)), table="below"),),
    ),
    question=tr("Who waits for GPUs while others do not use theirs?"),
)

ENDINGS = Page(
    "/endings",
    tr("Coming free"),
    TablesPage(
        (
            PlacedSection(lambda view: endings_table(_allocation(view)), table="below", first=6),
            PlacedSection(_of_proposal(proposal_table, cannot_propose), table="below", first=10),
        ),
        more=(
            PlacedSection(_of_proposal(unserved_table), table="below", first=10),
            PlacedSection(_of_proposal(balance_table), table="below", first=10),
            PlacedSection(_of_proposal(left_table), table="below", first=10),
        ),
    ),
    question=tr("Which GPUs come free, and who should get them?"),
)

RIGHT_SIZE = Page(
    "/right-size",
    tr("Which card"),
    TablesPage(
        (
            PlacedSection(lambda view: card_fit(view.report), wide=True),
            PlacedSection(
                lambda view: moves(view.report.recommendations, view.report.review.shown), onward=all_findings, first=6
            ),
            PlacedSection(lambda view: old_cards_on_page(view.report), first=6),
        ),
        more=(
            PlacedSection(
                lambda view: packing_list(view.report.recommendations, for_people=view.report.scope.is_personal)
            ),
            PlacedSection(lambda view: packed_cards(view.report.recommendations.sizing.packings), first=20),
            PlacedSection(lambda view: tokens_on_page(view.report)),
        ),
        export="workloads",
    ),
    question=tr("Which card does each workload need?"),
    has_findings=True,
)
