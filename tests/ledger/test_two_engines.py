"""Polars and numpy make the ledger; DuckDB makes it again from the same files, and both agree to the millisecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from analytics.ledger.build import load_ledger
from analytics.ledger.day_owners import NO_CONTEXT_BYTES
from analytics.ledger.settings import LedgerSettings
from analytics.simulation.placement import SimulatedFleet as Simulated
from analytics.simulation.write import write_fleet
from tests.ledger.agreement import assert_agree
from tests.ledger.duckdb_ledger import duckdb_ledger
from tests.ledger.fleets import SHORT, Fleet, fleets, lake_of
from tests.ledger.rows import GB, T0, silent

if TYPE_CHECKING:
    from fallow.lake import Lake


@settings(max_examples=12)
@given(fleets())
def test_duckdb_finds_the_same_of_random_hosts(fleet: Fleet) -> None:
    with lake_of(fleet) as lake:
        assert_agree(load_ledger(lake, SHORT, warn=silent), duckdb_ledger(lake, SHORT))


@pytest.mark.long
def test_duckdb_finds_the_same_of_a_simulated_fleet(lake: Lake) -> None:
    write_fleet(lake, Simulated(until_ms=T0, gpus=24, days=3, interval_ms=60_000))
    ledger = load_ledger(lake, LedgerSettings(), warn=silent)
    assert set(ledger.stretches["state"]) == {"unknown", "unavailable", "free", "reserved", "held", "low", "active"}
    assert_agree(ledger, duckdb_ledger(lake, LedgerSettings()))


def test_memory_that_is_no_holder_and_no_proof_of_nobody_is_unwatched_in_both() -> None:
    """Below `held_min_bytes`, and above what any CUDA context takes."""
    row = {
        "gpu": "a",
        "offset_ms": 0,
        "interval_ms": 10_000,
        "health": "ok",
        "gpu_util_pct": 0.0,
        "process_count": None,
    }
    sizes = (None, 0, NO_CONTEXT_BYTES - 1, NO_CONTEXT_BYTES, GB, GB + 1)
    rows = [row | {"time": T0 + 10_000 * place, "mem_used_bytes": size} for place, size in enumerate(sizes)]
    with lake_of((rows, [], [])) as lake:
        ledger = load_ledger(lake, SHORT, warn=silent)
        assert_agree(ledger, duckdb_ledger(lake, SHORT))
    assert set(ledger.stretches["holder_source"]) == {"unwatched", None, "memory"}
