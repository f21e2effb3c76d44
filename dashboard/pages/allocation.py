"""Who has the GPUs, who wants them, and which come free."""

from __future__ import annotations

from analytics.language.sentences import tr
from analytics.plan.allocation import FleetAllocation
from analytics.sections.plan_allocation import owner_table, starving_table
from analytics.sections.plan_endings import endings_table
from analytics.sections.plan_uptake import uptake_table
from dashboard.pages.page import Page, PlacedSection
from dashboard.view import View


def _allocation(view: View) -> FleetAllocation:
    """Made once for all sections, and for all who see the same."""
    key = ("allocation", *view.key_of_figures)
    return view.made.of(key, lambda: view.whole.allocation(view.report.scope, view.part))  # type: ignore[no-any-return]


class AllocationPage(Page):
    path = "/allocation"
    name: str = tr("Allocation")
    sections = (
        PlacedSection(lambda view: endings_table(_allocation(view)), table="below", first=10),
        PlacedSection(lambda view: starving_table(_allocation(view)), table="below", first=8),
        PlacedSection(lambda view: owner_table(_allocation(view)), table="below", first=20),
        PlacedSection(lambda view: uptake_table(_allocation(view)), table="below"),
    )
