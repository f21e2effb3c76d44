"""Whatever the tables hold, every command says its numbers or one clear sentence, and never ends in a traceback."""

from __future__ import annotations

import io
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallow import parquet, schema
from fallow.cli import main
from fallow.clock import DAY_MS
from fallow.lake import Lake, LakeFile
from fallow.schema import Type
from tests.lakes import made_lake
from tests.ledger.rows import T0

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conftest import RunFallow

Row = dict[str, Any]

TABLES = (schema.GPU, schema.PROCESS, schema.ALLOCATION, schema.DEVICE, schema.HOST, schema.SERVING, schema.EVENT)

TEXT = st.sampled_from(
    ["", "a", "MIG-a", "b+c", "a\nb", "\u202e", "'; drop table", "lost", "ok", "slurm", "7", "x" * 300]
)
WHOLE = {Type.INT16: 2**15, Type.INT32: 2**31, Type.INT64: 2**63}


def values(kind: Type) -> st.SearchStrategy[Any]:
    """Anything that the type can hold, the impossible ends included."""
    if kind is Type.TIMESTAMP:
        near = st.integers(-6, 60).map(lambda tens: T0 + 10_000 * tens)
        return near | near | st.sampled_from([T0 - 40 * DAY_MS, T0 + 40 * DAY_MS])
    if kind in WHOLE:
        most = WHOLE[kind]
        return st.sampled_from([0, 1, 10_000, -1, -5, most - 1, -most]) | st.integers(-most, most - 1)
    if kind in (Type.FLOAT, Type.DOUBLE):
        odd = st.sampled_from([0.0, -0.0, 100.0, 300.0, -1.0, 1e-40, 3e38, float("nan"), float("inf"), float("-inf")])
        return odd | st.floats(0, 100)
    return st.booleans() if kind is Type.BOOL else TEXT


def rows_of(table: schema.LakeTable) -> st.SearchStrategy[list[Row]]:
    """A few rows of the table, each column null or anything; GPUs, times and intervals mostly such that rows meet."""
    columns = {each.name: st.none() | values(each.type) for each in table.columns}
    columns["time"] = values(Type.TIMESTAMP)
    if "gpu" in columns:
        columns["gpu"] = st.sampled_from(["a", "a", "b", "MIG-a", None])
    if "interval_ms" in columns:
        columns["interval_ms"] = st.sampled_from([10_000, 10_000, 10_000, 0, -1, None, 2**31 - 1])
    if "offset_ms" in columns:
        columns["offset_ms"] = st.sampled_from([0, 0, 0, 250, None, -(2**31), 2**31 - 1])
    return st.lists(st.fixed_dictionaries(columns), max_size=6)


LAKES = st.fixed_dictionaries({table.name: rows_of(table) for table in TABLES})
GOOD: Row = {
    "gpu": "a",
    "time": T0,
    "interval_ms": 10_000,
    "offset_ms": 0,
    "health": "ok",
    "gpu_util_pct": 0.0,
    "process_count": 1,
}
"""One row that can be used, so that there is something to say."""


def fill(lake: Lake, tables: dict[str, list[Row]]) -> None:
    for name, rows in ({"gpu": []} | tables).items():
        table = schema.table(name)
        for host, part in (("h1", rows[::2]), ("h2", rows[1::2])):
            put(lake, table, host, [GOOD, *part] if name == "gpu" and host == "h1" else part)


def put(lake: Lake, table: schema.LakeTable, host: str, rows: Sequence[Row]) -> None:
    file = LakeFile(table.name, "2026-11-20", host, 1, 1)
    lake.put(file, parquet.encode(table, parquet.table_from_rows(table, rows)))


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and what went to standard error."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        code = main(list(arguments))
    return code, said.getvalue()


@pytest.mark.parametrize("command", ["ledger", "findings", "report"])
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(LAKES)
def test_garbage_in_any_table_is_never_a_crash(command: str, tables: dict[str, list[Row]]) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        lake = made_lake(folder)
        fill(lake, tables)
        for _ in range(2):  # built, and read back
            code, said = run(command, "--lake", folder)
            assert code == 0 or (code == 1 and said.startswith("fallow: ") and said.count("\n") == 1), said


OTHERS = [table for table in TABLES if table is not schema.GPU]
NEVER = [-1, 0, 253_402_300_799_999, 2**62]
"""Before the epoch, a machine without a clock, the end of the calendar and beyond it."""


@pytest.mark.parametrize("time", NEVER)
def test_times_that_cannot_be_are_never_a_crash(lake: Lake, time: int) -> None:
    known: Row = {"gpu": "a", "allocation_id": "j", "kind": "clock_stepped", "pid": 1, "interval_ms": 1, "time": time}
    fill(lake, {table.name: [{name: known[name] for name in table.names if name in known}] * 2 for table in OTHERS})
    assert run("report", "--lake", lake.root) == (0, "")


@pytest.mark.parametrize("time", NEVER)
def test_a_row_of_another_age_does_not_fill_the_lake(lake: Lake, run_fallow: RunFallow, time: int) -> None:
    """One row of a machine whose clock was never set must not make decades of unknown time, a file a day."""
    fill(lake, {"gpu": [GOOD | {"time": time}]})
    done = run_fallow("ledger", "--lake", lake.root)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(Path(lake.root).rglob("*.parquet"))) < 100
