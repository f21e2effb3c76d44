"""The spool and the publisher: nothing lost, nothing doubled, whatever dies when."""

from __future__ import annotations

import contextlib
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
    last = spool.last_seq()
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
        patch.setattr(Spool, "forget_until", lambda *_: None)
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
