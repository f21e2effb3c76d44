"""The simulated fleet against measured ones: against published figures, and against the traces where they lie about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from analytics.simulation import SimulatedFleet, plan_fleet
from analytics.simulation.days import host_days
from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNTIL_MS = 20_777 * DAY_MS  # 2026-11-20
TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
pytestmark = pytest.mark.long
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the traces are not in ../shared/traces (their licence keeps them out of the project)"
)


@dataclass(frozen=True)
class Rows:
    """A pool's rows, GPU by row: planted GPUs are left out, they are nobody's ordinary work."""

    util_pct: NDArray[np.float64]
    power_w: NDArray[np.float64]
    mem_pct: NDArray[np.float64]
    process_count: NDArray[np.float64]


def pool_rows(fleet: SimulatedFleet, pool: str) -> Rows:
    plan = plan_fleet(fleet)
    planted = {gpu for each in plan.planted if each.kind != "agent_outage" for gpu in each.gpus}
    per_gpu: dict[str, list[list[NDArray[np.float64]]]] = {}
    for host in plan.hosts:
        if host.host.pool.name != pool:
            continue
        for day in host_days(fleet, host):
            for gpu in day.gpus:
                mem_pct = 100 * gpu.mem_used_bytes / host.host.pool.card.mem_total_bytes
                values = [gpu.did.gpu_util_pct, gpu.board.power_w, mem_pct, gpu.process_count.astype(np.float64)]
                per_gpu.setdefault(host.host.gpus[gpu.position].uuid, []).append(values)
    kept = [np.concatenate(days, axis=1) for uuid, days in per_gpu.items() if uuid not in planted]
    return Rows(*np.stack(kept, axis=1))


@pytest.fixture(scope="module")
def serving() -> Rows:
    return pool_rows(SimulatedFleet(gpus=800, days=5, until_ms=UNTIL_MS), "serving")


@pytest.fixture(scope="module")
def training() -> Rows:
    """The A100 pool: Acme's cards. Whole weeks, because weekends are quieter."""
    return pool_rows(SimulatedFleet(gpus=1000, days=14, interval_ms=60_000, until_ms=UNTIL_MS), "train-old")


def zero_intervals_s(util_pct: NDArray[np.float64], step_s: float) -> NDArray[np.float64]:
    """Lengths of the unbroken runs of rows at 0, over all GPUs."""
    zero = np.pad((util_pct == 0).astype(np.int8), ((0, 0), (1, 1)))
    edges = np.diff(zero, axis=1)
    starts, ends = np.argwhere(edges == 1)[:, 1], np.argwhere(edges == -1)[:, 1]
    lengths: NDArray[np.float64] = (ends - starts) * step_s
    return lengths


def share_pct(idle_intervals_s: NDArray[np.float64], at_least_min: float, total_s: float) -> float:
    return 100.0 * float(idle_intervals_s[idle_intervals_s >= 60 * at_least_min].sum()) / total_s


def test_serving_is_idle_as_long_as_genai26_says(serving: Rows) -> None:
    # genai26 (alibaba/clusterdata cluster-trace-v2026-GenAI), time-weighted: % at 0, % in zero intervals of >= n min
    published = {5: 55.53, 30: 31.50, 60: 19.23, 120: 13.09}
    idle_intervals_s = zero_intervals_s(serving.util_pct, 30)
    total_s = 30.0 * serving.util_pct.size
    assert 100 * (serving.util_pct == 0).mean() == pytest.approx(67.41, abs=2.0)
    for minutes, percent in published.items():
        assert share_pct(idle_intervals_s, minutes, total_s) == pytest.approx(percent, abs=2.5), minutes
    assert serving.util_pct.mean() == pytest.approx(7.03, abs=1.0)
    assert 100 * (serving.util_pct < 5).mean() == pytest.approx(72.27, abs=2.5)
    assert 100 * (serving.util_pct > 50).mean() == pytest.approx(2.33, abs=1.0)


def test_training_is_busy_as_much_as_acme_says(training: Rows) -> None:
    # Acme: median 99 (Seren) and 97 (Kalos); 31.4 and 33.8 % of samples at 0; 32.1 and 35.4 % at 25 or less
    assert 96.5 <= np.median(training.util_pct) <= 99.5
    assert 29.0 <= 100 * (training.util_pct == 0).mean() <= 36.0
    assert 30.0 <= 100 * (training.util_pct <= 25).mean() <= 38.0
    assert 100 * (training.util_pct >= 95).mean() == pytest.approx(60.0, abs=5.0)
    # memory in use is 0 in 25-30 % of Acme's samples
    assert 100 * (training.process_count == 0).mean() == pytest.approx(27.5, abs=4.0)


@needs_traces
def test_serving_idle_intervals_follow_the_trace(serving: Rows) -> None:
    measured_s, total_s = trace_zero_intervals()
    simulated_s = zero_intervals_s(serving.util_pct, 30)
    simulated_total_s = 30.0 * serving.util_pct.size
    # beyond two hours the trace is one night's few idle intervals: nothing to fit to
    for minutes in (5, 10, 15, 30, 45, 60, 90, 120):
        simulated = share_pct(simulated_s, minutes, simulated_total_s)
        measured = share_pct(measured_s, minutes, total_s)
        assert simulated == pytest.approx(measured, abs=2.5), minutes


@needs_traces
def test_serving_levels_follow_the_trace(serving: Rows) -> None:
    measured = pl.read_csv(TRACES / "genai26" / "duty.csv.gz")["value"].to_numpy()
    assert distance(serving.util_pct.ravel(), measured) < 0.05


@needs_traces
def test_training_rows_follow_acme(training: Rows) -> None:
    # utilization and power are within 8 points of the nearer cluster's distribution; memory differs more between them
    assert min(acme_distance(training.util_pct, f"{name}_gpu_util") for name in ("seren", "kalos")) < 0.08
    assert min(acme_distance(training.power_w, f"{name}_power_w") for name in ("seren", "kalos")) < 0.08
    assert min(acme_distance(training.mem_pct, f"{name}_gpu_mem_pct") for name in ("seren", "kalos")) < 0.10


def trace_zero_intervals() -> tuple[NDArray[np.float64], float]:
    """Zero idle intervals and total seconds of genai26: a sample stands for at most 171 s; a longer gap ends one."""
    pod = "container_ip"
    rows = pl.read_csv(TRACES / "genai26" / "duty.csv.gz").sort(pod, "timestamp_anon")
    step = (pl.col("timestamp_anon").shift(-1) - pl.col("timestamp_anon")).over(pod).fill_null(57.0)
    rows = rows.with_columns(step=step, zero=pl.col("value") == 0)
    cut = (pl.col("zero") != pl.col("zero").shift(1)) | (pl.col("step").shift(1) > 171)
    rows = rows.with_columns(
        idle_interval=cut.over(pod).fill_null(value=True).cum_sum(), stands=pl.col("step").clip(0, 171)
    )
    idle_intervals = rows.filter("zero").group_by("idle_interval").agg(pl.col("stands").sum())["stands"]
    return idle_intervals.to_numpy(), float(rows["stands"].sum())


def distance(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """The Kolmogorov-Smirnov distance, on whole numbers: utilization is one."""
    grid = np.arange(0.5, 100.0)
    shares = [np.searchsorted(np.sort(side), grid) / len(side) for side in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def acme_distance(values: NDArray[np.float64], series: str) -> float:
    """The largest gap between a distribution and a published one, over 40 levels of the published one."""
    known = pl.read_parquet(TRACES / "acme" / "cdf_quantiles.parquet").filter(series=series).sort("x", "cdf_pct")
    levels, ordered = known["x"].to_numpy(), np.sort(values.ravel())
    grid = np.linspace(levels.min(), levels.max(), 42)[1:-1]
    ours = np.searchsorted(ordered, grid) / len(ordered)
    theirs = np.searchsorted(levels, grid) / len(levels)
    return float(np.abs(ours - theirs).max())
