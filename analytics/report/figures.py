"""Figures of a report beside totals and findings: trends, steps from paid to useful time, and people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """One step from paid to useful time: a state's GPU time and whole cents.

    `cents` is None if none of the time has a price.
    """

    state: str
    gpu_ms: float
    cents: int | None


@dataclass(frozen=True)
class UserFigures(Account):
    """The account of a team or a user with GPUs, and the user's team. `ranked` accounts have a rank by GPU time."""

    team: str | None = None
    ranked: int = 0

    @property
    def low_unused_ms(self) -> float:
        """Return the unused part of the low-use time."""
        return max(0.0, self.allocated_ms - self.effective_ms - self.idle_allocated_ms)


STEPS = ("unavailable", "unknown", *UNUSED, *IN_USE)
"""States from paid to useful time: first those with causes outside the work."""


def steps(totals: Totals, account: Account) -> tuple[Step, ...]:
    """Return the states with the cents of `fallow ledger`, which add up to the amount paid."""
    priced = account.paid_cents is not None
    return tuple(Step(state, totals.state_ms[state], account.state_cents[state] if priced else None) for state in STEPS)


def teams(everybody: Accounts, own: Accounts) -> tuple[UserFigures, ...]:
    """Return the teams of a part of the ledger, the most paid first, with their ranks among all teams."""
    return _people(everybody.by("team"), own.by("team"), lambda _: None)


def users(everybody: Accounts, own: Accounts, team_of: Callable[[str], str | None]) -> tuple[UserFigures, ...]:
    """Return the users of a part of the ledger, the most paid first, with their ranks among all users."""
    return _people(everybody.by("user"), own.by("user"), team_of)


def _people(
    everybody: Sequence[Account], own: Sequence[Account], team_of: Callable[[str], str | None]
) -> tuple[UserFigures, ...]:
    # a rank goes with the figures that it was given for: who has more outside the part has none beside those of the part
    places = {(row.label, round(row.allocated_ms)): (row.rank_gpu_time, row.efficiency_rank) for row in everybody}
    ranked = sum(row.rank_gpu_time is not None for row in everybody)
    found = []
    for row in own:
        if row.allocated_ms > 0:
            place = places.get((row.label, round(row.allocated_ms)), (None, None))
            ranks = dict(zip(("rank_gpu_time", "efficiency_rank"), place, strict=True))
            team = None if row.name is None else team_of(row.name)
            found.append(UserFigures(**vars(row) | ranks, team=team, ranked=ranked))
    return tuple(found)
