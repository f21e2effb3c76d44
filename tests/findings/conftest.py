"""Findings of a lake as the commands make them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.decide.review import Review, review, run_rules
from analytics.rules import RULES
from analytics.simulation import FleetSummary, SimulatedFleet, write_fleet
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.context import open_context
from fallow.clock import DAY_MS
from tests.lakes import made_lake
from tests.shared_results import share_results

if TYPE_CHECKING:
    from analytics.workloads.model import Context, Finding
    from fallow.lake import Lake

HOUR, DAY = 3600, 86_400
IDLE = tuple(rule for rule in RULES if rule.name in ("held", "never_used"))
"""The rules of `idle_findings` and `only`; what other rules find beside them has tests of its own."""
HELD: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}
BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}
FREE: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 0, "gpu_util_coverage_ratio": 1.0}


def findings(lake: Lake, since: str | None = None, until: str | None = None) -> tuple[Finding, ...]:
    """The findings of a window in their order, as they are listed while the lake's newest row is being written."""
    return reviewed(lake, since, until).shown


def idle_findings(lake: Lake, since: str | None = None, until: str | None = None) -> tuple[Finding, ...]:
    """Those of the two rules about GPUs that do nothing; no other rule runs."""
    return run_rules(context_of(lake, since, until), IDLE)


def reviewed(lake: Lake, since: str | None = None, until: str | None = None, *, later_ms: int = 0) -> Review:
    """The findings of a window and all that goes with them, so long after the lake's newest row."""
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=None))
    ledger = load_window_ledger(inputs)
    newest_ms = ledger.whole.stretches.select(pl.col("end").max()).item()
    return review(inputs, ledger, now_ms=newest_ms + later_ms)


def context_of(lake: Lake, since: str | None = None, until: str | None = None) -> Context:
    """What a rule is given to look at, as the commands have it while the lake's newest row is being written."""
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=None))
    ledger = load_window_ledger(inputs)
    return open_context(inputs, ledger, None, ledger.whole.stretches.select(pl.col("end").max()).item())


def only(lake: Lake, since: str | None = None, until: str | None = None) -> Finding:
    """The one finding that there is."""
    (found,) = idle_findings(lake, since, until)
    return found


@pytest.fixture(autouse=True)
def _one_ledger_for_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch, is_kept=False)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, FleetSummary]:
    """A small simulated fleet with one of each planted situation; 2026-11-20 is its end."""
    lake = made_lake(tmp_path_factory.mktemp("simulated"))
    return lake, write_fleet(lake, SimulatedFleet(gpus=16, days=8, interval_ms=60_000, until_ms=20_777 * DAY_MS))
