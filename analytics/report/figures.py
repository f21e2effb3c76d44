"""What a report is made of beside totals and findings: trends, steps from paid to useful, people, and what pools can spare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analytics.ledger.summary import Totals
from analytics.money.accounts import Account, Accounts, EfficiencyRank
from analytics.states import IN_USE, UNUSED
from analytics.workloads.model import Finding
from analytics.workloads.surplus import PoolSurplus
from fallow.clock import WEEK_MS


@dataclass(frozen=True)
class Trend:
    """One figure of the week beside last week's and the median of the four weeks before; None where those were not seen.

    `unit` is `gpu_hours`, `money`, `share` or `gpus`; money is in the report's currency.
    """

    name: str
    unit: str
    now: float | None
    last_week: float | None
    median_4_weeks: float | None


@dataclass(frozen=True)
class Step:
    """One step on the way from what was paid to what was useful: a state's GPU time and whole cents.

    `cents` is None where nothing of it has a price.
    """

    state: str
    gpu_ms: float
    cents: int | None


@dataclass(frozen=True)
class UserFigures:
    """What a team or a holder was given and what was made of it; `name` is None for those who are not named.

    `rank_gpu_time` is 1 for the most GPU time, among `ranked` of them. `low_by_sm_ms` of the low time is in `effective_ms` by its SM
    activity, the rest by utilization. `open_ms` of the held and reserved time is what point samples alone call idle.
    """

    name: str | None
    label: str
    team: str | None
    gpu_ms: float
    allocated_ms: float
    effective_ms: float
    low_ms: float
    low_by_sm_ms: float
    held_ms: float
    reserved_ms: float
    open_ms: float
    cents: int | None
    efficiency: float | None
    rank_gpu_time: int | None
    ranked: int
    efficiency_rank: EfficiencyRank | None

    @property
    def low_unused_ms(self) -> float:
        """What its activity leaves of the low time."""
        return max(0.0, self.allocated_ms - self.effective_ms - self.held_ms - self.reserved_ms)


@dataclass(frozen=True)
class BackTest:
    """How the estimate of one week before fared: hours in which more GPUs were needed than it would have left."""

    since_ms: int
    until_ms: int
    point: int
    hours: int
    short_hours: int


@dataclass(frozen=True)
class SurplusInterval:
    """GPUs of one model in one pool beyond what was needed at once, as an interval, and how many whole blocks they make.

    `blocks` has for 1, 2, 4 and 8 how many GPUs can go if only whole blocks of that many on one host do. `back_test` is None
    without enough history, `low` and `high` where no week before can be compared.
    """

    pool: str
    model: str
    gpus: float
    low: int | None
    point: int
    high: int | None
    blocks: Mapping[int, int]
    history_days: float
    back_test: BackTest | None


STEPS = ("unavailable", "unknown", *UNUSED, *IN_USE)
"""From what was paid to what was useful: what takes most of it away for reasons outside the work first."""


def steps(totals: Totals, account: Account) -> tuple[Step, ...]:
    """The states with the cents of `fallow ledger`, which add up to what was paid."""
    priced = account.paid_cents is not None
    return tuple(Step(state, totals.state_ms[state], account.state_cents[state] if priced else None) for state in STEPS)


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
            rank_gpu_time=rank,
            ranked=ranked,
            efficiency_rank=efficiency_rank,
        )
        for row in own
        if row.allocated_ms > 0
        for rank, efficiency_rank in [ranks.get((row.label, round(row.allocated_ms)), (None, None))]
    )


def surplus_intervals(findings: Iterable[Finding]) -> tuple[SurplusInterval, ...]:
    """Those of the findings of a standing surplus, one per pool and model, the largest first."""
    found = [_surplus_interval(each.surplus, each.evidence.until_ms) for each in findings if each.surplus is not None]
    return tuple(sorted(found, key=lambda each: (-each.point, each.pool, each.model)))


def _surplus_interval(surplus: PoolSurplus, until_ms: int) -> SurplusInterval:
    found, tested = surplus.estimate, surplus.backtest
    low, high = found.next_week
    return SurplusInterval(
        pool=surplus.pool,
        model=surplus.model,
        gpus=found.gpus,
        low=low,
        point=found.left,
        high=high,
        blocks=dict(sorted(surplus.in_blocks.items())),
        history_days=found.days,
        back_test=None
        if tested is None
        else BackTest(until_ms - WEEK_MS, until_ms, tested.surplus, tested.hours, tested.exceeded),
    )
