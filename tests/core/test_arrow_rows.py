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


UNFIT = [
    (GPU, "temperature_c", [70_000, 70.5, "70"]),
    (GPU, "mem_used_bytes", [2**63]),
    (GPU, "power_w", ["70", [70]]),
    (PROCESS, "command", ["tr\udcc3", 7]),
    (DEVICE, "mig_enabled", [1]),
    (DELIVERY, "finding_ids", ["GPU-1", ["GPU-1", 7], 7]),
]
FIT = [(GPU, "temperature_c", [40, 70.0]), (GPU, "power_w", [70]), (DELIVERY, "finding_ids", [["GPU-1", None]])]


@pytest.mark.parametrize(
    ("table", "column", "values"), UNFIT, ids=lambda value: str(value) if type(value) is str else ""
)
def test_a_value_that_does_not_fit_becomes_null_and_is_counted(
    table: LakeTable, column: str, values: list[Any]
) -> None:
    fit = next((each[2] for each in FIT if each[:2] == (table, column)), [])
    rows = [{"time": number, column: each} for number, each in enumerate([*fit, None, *values])]
    data, misfits = made(table, rows)
    assert data[column].to_pylist() == [*fit, *[None] * (1 + len(values))]
    assert misfits == {column: len(values)}


def test_rows_are_sorted_by_gpu_and_time_and_those_without_a_gpu_come_last() -> None:
    given = [(2, "b", ""), (1, None, "first"), (1, "é", ""), (1, "b", ""), (1, None, "second"), (3, "a", "")]
    found = made(EVENT, [{"time": time, "gpu": gpu, "kind": kind} for time, gpu, kind in given])[0]
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
