"""The ledger of a scope in numbers, for answers that need no findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analytics.ledger.sampled import IdleFloors
from analytics.ledger.summary import Summary
from analytics.money.window_money import Money
from analytics.report.coverage import Seen
from analytics.report.figures import Step, steps
from analytics.report.model import Whole
from analytics.scope import Scope
from analytics.window import WindowLedger
from analytics.workloads.ledger_rows import held_gpu_hours


@dataclass(frozen=True)
class LedgerFigures:
    """What `analytics.tables.basis.LedgerBasis` asks for; `sensitivity` is held GPU-hours by the shortest interval, in minutes."""

    scope: Scope
    summary: Summary
    money: Money
    seen: Seen
    floors: IdleFloors | None
    sensitivity: Mapping[int, float]
    week: None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The states with the cents of each."""
        return steps(self.summary.totals, self.money.accounts.total)


def ledger_figures(whole: Whole, scope: Scope, part: WindowLedger, money: Money) -> LedgerFigures:
    """Return the figures of what the scope leaves, `part` of the window with its `money`."""
    seen = whole.seen(part.window, part.inside, scope)
    sensitivity = held_gpu_hours(part.inside.stretches)
    return LedgerFigures(scope, seen.beside(part.summary), money, seen, part.floors, sensitivity)
