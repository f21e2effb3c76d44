"""Teams and holders: what they were given, what became of it, and their rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analytics.money.accounts import Account, Accounts
from analytics.report.figures import UserFigures


def teams(everybody: Accounts, own: Accounts) -> tuple[UserFigures, ...]:
    """The teams of a part of the ledger, the most paid first, with their ranks among everybody."""
    return _people(everybody.by("team"), own.by("team"), lambda _: None)


def holders(everybody: Accounts, own: Accounts, team_of: Callable[[str], str | None]) -> tuple[UserFigures, ...]:
    """The holders of a part of the ledger, the most paid first, with their ranks among everybody."""
    return _people(everybody.by("holder"), own.by("holder"), team_of)


def _people(
    everybody: Sequence[Account], own: Sequence[Account], team_of: Callable[[str], str | None]
) -> tuple[UserFigures, ...]:
    # a rank goes with the figures that it was given for: who has more outside the part has none beside those of the part
    ranks = {(row.label, round(row.allocated_ms)): (row.rank_gpu_time, row.efficiency_rank) for row in everybody}
    ranked = sum(row.rank_gpu_time is not None for row in everybody)
    return tuple(
        UserFigures(
            name=row.name,
            label=row.label,
            team=None if row.name is None else team_of(row.name),
            gpu_ms=row.total_ms,
            allocated_ms=row.allocated_ms,
            effective_ms=row.effective_ms,
            low_ms=row.state_ms["low"],
            low_by_sm_ms=row.low_by_sm_ms,
            held_ms=row.state_ms["held"],
            reserved_ms=row.state_ms["reserved"],
            open_ms=row.allocated_open_ms,
            cents=row.paid_cents,
            efficiency=row.efficiency,
            rank_gpu_time=ranks.get((row.label, round(row.allocated_ms)), (None, None))[0],
            ranked=ranked,
            efficiency_rank=ranks.get((row.label, round(row.allocated_ms)), (None, None))[1],
        )
        for row in own
        if row.allocated_ms > 0
    )
