"""Somebody's jobs and quota."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from analytics.capacity.user_jobs import QuotaUse, against_quota, jobs
from analytics.money.costs import Costs
from analytics.money.prices import PriceBook
from analytics.scope import Scope, narrowed
from tests.money.fleet import COLUMNS, T0, inventory, ledger, owners, segment

HOUR_S, HOUR_MS = 3600, 3_600_000


ROWS = [
    segment("a1", 0, 2 * HOUR_S, "active", user="ann", job="slurm:1"),
    segment("a1", 2 * HOUR_S, 3 * HOUR_S, "held", user="ann", job="slurm:1"),
    segment("a2", 0, HOUR_S, "active", user="ann", job="slurm:1"),
    segment("a3", 0, HOUR_S, "low", user="ann+bob", job="slurm:7"),
    segment("a4", 0, 2 * HOUR_S, "active", user="bob", job="slurm:8"),
    segment("a5", 0, HOUR_S, "free"),
    segment("c1", 0, HOUR_S, "reserved", user="ann"),
]


FRAME = pl.DataFrame(ROWS, schema=COLUMNS | {"job": pl.String})


def test_jobs_of_a_user() -> None:
    costs = Costs(PriceBook.load(None, "USD"), inventory(ROWS))
    idle_intervals = pl.DataFrame(schema={"gpu": pl.String, "time": pl.Int64, "end": pl.Int64})
    whole = replace(ledger(ROWS[:0]), segments=FRAME, idle_intervals=idle_intervals)
    own = narrowed(whole, Scope(user="ann"), costs, inventory(ROWS), owners())
    first, none, shared = jobs(own.segments, costs)
    assert (first.name, first.gpus, first.allocated_ms) == ("slurm:1", ("a1", "a2"), 4 * HOUR_MS)
    assert first.state_ms == {"reserved": 0, "held": HOUR_MS, "stalled": 0, "low": 0, "active": 3 * HOUR_MS}
    assert (first.first_ms, first.last_ms) == (T0, T0 + 3 * HOUR_MS)
    assert first.cost is not None
    assert (none.name, none.shared, none.cost) == (None, False, None)  # no price for that card
    # the other's job may be what its name says
    assert (shared.name, shared.shared, shared.allocated_ms) == (None, True, HOUR_MS / 2)


@pytest.mark.parametrize(
    ("rows", "use"),
    [
        (FRAME, QuotaUse(3, 8 / 4, 6 / 4, most=5, hours=4, hours_above=1)),
        (FRAME.clear(), QuotaUse(3, 0, 0, most=0, hours=4, hours_above=0)),
        (FRAME.clear(), QuotaUse(3, None, None, most=None, hours=0, hours_above=0)),
    ],
    ids=["used", "unused", "no time"],
)
def test_a_quota(rows: pl.DataFrame, use: QuotaUse) -> None:
    assert against_quota(rows, 3, T0, T0 + use.hours * HOUR_MS) == use
