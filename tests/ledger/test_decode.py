"""Files decoded together give what they give one by one, and what is wrong with one of them is said of that one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.decode import by_host
from fallow import parquet
from fallow.errors import BrokenFileError, LakeError, SchemaVersionError
from fallow.lake import LakeFile
from fallow.schema import GPU, SCHEMA_VERSION
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake

START_MS = 1_795_132_800_000
COLUMNS = ("gpu", "time", "interval_ms", "health", "power_w")


def table(minute: int, **columns: pa.Array) -> pa.Table:
    rows = [
        {"time": START_MS + 60_000 * minute + 10_000 * at, "gpu": "GPU-1", "interval_ms": 10_000, "power_w": power}
        for at, power in enumerate((70.5, None, 0.0))
    ]
    data = parquet.table_from_rows(GPU, rows)
    for name, values in columns.items():
        data = data.set_column(data.schema.get_field_index(name), name, values)
    return data


def put(lake: Lake, minute: int, data: bytes, host: str = "gn001") -> LakeFile:
    return lake.put(LakeFile("gpu", "2026-11-20", host, minute, minute), data)


def fresh(lake: Lake, minute: int, host: str = "gn001") -> LakeFile:
    return put(lake, minute, parquet.encode(GPU, table(minute)), host)


def foreign(lake: Lake, minute: int, data: pa.Table, version: int | None = None) -> LakeFile:
    file = fresh(lake, minute)
    facts = {} if version is None else {"fallow_schema_version": str(version)}
    pq.write_table(data.replace_schema_metadata(facts), file.url)
    return file


def rows(files: list[LakeFile]) -> list[dict[str, object]]:
    frames = [frame.with_columns(host=pl.lit(host)) for host, frame in by_host(files, GPU, COLUMNS)]
    return pl.concat(frames).to_dicts()


def one_by_one(files: list[LakeFile]) -> list[dict[str, object]]:
    found = pl.from_arrow(parquet.read(files, GPU, COLUMNS))
    assert isinstance(found, pl.DataFrame)
    return found.to_dicts()


def test_many_files_give_the_rows_of_each(lake: Lake) -> None:
    files = [fresh(lake, minute, host) for host in ("gn001", "größe/1") for minute in range(5)]
    assert rows(files) == one_by_one(files)
    assert [host for host, _ in by_host(files, GPU, COLUMNS)] == ["gn001", "größe/1"]
    assert by_host([], GPU, COLUMNS) == []


def test_a_column_that_a_file_lacks_is_null(lake: Lake) -> None:
    files = [fresh(lake, 0), foreign(lake, 1, table(1).drop_columns(["power_w"]))]
    assert rows(files) == one_by_one(files)
    assert [row["power_w"] for row in rows(files)] == [70.5, None, 0.0, None, None, None]


def test_what_other_writers_wrote_is_converted(lake: Lake) -> None:
    data = table(1)
    other = data.set_column(0, "time", data["time"].cast(pa.timestamp("us", tz="UTC")))
    coded = pa.array(["ok"] * 3).dictionary_encode()
    other = other.set_column(other.schema.get_field_index("health"), "health", coded)
    files = [fresh(lake, 0), foreign(lake, 1, other)]
    assert rows(files) == one_by_one(files)
    assert [row["health"] for row in rows(files)] == [None] * 3 + ["ok"] * 3


def footer_bytes(content: bytes) -> int:
    return 8 + int.from_bytes(content[-8:-4], "little")


def cut(content: bytearray, at: int) -> None:
    del content[at:]


def flip(content: bytearray, at: int) -> None:
    content[at] ^= 1


def clear(content: bytearray, at: int) -> None:
    content[at : at + 40] = bytes(40)


@pytest.mark.parametrize("damage", [cut, flip, clear])
@pytest.mark.parametrize("part", range(8))
def test_the_broken_one_of_many_is_named_and_nothing_else_is_said(
    lake: Lake, damage: Callable[[bytearray, int], None], part: int, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [fresh(lake, minute) for minute in range(3)]
    content = bytearray(Path(files[1].url).read_bytes())
    data_bytes = len(content) - footer_bytes(content)
    damage(content, 4 + part * (data_bytes - 44) // 8)
    Path(files[1].url).write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"1-1\.parquet is not a whole Parquet file"):
        by_host(files, GPU, COLUMNS)
    assert capfd.readouterr() == ("", "")


def test_the_command_leaves_out_a_file_with_a_flipped_bit_and_says_one_sentence(lake: Lake) -> None:
    victim = Path([fresh(lake, minute) for minute in range(3)][1].url)
    content = bytearray(victim.read_bytes())
    flip(content, (len(content) - footer_bytes(content)) // 2)
    victim.write_bytes(content)
    done = run_in_process("ledger", "--lake", lake.root)
    assert done.returncode == 0
    assert done.stderr == (
        f"fallow: one file of the lake is left out: {victim} is not a whole Parquet file of its table "
        "(`fallow lake check` says more)\n"
    )


def test_damage_that_can_be_decoded_is_found_by_the_checksum(lake: Lake) -> None:
    file = fresh(lake, 0)
    pq.write_table(table(1).replace_schema_metadata(pq.read_metadata(file.url).metadata), file.url)
    with pytest.raises(BrokenFileError, match="its content does not match its checksum"):
        by_host([file], GPU, COLUMNS)


def test_a_broken_file_without_a_checksum_is_named(lake: Lake) -> None:
    files = [fresh(lake, 0), foreign(lake, 1, table(1))]
    content = bytearray(Path(files[1].url).read_bytes())
    content[8 : -footer_bytes(content)] = bytes(len(content) - footer_bytes(content) - 8)
    Path(files[1].url).write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"1-1\.parquet is not a whole Parquet file"):
        by_host(files, GPU, COLUMNS)


def test_a_file_without_a_key_column_is_named(lake: Lake) -> None:
    files = [fresh(lake, 0), foreign(lake, 1, table(1).drop_columns(["gpu"]))]
    with pytest.raises(BrokenFileError, match=r"1-1\.parquet .*lacks the column gpu"):
        by_host(files, GPU, COLUMNS)


def test_a_file_of_a_newer_fallow_is_named(lake: Lake) -> None:
    files = [fresh(lake, 0), foreign(lake, 1, table(1), SCHEMA_VERSION + 1)]
    with pytest.raises(SchemaVersionError, match=r"1-1\.parquet was written with schema version"):
        by_host(files, GPU, COLUMNS)


def test_a_file_that_vanished_is_named(lake: Lake) -> None:
    files = [fresh(lake, minute) for minute in range(2)]
    Path(files[1].url).unlink()
    with pytest.raises(LakeError, match=r"1-1\.parquet vanished while it was read"):
        by_host(files, GPU, COLUMNS)
