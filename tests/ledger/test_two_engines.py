"""Polars and numpy make the ledger; DuckDB makes it again from the same files, and both agree to the millisecond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.simulation.placement import SimulatedFleet as Simulated
from analytics.simulation.write import write_fleet
from tests.ledger.agreement import assert_agree
from tests.ledger.duckdb_ledger import duckdb_ledger
from tests.ledger.fleets import SHORT, Fleet, fleets, lake_of
from tests.ledger.rows import T0, silent

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
