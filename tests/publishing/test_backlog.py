"""Rows on their way into a spool that takes them late, or no longer: in order, once, bounded, and said."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from agent.spool.backlog import Backlog
from agent.spool.publisher import Publisher
from agent.spool.spool import Spool
from tests.agent.spooled import waiting
from tests.publishing.rows import MIDNIGHT_MS, Hands, numbers, ticks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fallow.lake import Lake


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with closing(Spool(str(tmp_path / "spool"), for_agent=True)) as made:
        made._db.execute("PRAGMA busy_timeout=0")  # noqa: SLF001  # another's write is not waited for in a test
        yield made


@contextmanager
def locked(spool: Spool) -> Iterator[None]:
    """Another process is in the middle of a write for as long as this lasts."""
    with closing(sqlite3.connect(spool.folder / "spool.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def spooled(spool: Spool) -> list[int]:
    return [(row.time_ms - MIDNIGHT_MS) // 10_000 for row in waiting(spool)]


def kinds(backlog: Backlog) -> list[str]:
    return [incident["kind"] for incident in backlog.take_incidents()]


def test_rows_that_the_spool_does_not_take_wait_in_order_with_their_facts(spool: Spool) -> None:
    backlog = Backlog(spool, 1 << 30)
    backlog.append({"gpu": ticks(0, 1)}, {"last": "0"})
    assert (spooled(spool), spool.noted("last"), backlog.memory_rows, backlog.pressure) == ([0], "0", 0, 0)
    with locked(spool):
        for number in (1, 2, 3):
            backlog.append({"gpu": ticks(number, 1)}, {"last": str(number), f"only {number}": "yes"})
        assert backlog.memory_rows == 3
        assert spooled(spool) == [0]
        assert spool.noted("last") == "0", "a fact never runs ahead of its rows"
    assert kinds(backlog) == ["spool_failed"], "said once"
    backlog.append({"gpu": ticks(4, 1)}, {"last": "4"})
    assert spooled(spool) == [0, 1, 2, 3, 4]
    assert (spool.noted("last"), spool.noted("only 2"), backlog.memory_rows) == ("4", "yes", 0)
    assert backlog.take_incidents() == []


def test_memory_is_bounded_and_what_is_dropped_is_said(spool: Spool) -> None:
    backlog = Backlog(spool, 1 << 30, memory_bytes=10_000)
    with locked(spool):
        for number in range(200):
            backlog.append({"gpu": ticks(number, 1)}, {"first": "kept"} if number == 0 else {"last": str(number)})
        held = backlog.memory_rows
        assert 20 < held < 60
        assert backlog.pressure == 2
    backlog.take_incidents()
    backlog.append({"gpu": ticks(200, 1)})
    assert spooled(spool) == list(range(200 - held, 201)), "the newest are kept"
    [dropped] = backlog.take_incidents()
    assert dropped["kind"] == "rows_dropped"
    assert dropped["detail"].startswith(f"{200 - held} rows from 2024-10-04T00:00:00Z to 2024-10-04T00:")
    assert spool.noted("first") == "kept", "facts outlive the rows that brought them"
    assert spool.noted("last") == "199"


def test_pressure_rises_at_once_and_falls_step_by_step(spool: Spool) -> None:
    hands = Hands(0.0)
    backlog = Backlog(spool, 1 << 30, memory_bytes=10_000, calm_s=300, monotonic_s=hands.monotonic_s)
    seen = []
    with locked(spool):
        for number in range(30):
            backlog.append({"gpu": ticks(number, 1)})
            seen.append(backlog.pressure)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2}
    seen = []
    for number in range(30, 100):
        hands.s += 10
        backlog.append({"gpu": ticks(number, 1)})
        seen.append(backlog.pressure)
    assert seen == [2] * 29 + [1] * 30 + [0] * 11


def test_a_spool_near_its_largest_size_lets_published_rows_go_and_then_asks_for_less(spool: Spool, lake: Lake) -> None:
    backlog = Backlog(spool, 400_000)
    number = 0
    for _ in range(4):
        backlog.append({"gpu": ticks(number, 400)})
        Publisher(spool, lake, "h").publish()
        number += 400
    assert backlog.pressure == 0
    kept = [segment.first_seq for segment in spool.published_files()]
    while spool.published_files():
        assert backlog.pressure == 0, "as long as published rows can go"
        backlog.append({"gpu": ticks(number, 20)})
        number += 20
        left = [segment.first_seq for segment in spool.published_files()]
        assert left == kept[len(kept) - len(left) :], "the oldest go first"
    seen = set()
    for _ in range(200):
        backlog.append({"gpu": ticks(number, 20)})
        number += 20
        seen.add(backlog.pressure)
    assert max(seen) == 2
    assert seen >= {1, 2}
    assert spool.live_bytes() <= 400_000
    assert backlog.memory_rows > 0
    [full] = backlog.take_incidents()
    told = "the spool has grown to agent.spool_max: rows wait in memory"
    assert (full["kind"], full["detail"]) == ("disk_full", told)
    while backlog.memory_rows:
        Publisher(spool, lake, "h").publish()
        backlog.append({"gpu": ticks(number, 1)})
        number += 1
    Publisher(spool, lake, "h").publish()
    assert numbers(lake) == list(range(number))


def test_a_spool_that_is_damaged_is_moved_aside_and_that_is_said(spool: Spool, tmp_path: Path) -> None:
    backlog = Backlog(spool, 1 << 30)
    backlog.append({"gpu": ticks(0, 2000)})
    spool.checkpoint()
    file = spool.folder / "spool.sqlite"
    file.write_bytes(b"\xa5" * file.stat().st_size)
    spool._db.execute("PRAGMA shrink_memory")  # noqa: SLF001  # what SQLite has in memory is still whole
    backlog.append({"gpu": ticks(2000, 1)}, {"last": "2000"})
    [incident] = backlog.take_incidents()
    assert incident["kind"] == "spool_failed"
    assert "the spool was damaged and is now" in incident["detail"]
    assert spooled(spool) == [2000]
    assert spool.noted("last") == "2000"

    (tmp_path / "spool.sqlite").write_text("this is no database, and long enough to be read as one" * 10)
    with closing(Spool(str(tmp_path), for_agent=True)) as mended:
        assert kinds(Backlog(mended, 1 << 30)) == ["spool_failed"], "at the start too"


def test_a_folder_that_is_gone_and_comes_back_costs_nothing(spool: Spool, tmp_path: Path) -> None:
    backlog = Backlog(spool, 1 << 30)
    backlog.append({"gpu": ticks(0, 1)})
    away = tmp_path / "away"
    spool.folder.rename(away)
    spool.folder.write_text("something else is mounted here")
    for number in (1, 2):
        backlog.append({"gpu": ticks(number, 1)})
    assert backlog.memory_rows == 2
    assert kinds(backlog) == ["spool_failed"]
    spool.folder.unlink()
    away.rename(spool.folder)
    backlog.append({"gpu": ticks(3, 1)})
    assert spooled(spool) == [0, 1, 2, 3]


def test_what_is_lost_at_the_end_is_said(spool: Spool, caplog: pytest.LogCaptureFixture) -> None:
    backlog = Backlog(spool, 1 << 30)
    with locked(spool):
        backlog.append({"gpu": ticks(0, 3)})
        backlog.close()
    assert "3 rows in memory are lost" in caplog.text
    backlog.close()
    assert spooled(spool) == [0, 1, 2]
    row: dict[str, Any] = {"gpu": "GPU-a"}
    with pytest.raises(KeyError):  # a row that cannot be told from a mistake
        Backlog(spool, 1 << 30).append({"gpu": [row]})
