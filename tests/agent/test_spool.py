"""The spool: rows as they went in, one agent at a time, and files that are old, new, damaged or gone."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest

from agent.spool import publisher
from agent.spool.spool import Spool
from fallow.errors import SpoolError
from tests.agent.spooled import MIDNIGHT_MS, ticks

if TYPE_CHECKING:
    from pathlib import Path


def test_a_row_that_cannot_be_stored_takes_the_whole_commit_with_it(spool: Spool) -> None:
    with pytest.raises(KeyError):
        spool.append({"gpu": ticks(0, 2), "event": [{"kind": "no time"}]})
    assert spool.count() == 0


def test_publishing_that_was_said_to_be_done_twice_counts_once(spool: Spool) -> None:
    spool.append({"gpu": ticks(0, 3)})
    last = spool.last_seq(100)
    assert last is not None
    made = [publisher.PublishedFile("gpu", MIDNIGHT_MS, last - 2, last, 3, last, "lake", "h", 5)]
    spool.append({"gpu": ticks(3, 1)})
    for _ in range(2):
        spool.publish_until(last, made)
    assert spool.published_files() == made
    assert spool.count() == 1


def test_one_agent_per_spool(spool: Spool, tmp_path: Path) -> None:
    spool.lock()
    other = Spool(str(tmp_path / "spool"))
    with pytest.raises(SpoolError, match="another agent"):
        other.lock()
    other.close()


def test_a_broken_spool_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "spool.sqlite").write_text("this is no database, and long enough to be read as one" * 10)
    with pytest.raises(SpoolError, match="cannot open the spool"):
        Spool(str(tmp_path))


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


@pytest.mark.parametrize(
    ("version", "told"), [(99, "a newer fallow; upgrade fallow"), (1, "an older fallow; move the file away")]
)
def test_a_spool_of_another_format_is_left_alone(tmp_path: Path, version: int, told: str) -> None:
    Spool(str(tmp_path)).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "spool.sqlite")) as db:
        db.execute(f"PRAGMA user_version={version}")
    for for_agent in (False, True):
        with pytest.raises(SpoolError, match=f"written by {told}"):
            Spool(str(tmp_path), for_agent=for_agent)


def test_a_damaged_file_is_moved_aside_for_the_agent(tmp_path: Path) -> None:
    junk = "this is no database, and long enough to be read as one" * 10
    (tmp_path / "spool.sqlite").write_text(junk)
    spool = Spool(str(tmp_path), for_agent=True)
    [aside] = tmp_path.glob("spool.sqlite.damaged-*")
    assert aside.read_text() == junk
    assert spool.mended == f"the spool was damaged and is now {aside}; its unpublished rows are missing from the lake"
    spool.append({"gpu": ticks(0, 1)})
    assert spool.count() == 1
    spool.close()
    again = Spool(str(tmp_path), for_agent=True)
    assert again.mended == ""
    again.close()


def test_a_damaged_file_of_a_running_agent_stays(tmp_path: Path) -> None:
    running = Spool(str(tmp_path), for_agent=True)
    with pytest.raises(SpoolError, match="another agent"):
        Spool(str(tmp_path), for_agent=True)
    running.close()
    assert not list(tmp_path.glob("*damaged*"))
