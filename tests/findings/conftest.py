"""Findings of a lake as the commands make them, and of a recording, which needs no files."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from analytics.decide.review import Review, review, run_rules
from analytics.rules import RULES
from analytics.simulation import FleetPlan, SimulatedFleet, write_fleet
from analytics.workloads.context import open_context
from fallow.clock import DAY_MS
from fallow.lake import Lake
from tests.lakes import made_lake
from tests.ledger.recording import Recording, opened
from tests.made_once import made_once
from tests.shared_results import share_results

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.window import WindowLedger
    from analytics.workloads.model import Context, Finding

Site = Lake | Recording
HOUR, DAY = 3600, 86_400
IDLE = tuple(rule for rule in RULES if rule.name in ("held", "never_used"))
"""The rules of `idle_findings` and `only`; what other rules find beside them has tests of its own."""
HELD: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}
BUSY: dict[str, Any] = {"gpu_util_pct": 90.0, "process_count": 1, "gpu_util_coverage_ratio": 1.0}
FREE: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 0, "gpu_util_coverage_ratio": 1.0}


def idle_findings(site: Site, since: str | None = None, until: str | None = None) -> tuple[Finding, ...]:
    """Those of the two rules about GPUs that do nothing; no other rule runs."""
    return run_rules(context_of(site, since, until), IDLE)


def only(site: Site, since: str | None = None, until: str | None = None) -> Finding:
    """The one finding that there is."""
    (found,) = idle_findings(site, since, until)
    return found


def findings(site: Site, since: str | None = None, until: str | None = None) -> tuple[Finding, ...]:
    """The findings of a window in their order, as `--all` lists them while the newest row is being written."""
    return reviewed(site, since, until).findings


def reviewed(site: Site, since: str | None = None, until: str | None = None, *, later_ms: int = 0) -> Review:
    """The findings of a window and all that goes with them, so long after the newest row."""
    inputs, ledger = opened(site, since, until)
    return review(inputs, ledger, now_ms=_newest_ms(ledger) + later_ms)


def context_of(site: Site, since: str | None = None, until: str | None = None) -> Context:
    """What a rule is given to look at, as the commands have it while the newest row is being written."""
    inputs, ledger = opened(site, since, until)
    return open_context(inputs, ledger, None, _newest_ms(ledger))


def _newest_ms(ledger: WindowLedger) -> int:
    return int(ledger.whole.segments["end"].max())  # type: ignore[arg-type]  # of integers


@pytest.fixture
def site() -> Recording:
    """A recording of no rows yet."""
    return Recording()


@pytest.fixture(autouse=True)
def _one_ledger_for_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    share_results(monkeypatch)


SIMULATED = SimulatedFleet(gpus=16, days=8, interval_ms=60_000, until_ms=20_777 * DAY_MS)
"""A small fleet with one of each planted situation; 2026-11-20 is its end."""


def simulated_lake(base: Path) -> tuple[Lake, FleetPlan]:
    """The lake of that fleet, shared by all workers of a run and never changed; `base`: a worker's temporary folder."""

    def fill(folder: Path) -> None:
        (folder / "summary").write_bytes(pickle.dumps(write_fleet(made_lake(folder / "lake"), SIMULATED)))

    folder = made_once(base, "simulated", fill)
    return made_lake(folder / "lake"), pickle.loads((folder / "summary").read_bytes())  # noqa: S301  # this run's own


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, FleetPlan]:
    """The lake of SIMULATED, and what was planted in it."""
    return simulated_lake(tmp_path_factory.getbasetemp())
