"""The ledger is kept in the lake, read back while it is current, and never half of one and half of another."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.ledger import build, made_days
from analytics.ledger.build import load_ledger
from analytics.ledger.day import PARTS
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import summarise
from analytics.tables.ledger_columns import SUMMARY_COLUMNS
from analytics.tables.table import record
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile
from tests.lakes import made_lake
from tests.ledger.rows import T0, claim, device, fill, load, processes, samples, snapshot, states, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analytics.ledger.day import HostDay

LOADED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1}
DAY = 86_400
DATES = ["2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"]


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """Three days with an hour of rows around each midnight."""
    rows = [row for day in range(3) for row in samples("a", day * DAY - 1800, day * DAY + 1800, every_s=60, **LOADED)]
    return fill(lake, rows, processes("a", *range(-1800, 1800, 30)))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A list that grows by (host, date) with every host-day that is built."""
    seen: list[tuple[str, str]] = []
    real = made_days.build_days

    def counted(days: Sequence[HostDay], *arguments: Any) -> Any:
        seen.extend((day.host, day.date) for day in days)
        return real(days, *arguments)

    monkeypatch.setattr(made_days, "build_days", counted)
    return seen


def numbers(lake: Lake, **settings: Any) -> dict[str, object]:
    return record(SUMMARY_COLUMNS, summarise(load(lake, **settings)))


EVERY_DAY = [("h1", day) for day in DATES]


def test_the_second_load_reads_what_the_first_kept(filled: Lake, builds: list[tuple[str, str]]) -> None:
    first = load(filled)
    before = snapshot(filled)
    second = load(filled)
    assert builds == EVERY_DAY
    assert first.stretches.equals(second.stretches)
    assert first.spells.equals(second.spells)
    assert first.rollups.hourly().equals(second.rollups.hourly())
    assert snapshot(filled) == before


@pytest.fixture
def stitched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows by the number of parts with every time that days are put together."""
    seen: list[int] = []
    real = build.stitch

    def counted(parts: Any, *arguments: Any) -> Any:
        seen.append(len(parts))
        return real(parts, *arguments)

    monkeypatch.setattr(build, "stitch", counted)
    return seen


def test_days_are_put_together_once(filled: Lake, stitched: list[int]) -> None:
    first, second = load(filled), load(filled)
    assert len(stitched) == 1
    assert second.stretches.equals(first.stretches)
    assert second.spells.equals(first.spells)
    assert (first.stretches["stretch_end"] > first.stretches["end"]).any()
    load(filled, idle_after_ms=1_200_000)
    assert len(stitched) == 2


def test_gpus_that_two_hosts_report_are_put_together_every_time(lake: Lake, stitched: list[int]) -> None:
    fill(lake, samples("a", 0, 1200, **LOADED))
    fill(lake, samples("a", 600, 1800, **LOADED), host="h2")
    first, second = load(lake), load(lake)
    assert len(stitched) == 2
    assert second.stretches.equals(first.stretches)
    assert second.spells.equals(first.spells)


def stored(lake: Lake) -> dict[str, float]:
    """GPU-hours by state as anything that reads Parquet finds them in the lake."""
    with duckdb.connect() as connection:
        rows = connection.sql(
            f"""
            select state, sum(epoch_ms("end") - epoch_ms("time")) / 3600000
            from read_parquet('{lake.root}/ledger/**/*.parquet') group by state
            """  # noqa: S608  # a folder of the test's own
        ).fetchall()
    return dict(rows)


def hours_of(summary: dict[str, object]) -> dict[str, float]:
    """The same out of a summary."""
    hours = summary["gpu_hours"]
    assert isinstance(hours, dict)
    return {state: pytest.approx(part) for state, part in hours.items() if part and state != "total"}


def test_what_is_kept_is_what_duckdb_sees(filled: Lake) -> None:
    whole = numbers(filled)
    assert stored(filled) == hours_of(whole)


def test_a_gpu_that_moved_counts_once_in_what_is_kept_too(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600, gpu_util_pct=50.0, process_count=1))
    fill(lake, samples("a", 300, 900), host="h2")
    whole = numbers(lake)
    assert whole["gpu_hours"]["total"] == pytest.approx(900 / 3600)  # type: ignore[index]
    assert stored(lake) == hours_of(whole)


def test_other_settings_build_again_and_are_kept_in_their_turn(filled: Lake, builds: list[tuple[str, str]]) -> None:
    one, other = numbers(filled), numbers(filled, idle_after_ms=2 * 3_600_000)
    assert builds == 2 * EVERY_DAY
    assert one != other
    assert numbers(filled, idle_after_ms=2 * 3_600_000) == other
    assert builds == 2 * EVERY_DAY


NEW_ROWS = {
    "gpu": samples("a", 2 * DAY + 1800, 2 * DAY + 2400, every_s=60),
    "process": processes("a", 2 * DAY, user="eve"),
    "claim": [claim("a", 2 * DAY - 60, 2 * DAY + 60)],
    "host": [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000}],
    "serving": [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000, "endpoint": "e", "model": "m", "gpu": "a"}],
}


@pytest.mark.parametrize("table", list(NEW_ROWS))
def test_new_files_build_their_host_and_days_again_and_no_other(
    filled: Lake, builds: list[tuple[str, str]], table: str
) -> None:
    fill(filled, samples("b", 0, 3 * DAY, every_s=600), devices=[device("b")], host="h2")
    fill(filled, [], devices=[device("a")])
    load(filled)
    builds.clear()
    write(filled, schema.table(table), NEW_ROWS[table])
    load(filled)
    # a claim may reach over midnight into the days beside its own
    assert {host for host, _ in builds} == {"h1"}
    assert ("h1", "2026-11-22") in builds
    assert "2026-11-19" not in {date for _, date in builds}
    if table != "claim":
        assert builds == [("h1", "2026-11-22")]


def test_a_new_day_of_one_host_builds_that_day_alone(filled: Lake, builds: list[tuple[str, str]]) -> None:
    load(filled)
    builds.clear()
    write(filled, schema.GPU, samples("a", 3 * DAY + 60, 3 * DAY + 600, every_s=60))
    load(filled)
    assert builds == [("h1", "2026-11-23")]


def test_a_claim_that_ends_leaves_the_days_before_as_they_were(filled: Lake, builds: list[tuple[str, str]]) -> None:
    write(filled, schema.CLAIM, [claim("a", -3600, None)])
    load(filled)
    builds.clear()
    write(filled, schema.CLAIM, [claim("a", -3600, 2 * DAY + 7200)])
    load(filled)
    assert not {"2026-11-19", "2026-11-20"} & {date for _, date in builds}


def test_corrected_rows_of_the_same_size_are_seen(lake: Lake) -> None:
    """An importer that runs again over corrected figures replaces a file by one of the same name and often size."""
    rows = samples("a", 0, 60, gpu_util_pct=20.0, process_count=1)
    (file,) = write(lake, schema.GPU, rows)
    assert states(lake) == [("active", 0, 60)]
    corrected = [row | {"gpu_util_pct": 5.0} for row in rows]
    again = lake.put(file, parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, corrected)))
    assert again.size_bytes == file.size_bytes
    os.utime(again.url, ns=(T0, T0))  # whatever the clock's resolution
    assert states(lake) == [("low", 0, 60)]


def kept(lake: Lake, table: str) -> list[LakeFile]:
    return lake.all_files(table)


def damaged(victim: Path, damage: str) -> None:
    data = victim.read_bytes()
    if damage == "gone":
        victim.unlink()
    else:
        victim.write_bytes({"truncated": data[:-20], "empty": b"", "noise": os.urandom(len(data))}[damage])


DAMAGES = ["truncated", "empty", "noise", "gone"]


@pytest.mark.parametrize("table", [table.name for table in PARTS])
def test_a_broken_part_is_built_again(filled: Lake, builds: list[tuple[str, str]], table: str) -> None:
    whole = numbers(filled)
    for damage in DAMAGES:
        builds.clear()
        damaged(Path(kept(filled, table)[1].url), damage)
        assert numbers(filled) == whole, damage
        assert builds == [("h1", DATES[1])], damage
    assert numbers(filled) == whole
    assert len(builds) == 1


@pytest.mark.parametrize("table", ["ledger", "spell"])
def test_a_broken_ledger_is_put_together_again(filled: Lake, builds: list[tuple[str, str]], table: str) -> None:
    whole, before = numbers(filled), snapshot(filled)
    for damage in DAMAGES:
        damaged(Path(kept(filled, table)[1].url), damage)
        assert numbers(filled) == whole, damage
        assert snapshot(filled) == before, damage
    assert builds == EVERY_DAY


def test_days_without_rows_between_others_stay_in_the_kept_ledger(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600) + samples("a", 3 * DAY, 3 * DAY + 600))
    load(lake)
    before = snapshot(lake)
    assert {file.date for file in kept(lake, "ledger")} == {"2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23"}
    load(lake)
    assert snapshot(lake) == before


def interruptions(lake: Lake, monkeypatch: pytest.MonkeyPatch, every: int) -> Iterator[int]:
    """Yields with the keeping cut off after 0, every, 2 every, ... of its writes and removals, until it gets through."""
    real_put, real_delete = Lake.put, Lake.delete
    for allowed in range(0, 1000, every):
        left = [allowed]

        def limited(real: Any, left: list[int] = left) -> Any:
            def call(self: Lake, *arguments: Any) -> Any:
                if left[0] == 0:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(self, *arguments)

            return call

        monkeypatch.setattr(Lake, "put", limited(real_put))
        monkeypatch.setattr(Lake, "delete", limited(real_delete))
        cut_off = False
        try:
            load(lake, idle_after_ms=2 * 3_600_000)
        except KeyboardInterrupt:
            cut_off = True
        monkeypatch.setattr(Lake, "put", real_put)
        monkeypatch.setattr(Lake, "delete", real_delete)
        yield allowed
        if not cut_off:
            return


@pytest.mark.long
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("kept_before", "wider"), [(False, False), (True, True)])
def test_dying_while_keeping_never_leaves_a_mixture(
    filled: Lake, monkeypatch: pytest.MonkeyPatch, every: int, *, kept_before: bool, wider: bool
) -> None:
    if kept_before:
        numbers(filled)
    if wider:  # a wider range of files hides the old ones from the first new one on
        write(filled, schema.GPU, samples("a", 3 * DAY, 3 * DAY + 600, every_s=60))
    with TemporaryDirectory() as folder:  # what a build without any kept ledger gives
        shutil.copytree(Path(filled.root, "gpu"), Path(folder, "gpu"))
        shutil.copytree(Path(filled.root, "process"), Path(folder, "process"))
        expected = [numbers(made_lake(folder), **settings) for settings in ({}, {"idle_after_ms": 2 * 3_600_000})]
    start = snapshot(filled)
    count = 0
    for _ in interruptions(filled, monkeypatch, every):
        count += 1
        assert numbers(filled, idle_after_ms=2 * 3_600_000) == expected[1]
        assert stored(filled) == hours_of(expected[1])
        assert numbers(filled) == expected[0]
        assert stored(filled) == hours_of(expected[0])
        restore(filled, start)
    assert count > 4


def restore(lake: Lake, files: dict[str, bytes]) -> None:
    root = Path(lake.root)
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if str(path.relative_to(root)) not in files:
            path.unlink()
    for name, data in files.items():
        if (root / name).read_bytes() != data if (root / name).exists() else True:
            (root / name).write_bytes(data)


def test_a_lake_that_cannot_be_written_warns_once_and_works(filled: Lake) -> None:
    fill(filled, samples("b", 0, 60), host="h2")
    Path(filled.root, "ledger").write_bytes(b"no folder")  # as root, permissions stop nobody
    warnings: list[str] = []
    ledger = load_ledger(filled, LedgerSettings(), warn=warnings.append)
    assert len(warnings) == 1
    assert warnings[0].startswith("fallow: the ledger is not kept: cannot write ")
    assert set(ledger.stretches["gpu"]) == {"a", "b"}
    assert Path(filled.root, "ledger").read_bytes() == b"no folder"
    assert not [name for name in snapshot(filled) if name.endswith(".part")]


def test_two_commands_with_other_settings_at_once_keep_their_own(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins when the first has made its days and not yet put them together."""
    busy = {"gpu_util_pct": 50.0, "process_count": 1}
    rows = [*samples("a", 0, 1200, **busy), *samples("a", 1200, 1800, **LOADED), *samples("a", 1800, 3600, **busy)]
    filled = fill(lake, rows)
    settings = LedgerSettings(), LedgerSettings(idle_after_ms=1_800_000)
    expected = [record(SUMMARY_COLUMNS, summarise(load_ledger(filled, each))) for each in settings]
    assert expected[0] != expected[1]
    for file in [file for table in PARTS for file in filled.all_files(table.name)]:
        filled.delete(file)
    waits_or_is_done, real = threading.Event(), made_days.MadeDays.build
    found: list[dict[str, object]] = [{}, {}]

    def run(number: int) -> None:
        ledger = load_ledger(filled, settings[number], warn=lambda _: waits_or_is_done.set())
        found[number] = record(SUMMARY_COLUMNS, summarise(ledger))
        waits_or_is_done.set()

    second = threading.Thread(target=run, args=(1,))

    def build_days(self: made_days.MadeDays, *arguments: Any) -> None:
        monkeypatch.setattr(made_days.MadeDays, "build", real)
        real(self, *arguments)
        second.start()
        assert waits_or_is_done.wait(60)

    monkeypatch.setattr(made_days.MadeDays, "build", build_days)
    run(0)
    second.join(60)
    assert found == expected
    assert [numbers(filled, idle_after_ms=each.idle_after_ms) for each in settings] == expected


def test_days_that_lost_their_rows_lose_their_ledger_too(filled: Lake) -> None:
    load(filled)
    for file in filled.all_files("gpu"):
        if file.date > "2026-11-20":
            filled.delete(file)
    assert states(filled)[-1][2] == DAY
    assert {file.date for file in kept(filled, "ledger")} == {"2026-11-19", "2026-11-20"}
    assert {file.date for file in kept(filled, "hourly")} == {"2026-11-19", "2026-11-20"}


def test_a_kept_file_of_a_newer_schema_is_built_again(filled: Lake, builds: list[tuple[str, str]]) -> None:
    load(filled)
    victim = kept(filled, "hourly")[0]
    newer = parquet.encode(schema.HOURLY, parquet.table_from_rows(schema.HOURLY, []), {"fallow_schema_version": "99"})
    Path(victim.url).write_bytes(newer)
    load(filled)
    assert builds == [*EVERY_DAY, ("h1", DATES[0])]


def test_no_lake_and_an_empty_lake_are_two_things(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        load(Lake.at(str(tmp_path / "nowhere")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LakeError, match="holds no gpu rows yet"):
        load(Lake.at(str(tmp_path / "empty")))


def test_progress_ends_at_one(filled: Lake) -> None:
    fill(filled, samples("b", 0, 60), host="h2")
    seen: list[float] = []
    load_ledger(filled, LedgerSettings(), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
