"""Files become one: every row once, sorted, whoever wrote them, and no file that readers would refuse."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fallow import parquet, parquet_merging, schema
from fallow.errors import BrokenFileError, ForeignFileError
from fallow.lake import Lake, LakeFile
from fallow.parquet_merging import covering, merged_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from arro3.core import RecordBatch

Rows = list[dict[str, Any]]


def put(lake: Lake, number: int, content: bytes) -> LakeFile:
    return lake.put(LakeFile("event", "2024-10-04", "h", number, number), content)


def event(gpu: str | None, time_ms: int) -> dict[str, Any]:
    return {"gpu": gpu, "time": time_ms, "kind": "xid", "detail": f"{gpu} {time_ms}"}


def encoded(rows: Rows, facts: dict[str, str] | None = None) -> bytes:
    return parquet.encode(schema.EVENT, parquet.table_from_rows(schema.EVENT, rows), facts)


def by_another_writer(rows: Rows) -> bytes:
    """In the order in which they are given, without a checksum, and without most columns."""
    sink = io.BytesIO()
    names = ("time", "gpu", "kind", "detail")
    columns = {name: pa.array([row[name] for row in rows]) for name in names}
    columns["time"] = columns["time"].cast(pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def rows_in(content: bytes) -> list[tuple[str | None, str]]:
    return [(row["gpu"], row["detail"]) for row in pq.read_table(io.BytesIO(content)).to_pylist()]


@pytest.mark.parametrize("little_bytes", [1, 3_000_000])
def test_every_row_is_there_once_by_gpu_and_time(
    lake: Lake, little_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_merging, "_LITTLE_BYTES", little_bytes)
    files = [
        put(lake, 1, encoded([event("b", 5), event(None, 1)])),
        put(lake, 2, encoded([event("a", 9), event("b", 4), event("b", 6)])),
        put(lake, 3, by_another_writer([event("b", 3), event("a", 7), event("b", 2)])),
    ]
    expected = [("a", "a 7"), ("a", "a 9"), *(("b", f"b {at}") for at in range(2, 7)), (None, "None 1")]
    for in_little_memory in (True, False):
        assert rows_in(merged_files(lake, files, in_little_memory=in_little_memory)) == expected
        merged = put(lake, 4, merged_files(lake, files))
        read = [parquet.read([each], schema.EVENT).to_pylist() for each in (*files, merged)]
        by_all = sorted(str(row) for rows in read[:-1] for row in rows)
        assert sorted(map(str, read[-1])) == by_all
        lake.delete(merged)
    into = covering(files[::-1])
    assert (into.first_seq, into.last_seq) == (1, 3)


def test_gpus_that_take_turns_are_taken_out_of_a_batch_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted by time alone, as other programs write: one piece per row would take minutes and gigabytes for a day."""
    pieces: list[int] = []
    real = parquet_merging._by_time  # noqa: SLF001  # how many pieces it gets is what is bounded

    def counted(own: Sequence[RecordBatch], table: schema.LakeTable) -> Iterator[RecordBatch]:
        pieces.append(len(own))
        return real(own, table)

    monkeypatch.setattr(parquet_merging, "_by_time", counted)
    turns = [event("ab"[at % 2], at) for at in range(600)]
    files = [put(lake, 1, by_another_writer(turns)), put(lake, 2, encoded([event("a", 601)]))]
    expected = [*(("a", f"a {at}") for at in range(0, 600, 2)), ("a", "a 601")]
    assert rows_in(merged_files(lake, files)) == expected + [("b", f"b {at}") for at in range(1, 600, 2)]
    assert pieces == [2, 1]


def test_a_file_of_another_host_is_named_and_not_mixed_with_the_hosts_own(lake: Lake) -> None:
    own, other = (encoded([event("a", 1)], {"fallow_host": host}) for host in ("h", "i"))
    files = [put(lake, 1, own), put(lake, 2, other)]
    named = r"2-2\.parquet names the host i and is in the folder of h"
    with pytest.raises(ForeignFileError, match=named):
        merged_files(lake, files)


def test_no_file_is_made_that_readers_refuse(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_merging, "MOST_ROWS", 2)
    files = [put(lake, number, encoded([event("a", number)])) for number in range(3)]
    assert len(rows_in(merged_files(lake, files[:2]))) == 2
    with pytest.raises(BrokenFileError, match="3 rows are more than a file may have"):
        merged_files(lake, files)


def test_a_merged_file_that_lacks_a_row_is_not_handed_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [put(lake, number, encoded([event("a", number)])) for number in range(2)]
    monkeypatch.setattr(parquet_merging, "encode", lambda *_, **__: encoded([event("a", 0)]))
    with pytest.raises(BrokenFileError, match="does not have the 2 rows of its sources but 1 rows"):
        merged_files(lake, files)


def test_a_file_that_is_not_whole_is_named(lake: Lake) -> None:
    content = encoded([event("a", number) for number in range(100)])
    files = [put(lake, 1, content), put(lake, 2, content[:-20])]
    with pytest.raises(BrokenFileError, match=r"2-2\.parquet cannot be merged: it is not complete"):
        merged_files(lake, files)
    put(lake, 2, content[:100] + b"\xff" * 20 + content[120:])
    with pytest.raises(BrokenFileError, match=r"2-2\.parquet cannot be merged: its content does not match"):
        merged_files(lake, files)


def test_a_file_of_other_types_and_a_damaged_one_of_another_writer_are_named(lake: Lake) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"time": [[1]], "gpu": ["a"], "kind": ["xid"], "detail": [""]}), sink)
    content = by_another_writer([event("a", number) for number in range(1000)])
    for bad in (sink.getvalue(), content[:4] + b"\xff" * 400 + content[404:]):
        files = [put(lake, 1, encoded([event("a", 1)])), put(lake, 2, bad)]
        with pytest.raises(BrokenFileError, match=r"2-2\.parquet cannot be merged: "):
            merged_files(lake, files)
