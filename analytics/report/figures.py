"""What a report is made of beside totals and findings: trends, steps from paid to useful, people, capacity and the film strip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.ledger.summary import Totals
from analytics.money.accounts import EfficiencyRank


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


@dataclass(frozen=True)
class Film:
    """The state in which each GPU spent most of each bin: `codes` has a row per GPU and a column per bin.

    A code is a position in `fallow.schema.STATES`, NOT_THERE where the GPU was not in the ledger. Rows go by waste, the most
    first. `totals` are those of each GPU over the window: a bin's colour is that of most of it, and no sum.
    """

    gpus: tuple[str, ...]
    hosts: tuple[str, ...]
    since_ms: int
    bin_ms: int
    codes: NDArray[np.uint8]
    totals: tuple[Totals, ...]


NOT_THERE = 255
"""In a film: no word of this GPU then."""
