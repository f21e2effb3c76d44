"""Figures of a report beside totals and findings: trends, steps from paid to busy time, and people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analytics.ledger.card_use import CardUse
from analytics.ledger.summary import Totals
from analytics.money.accounts import Account, Accounts
from analytics.states import IN_USE, UNUSED


@dataclass(frozen=True)
class Trend:
    """One figure of the week beside last week and the median of the four weeks before (None if not observed).

    `unit` is `gpu_hours`, `money`, `share` or `gpus`; money is in the report's currency.
    """

    name: str
    unit: str
    now: float | None
    last_week: float | None
    median_4_weeks: float | None


@dataclass(frozen=True)
class Step:
    """One step from paid to busy time: a state's GPU time and whole cents.

    `cents` is None if none of the time has a price.
    """

    state: str
    gpu_ms: float
    cents: int | None


@dataclass(frozen=True)
class UserFigures(Account):
    """The account of a team or a user with GPUs, the user's team and the use of the cards.

    `ranked` accounts have a rank by GPU time. `card_use` is None without busy time or measures.
    """

    team: str | None = None
    ranked: int = 0
    card_use: CardUse | None = None

    @property
    def low_unused_ms(self) -> float:
        """Return the unused part of the low-use time."""
        return max(0.0, self.allocated_ms - self.effective_ms - self.idle_allocated_ms)


STEPS = ("unavailable", "unknown", *UNUSED, *IN_USE)
"""States from paid to busy time: first those with causes outside the work."""


def steps(totals: Totals, account: Account) -> tuple[Step, ...]:
    """Return the states with the cents of `fallow ledger`, which add up to the amount paid."""
    priced = account.paid_cents is not None
    return tuple(Step(state, totals.state_ms[state], account.state_cents[state] if priced else None) for state in STEPS)


def teams(everybody: Accounts, own: Accounts) -> tuple[UserFigures, ...]:
    """Return the teams of a part of the ledger, the most paid first, with their ranks among all teams."""
    return _people("team", everybody, own, lambda _: None)


def users(everybody: Accounts, own: Accounts, team_of: Callable[[str], str | None]) -> tuple[UserFigures, ...]:
    """Return the users of a part of the ledger, the most paid first, with their ranks among all users."""
    return _people("user", everybody, own, team_of)


def _people(
    group: str, everybody: Accounts, own: Accounts, team_of: Callable[[str], str | None]
) -> tuple[UserFigures, ...]:
    among, uses = everybody.by(group), own.card_use(group)
    # a rank goes with the figures that it was given for: a user with more outside the part has no rank in the part
    places = {(row.label, round(row.allocated_ms)): (row.rank_gpu_time, row.efficiency_rank) for row in among}
    ranked = sum(row.rank_gpu_time is not None for row in among)
    found = []
    for row in own.by(group):
        if row.allocated_ms > 0:
            place = places.get((row.label, round(row.allocated_ms)), (None, None))
            ranks = dict(zip(("rank_gpu_time", "efficiency_rank"), place, strict=True))
            team = None if row.name is None else team_of(row.name)
            use = uses.get(row.label)
            found.append(UserFigures(**vars(row) | ranks, team=team, ranked=ranked, card_use=use))
    return tuple(found)
