"""Somebody's jobs and quota."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from analytics.capacity.user_jobs import against_quota, jobs
from analytics.money.costs import Costs
from analytics.money.prices import PriceBook
from analytics.scope import Scope, narrowed
from tests.money.fleet import COLUMNS, T0, Row, inventory, ledger, owners, stretch

HOUR_S = 3600
HOUR_MS = 3_600_000


def frame(rows: list[Row]) -> pl.DataFrame:
    schema = {**COLUMNS, "job": pl.String}
    return pl.DataFrame(rows, schema=schema)


ROWS = [
    stretch("a1", 0, 2 * HOUR_S, "active", holder="ann", job="slurm:1"),
    stretch("a1", 2 * HOUR_S, 3 * HOUR_S, "held", holder="ann", job="slurm:1"),
    stretch("a2", 0, HOUR_S, "active", holder="ann", job="slurm:1"),
    stretch("a3", 0, HOUR_S, "low", holder="ann+bob", job="slurm:7"),
    stretch("a4", 0, 2 * HOUR_S, "active", holder="bob", job="slurm:8"),
    stretch("a5", 0, HOUR_S, "free"),
    stretch("c1", 0, HOUR_S, "reserved", holder="ann"),
]


def test_jobs_of_a_holder() -> None:
    rows = frame(ROWS)
    whole, costs = ledger(ROWS[:0]), Costs(PriceBook.load(None, "USD"), inventory(ROWS))
    whole = replace(
        whole, stretches=rows, spells=pl.DataFrame(schema={"gpu": pl.String, "time": pl.Int64, "end": pl.Int64})
    )
    own = narrowed(whole, Scope(holder="ann"), costs, inventory(ROWS), owners())
    first, none, shared = jobs(own.stretches, costs)
    assert (first.name, first.gpus, first.allocated_ms) == ("slurm:1", ("a1", "a2"), 4 * HOUR_MS)
    assert first.state_ms == {"reserved": 0, "held": HOUR_MS, "low": 0, "active": 3 * HOUR_MS}
    assert (first.first_ms, first.last_ms) == (T0, T0 + 3 * HOUR_MS)
    assert first.cost is not None
    assert (none.name, none.shared, none.cost) == (None, False, None)  # no price for that card
    # the other's job may be what its name says
    assert (shared.name, shared.shared, shared.allocated_ms) == (None, True, HOUR_MS / 2)


def test_a_quota() -> None:
    use = against_quota(frame(ROWS), 3, T0, T0 + 4 * HOUR_MS)
    assert use.most == 5
    assert (use.hours, use.hours_above) == (4, 1)
    assert use.allocated_mean == pytest.approx(8 / 4)
    assert use.working_mean == pytest.approx(6 / 4)


def test_a_quota_of_which_nothing_was_used() -> None:
    use = against_quota(frame([]), 3, T0, T0 + 4 * HOUR_MS)
    assert (use.most, use.hours, use.hours_above, use.allocated_mean) == (0, 4, 0, 0)
    assert against_quota(frame([]), 3, T0, T0).most is None
    assert against_quota(frame([]), 3, T0, T0).allocated_mean is None
