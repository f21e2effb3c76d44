"""The writer's output against pyarrow's for the same rows: encodings and sizes by column, and other readers."""

from __future__ import annotations

import io
import zlib
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.simulation import SimulatedFleet, plan_fleet, simulated_queue
from analytics.simulation.days import host_days
from analytics.simulation.tables import day_tables
from fallow import parquet, parquet_writer
from fallow.clock import DAY_MS
from fallow.errors import LakeError
from fallow.schema import DEVICE, GPU, SCHEMA_VERSION, LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIVE_MINUTES, HOUR, DAY = 240, 2_880, 1_000_000
"""Rows of eight GPUs, one every 10 s."""


@pytest.fixture(scope="module")
def tables() -> list[tuple[LakeTable, pa.Table]]:
    """A day of a host of eight GPUs, every observed table that it has."""
    fleet = SimulatedFleet(gpus=8, days=1, seed=1, interval_ms=10_000, until_ms=20_700 * DAY_MS)
    plan = plan_fleet(fleet)
    [day] = host_days(fleet, plan.hosts[0])
    return [(table, data.select(list(table.names))) for table, data in day_tables(fleet, day, simulated_queue(plan))]


def by_pyarrow(table: LakeTable, data: pa.Table) -> bytes:
    """The same file by another writer."""
    data = data.cast(parquet.arrow_schema(table))
    data = data.sort_by([(name, "ascending") for name in ("gpu", "time") if name in table.names])
    rising = [column.name for column in table.columns if column.counter or column.type is Type.TIMESTAMP]
    floats = (Type.FLOAT, Type.DOUBLE)
    computed = [column.name for column in table.columns if column.type in floats and not column.resolution]
    encodings = dict.fromkeys(rising, "DELTA_BINARY_PACKED") | dict.fromkeys(computed, "BYTE_STREAM_SPLIT")
    facts = {"fallow_schema_version": str(SCHEMA_VERSION), "fallow_writer": "fallow 0.1.0", "fallow_crc32": "0" * 10}
    options = {"row_group_size": parquet_writer.ROW_GROUP_ROWS, "compression": "zstd", "compression_level": 3}
    dictionary = [name for name in table.names if name not in encodings]
    sink = io.BytesIO()
    pq.write_table(
        data.replace_schema_metadata(facts), sink, use_dictionary=dictionary, column_encoding=encodings, **options
    )
    return sink.getvalue()


def columns(content: bytes) -> dict[str, tuple[list[str], int]]:
    """Encodings and compressed bytes by column path, all row groups together."""
    facts = pq.read_metadata(io.BytesIO(content))
    found: dict[str, tuple[list[str], int]] = {}
    for group in map(facts.row_group, range(facts.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            encodings, size = found.get(column.path_in_schema, ([], 0))
            every = sorted({*encodings, *column.encodings})
            found[column.path_in_schema] = (every, size + column.total_compressed_size)
    return found


@pytest.mark.parametrize("most_rows", [FIVE_MINUTES, HOUR, DAY])
def test_every_column_is_encoded_as_by_pyarrow_and_no_larger(
    tables: list[tuple[LakeTable, pa.Table]], most_rows: int
) -> None:
    before_bytes = after_bytes = 0
    for table, data in tables:
        rows = data.slice(0, most_rows)
        before, after = by_pyarrow(table, rows), parquet.encode(table, rows)
        expected = columns(before)
        assert columns(after).keys() == expected.keys()
        for path, (encodings, size_bytes) in columns(after).items():
            assert encodings == expected[path][0], f"{table.name}.{path}"
            assert size_bytes <= 1.01 * expected[path][1] + 32, f"{table.name}.{path}"
        groups = [pq.read_metadata(io.BytesIO(each)).num_row_groups for each in (before, after)]
        assert groups[0] == groups[1]
        assert {pq.read_metadata(io.BytesIO(after)).row_group(0).column(0).compression} == {"ZSTD"}
        before_bytes, after_bytes = before_bytes + len(before), after_bytes + len(after)
    assert after_bytes <= 1.02 * before_bytes


def test_pyarrow_polars_and_duckdb_read_the_same_rows(tables: list[tuple[LakeTable, pa.Table]], tmp_path: Path) -> None:
    for table, data in tables:
        file = tmp_path / f"{table.name}.parquet"
        file.write_bytes(parquet.encode(table, data.slice(0, HOUR)))
        expected = pq.read_table(io.BytesIO(by_pyarrow(table, data.slice(0, HOUR)))).to_pylist()
        found = pq.read_table(file)
        assert found.to_pylist() == expected
        assert found.schema.remove_metadata().equals(parquet.arrow_schema(table))
        assert pl.read_parquet(file).to_arrow().cast(parquet.arrow_schema(table)).to_pylist() == expected
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            by_duckdb = connection.sql(f"FROM read_parquet('{file}')").to_arrow_table()
        assert by_duckdb.cast(parquet.arrow_schema(table)).to_pylist() == expected


def gpu_rows(count: int = 50) -> pa.Table:
    return parquet.table_from_rows(
        GPU, [{"time": 10_000 * number, "gpu": "GPU-1", "power_w": 70.5} for number in range(count)]
    )


def test_the_checksum_is_that_of_all_before_the_footer_and_facts_have_one_order() -> None:
    given = {"host": "größe/1", "long": "x" * 20_000, "empty": ""} | {f"fact{n}": "fallow_crc32" for n in range(20)}
    content = parquet.encode(GPU, gpu_rows(), given)
    footer_bytes = 8 + int.from_bytes(content[-8:-4], "little")
    facts = {key.decode(): value.decode() for key, value in pq.read_metadata(io.BytesIO(content)).metadata.items()}
    assert int(facts["fallow_crc32"]) == zlib.crc32(content[:-footer_bytes])
    assert len(facts["fallow_crc32"]) == 10
    assert facts.items() >= given.items()
    assert {parquet.encode(GPU, gpu_rows(), given) for _ in range(4)} == {content}


def test_rows_beyond_one_group_go_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_writer, "ROW_GROUP_ROWS", 30)
    facts = pq.read_metadata(io.BytesIO(parquet.encode(GPU, gpu_rows(70))))
    assert [facts.row_group(number).num_rows for number in range(facts.num_row_groups)] == [30, 30, 10]


def test_a_writer_that_says_other_facts_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    write: Callable[..., None] = parquet_writer.write_parquet

    def forgetful(*arguments: object, key_value_metadata: dict[str, str], **options: object) -> None:
        write(*arguments, key_value_metadata=key_value_metadata | {"host": "another"}, **options)

    monkeypatch.setattr(parquet_writer, "write_parquet", forgetful)
    with pytest.raises(LakeError, match="wrote unexpected metadata"):
        parquet.encode(DEVICE, parquet.table_from_rows(DEVICE, [{"time": 0}]), {"host": "h"})
