"""Files of the lake: every table there and back, old and new versions, broken files, and other readers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallow import parquet, schema
from fallow.errors import BrokenFileError, LakeError, SchemaVersionError
from fallow.lake import Lake, LakeFile
from fallow.schema import GPU, OLDEST_SCHEMA_VERSION, SCHEMA_VERSION, TABLES, LakeColumn, LakeTable, Type
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]
START_MS = 1_795_132_800_000
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.TIMESTAMP: st.integers(0, 4_102_444_800_000),
    Type.INT16: st.integers(-(2**15), 2**15 - 1),
    Type.INT32: st.integers(-(2**31), 2**31 - 1),
    Type.INT64: st.integers(-(2**63), 2**63 - 1),
    Type.FLOAT: FLOATS,
    Type.DOUBLE: st.floats(allow_nan=False),
    Type.BOOL: st.booleans(),
    Type.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    Type.INT_LIST: st.lists(st.none() | st.integers(0, 3_600_000), max_size=5),
    Type.DOUBLE_LIST: st.lists(st.none() | st.floats(allow_nan=False), max_size=5),
    Type.STRING_LIST: st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=3),
}
TIMESTAMPS = {each.name: [column.name for column in each.columns if column.type is Type.TIMESTAMP] for each in TABLES}


def value_of(column: LakeColumn) -> st.SearchStrategy[Any]:
    return VALUES[column.type] if column.key else st.none() | VALUES[column.type]


def rows_of(table: LakeTable) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.fixed_dictionaries({column.name: value_of(column) for column in table.columns}), max_size=6)


def plain(table: LakeTable, data: pa.Table) -> list[Row]:
    """Rows with timestamps as the integers that they were written from."""
    for name in TIMESTAMPS[table.name]:
        data = data.set_column(data.schema.get_field_index(name), name, data[name].cast(pa.int64()))
    rows: list[Row] = data.to_pylist()
    return rows


def sort_key(row: Row) -> tuple[bool, str, int]:
    return (row.get("gpu") is None, (row.get("gpu") or ""), row["time"])


def by_bytes(row: Row) -> tuple[bool, bytes, int]:
    empty, gpu, time = sort_key(row)
    return (empty, gpu.encode(), time)


def write(lake: Lake, table: LakeTable, rows: list[Row], sequence: int = 0, host: str = "gn001") -> LakeFile:
    data = parquet.encode(table, parquet.table_from_rows(table, rows))
    return lake.put(LakeFile(table.name, "2026-11-20", host, sequence, sequence), data)


def gpu_rows(count: int = 3) -> list[Row]:
    same = {"gpu": "GPU-1", "interval_ms": 10_000, "power_w": 70.5}
    return [same | {"time": START_MS + 10_000 * number} for number in range(count)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_comes_back_sorted_with_its_nulls(
    table: LakeTable, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = made_lake(tmp_path_factory.mktemp("lake"))

    @settings(max_examples=4)  # of each of thirty tables
    @given(rows_of(table))
    def round_trip(rows: list[Row]) -> None:
        file = write(lake, table, rows)
        data = parquet.read([file], table)
        read_back = plain(table, data)
        if "host" not in table.names:
            assert {row.pop("host") for row in read_back} <= {"gn001"}
        # the order of rows with equal (gpu, time) is that in which they were given
        assert read_back == sorted(rows, key=by_bytes)
        assert data.schema.field("time").type == pa.timestamp("ms", tz="UTC")

    round_trip()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_reading_nothing_has_the_columns_of_reading_something(table: LakeTable, lake: Lake) -> None:
    file = write(lake, table, [{"time": START_MS}])
    assert parquet.read([], table).schema == parquet.read([file], table).schema
    assert len(set(parquet.read([], table).column_names)) == len(parquet.read([], table).column_names)


def test_a_missing_measurement_is_null_and_a_zero_stays_zero_and_floats_are_kept_to_the_bit(lake: Lake) -> None:
    file = write(lake, GPU, [{"time": START_MS, "gpu": "GPU-1", "gpu_util_pct": 0.0}])
    [row] = parquet.read([file], GPU, ["gpu_util_pct", "power_w"]).to_pylist()
    assert row == {"gpu_util_pct": 0.0, "power_w": None, "host": "gn001"}
    values = [0.1, -0.0, 1e-38, float("inf"), 99.999]
    file = write(lake, schema.LEDGER, [{"time": i, "gpu_util_mean_pct": value} for i, value in enumerate(values)])
    read_back = parquet.read([file], schema.LEDGER, ["gpu_util_mean_pct"])["gpu_util_mean_pct"].to_pylist()
    assert (read_back, math.copysign(1, read_back[1])) == (values, -1)


def test_a_column_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(LakeError, match="the table 'gpu' has no column util"):
        parquet.table_from_rows(GPU, [{"time": START_MS, "gpu": "GPU-1", "util": 1}])


def test_files_of_several_hosts_make_one_table(lake: Lake) -> None:
    files = [write(lake, GPU, gpu_rows(), host=host) for host in ("gn001", "größe/1")]
    data = parquet.read(files, GPU, ["time", "gpu"])
    assert data.column_names == ["time", "gpu", "host"]
    assert data["host"].to_pylist() == ["gn001"] * 3 + ["größe/1"] * 3


def rewritten(file: LakeFile, change: Callable[[pa.Table], pa.Table], version: str | None) -> LakeFile:
    """The file with its data changed and another schema version, as another fallow would have written it."""
    data = change(pq.read_table(file.url, partitioning=None))
    metadata = {} if version is None else {"fallow_schema_version": version}
    pq.write_table(data.replace_schema_metadata(metadata), file.url)
    return file


@pytest.mark.parametrize("version", [None, str(SCHEMA_VERSION)])
def test_a_file_lacks_a_column_and_that_is_null(lake: Lake, version: str | None) -> None:
    lacking = rewritten(write(lake, GPU, gpu_rows()), lambda data: data.drop_columns(["power_w"]), version)
    new = write(lake, GPU, gpu_rows(1), sequence=1)
    data = parquet.read([lacking, new], GPU)
    assert data["power_w"].to_pylist() == [None, None, None, 70.5]
    assert data["interval_ms"].to_pylist() == [10_000] * 4


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        (SCHEMA_VERSION + 1, "upgrade fallow on this host, or read the lake on a host with the newer version"),
        (OLDEST_SCHEMA_VERSION - 1, "create a new lake and import the history again"),
    ],
)
def test_a_file_of_another_version_is_a_clear_error_that_names_it(lake: Lake, version: int, remedy: str) -> None:
    file = rewritten(write(lake, GPU, gpu_rows()), lambda data: data, str(version))
    with pytest.raises(SchemaVersionError) as error:
        parquet.read([file], GPU)
    assert str(error.value) == (
        f"{file.url} was written with schema version {version} and this fallow knows {SCHEMA_VERSION}; {remedy}"
    )


@pytest.mark.parametrize("kept", [0, 3, 4, 100, -1])
def test_a_half_written_file_is_a_clear_error_that_names_it(lake: Lake, kept: int) -> None:
    file = write(lake, GPU, gpu_rows(100))
    whole = Path(file.url).read_bytes()
    Path(file.url).write_bytes(whole[:kept])
    with pytest.raises(BrokenFileError, match=r"0-0\.parquet is not a whole Parquet file \(.+\); move it out") as error:
        parquet.read([file], GPU)
    assert "\n" not in str(error.value)
    Path(file.url).write_bytes(whole[:4] + b"\xff" * 396 + whole[400:])
    with pytest.raises(BrokenFileError, match="is not a whole Parquet file"):
        parquet.read([file], GPU)


def test_a_file_that_vanished_says_to_try_again(lake: Lake) -> None:
    file = write(lake, GPU, gpu_rows())
    lake.delete(file)
    with pytest.raises(LakeError, match="vanished while it was read; run the command again"):
        parquet.read([file], GPU)


def test_the_metadata_names_version_writer_and_what_was_added_and_the_same_rows_make_the_same_bytes(lake: Lake) -> None:
    first, again = (parquet.encode(GPU, parquet.table_from_rows(GPU, gpu_rows()), {"inputs": "0-9"}) for _ in range(2))
    assert first == again
    found = parquet.metadata(lake.put(LakeFile("gpu", "2026-11-20", "gn001", 0, 0), first))
    assert (found["fallow_schema_version"], found["inputs"]) == (str(SCHEMA_VERSION), "0-9")
    assert found["fallow_writer"].startswith("fallow ")


@pytest.mark.parametrize("table", [each for each in TABLES if not each.derived], ids=lambda table: table.name)
def test_duckdb_and_polars_read_every_observed_table_with_its_partitions(table: LakeTable, lake: Lake) -> None:
    of = {Type.TIMESTAMP: START_MS, Type.STRING: "x", Type.INT32: 7, Type.INT64: 7}
    row = {column.name: of[column.type] for column in table.columns if column.key}
    for host in ("gn001", "gn 02"):
        write(lake, table, [row], host=host)
    pattern = f"{lake.root}/{table.name}/*/*/*.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(
            "SELECT host, date::VARCHAR, epoch_ms(time) FROM read_parquet(?, hive_partitioning = true) ORDER BY host",
            [pattern],
        ).fetchall()
    assert found == [("gn 02", "2026-11-20", START_MS), ("gn001", "2026-11-20", START_MS)]
    frame = pl.read_parquet(pattern, hive_partitioning=True).sort("host")
    assert frame["host"].to_list() == ["gn 02", "gn001"]
    assert frame["date"].cast(pl.String).to_list() == ["2026-11-20"] * 2
    assert frame["time"].dtype == pl.Datetime("ms", "UTC")
    assert frame["time"].dt.epoch("ms").to_list() == [START_MS] * 2
    assert set(table.names) <= set(frame.columns)


def test_storage_is_chosen_for_size(lake: Lake) -> None:
    file = write(lake, GPU, gpu_rows(1000))
    group = pq.ParquetFile(file.url).metadata.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "DELTA_BINARY_PACKED" in columns["time"].encodings
    assert "DELTA_BINARY_PACKED" in columns["energy_mj"].encodings
    assert "RLE_DICTIONARY" in columns["gpu"].encodings
