"""A GPU's rows as the lake has them: none invented, no other day opened, nothing of others shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.readings import READINGS, binned, gpu_readings, only_during
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import Lake, LakeFile
from tests.lakes import made_lake

DAY = 1_763_510_400_000
"""2025-11-19T00:00Z."""
STEP = 10_000


def row(at_ms: int, gpu: str = "GPU-a", **values: Any) -> dict[str, Any]:
    return {"time": DAY + at_ms, "gpu": gpu, "interval_ms": STEP, **values}


def lake_of(folder: Path, rows: list[dict[str, Any]], host: str = "h1", day_ms: int = DAY) -> Lake:
    lake = made_lake(folder / "lake")
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, rows))
    lake.put(LakeFile("gpu", utc_day(day_ms), host, 0, len(rows)), data)
    return lake


def spans_of(*hosts: str) -> pl.DataFrame:
    """The GPU on these hosts, each a day after the other."""
    rows = [("GPU-a", host, DAY + day * DAY_MS, DAY + (day + 1) * DAY_MS, 1.0) for day, host in enumerate(hosts)]
    names = {"gpu": pl.String, "host": pl.String, "time": pl.Int64, "end": pl.Int64, "gpu_share": pl.Float64}
    return pl.DataFrame(rows, schema=names, orient="row")


def test_the_rows_of_one_gpu_in_a_time_where_what_cannot_be_is_unknown_and_zero_is_zero(tmp_path: Path) -> None:
    values = {
        "gpu_util_pct": (0.0, 250.0, None, 3.0),
        "mem_used_bytes": (0, -1, 7, 8),
        "power_w": (float("nan"), float("inf"), -3.0, 4.0),
    }
    rows = [
        row(step * STEP, gpu, **{name: each[max(step - 2, 0)] for name, each in values.items()})
        for gpu in ("GPU-a", "GPU-b")
        for step in range(6)
    ]
    found = gpu_readings(lake_of(tmp_path, rows), "GPU-a", spans_of("h1"), DAY + 2 * STEP, DAY + 5 * STEP)
    assert found.columns == ["time", "interval_ms", *READINGS]
    assert found.drop("interval_ms").to_dict(as_series=False) == {
        "time": [DAY + step * STEP for step in (2, 3, 4)],
        "gpu_util_pct": [0.0, None, None],
        "sm_active_pct": [None] * 3,
        "mem_used_bytes": [0.0, None, 7.0],
        "power_w": [None] * 3,
    }


def test_only_files_of_its_host_and_days_are_opened(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, [row(0, gpu_util_pct=5.0)])
    whole = Path(lake.files("gpu")[0].url)
    for date, host in ((utc_day(DAY - DAY_MS), "h1"), (utc_day(DAY), "h2")):
        broken = tmp_path / "lake" / "gpu" / f"date={date}" / f"host={host}" / whole.name
        broken.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole, broken)
        broken.write_bytes(broken.read_bytes()[:50])
    assert gpu_readings(lake, "GPU-a", spans_of("h1"), DAY, DAY + HOUR_MS).height == 1
    assert lake.left_out.found == ()
    assert gpu_readings(lake, "GPU-a", spans_of("h1"), DAY - 1, DAY + HOUR_MS).height == 1
    assert [each.kind for each in lake.left_out.found] == ["broken"]
    assert gpu_readings(lake, "GPU-a", spans_of(), DAY, DAY + HOUR_MS).is_empty()


def test_a_bin_has_least_mean_and_most_and_a_gap_has_nothing() -> None:
    rows = pl.DataFrame(
        {
            "time": [DAY, DAY + STEP, DAY + 6 * STEP, DAY + 13 * STEP],
            "interval_ms": [STEP, 3 * STEP, STEP, STEP],
            "power_w": [100.0, 200.0, None, 40.0],
        }
    )
    found = binned(rows, ["power_w"], DAY, DAY + 18 * STEP, 6 * STEP)
    assert found["time"].to_list() == [DAY, DAY + 6 * STEP, DAY + 12 * STEP]
    assert found["power_w_min"].to_list() == [100.0, None, 40.0]
    assert found["power_w_mean"].to_list() == [175.0, None, 40.0]
    assert found["power_w_max"].to_list() == [200.0, None, 40.0]


def test_a_row_that_reaches_into_somebody_else_s_time_is_theirs_too() -> None:
    rows = pl.DataFrame({"time": [DAY + step * STEP for step in range(9)], "interval_ms": [STEP] * 9})
    spans = pl.DataFrame(
        {
            "gpu": ["GPU-a", "GPU-a", "GPU-b"],
            "time": [DAY + STEP, DAY + 2 * STEP, DAY + 6 * STEP],
            "end": [DAY + 2 * STEP, DAY + 4 * STEP - 1, DAY + 8 * STEP],
            "gpu_share": [1.0, 1.0, 1.0],
        }
    )
    found = [(time - DAY) // STEP for time in only_during(rows, spans)["time"]]
    # row 3 ends a millisecond after the span, rows 1 and 2 lie in two that touch
    assert found == [1, 2, 6, 7]
    assert only_during(rows, spans.clear()).is_empty()


def test_of_several_rows_for_one_moment_the_page_shows_what_the_ledger_counts(tmp_path: Path) -> None:
    """Two writers under one name, clocks a little apart, and an idle clone of the machine: 90 % here is not 0 there."""
    busy = [row(step * STEP, gpu_util_pct=90.0, process_count=1, mem_used_bytes=9) for step in range(360)]
    idle = [row(step * STEP, gpu_util_pct=0.0, process_count=0, mem_used_bytes=0) for step in range(360)]
    late = [each | {"offset_ms": 500, "gpu_util_pct": 80.0} for each in busy[100:200]]
    rows = [each for pair in zip(idle, busy, strict=True) for each in pair] + late
    lake = lake_of(tmp_path, rows)
    clone = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, idle[:300]))
    lake.put(LakeFile("gpu", utc_day(DAY), "h0", 0, 300), clone)
    spans = load_ledger(lake, LedgerSettings()).segments
    span_ms = (spans["end"] - spans["time"]).sum()
    active_ms = (spans["util_ms"] * spans["gpu_util_mean_pct"]).sum() / 100
    found = gpu_readings(lake, "GPU-a", spans, DAY, DAY + HOUR_MS)
    shown = binned(found, ["gpu_util_pct"], DAY, DAY + HOUR_MS, HOUR_MS)["gpu_util_pct_mean"].item()
    assert shown == pytest.approx(100 * active_ms / span_ms, rel=1e-6)
    assert shown > 85
    assert set(spans["state"]) == {"active"}


def test_the_rows_of_two_hosts_are_those_of_their_spans(tmp_path: Path) -> None:
    rows = [row(step * STEP, gpu_util_pct=1.0) for step in range(6)]
    lake = lake_of(tmp_path, rows)
    lake_of(tmp_path, [each | {"gpu_util_pct": 2.0} for each in rows], host="h2")
    first = spans_of("h1").with_columns(end=DAY + 3 * STEP)
    second = spans_of("h2").with_columns(time=DAY + 3 * STEP)
    found = gpu_readings(lake, "GPU-a", pl.concat([first, second]), DAY, DAY + HOUR_MS)
    assert found["gpu_util_pct"].to_list() == [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
