"""Published utilization of four fleets, from quantile functions through import, ledger and hourly histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from analytics.ledger.rollups import BINS, percentiles
from tests.conftest import REPOSITORY
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, load

if TYPE_CHECKING:
    from fallow.lake import Lake

QUANTILES = REPOSITORY.parent / "shared" / "traces" / "acme" / "cdf_quantiles.parquet"

pytestmark = pytest.mark.skipif(not QUANTILES.is_file(), reason="the trace acme is not there")

ROWS, EVERY_MS = 1000, 10_000
UTILIZATION = {fleet: f"{fleet}_gpu_util" for fleet in ("seren", "philly", "pai")} | {"kalos": "kalos_gpu_util_fig2"}
SM_ACTIVITY = {"seren": "seren_sm_active", "kalos": "kalos_sm_active"}


def samples_of(quantiles: pl.DataFrame, series: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """A thousand samples whose distribution is the series', in an order that mixes high and low."""
    points = quantiles.filter(pl.col("series") == series).sort("x", "cdf_pct")
    climbing = np.maximum.accumulate(points["cdf_pct"].to_numpy())  # one was read off a plot
    share = (np.arange(ROWS) + 0.5) / ROWS * 100
    values = np.interp(share, climbing, points["x"].to_numpy())
    return np.random.default_rng(1).permutation(values)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Each fleet as one GPU."""
    folder = tmp_path_factory.mktemp("acme")
    quantiles = pl.read_parquet(QUANTILES)
    for column, series in (("gpu_util_pct", UTILIZATION), ("sm_active_pct", SM_ACTIVITY)):
        rows = [
            {"time": T0 + number * EVERY_MS, "gpu": gpu, "value": value}
            for gpu, name in series.items()
            for number, value in enumerate(samples_of(quantiles, name))
        ]
        pl.DataFrame(rows).with_columns(pl.from_epoch("time", "ms")).write_csv(folder / f"{column}.csv")
    columns = [f"--column={name}={folder / name}.csv:value" for name in ("gpu_util_pct", "sm_active_pct")]
    keys = ("--time", "time", "--gpu", "gpu", "--interval", "10s", "--lake", str(folder / "lake"))
    done = run_in_process("import", "series", *keys, *columns)
    assert done.returncode == 0, done.stderr
    return made_lake(folder / "lake")


@pytest.fixture(scope="module")
def histograms(lake: Lake) -> dict[str, dict[str, Any]]:
    """Milliseconds at each whole percent, by column and fleet."""
    rollups = load(lake).rollups
    hours = rollups.hourly("observed_ms")
    assert len(hours) == len(UTILIZATION) * 3  # 10,000 s
    fleets = sorted(hours["gpu"].unique())
    keys = hours.select("host", "gpu", "time", group=pl.col("gpu").replace_strict(fleets, range(len(fleets))))
    sums = rollups.histograms(["gpu_util_ms", "sm_active_ms"], keys, len(fleets))
    return {
        column: dict(zip((name.removeprefix("import/") for name in fleets), rows, strict=True))
        for column, rows in sums.items()
    }


PUBLISHED = {"seren": (99, 31.4, 32.1), "kalos": (97, 33.8, 35.4), "philly": (48.5, 32.2, 40.9), "pai": (3.8, 36.1, 83)}


@pytest.mark.parametrize("fleet", list(PUBLISHED))
def test_utilization(lake: Lake, histograms: dict[str, Any], fleet: str) -> None:
    median, at_zero_pct, up_to_25_pct = PUBLISHED[fleet]
    histogram = histograms["gpu_util_ms"][fleet]
    assert histogram.sum() == ROWS * EVERY_MS
    assert percentiles(np.array([histogram]), 0.5)[0] == pytest.approx(median, abs=1)
    assert 100 * histogram[:26].sum() / histogram.sum() == pytest.approx(up_to_25_pct, abs=1)
    mine = load(lake).segments.filter(gpu=f"import/{fleet}")
    assert 100 * mine["zero_ms"].sum() / mine["util_ms"].sum() == pytest.approx(at_zero_pct, abs=1)


@pytest.mark.parametrize(("fleet", "median"), [("seren", 50.2), ("kalos", 33.3)])
def test_sm_activity(histograms: dict[str, Any], fleet: str, median: float) -> None:
    assert percentiles(np.array([histograms["sm_active_ms"][fleet]]), 0.5)[0] == pytest.approx(median, abs=1)


def test_a_busy_fleet_that_uses_little_of_its_chips(histograms: dict[str, Any]) -> None:
    """Seren: 95 % and more of utilization in 62 % of the samples, above 75 % of SM activity in only 22 %."""
    busy, full = histograms["gpu_util_ms"]["seren"], histograms["sm_active_ms"]["seren"]
    assert 100 * busy[95:].sum() / busy.sum() == pytest.approx(62, abs=1)
    assert 100 * full[76:].sum() / full.sum() == pytest.approx(22, abs=1)


@pytest.mark.parametrize("fleet", UTILIZATION)
def test_a_percentile_is_at_most_one_point_too_low(histograms: dict[str, Any], fleet: str) -> None:
    values = np.sort(samples_of(pl.read_parquet(QUANTILES), UTILIZATION[fleet]))
    histogram = histograms["gpu_util_ms"][fleet]
    assert len(histogram) == BINS
    for share in (0.05, 0.35, 0.5, 0.75, 0.9, 0.98):
        true, (found,) = values[int(np.ceil(share * ROWS)) - 1], percentiles(np.array([histogram]), share)
        assert found is not None
        assert found <= true < found + 1
