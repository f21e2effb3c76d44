"""Who waited for GPUs, and why."""

from __future__ import annotations

from functools import partial

from analytics.language.sentences import tr
from analytics.plan.waits import GROUPS, Waits
from analytics.tables.plan_waits import goodput_table, idle_while_waiting, wait_causes, wait_table
from analytics.tables.table import Table
from dashboard.pages.page import Page, PlacedSection
from dashboard.view import View


def _waits(view: View) -> Waits:
    return view.whole.plan.waits_of(view.report.scope)


def _group(by: str, view: View) -> Table | None:
    return wait_table(_waits(view), by)


def _idle(view: View) -> Table | None:
    """None for people, who have no pools."""
    return None if view.report.scope.is_personal else idle_while_waiting(_waits(view), _open_ms(view))


def _goodput(view: View) -> Table | None:
    return goodput_table(_waits(view), view.whole.plan.used_share(view.report.scope, view.part), _open_ms(view))


def _open_ms(view: View) -> float:
    return view.whole.plan.open_ms(view.report.scope, view.part)


class WaitsPage(Page):
    path = "/waits"
    name: str = tr("Waits")
    sections = (
        PlacedSection(lambda view: wait_causes(_waits(view)), table="below"),
        *(PlacedSection(partial(_group, by), table="below", first=8) for by in GROUPS),
        PlacedSection(_idle, table="below"),
        PlacedSection(_goodput, table="below"),
    )
