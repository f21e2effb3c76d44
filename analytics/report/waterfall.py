"""The way from what was paid to what was useful."""

from __future__ import annotations

from analytics.ledger.summary import Totals
from analytics.money.accounts import Account
from analytics.report.figures import Step
from analytics.states import IN_USE, UNUSED

STEPS = ("unavailable", "unknown", *UNUSED, *IN_USE)
"""From what was paid to what was useful: what takes most of it away for reasons outside the work first."""


def steps(totals: Totals, account: Account) -> tuple[Step, ...]:
    """The states with the cents of `fallow ledger`, which add up to what was paid."""
    priced = account.paid_cents is not None
    return tuple(Step(state, totals.state_ms[state], account.state_cents[state] if priced else None) for state in STEPS)
