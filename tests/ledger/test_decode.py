"""Files decoded together give what they give one by one, and what is wrong with one of them is said of that one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analytics.decode import by_host, read_days
from analytics.frames import read_frame
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


def table(minute: int) -> pa.Table:
    rows = [
        {"time": START_MS + 60_000 * minute + 10_000 * at, "gpu": "GPU-1", "interval_ms": 10_000, "power_w": power}
        for at, power in enumerate((70.5, None, 0.0))
    ]
    return parquet.table_from_rows(GPU, rows)


def fresh(lake: Lake, minute: int, host: str = "gn001") -> LakeFile:
    return lake.put(LakeFile("gpu", "2026-11-20", host, minute, minute), parquet.encode(GPU, table(minute)))


def foreign(lake: Lake, minute: int, data: pa.Table, version: int | None = None) -> LakeFile:
    file = fresh(lake, minute)
    facts = {} if version is None else {"fallow_schema_version": str(version)}
    pq.write_table(data.replace_schema_metadata(facts), file.url)
    return file


def rows(files: list[LakeFile]) -> list[dict[str, Any]]:
    """The rows, which are those of the files read one by one."""
    found = read_days(files, GPU, (*COLUMNS, "host")).to_dicts()
    assert found == read_frame(files, GPU, COLUMNS).select(*COLUMNS, "host").to_dicts()
    return found


def test_many_files_give_the_rows_of_each(lake: Lake) -> None:
    files = [fresh(lake, minute, host) for host in ("gn001", "größe/1") for minute in range(5)]
    assert len(rows(files)) == 30
    assert by_host(files, GPU, COLUMNS).counts == {"gn001": 15, "größe/1": 15}
    assert by_host([], GPU, COLUMNS).counts == {}
    assert rows([]) == []


def test_a_column_that_a_file_lacks_is_null_and_what_other_writers_wrote_is_converted(lake: Lake) -> None:
    data = table(1).drop_columns(["power_w"])
    other = data.set_column(0, "time", data["time"].cast(pa.timestamp("us", tz="UTC")))
    coded = pa.array(["ok"] * 3).dictionary_encode()
    other = other.set_column(other.schema.get_field_index("health"), "health", coded)
    found = rows([fresh(lake, 0), foreign(lake, 1, data), foreign(lake, 2, other)])
    assert [row["power_w"] for row in found] == [70.5, None, 0.0, *[None] * 6]
    assert [row["health"] for row in found] == [None] * 6 + ["ok"] * 3


def data_bytes(content: bytes) -> int:
    """What lies before the footer."""
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def cut(content: bytearray, at: int) -> None:
    del content[at:]


def flip(content: bytearray, at: int) -> None:
    content[at] ^= 1


def clear(content: bytearray, at: int) -> None:
    content[at : at + 40] = bytes(40)


@pytest.mark.parametrize("damage", [cut, flip, clear])
def test_the_broken_one_of_many_is_named_and_nothing_else_is_said(
    lake: Lake, damage: Callable[[bytearray, int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    files = [fresh(lake, minute) for minute in range(3)]
    whole = Path(files[1].url).read_bytes()
    for part in range(8):
        content = bytearray(whole)
        damage(content, 4 + part * (data_bytes(whole) - 44) // 8)
        Path(files[1].url).write_bytes(content)
        with pytest.raises(BrokenFileError, match=r"1-1\.parquet is not a whole Parquet file"):
            by_host(files, GPU, COLUMNS)
    assert capfd.readouterr() == ("", "")


def test_the_command_leaves_out_a_file_with_a_flipped_bit_and_says_one_sentence(lake: Lake) -> None:
    victim = Path([fresh(lake, minute) for minute in range(3)][1].url)
    content = bytearray(victim.read_bytes())
    flip(content, data_bytes(content) // 2)
    victim.write_bytes(content)
    done = run_in_process("ledger", "--lake", lake.root)
    assert done.returncode == 0
    assert done.stderr == (
        f"fallow: one file of the lake is left out: {victim} is not a whole Parquet file of its table "
        "(`fallow lake check` lists them)\n"
    )


def decodable(lake: Lake) -> LakeFile:
    file = fresh(lake, 1)
    pq.write_table(table(2).replace_schema_metadata(pq.read_metadata(file.url).metadata), file.url)
    return file


def without_a_checksum(lake: Lake) -> LakeFile:
    file = foreign(lake, 1, table(1))
    content = bytearray(Path(file.url).read_bytes())
    content[8 : data_bytes(content)] = bytes(data_bytes(content) - 8)
    Path(file.url).write_bytes(content)
    return file


def vanished(lake: Lake) -> LakeFile:
    file = fresh(lake, 1)
    Path(file.url).unlink()
    return file


FAULTS: dict[str, tuple[Callable[[Lake], LakeFile], type[LakeError], str]] = {
    "damage that can be decoded": (decodable, BrokenFileError, ".*its content does not match its checksum"),
    "damage without a checksum": (without_a_checksum, BrokenFileError, " is not a whole Parquet file"),
    "no key column": (
        lambda lake: foreign(lake, 1, table(1).drop_columns(["gpu"])),
        BrokenFileError,
        " .*lacks the column gpu",
    ),
    "a newer fallow": (
        lambda lake: foreign(lake, 1, table(1), SCHEMA_VERSION + 1),
        SchemaVersionError,
        " was written with schema version",
    ),
    "gone": (vanished, LakeError, " vanished while it was read"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_cannot_be_used_is_named(lake: Lake, fault: str) -> None:
    made, error, said = FAULTS[fault]
    with pytest.raises(error, match=rf"1-1\.parquet{said}"):
        by_host([fresh(lake, 0), made(lake)], GPU, COLUMNS)
