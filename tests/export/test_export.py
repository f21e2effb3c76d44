"""`fallow lake export`: the tables hold the ledger to the millisecond, and only days that changed are written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.export import export as exporting
from analytics.simulation import SimulatedFleet, owners_csv, write_fleet
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS, utc_day
from fallow.lake import Lake
from tests.export.delta_log import actions, comments, live_files
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.rows import T0, device, processes, samples, write

if TYPE_CHECKING:
    from collections.abc import Callable

UNTIL_MS = 1_763_596_800_000
"""2025-11-20T00:00Z."""
DAY_S = DAY_MS // 1000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lake of ten simulated GPUs over two days, and its owners file."""
    folder = tmp_path_factory.mktemp("export")
    fleet = SimulatedFleet(until_ms=UNTIL_MS, gpus=10, days=2, seed=3)
    write_fleet(made_lake(folder / "lake"), fleet)
    (folder / "owners.csv").write_text(owners_csv(fleet))
    return folder


@pytest.fixture
def small(lake: Lake) -> Lake:
    """Four days of one GPU in a pool."""
    write(lake, schema.DEVICE, [device("gpu-a")], "h1")
    for day in range(4):
        write(lake, schema.GPU, samples("gpu-a", day * DAY_S, day * DAY_S + 7200, every_s=60, process_count=1), "h1")
    write(lake, schema.PROCESS, processes("gpu-a", *range(0, 4 * DAY_S, 7200)), "h1")
    return lake


def export(lake: Lake | Path, to: Path | str, *flags: str, **environment: str) -> dict[str, dict[str, Any]]:
    """What the command did, by table."""
    root = str(lake if isinstance(lake, Path) else lake.root)
    done = run_in_process("lake", "export", "--lake", root, "--to", str(to), "--json", *flags, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return {each["table"]: each for each in json.loads(done.stdout)["tables"]}


def rows(table: Path, select: str, order: str = "") -> list[tuple[Any, ...]]:
    """What DuckDB reads from the table's files."""
    files = [str(file) for file in live_files(table)]
    return duckdb.sql(f"select {select} from read_parquet({files}) {order}").fetchall()  # noqa: S608


GPU_MS = 'state, round(sum((epoch_ms("end") - epoch_ms(time)) * gpu_share))'


@pytest.mark.parametrize("flags", [(), ("--pool", "train"), ("--team", "language")], ids=str)
def test_the_time_in_each_state_is_the_ledgers_to_the_millisecond(
    site: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    owners = {"FALLOW_MONEY_OWNERS": str(site / "owners.csv")}
    answer = run_in_process("ledger", "--lake", str(site / "lake"), "--json", *flags, **owners)
    hours = json.loads(answer.stdout)["gpu_hours"]
    export(site / "lake", tmp_path, *flags, **owners)
    found = dict(rows(tmp_path / "ledger", GPU_MS, "group by state"))
    assert {state: found.get(state, 0) for state in schema.STATES} == {
        state: round(hours[state] * HOUR_MS) for state in schema.STATES
    }
    assert len(live_files(tmp_path / "hourly")) == (0 if "--team" in flags else 2)


def test_every_column_says_what_it_means_and_times_are_moments_in_utc(site: Path, tmp_path: Path) -> None:
    export(site / "lake", tmp_path)
    for table in (schema.LEDGER, schema.HOURLY):
        said = comments(tmp_path / table.name)
        assert list(said) == ["date", "source_digest", *table.names]
        assert all(column.meaning in said[column.name] for column in table.columns)
    [(kind, first)] = rows(tmp_path / "ledger", "typeof(any_value(time)), epoch_ms(min(time))")
    assert (kind, first) == ("TIMESTAMP WITH TIME ZONE", UNTIL_MS - 2 * DAY_MS)
    [protocol] = [each["protocol"] for each in actions(tmp_path / "ledger") if "protocol" in each]
    assert protocol == {"minReaderVersion": 1, "minWriterVersion": 2}, "every engine reads these"


def test_hours_and_terms_of_gpus_are_the_lakes(site: Path, tmp_path: Path) -> None:
    export(site / "lake", tmp_path)
    kept = [file.url for file in Lake.at(str(site / "lake")).all_files("hourly")]
    names = ", ".join(f'"{name}"' for name in schema.HOURLY.names)
    expected = duckdb.sql(f"select {names} from read_parquet({kept}) order by gpu, time, host").fetchall()  # noqa: S608
    assert sorted(rows(tmp_path / "hourly", names), key=str) == sorted(expected, key=str)
    assert len(rows(tmp_path / "gpu_term", "gpu, pool")) == 10


def test_only_days_that_changed_are_written_again_and_without_a_change_nothing(small: Lake, tmp_path: Path) -> None:
    to = tmp_path / "out"
    days = [utc_day(T0 + day * DAY_MS) for day in range(4)]
    first = export(small, to)
    assert [first[name]["written"] for name in ("ledger", "hourly", "gpu_term")] == [days, days, [""]]
    before = {path: path.stat().st_mtime_ns for path in to.rglob("*")}
    again = export(small, to)
    assert [(each["written"], each["removed"]) for each in again.values()] == [([], [])] * 3
    assert {path: path.stat().st_mtime_ns for path in to.rglob("*")} == before
    late = samples("gpu-a", DAY_S + 7200, DAY_S + 10800, every_s=60, process_count=1, gpu_util_pct=90.0)
    write(small, schema.GPU, late, "h1")
    files = live_files(to / "ledger")
    changed = export(small, to)
    assert (changed["ledger"]["written"], changed["hourly"]["written"]) == ([days[1]], [days[1]])
    assert {date for file, date in live_files(to / "ledger").items() if file not in files} == {days[1]}
    fresh = tmp_path / "fresh"
    export(small, fresh)
    everything = "* exclude (source_digest)", "order by gpu, time"
    for table in ("ledger", "hourly"):
        assert rows(to / table, *everything) == rows(fresh / table, *everything)


def test_a_day_without_rows_goes(small: Lake, tmp_path: Path) -> None:
    export(small, tmp_path)
    for table in ("gpu", "process"):
        for file in small.files(table, dates=[utc_day(T0 + 3 * DAY_MS)]):
            small.delete(file)
    done = export(small, tmp_path)
    assert done["hourly"]["removed"] == [utc_day(T0 + 3 * DAY_MS)]
    assert max(live_files(tmp_path / "hourly").values()) == utc_day(T0 + 2 * DAY_MS)


def versions(table: Path) -> int:
    return len(list(table.glob("_delta_log/*.json")))


def test_days_share_a_commit_as_far_as_memory_allows(
    small: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(small, tmp_path / "one")
    assert versions(tmp_path / "one" / "ledger") == 2, "the table, and all of its days"
    monkeypatch.setattr(exporting, "COMMIT_BYTES", 1)
    export(small, tmp_path / "four")
    assert versions(tmp_path / "four" / "ledger") == 5
    one, four = (sorted(rows(tmp_path / name / "hourly", "*"), key=str) for name in ("one", "four"))
    assert one == four


def test_a_run_that_ends_in_the_middle_leaves_whole_days_and_the_next_one_goes_on(
    small: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_days: Callable[..., None] = exporting.DeltaDays.replace
    with monkeypatch.context() as patch:

        def dying(self: Any, days: dict[str, Any]) -> None:
            if utc_day(T0 + 2 * DAY_MS) in days:
                raise KeyboardInterrupt
            replace_days(self, days)

        patch.setattr(exporting, "COMMIT_BYTES", 1)
        patch.setattr(exporting.DeltaDays, "replace", dying)
        done = run_in_process("lake", "export", "--lake", small.root, "--to", str(tmp_path))
        assert done.returncode == 130
    assert sorted(live_files(tmp_path / "ledger").values()) == [utc_day(T0), utc_day(T0 + DAY_MS)]
    assert export(small, tmp_path)["ledger"]["written"] == [utc_day(T0 + day * DAY_MS) for day in (2, 3)]


def test_another_export_is_never_overwritten_and_the_lake_itself_never_a_target(small: Lake, tmp_path: Path) -> None:
    def refused(to: Path | str, *flags: str) -> tuple[int, str]:
        done = run_in_process("lake", "export", "--lake", small.root, "--to", str(to), *flags)
        assert done.stdout == ""
        return done.returncode, done.stderr

    export(small, tmp_path / "out")
    code, said = refused(tmp_path / "out", "--pool", "train")
    assert (code, "is of another export" in said) == (1, True)
    for inside in (small.root, f"{small.root}/exports"):
        code, said = refused(inside)
        assert (code, "is inside the lake" in said) == (2, True)
    code, said = refused("ftp://somewhere/x")
    assert (code, "no store for ftp://" in said) == (2, True)
    (tmp_path / "file").touch()
    code, said = refused(tmp_path / "file" / "below")
    assert (code, said.count("\n"), "Traceback" in said) == (1, 1, False)
