"""A simulated fleet in which situations were planted: every one is found and attributed, and nothing is made up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from fallow.clock import HOUR_MS
from tests.findings.conftest import findings
from tests.ledger.rows import load

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from analytics.simulation import FleetPlan, Planted
    from analytics.workloads.model import Finding
    from fallow.lake import Lake


@pytest.fixture(scope="module")
def found(simulated: tuple[Lake, FleetPlan]) -> tuple[Finding, ...]:
    return findings(simulated[0])


@pytest.fixture(scope="module")
def ledger(simulated: tuple[Lake, FleetPlan]) -> Ledger:
    return load(simulated[0])


def planted(simulated: tuple[Lake, FleetPlan], kind: str) -> Planted:
    (situation,) = (each for each in simulated[1].planted if each.kind == kind)
    return situation


def test_the_gpus_that_nobody_ever_used(simulated: tuple[Lake, FleetPlan], found: tuple[Finding, ...]) -> None:
    (never,) = (each for each in found if each.rule == "never_used")
    block = planted(simulated, "never_used")
    assert (never.host, set(never.gpus), never.user) == (block.host, set(block.gpus), None)
    assert never.gpu_hours == pytest.approx(len(block.gpus) * (block.end_ms - block.start_ms) / HOUR_MS, rel=1e-3)
    assert never.confidence.failed == (
        "8.0 days of history, 14 are needed",
        "the probability of staying unused for another 7 d is 81.6 %, high confidence needs 95 %",
    )
    assert never.confidence.grade == "low", "two conditions failed"


def test_the_notebook_that_was_left_open(simulated: tuple[Lake, FleetPlan], found: tuple[Finding, ...]) -> None:
    notebook = planted(simulated, "held_notebook")
    (held,) = (each for each in found if each.rule == "held" and set(each.gpus) & set(notebook.gpus))
    assert (held.host, held.user, held.reclaimable) == (notebook.host, notebook.user, True)
    # it may have paused for the last time a little before it was left for good
    assert notebook.start_ms - HOUR_MS <= held.since_ms <= notebook.start_ms + 10 * 60_000
    assert held.gpu_hours == pytest.approx((notebook.end_ms - notebook.start_ms) / HOUR_MS, rel=0.01)
    assert held.next_command.startswith(f"ssh {notebook.host} kill ")


def test_no_finding_says_never_used_of_a_gpu_that_was_used(found: tuple[Finding, ...], ledger: Ledger) -> None:
    used = set(ledger.segments.filter(pl.col("state").is_in(["held", "low", "active"]))["gpu"])
    never = {gpu for each in found if each.rule == "never_used" for gpu in each.gpus}
    assert never
    assert not never & used
    assert never | used == set(ledger.segments["gpu"])


def test_every_held_finding_rests_on_held_segments_of_its_user(found: tuple[Finding, ...], ledger: Ledger) -> None:
    spans = ledger.segments.with_columns(ms=pl.col("end") - pl.col("time"))
    long = spans.filter((pl.col("state") == "held") & (pl.col("segment_end") - pl.col("segment_start") >= HOUR_MS))
    for each in (one for one in found if one.rule == "held"):
        own = long.filter((pl.col("host") == each.host) & pl.col("user").eq_missing(pl.lit(each.user)))
        assert (own["ms"].sum(), set(own["gpu"])) == (each.gpu_ms, set(each.gpus))
    assert sum(each.gpu_ms for each in found if each.rule == "held") == long["ms"].sum()
