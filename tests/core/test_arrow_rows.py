"""Spooled rows as an Arrow table: the same as pyarrow makes of them, sorted, and null where a value does not fit."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from fallow import parquet
from fallow.errors import LakeError
from fallow.parquet_writer import arrow_rows
from fallow.schema import DELIVERY, DEVICE, EVENT, GPU, HOST, PROCESS, TABLES, LakeTable
from tests.core.test_parquet import by_bytes, rows_of

Row = dict[str, Any]
OBSERVED = [table for table in TABLES if not table.derived]


def spooled(rows: list[Row]) -> list[Row]:
    """As they come out of the spool."""
    return [json.loads(json.dumps(row)) for row in rows]


def made(table: LakeTable, rows: list[Row]) -> tuple[pa.Table, dict[str, int]]:
    data, misfits = arrow_rows(table, spooled(rows))
    return pa.table(data).cast(parquet.arrow_schema(table)), misfits


@pytest.mark.parametrize("table", OBSERVED, ids=lambda table: table.name)
def test_rows_become_what_pyarrow_makes_of_them(table: LakeTable) -> None:
    @settings(max_examples=10)
    @given(rows_of(table))
    def same(rows: list[Row]) -> None:
        data, misfits = made(table, rows)
        assert data.equals(parquet.table_from_rows(table, sorted(rows, key=by_bytes)))
        assert not misfits

    same()


@pytest.mark.parametrize(
    ("table", "column", "value", "kept"),
    [
        (GPU, "temperature_c", 70_000, None),
        (GPU, "temperature_c", 70.0, 70),
        (GPU, "temperature_c", 70.5, None),
        (GPU, "temperature_c", "70", None),
        (GPU, "mem_used_bytes", 2**63, None),
        (GPU, "power_w", 70, 70.0),
        (GPU, "power_w", "70", None),
        (GPU, "power_w", [70], None),
        (PROCESS, "command", "tr\udcc3", None),
        (PROCESS, "command", 7, None),
        (DEVICE, "mig_enabled", 1, None),
        (DELIVERY, "finding_ids", "GPU-1", None),
        (DELIVERY, "finding_ids", ["GPU-1", 7], None),
        (DELIVERY, "finding_ids", ["GPU-1", None], ["GPU-1", None]),
        (DELIVERY, "finding_ids", 7, None),
    ],
)
def test_a_value_that_does_not_fit_becomes_null_and_is_counted(
    table: LakeTable, column: str, value: Any, kept: Any
) -> None:
    rows = [{"time": number, column: each} for number, each in enumerate([None, value])]
    data, misfits = made(table, rows)
    assert data[column].to_pylist() == [None, kept]
    assert misfits == ({column: 1} if kept is None else {})


def test_what_fits_stays_beside_what_does_not() -> None:
    data, misfits = made(
        GPU, [{"time": n, "gpu": "GPU-1", "temperature_c": each} for n, each in enumerate([40, 9**9, None, 41])]
    )
    assert data["temperature_c"].to_pylist() == [40, None, None, 41]
    assert misfits == {"temperature_c": 1}


def test_rows_are_sorted_by_gpu_and_time_and_those_without_a_gpu_come_last() -> None:
    rows = [
        {"time": time, "gpu": gpu, "kind": kind}
        for time, gpu, kind in (
            (2, "b", ""),
            (1, None, "first"),
            (1, "é", ""),
            (1, "b", ""),
            (1, None, "second"),
            (3, "a", ""),
        )
    ]
    found = made(EVENT, rows)[0]
    assert found["gpu"].to_pylist() == ["a", "b", "b", "é", None, None]
    assert found["time"].cast("int64").to_pylist() == [3, 1, 2, 1, 1, 1]
    assert found["kind"].to_pylist()[-2:] == ["first", "second"]
    assert made(HOST, [{"time": 2}, {"time": 1}])[0]["time"].cast("int64").to_pylist() == [1, 2]


def test_a_column_that_the_table_lacks_is_an_error() -> None:
    with pytest.raises(LakeError, match="the table 'gpu' has no column util"):
        arrow_rows(GPU, [{"time": 0, "util": 1}])


def test_what_is_no_number_stays_what_it_is() -> None:
    data, _ = made(GPU, [{"time": 0, "power_w": math.nan}, {"time": 1, "power_w": math.inf}])
    first, second = data["power_w"].to_pylist()
    assert math.isnan(first)
    assert second == math.inf
