"""Who has the GPUs, who wants them, and which come free."""

from __future__ import annotations

from analytics.language.sentences import tr
from analytics.plan.allocation import FleetAllocation
from analytics.plan.reallocation import Reallocation
from analytics.tables.plan_allocation import owner_table, starving_table
from analytics.tables.plan_endings import endings_table
from analytics.tables.plan_reallocation import (
    balance_table,
    cannot_propose,
    left_table,
    proposal_table,
    unserved_table,
)
from analytics.tables.plan_uptake import uptake_table
from analytics.tables.table import Table
from dashboard.error_panels import in_a_line
from dashboard.pages.page import Page, PlacedSection
from dashboard.view import View, problem_of
from fallow.errors import ConfigError


def _allocation(view: View) -> FleetAllocation:
    """Made once for all sections, and for all who see the same."""
    key = ("allocation", *view.key_of_figures)
    return view.made.of(key, lambda: view.whole.plan.allocation(view.report.scope, view.part))  # type: ignore[no-any-return]


def _proposal(view: View) -> Reallocation | None:
    """None where nobody asks, and where the requests file cannot be used: see `_wrong`."""
    try:
        return view.whole.reallocation(view.report.scope)
    except ConfigError:
        return None


def _wrong(view: View) -> Table | None:
    """What is wrong with the requests file; the rest of the page stands without it."""
    try:
        view.whole.reallocation(view.report.scope)
    except ConfigError as error:
        told = problem_of(error, view.reader)
        return cannot_propose(in_a_line(view.language, told.message, told.hint))
    return None


class AllocationPage(Page):
    path = "/allocation"
    name: str = tr("Allocation")
    sections = (
        PlacedSection(lambda view: endings_table(_allocation(view)), table="below", first=10),
        PlacedSection(_wrong, wide=True),
        PlacedSection(lambda view: proposal_table(_proposal(view)), table="below", first=20),
        PlacedSection(lambda view: unserved_table(_proposal(view)), table="below", first=10),
        PlacedSection(lambda view: balance_table(_proposal(view)), table="below", first=10),
        PlacedSection(lambda view: left_table(_proposal(view)), table="below", first=10),
        PlacedSection(lambda view: starving_table(_allocation(view), on_page=True), table="below", first=8),
        PlacedSection(lambda view: owner_table(_allocation(view)), table="below", first=20),
        PlacedSection(lambda view: uptake_table(_allocation(view)), table="below"),
    )
