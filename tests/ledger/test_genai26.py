"""The published figures of a real trace, from its files to `fallow ledger --json`, and once more by DuckDB alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

from analytics.ledger.rollups import percentiles
from analytics.ledger.settings import LedgerSettings
from fallow.schema import STATES
from tests.conftest import REPOSITORY
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.duckdb_ledger import assert_agree, duckdb_ledger
from tests.ledger.rows import load

if TYPE_CHECKING:
    from pathlib import Path

TRACES = REPOSITORY.parent / "shared" / "traces" / "genai26"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not TRACES.is_dir(), reason="the trace genai26 is not there (its licence keeps it out)"),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("genai26") / "lake"
    columns = [
        f"--column={name}={TRACES / file}:value"
        for name, file in (("gpu_util_pct", "duty.csv.gz"), ("mem_used_bytes", "memory.csv.gz"))
    ]
    keys = ("--time", "timestamp_anon", "--gpu", "container_ip", "--interval", "57s", "--lake", str(lake))
    done = run_in_process("import", "series", *keys, *columns)
    assert done.returncode == 0, done.stderr
    return lake


@pytest.fixture(scope="module")
def printed(lake: Path) -> dict[str, Any]:
    done = run_in_process("ledger", "--lake", str(lake), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_shape_is_the_promised_one(printed: dict[str, Any]) -> None:
    assert list(printed)[:6] == ["window", "gpus", "coverage", "gpu_hours", "basis", "idle"]
    assert printed["window"] == {"since": "2022-09-11T01:12:00Z", "until": "2022-09-12T00:00:57Z"}
    assert list(printed["gpu_hours"]) == ["total", *STATES]
    assert list(printed["idle"]) == ["share", "idle_intervals"]
    assert list(printed["idle"]["idle_intervals"]) == ["5m", "30m", "60m", "120m"]
    assert isinstance(printed["gpus"], int)


def test_every_published_figure_comes_out_to_the_printed_digits(printed: dict[str, Any]) -> None:
    hours = printed["gpu_hours"]
    observed = hours["total"] - hours["unknown"]
    assert f"{observed:,.2f}" == "2,553.44"
    assert f"{100 * printed['idle']['share']:.2f}" == "67.41"
    idle_intervals = [f"{100 * share:.2f}" for share in printed["idle"]["idle_intervals"].values()]
    assert idle_intervals == ["55.53", "31.50", "19.23", "13.09"]
    assert sum(hours[state] for state in STATES) == pytest.approx(hours["total"], abs=1e-9)
    assert printed["known_share"] == pytest.approx(observed / hours["total"], abs=1e-12)
    assert printed["coverage"] < printed["known_share"], "some GPUs fell silent before the end: that is in no sum"


def test_memory_stands_for_the_users_and_the_report_says_so(lake: Path) -> None:
    done = run_in_process("report", "--all", "--lake", str(lake))
    assert done.returncode == 0, done.stderr
    assert "GPU-hours count as in use because memory was allocated; no process list names the user" in done.stdout
    found = run_in_process("findings", "--all", "--lake", str(lake))
    assert "no process list was read; memory in use counts as a user" in " ".join(found.stdout.split())


def test_the_hours_have_the_samples_figures(lake: Path) -> None:
    """By time instead of by sample, so that shares differ a little from those of the rows."""
    rollups = load(made_lake(lake)).rollups
    hours = rollups.hourly("observed_ms", "zero_ms", "gpu_util_mean_pct")
    observed_ms = int(hours["observed_ms"].cast(pl.Int64).sum())
    # an hour has what its own day's rows say: of the last ones before midnight one interval, not up to three
    assert observed_ms / 3_600_000 == pytest.approx(2553.44, abs=0.2)
    assert f"{100 * hours['zero_ms'].cast(pl.Int64).sum() / observed_ms:.2f}" == "67.41"
    keys = hours.select("host", "gpu", "time", group=pl.lit(0))
    whole = rollups.histograms(["gpu_util_ms"], keys, 1)["gpu_util_ms"][0]
    assert whole.sum() == observed_ms
    assert percentiles(np.array([whole]), 0.5)[0] == 0
    assert 100 * whole[:5].sum() / observed_ms == pytest.approx(72.2736, abs=1)
    assert 100 * whole[51:].sum() / observed_ms == pytest.approx(2.3257, abs=0.3)
    mean = (hours["gpu_util_mean_pct"] * hours["observed_ms"]).sum() / observed_ms
    assert mean == pytest.approx(7.025178, abs=0.3)


def test_duckdb_alone_finds_the_same(lake: Path) -> None:
    assert_agree(load(made_lake(lake)), duckdb_ledger(made_lake(lake), LedgerSettings()))
    with duckdb.connect() as connection:
        counted = connection.read_parquet(f"{lake}/gpu/**/*.parquet").aggregate(
            "count(gpu_util_pct), count(mem_used_bytes), round(avg(gpu_util_pct::double), 6), median(gpu_util_pct),"
            " round(100 * avg((gpu_util_pct = 0)::int), 4), round(100 * avg((gpu_util_pct < 5)::int), 4), round(100 *"
            " avg((gpu_util_pct > 50)::int), 4), round(avg(mem_used_bytes) filter (gpu_util_pct = 0) / 1e9, 2)"
        )
        assert counted.fetchall() == [(157_417, 161_413, 7.025178, 0.0, 66.8473, 72.2736, 2.3257, 25.78)]
