"""What the lake has lost is published again, and nothing else."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from agent.spool.publisher import Publisher
from tests.agent.spooled import MIDNIGHT_MS, ticks

if TYPE_CHECKING:
    from agent.spool.spool import Spool
    from fallow.lake import Lake


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
    [row] = list(spool.rows_until(spool.last_seq(100) or 0))
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
