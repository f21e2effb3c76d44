"""`fallow lake compact`: one file of each table, date and host, and a reader sees each row once whatever happens."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING, Any

from analytics.scraped.lake_writer import DayMerging
from fallow import parquet, schema
from fallow.clock import DAY_MS, SystemClock
from fallow.compaction import LakeCompactor
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from fallow.stores.regular_files import read_regular
from tests.in_process import run_in_process
from tests.lake.worlds import DAY_0_MS, LATER_MS, numbers, put, put_small, rows

if TYPE_CHECKING:
    import pytest

    from fallow.compaction import Compacted


def compact(lake: Lake, now_ms: int = LATER_MS, *, dry_run: bool = False) -> Compacted:
    return LakeCompactor(lake, now_ms, DAY_MS, 3_600_000, dry_run).run()


def test_a_days_files_become_one_and_the_small_ones_go_in_the_run_after_the_grace(lake: Lake) -> None:
    put_small(lake, 48)
    assert compact(lake).merged == [
        (f"gpu/date=2024-10-0{day}/host=h/{AGENT_FIRST_SEQ + first}-{AGENT_FIRST_SEQ + first + 143}.parquet", 24)
        for day, first in ((4, 0), (5, 144))
    ]
    assert (len(lake.files("gpu")), len(lake.all_files("gpu"))) == (2, 50)
    assert numbers(lake) == list(range(288))
    again = compact(lake)
    assert (again.merged, len(again.removed)) == ([], 48)
    assert lake.all_files("gpu") == lake.files("gpu")
    assert numbers(lake) == list(range(288))
    assert compact(lake).files_before == 0


def test_a_dry_run_counts_and_changes_nothing(lake: Lake) -> None:
    put_small(lake, 24)
    planned = compact(lake, dry_run=True)
    assert (len(planned.merged), planned.files_before, len(lake.all_files("gpu"))) == (1, 24, 24)


def test_a_day_that_is_not_over_or_not_at_rest_and_small_files_within_the_grace_are_left_alone(lake: Lake) -> None:
    put_small(lake, 3)
    for now_ms in (DAY_0_MS + DAY_MS + 3_600_000, SystemClock().now_ms()):
        assert compact(lake, now_ms).merged == []
    compact(lake)
    assert compact(lake, SystemClock().now_ms() + 60_000).removed == []


def test_a_hidden_file_with_rows_of_its_own_stays(lake: Lake) -> None:
    put(lake, 0, 9, rows(0, 5))
    put(lake, 3, 5, rows(100, 1))
    assert [file.first_seq - AGENT_FIRST_SEQ for file in compact(lake).kept] == [3]
    assert len(lake.all_files("gpu")) == 2


def test_a_damaged_or_unreadable_file_keeps_its_own_day_alone_from_being_merged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_small(lake, 48)
    file, whole = lake.files("gpu")[1], lake.read(lake.files("gpu")[1])
    lake.store.put(file.key, b"noise")
    damaged = compact(lake)
    assert (len(damaged.merged), len(damaged.skipped), len(lake.files("gpu"))) == (1, 1, 25)
    lake.store.put(file.key, whole)

    def read(path: str, *rest: Any) -> bytes | None:
        if path.endswith(file.key):
            raise PermissionError(errno.EACCES, "Permission denied")
        return read_regular(path, *rest)

    monkeypatch.setattr("fallow.stores.local.read_regular", read)
    done = compact(lake)
    assert (done.merged, len(done.skipped), "cannot read" in done.skipped[0]) == ([], 1, True)


def test_a_follower_says_once_what_it_cannot_merge_and_tries_again_when_it_changes(lake: Lake) -> None:
    said: list[str] = []
    merging = DayMerging(lake, 0, 0, say=said.append)
    for at in range(3):
        data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, rows(at, 1)))
        lake.put(LakeFile("gpu", "2024-10-04", "h", at, at), data if at else b"noise")
    runs = [merging.run(DAY_0_MS + 2 * DAY_MS, LATER_MS) for _ in range(2)]
    assert (runs, len(said), "0-0.parquet cannot be merged" in said[0]) == ([0, 0], 1, True)
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, rows(0, 1)))
    lake.put(LakeFile("gpu", "2024-10-04", "h", 0, 0), data)
    assert merging.run(DAY_0_MS + 2 * DAY_MS, LATER_MS) == 1
    assert numbers(lake) == [0, 1, 2]


def test_imports_are_not_merged_with_what_agents_wrote(lake: Lake) -> None:
    put_small(lake, 2)
    content = lake.read(lake.files("gpu")[0])
    imported = lake.put(LakeFile("gpu", "2024-10-04", "h", DAY_0_MS, DAY_0_MS + 1), content)
    compact(lake)
    assert imported.key in {file.key for file in lake.files("gpu")}
    assert len(lake.files("gpu")) == 2


def test_a_merged_file_names_the_installations_of_its_rows(lake: Lake) -> None:
    for number, install in enumerate("ab"):
        data = parquet.table_from_rows(schema.GPU, rows(number, 1))
        origin = {"host": "h", "fallow_host": "h", "fallow_install": install}
        seq = AGENT_FIRST_SEQ + number
        lake.put(LakeFile("gpu", "2024-10-04", "h", seq, seq), parquet.encode(schema.GPU, data, origin))
    compact(lake)
    facts = parquet.metadata(lake.files("gpu")[0])
    assert (facts["host"], facts["fallow_host"], facts["fallow_install"]) == ("h", "h", "a,b")


def test_the_command_says_what_it_did(lake: Lake) -> None:
    put_small(lake, 3)
    for file in lake.files("gpu"):
        os.utime(file.url, (1, 1))
    done = run_in_process("lake", "compact", "--lake", lake.root, "--older-than", "1d", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["merged"][0]["from_files"] == 3
    assert run_in_process("lake", "compact", "--lake", lake.root, "--dry-run").stdout == (
        "0 files would be merged into 0\n0 replaced files would be removed\n"
    )
