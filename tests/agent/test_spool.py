"""The spool and the publisher: nothing lost, nothing doubled, whatever dies when."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from agent import publisher
from agent.spool import Spool
from fallow import parquet, schema
from fallow.errors import LakeError, SpoolError
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fallow.lake import Lake, LakeFile

DAY_MS = 86_400_000
MIDNIGHT_MS = 20_000 * DAY_MS


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(str(tmp_path / "spool"))
    yield made
    made.close()


def ticks(first: int, count: int, start_ms: int = MIDNIGHT_MS) -> list[dict[str, Any]]:
    return [
        {"gpu": "GPU-a", "time": start_ms + number * 10_000, "interval_ms": 10_000, "gpu_util_pct": 1.5}
        for number in range(first, first + count)
    ]


def times(lake: Lake) -> list[int]:
    data = parquet.read(lake.files("gpu"), schema.GPU, ["time"])
    return sorted(data.column("time").cast("int64").to_pylist())


def test_rows_come_back_as_they_went_in(spool: Spool) -> None:
    spool.append({"gpu": ticks(0, 2), "event": [{"time": 5, "kind": "agent_start", "detail": "é"}]}, {"running": "yes"})
    last = spool.last_seq(1000)
    assert last is not None
    rows = list(spool.rows_until(last))
    assert [row.table for row in rows] == ["gpu", "gpu", "event"]
    assert rows[2].body["detail"] == "é"
    assert spool.noted("running") == "yes"
    assert spool.noted("other") is None


def test_a_row_that_cannot_be_stored_takes_the_whole_commit_with_it(spool: Spool) -> None:
    with pytest.raises(KeyError):
        spool.append({"gpu": ticks(0, 2), "event": [{"kind": "no time"}]})
    assert spool.count() == 0


def test_publishing_moves_rows_to_one_file_a_day(spool: Spool, lake: Lake) -> None:
    spool.append({"gpu": ticks(0, 3, MIDNIGHT_MS - 20_000)})
    assert publisher.publish(spool, lake, "h") == 3
    assert [file.date for file in lake.files("gpu")] == ["2024-10-03", "2024-10-04"]
    assert len(times(lake)) == 3
    assert spool.count() == 0
    assert publisher.publish(spool, lake, "h") == 0


def test_a_publisher_that_died_before_forgetting_doubles_nothing(
    spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append({"gpu": ticks(0, 3)})
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "forget_until", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            publisher.publish(spool, lake, "h")
    spool.append({"gpu": ticks(3, 2)})
    publisher.publish(spool, lake, "h")
    assert times(lake) == [MIDNIGHT_MS + number * 10_000 for number in range(5)]
    assert len(lake.all_files("gpu")) == 1, "the narrower file is gone"


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
            publisher.publish(spool, lake, "h")
    assert spool.count() == 4
    publisher.publish(spool, lake, "h")
    assert len(times(lake)) == 4


def test_a_new_spool_never_reuses_numbers(tmp_path: Path, lake: Lake) -> None:
    for folder in ("first", "second"):
        spool = Spool(str(tmp_path / folder))
        spool.append({"gpu": ticks(0 if folder == "first" else 1, 1)})
        publisher.publish(spool, lake, "h")
        spool.close()
    first, second = lake.files("gpu")
    assert first.last_seq < second.first_seq
    assert len(times(lake)) == 2


def test_one_agent_per_spool(spool: Spool, tmp_path: Path) -> None:
    spool.lock()
    other = Spool(str(tmp_path / "spool"))
    with pytest.raises(SpoolError, match="another agent"):
        other.lock()
    other.close()


def test_a_spool_that_is_no_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolError, match="cannot use"):
        Spool(str(tmp_path / "file"))


def test_a_broken_spool_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spool.sqlite").write_text("this is no database, and long enough to be read as one" * 10)
    with pytest.raises(SpoolError, match="cannot open the spool"):
        Spool(str(tmp_path))


def test_a_publisher_killed_at_any_moment_neither_loses_nor_doubles_a_row(spool: Spool, lake: Lake) -> None:
    days, per_day = 12, 400
    written = 0
    for attempt in range(12):
        # every attempt finds new rows beside those that the one before it may or may not have published
        spool.append(
            {"gpu": [row for day in range(days) for row in ticks(written, per_day, MIDNIGHT_MS + day * DAY_MS)]}
        )
        written += per_day
        process = subprocess.Popen(
            [sys.executable, "-m", "agent.publisher", str(spool.folder), lake.root, "h"],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
        )
        if attempt < 11:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2 + 0.05 * attempt)
            process.kill()
        process.wait()
    rows = parquet.read(lake.files("gpu"), schema.GPU, ["time", "gpu"])
    found = rows.column("time").cast("int64").to_pylist()
    assert sorted(found) == sorted(
        MIDNIGHT_MS + day * DAY_MS + number * 10_000 for day in range(days) for number in range(written)
    )
    assert spool.count() == 0


def test_a_long_backlog_is_published_in_batches(spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "BATCH_ROWS", 100)
    spool.append({"gpu": ticks(0, 450)})
    assert publisher.publish(spool, lake, "h") == 450
    assert times(lake) == [MIDNIGHT_MS + number * 10_000 for number in range(450)]
    assert len(lake.files("gpu")) == 5


def test_a_value_that_fits_no_column_keeps_nothing_back(
    spool: Spool, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"gpu": "GPU-a", "time": MIDNIGHT_MS, "pid": 7, "kind": "compute", "command": "tr\udcc3", "user": "ann"}
    hot = ticks(0, 1)[0] | {"temperature_c": 70_000}
    spool.append({"process": [odd, odd | {"pid": 8, "command": "python"}], "gpu": [hot, *ticks(1, 1)]})
    assert publisher.publish(spool, lake, "h") == 4
    processes = parquet.read(lake.files("process"), schema.PROCESS, ["pid", "command", "user"]).to_pylist()
    assert [(row["command"], row["user"]) for row in processes] == [(None, "ann"), ("python", "ann")]
    assert parquet.read(lake.files("gpu"), schema.GPU, ["temperature_c"])["temperature_c"].to_pylist() == [None, None]
    said = capsys.readouterr().err
    assert "process.command" in said
    assert "gpu.temperature_c" in said


def test_a_spool_from_a_backup_never_reuses_a_number(tmp_path: Path, lake: Lake) -> None:
    spool = Spool(str(tmp_path / "spool"))
    spool.lock()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "spool", copy)
    spool.append({"gpu": ticks(0, 3)})
    publisher.publish(spool, lake, "h")
    spool.close()
    restored = Spool(str(copy))
    restored.lock()
    restored.append({"gpu": ticks(3, 5)})
    publisher.publish(restored, lake, "h")
    restored.close()
    assert len(times(lake)) == 8


def test_a_spool_removed_under_the_agent_is_made_again(spool: Spool) -> None:
    spool.append({"gpu": ticks(0, 1)})
    for file in spool.folder.glob("spool.sqlite*"):
        file.unlink()
    spool.append({"gpu": ticks(1, 2)})
    assert spool.count() == 2
    other = Spool(str(spool.folder))
    assert other.count() == 2
    other.close()


def test_a_spool_that_breaks_while_it_is_read_is_one_sentence(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    spool.append({"gpu": ticks(0, 2000)})
    spool.close()
    file = tmp_path / "spool.sqlite"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(SpoolError, match="the spool"):
        Spool(str(tmp_path)).count()
