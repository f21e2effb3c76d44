"""`fallow lake check` names what is wrong between files, and `repair` puts it right without losing a row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.lake_care.repair import Repairer, inspect
from fallow.clock import SystemClock
from fallow.compaction import partitions
from fallow.errors import LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake
from tests.in_process import run_in_process
from tests.lake.worlds import LATER_MS, numbers, put, put_small, rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.lake_care.repair import RepairStep


def faults(lake: Lake) -> list[str]:
    return [each.kind for each in inspect(lake, partitions(lake)).problems]


def repair(lake: Lake, now_ms: int = LATER_MS, *, dry_run: bool = False) -> list[RepairStep]:
    return Repairer(lake, now_ms, 3_600_000, dry_run=dry_run).run()


def overlap(lake: Lake) -> None:
    put(lake, 0, 9, rows(0, 10))
    put(lake, 5, 14, rows(5, 10))


def doubled(lake: Lake) -> None:
    put(lake, 0, 9, rows(0, 10))
    put(lake, 10, 19, rows(5, 10))


def not_covered(lake: Lake) -> None:
    put(lake, 0, 14, rows(0, 10))
    put(lake, 3, 7, rows(8, 7))


@pytest.mark.parametrize(
    ("harm", "named"), [(overlap, ["overlap", "doubled"]), (doubled, ["doubled"]), (not_covered, ["not_covered"])]
)
def test_rows_are_there_once_after_a_repair(lake: Lake, harm: Callable[[Lake], None], named: list[str]) -> None:
    harm(lake)
    assert faults(lake) == named
    before = {file.key: lake.read(file) for file in lake.all_files("gpu")}
    assert next(step.kind for step in repair(lake, dry_run=True)) == "unite"
    assert {file.key: lake.read(file) for file in lake.all_files("gpu")} == before
    repair(lake)
    assert numbers(lake) == list(range(15))
    assert faults(lake) == []
    repair(lake)
    (file,) = lake.all_files("gpu")
    assert file.last_seq - file.first_seq >= 14
    assert numbers(lake) == list(range(15))
    assert repair(lake) == []


def test_what_was_written_a_moment_ago_is_left_to_its_writer(lake: Lake) -> None:
    overlap(lake)
    before = numbers(lake)
    assert {each.kind for each in repair(lake, SystemClock().now_ms() + 60_000)} == {"wait"}
    assert numbers(lake) == before


def test_moments_that_two_installations_tell_of_are_named_and_left_alone(lake: Lake) -> None:
    put(lake, 0, 9, rows(0, 5), install="a" * 32)
    put(lake, 20, 29, [row | {"gpu_util_pct": 1.0} for row in rows(3, 5)], install="b" * 32)
    put(lake, 40, 49, rows(20, 2), install="b" * 32)
    [problem] = inspect(lake, partitions(lake)).problems
    assert problem.kind == "two_writers"
    assert ": 2 rows are of moments" in problem.sentence
    assert repair(lake) == []


@pytest.mark.parametrize("verb", ["check", "compact", "expire", "repair", "size"])
def test_an_empty_place_is_no_lake(tmp_path: Path, verb: str) -> None:
    done = run_in_process("lake", verb, "--lake", str(tmp_path), FALLOW_RETENTION_GPU="90d")
    assert (done.returncode, "there is no fallow lake" in done.stderr) == (1, True)


def test_rows_that_one_file_has_twice_stay_twice(lake: Lake) -> None:
    put(lake, 0, 9, [*rows(0, 3), *rows(0, 1)])
    put(lake, 5, 14, rows(2, 4))
    repair(lake)
    assert numbers(lake) == [0, 0, 1, 2, 3, 4, 5]


def test_a_damaged_file_is_moved_aside_and_what_it_hid_is_read(lake: Lake) -> None:
    put_small(lake, 2)
    wide = put(lake, 0, 11, rows(0, 12))
    lake.store.put(wide.key, lake.read(wide)[:-9])
    assert [step.kind for step in repair(lake)] == ["quarantine"]
    assert numbers(lake) == list(range(12))
    assert len(lake.files("gpu")) == 2
    assert Path(lake.root, ".quarantine", wide.key).is_file()
    assert run_in_process("lake", "check", "--lake", lake.root).returncode == 0


def test_a_damaged_file_stays_where_the_store_keeps_no_whole_copy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = put(lake, 0, 11, rows(0, 12))
    lake.store.put(wide.key, damaged := lake.read(wide)[:-9])
    put_whole = type(lake.store).put
    monkeypatch.setattr(type(lake.store), "put", lambda store, key, data: put_whole(store, key, data[:-1]))
    with pytest.raises(LakeError):
        repair(lake)
    assert lake.read(wide) == damaged


def test_half_written_files_go_after_the_grace(lake: Lake) -> None:
    put_small(lake, 1)
    partial = Path(lake.files("gpu")[0].url).with_name(".0-9.parquet.1.abcd.part")
    partial.write_bytes(b"half")
    assert repair(lake, SystemClock().now_ms() + 60_000) == []
    assert [step.kind for step in repair(lake)] == ["remove_partial"]
    assert not partial.exists()


def test_two_files_of_an_import_are_nothing_to_repair(lake: Lake) -> None:
    put(lake, -AGENT_FIRST_SEQ, 9 - AGENT_FIRST_SEQ, rows(0, 10))
    put(lake, 5 - AGENT_FIRST_SEQ, 14 - AGENT_FIRST_SEQ, rows(5, 10))
    assert (faults(lake), repair(lake)) == ([], [])


def test_the_commands_name_and_mend(lake: Lake) -> None:
    overlap(lake)
    for file in lake.files("gpu"):
        os.utime(file.url, (1, 1))
    told = run_in_process("lake", "check", "--lake", lake.root)
    assert told.returncode == 1
    assert "overlap, and neither lies inside the other" in told.stdout
    found = json.loads(run_in_process("lake", "check", "--lake", lake.root, "--json").stdout)
    assert [each["fault"] for each in found["tables"]["problems"]["rows"]] == ["overlap", "doubled"]
    assert run_in_process("lake", "repair", "--lake", lake.root).stdout.endswith("1 steps to do; --yes does them\n")
    done = json.loads(run_in_process("lake", "repair", "--lake", lake.root, "--yes", "--json").stdout)
    assert [step["step"] for step in done["steps"]] == ["unite"]
    after = run_in_process("lake", "check", "--lake", lake.root)
    assert (after.returncode, numbers(lake)) == (0, list(range(15)))
    assert "2 are replaced by wider ones" in after.stdout


def test_size_counts_and_forecasts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put_small(lake, 48)
    put(lake, 0, 143, rows(0, 144))
    monkeypatch.setattr("fallow.clock.SystemClock.now_ms", lambda _: 20_002 * 86_400_000 + 1)
    found = json.loads(run_in_process("lake", "size", "--lake", lake.root, "--json").stdout)
    found = {name: each["rows"] for name, each in found["tables"].items()}
    [gpu] = [each for each in found["tables"] if each["table"] == "gpu"]
    assert (gpu["files"], gpu["rows"], gpu["removable_files"]) == (49, 288, 24 + 23)
    assert found["whole"][0]["month_rows"] == pytest.approx(144 * 365.25 / 12)
    told = run_in_process("lake", "size", "--lake", lake.root, "--by", "day", "--no-rows").stdout
    assert "2024-10-04" in told
    assert "Compaction would remove 47 files." in told
