"""The publisher: nothing lost, nothing doubled, whatever dies when, and what the lake has lost is published again."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.spool import publisher
from agent.spool.installation import settle_installation
from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from fallow import parquet, schema
from fallow.errors import LakeError
from tests.agent.spooled import MIDNIGHT_MS, SetClock, ticks, times, waiting
from tests.publishing.rows import adopted

if TYPE_CHECKING:
    from fallow.lake import Lake, LakeFile


@pytest.fixture
def spool(spool: Spool, lake: Lake) -> Spool:
    return adopted(spool, lake)


def test_publishing_moves_rows_to_one_file_a_day(spool: Spool, lake: Lake) -> None:
    spool.append({"gpu": ticks(0, 3, MIDNIGHT_MS - 20_000)})
    assert Publisher(spool, lake, "h").publish() == 3
    assert [file.date for file in lake.files("gpu")] == ["2024-10-03", "2024-10-04"]
    assert len(times(lake)) == 3
    assert spool.count() == 0
    assert Publisher(spool, lake, "h").publish() == 0


def test_a_publisher_that_died_between_two_files_loses_nothing(
    spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append({"gpu": ticks(0, 4, MIDNIGHT_MS - 20_000)})
    put = type(lake).put
    done: list[LakeFile] = []

    def put_once(self: Lake, file: LakeFile, data: bytes) -> LakeFile:
        if done:
            raise LakeError("the store went away")
        done.append(file)
        return put(self, file, data)

    with monkeypatch.context() as patch:
        patch.setattr(type(lake), "put", put_once)
        with pytest.raises(LakeError):
            Publisher(spool, lake, "h").publish()
    assert spool.count() == 4
    Publisher(spool, lake, "h").publish()
    assert len(times(lake)) == 4


def test_a_new_spool_never_reuses_numbers(tmp_path: Path, lake: Lake) -> None:
    for folder in ("first", "second"):
        spool = Spool(str(tmp_path / folder))
        spool.append({"gpu": ticks(0 if folder == "first" else 1, 1)})
        publisher = Publisher(adopted(spool, lake), lake, "h")
        publisher.publish()
        shutil.rmtree(Path(lake.root, "agents"))  # as if nobody had ever had the name
        spool.close()
    first, second = lake.files("gpu")
    assert first.last_seq < second.first_seq
    assert len(times(lake)) == 2


def test_a_long_backlog_is_published_in_batches(spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "BATCH_ROWS", 100)
    spool.append({"gpu": ticks(0, 450)})
    assert Publisher(spool, lake, "h").publish() == 450
    assert times(lake) == [MIDNIGHT_MS + number * 10_000 for number in range(450)]
    assert len(lake.files("gpu")) == 5


def test_a_value_that_fits_no_column_keeps_nothing_back(spool: Spool, lake: Lake) -> None:
    odd = {"gpu": "GPU-a", "time": MIDNIGHT_MS, "pid": 7, "kind": "compute", "command": "tr\udcc3", "user": "ann"}
    hot = ticks(0, 1)[0] | {"temperature_c": 70_000}
    spool.append({"process": [odd, odd | {"pid": 8, "command": "python"}], "gpu": [hot, *ticks(1, 1)]})
    run = Publisher(spool, lake, "h")
    assert run.publish() == 4
    processes = parquet.read(lake.files("process"), schema.PROCESS, ["pid", "command", "user"]).to_pylist()
    assert [(row["command"], row["user"]) for row in processes] == [(None, "ann"), ("python", "ann")]
    assert parquet.read(lake.files("gpu"), schema.GPU, ["temperature_c"])["temperature_c"].to_pylist() == [None, None]
    assert run.misfits == {"process.command": 1, "gpu.temperature_c": 1}


def test_a_spool_from_a_backup_never_reuses_a_number(tmp_path: Path, lake: Lake) -> None:
    spool = Spool(str(tmp_path / "spool"))
    spool.lock()
    settle_installation(spool, "h", "m")
    adopted(spool, lake)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "spool", copy)
    spool.append({"gpu": ticks(0, 3)})
    Publisher(spool, lake, "h").publish()
    spool.close()
    restored = Spool(str(copy))
    restored.lock()
    restored.append({"gpu": ticks(3, 5)})
    Publisher(restored, lake, "h").publish()
    restored.close()
    assert len(times(lake)) == 8


def test_published_rows_stay_for_a_while_and_count_no_more(spool: Spool, lake: Lake) -> None:
    spool.append({"gpu": ticks(0, 3)})
    hands = SetClock()
    run = Publisher(spool, lake, "h", keep_ms=1000, clock=hands)
    run.publish()
    assert spool.count() == 0
    run.forget()
    [file] = spool.published_files()
    assert [row.time_ms for row in spool.rows_of(file)] == [row["time"] for row in ticks(0, 3)]
    hands.moment_ms += 1000
    run.forget()
    assert spool.published_files() == []
    assert spool.oldest_batch() is None
    assert Publisher(spool, lake, "h").publish() == 0
    assert len(times(lake)) == 3


def test_a_clock_that_was_put_back_keeps_no_row_for_ever(spool: Spool, lake: Lake) -> None:
    spool.append({"gpu": ticks(0, 3)})
    hands = SetClock()
    run = Publisher(spool, lake, "h", keep_ms=1000, clock=hands)
    run.publish()
    hands.moment_ms -= 3_600_000
    run.forget()
    assert spool.published_files() == []


def test_a_long_backlog_leaves_no_large_file_behind(spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.spool.spool._COMPACTED_FREE_BYTES", 1_000_000)
    for _ in range(20):
        spool.append({"gpu": ticks(0, 1000)})
    large = spool.size_bytes()
    run = Publisher(spool, lake, "h", keep_ms=0)
    run.publish()
    spool.append({"gpu": ticks(0, 10)})
    run.forget()
    assert spool.size_bytes() < large / 10
    assert spool.count() == 10
    spool.append({"gpu": ticks(10, 1)})
    assert len(waiting(spool)) == 11


def test_what_the_lake_loses_is_published_again_under_the_same_name(spool: Spool, lake: Lake) -> None:
    run = Publisher(spool, lake, "h")
    for first in (0, 3, 6):
        spool.append(
            {"gpu": ticks(first, 3, MIDNIGHT_MS - 20_000), "event": [{"time": MIDNIGHT_MS, "kind": "k", "detail": "d"}]}
        )
        run.publish()
    before = {file.key: Path(file.url).read_bytes() for file in lake.files("gpu")}
    assert run.repair() == 0
    lost = lake.files("gpu")[1:3]
    for file in lost:
        lake.delete(file)
    assert run.repair() == 2
    assert {file.key: Path(file.url).read_bytes() for file in lake.files("gpu")} == before
    [row] = waiting(spool)
    assert row.body["kind"] == "lake_repaired"
    rows = sum(file.last_seq - file.first_seq + 1 for file in lost)
    assert (
        row.body["detail"] == f"the lake had lost 2 files that it had confirmed; their {rows} rows are published again"
    )
    assert run.repair() == 0


def test_a_file_that_a_wider_one_took_in_is_not_missed(spool: Spool, lake: Lake) -> None:
    run = Publisher(spool, lake, "h")
    for first in (0, 3):
        spool.append({"gpu": ticks(first, 3)})
        run.publish()
    first, second = lake.files("gpu")
    lake.put(type(first)("gpu", first.date, "h", first.first_seq, second.last_seq), Path(first.url).read_bytes())
    lake.delete(first)
    lake.delete(second)
    assert run.repair() == 0
    assert len(lake.all_files("gpu")) == 1


def test_another_lake_is_not_filled_with_what_was_published_elsewhere(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    spool.append({"gpu": ticks(0, 3)})
    Publisher(spool, lake, "h").publish()
    other = type(lake).at(str(tmp_path / "other"))
    assert Publisher(spool, other, "h").repair() == 0
    assert other.files("gpu") == []


def test_rows_that_left_the_spool_are_not_published_half(spool: Spool, lake: Lake) -> None:
    run = Publisher(spool, lake, "h")
    spool.append({"gpu": ticks(0, 3)})
    run.publish()
    [file] = lake.files("gpu")
    with contextlib.closing(sqlite3.connect(spool.folder / "spool.sqlite")) as db, db:
        db.execute("DELETE FROM row WHERE seq = ?", (file.first_seq,))
    lake.delete(file)
    assert run.repair() == 0
    assert lake.files("gpu") == []
