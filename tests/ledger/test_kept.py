"""The ledger is kept in the lake, read back while it is current, and never half of one and half of another."""

from __future__ import annotations

import os
import shutil
import threading
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from analytics.ledger import build, cache, made_days, rollups
from analytics.ledger.build import load_ledger, load_recent
from analytics.ledger.cache import OVER_DAYS
from analytics.ledger.day import PARTS
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import summarise
from analytics.tables.ledger_columns import SUMMARY_COLUMNS
from analytics.tables.table import record
from fallow import parquet, schema
from fallow.clock import Window
from fallow.errors import LakeError
from fallow.lake import Lake
from tests.lakes import made_lake
from tests.ledger.rows import T0, allocation, device, fill, load, processes, samples, silent, snapshot, states, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.ledger.day import HostDay

LOADED: dict[str, Any] = {"gpu_util_pct": 0.0, "process_count": 1}
BUSY: dict[str, Any] = {"gpu_util_pct": 50.0, "process_count": 1}
DAY = 86_400
DATES = ["2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"]
EVERY_DAY = [("h1", day) for day in DATES]
OTHER: dict[str, Any] = {"idle_after_ms": 2 * 3_600_000}


@pytest.fixture
def filled(lake: Lake) -> Lake:
    return fill_days(lake)


def fill_days(lake: Lake) -> Lake:
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


def numbers(lake: Lake, **settings: Any) -> dict[str, Any]:
    return record(SUMMARY_COLUMNS, summarise(load(lake, **settings)))


def test_a_second_command_reads_what_the_first_kept_and_other_settings_are_kept_in_their_turn(
    filled: Lake, builds: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, before = load(filled), snapshot(filled)
    with monkeypatch.context() as patched:
        patched.setattr(build, "stitch", None)  # days are put together once
        second = load(filled)
    assert builds == EVERY_DAY
    for mine, theirs in ((first.segments, second.segments), (first.idle_intervals, second.idle_intervals)):
        assert mine.equals(theirs)
    assert first.rollups.hourly().equals(second.rollups.hourly())
    assert (first.segments["segment_end"] > first.segments["end"]).any()
    assert snapshot(filled) == before
    other = numbers(filled, **OTHER)
    assert other != record(SUMMARY_COLUMNS, summarise(first))
    assert numbers(filled, **OTHER) == other
    assert builds == 2 * EVERY_DAY


def test_rows_that_were_read_are_not_read_again_for_a_later_start_or_fewer_columns(
    filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_ms = T0 + 2 * DAY * 1000
    kept = load(filled).rollups
    own = kept.hourly("energy_mj", since_ms=since_ms)
    assert 0 < len(own) < len(kept.hourly("energy_mj", "power_mean_w"))
    monkeypatch.setattr(rollups, "read_days", None)
    assert kept.hourly("energy_mj", since_ms=since_ms).equals(own)


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


def hours_of(summary: dict[str, Any]) -> dict[str, float]:
    """The same out of a summary."""
    return {state: pytest.approx(part) for state, part in summary["gpu_hours"].items() if part and state != "total"}


def test_what_is_kept_is_what_duckdb_sees_also_of_a_gpu_on_two_hosts(filled: Lake) -> None:
    whole = numbers(filled)
    assert stored(filled) == hours_of(whole)
    fill(filled, samples("b", 0, 600, **BUSY), host="h2")
    fill(filled, samples("b", 300, 900), host="h3")
    first, second = load(filled), load(filled)
    assert stored(filled) == hours_of(record(SUMMARY_COLUMNS, summarise(first)))
    assert second.segments.equals(first.segments)
    assert second.idle_intervals.equals(first.idle_intervals)


def test_in_how_many_files_the_hosts_of_a_day_are_changes_no_row(
    filled: Lake, builds: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, gpu in enumerate(("b", "b", "c", "d", "e"), 2):  # two hosts report the card b
        fill(filled, samples(gpu, number * 60, DAY + 600, every_s=60, **BUSY), host=f"h{number}")

    def shares() -> set[int]:
        return {file.first_seq for table in PARTS for file in filled.all_files(table.name, dates=[DATES[1]])}

    one_file = load(filled)
    hourly = one_file.rollups.hourly()
    assert shares() == {0}
    monkeypatch.setattr(cache, "HOSTS_A_FILE", 2)
    monkeypatch.setattr(made_days, "_STITCHED_BYTES", 4096)
    shutil.rmtree(Path(filled.root, schema.GPU_LIFETIME.name))  # the days are joined again, a share at a time
    several, kept = load(filled), snapshot(filled)
    assert shares() == {3, 4, 5, 6}
    for each in (several, load(filled)):
        assert each.segments.equals(one_file.segments)
        assert each.idle_intervals.equals(one_file.idle_intervals)
        assert each.rollups.hourly().equals(hourly)
    assert snapshot(filled) == kept
    builds.clear()
    write(filled, schema.GPU, samples("e", DAY + 600, DAY + 900, every_s=60, **BUSY), host="h6")
    load(filled)
    assert builds == [("h6", DATES[2])]
    for number in range(2, 7):
        shutil.rmtree(Path(filled.root, "gpu", f"date={DATES[1]}", f"host=h{number}"))
    load(filled)
    assert shares() == {0}


NEW_ROWS: dict[str, tuple[str, list[dict[str, Any]], set[str]]] = {
    "gpu rows": ("gpu", samples("a", 2 * DAY + 1800, 2 * DAY + 2400, every_s=60), {DATES[3]}),
    "a new day": ("gpu", samples("a", 3 * DAY + 60, 3 * DAY + 600, every_s=60), {"2026-11-23"}),
    "process rows": ("process", processes("a", 2 * DAY, user="eve"), {DATES[3]}),
    "host rows": ("host", [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000}], {DATES[3]}),
    "serving rows": (
        "serving",
        [{"time": T0 + 2 * DAY * 1000, "interval_ms": 10_000, "endpoint": "e", "model": "m", "gpu": "a"}],
        {DATES[3]},
    ),
    "an allocation": ("allocation", [allocation("a", 2 * DAY, 2 * DAY + 60, allocation_id="j2")], {DATES[3]}),
    "an allocation over midnight": (
        "allocation",
        [allocation("a", 2 * DAY - 60, 2 * DAY + 60, allocation_id="j2")],
        {*DATES[2:]},
    ),
    "the end of an allocation": ("allocation", [allocation("a", -3600, 2 * DAY + 7200)], {*DATES[2:]}),
}


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of two hosts with its ledger."""
    lake = fill_days(made_lake(tmp_path_factory.mktemp("two-hosts") / "lake"))
    allocated = [allocation("a", -3600, None)]
    fill(lake, samples("b", 0, 3 * DAY, every_s=3600), [], allocated, devices=[device("b")], host="h2")
    fill(lake, [], devices=[device("a")])
    load(lake)
    return lake


@pytest.mark.parametrize("what", NEW_ROWS)
def test_new_files_build_their_host_and_days_again_and_no_other(
    two_hosts: Lake, tmp_path: Path, builds: list[tuple[str, str]], what: str
) -> None:
    table, rows, dates = NEW_ROWS[what]
    lake = made_lake(shutil.copytree(two_hosts.root, tmp_path / "lake"))
    write(lake, schema.table(table), rows)
    load(lake)
    assert {host for host, _ in builds} == {"h1"}
    assert {date for _, date in builds} <= dates
    assert max(date for _, date in builds) == max(dates)


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


def damaged(table: schema.LakeTable, victim: Path, damage: str) -> None:
    data = victim.read_bytes()
    newer = parquet.encode(table, parquet.table_from_rows(table, []), {"fallow_schema_version": "99"})
    broken = {"truncated": data[:-20], "empty": b"", "noise": os.urandom(len(data)), "newer": newer}
    victim.unlink() if damage == "gone" else victim.write_bytes(broken[damage])


def test_a_broken_file_is_made_again_and_what_is_kept_is_the_same(filled: Lake, builds: list[tuple[str, str]]) -> None:
    whole, before = numbers(filled), snapshot(filled)
    damages = cycle(["truncated", "empty", "noise", "gone", "newer"])
    for table, damage in zip((*PARTS, *OVER_DAYS[:2], *OVER_DAYS[:2]), damages, strict=False):
        builds.clear()
        damaged(table, Path(filled.all_files(table.name)[1].url), damage)
        assert numbers(filled) == whole, (table.name, damage)
        assert builds == ([("h1", DATES[1])] if table in PARTS else []), (table.name, damage)
        assert snapshot(filled) == before, (table.name, damage)


def test_days_without_rows_between_others_stay_in_the_kept_ledger(lake: Lake) -> None:
    fill(lake, samples("a", 0, 600) + samples("a", 3 * DAY, 3 * DAY + 600))
    load(lake)
    before = snapshot(lake)
    assert [file.date for file in lake.all_files("ledger")] == [*DATES[1:], "2026-11-23"]
    load(lake)
    assert snapshot(lake) == before


class Cut:
    """Lets some writes and removals through, then none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, allowed: int, error: BaseException) -> None:
        self._left, self._error = allowed, error
        for name in ("put", "delete"):
            monkeypatch.setattr(Lake, name, self._limited(getattr(Lake, name)))

    def _limited(self, real: Any) -> Any:
        def call(lake: Lake, *arguments: Any) -> Any:
            if self._left == 0:
                raise self._error
            self._left -= 1
            return real(lake, *arguments)

        return call


@pytest.mark.long
@pytest.mark.parametrize("grown", [False, True], ids=["nothing kept before", "kept, and a day more"])
def test_dying_while_keeping_never_leaves_a_mixture(
    filled: Lake, monkeypatch: pytest.MonkeyPatch, *, grown: bool
) -> None:
    if grown:  # a wider range of files hides the old ones from the first new one on
        load(filled)
        write(filled, schema.GPU, samples("a", 3 * DAY, 3 * DAY + 600, every_s=60))
    with TemporaryDirectory() as folder:  # what a build without any kept ledger gives
        for table in ("gpu", "process"):
            shutil.copytree(Path(filled.root, table), Path(folder, table))
        expected = [(chosen, numbers(made_lake(folder), **chosen)) for chosen in (OTHER, {})]
    start, is_through = snapshot(filled), False
    for allowed in range(1000):
        with monkeypatch.context() as limited:
            Cut(limited, allowed, KeyboardInterrupt())
            try:
                load(filled, **OTHER)
                is_through = True
            except KeyboardInterrupt:
                pass
        for chosen, whole in expected:
            assert numbers(filled, **chosen) == whole
            assert stored(filled) == hours_of(whole)
        restore(filled, start)
        if is_through:
            break
    assert allowed >= 40


def restore(lake: Lake, files: dict[str, bytes]) -> None:
    root = Path(lake.root)
    for path in [path for path in root.rglob("*") if path.is_file()]:
        if str(path.relative_to(root)) not in files:
            path.unlink()
    for name, data in files.items():
        if not (root / name).exists() or (root / name).read_bytes() != data:
            (root / name).write_bytes(data)


def test_a_lake_that_cannot_be_written_warns_once_and_works(filled: Lake) -> None:
    fill(filled, samples("b", 0, 60), host="h2")
    Path(filled.root, "ledger").write_bytes(b"no folder")  # as root, permissions stop nobody
    warnings: list[str] = []
    done: list[float] = []
    ledger = load_ledger(filled, LedgerSettings(), warn=warnings.append, progress=done.append)
    (warning,) = warnings
    assert warning.startswith("fallow: the ledger is not kept: cannot write ")
    assert set(ledger.segments["gpu"]) == {"a", "b"}
    assert Path(filled.root, "ledger").read_bytes() == b"no folder"
    assert not [name for name in snapshot(filled) if name.endswith(".part")]
    assert (done, done[-1]) == (sorted(done), 1.0)


SETTINGS = LedgerSettings(), LedgerSettings(idle_after_ms=1_800_000)


@pytest.fixture
def paused(lake: Lake) -> Lake:
    """A pause of ten minutes, which is held by the first of SETTINGS alone."""
    rows = [*samples("a", 0, 1200, **BUSY), *samples("a", 1200, 1800, **LOADED), *samples("a", 1800, 3600, **BUSY)]
    return fill(lake, rows)


def test_two_commands_with_other_settings_at_once_keep_their_own(paused: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins when the first has made its days and not yet put them together."""
    expected = [record(SUMMARY_COLUMNS, summarise(load_ledger(paused, each))) for each in SETTINGS]
    assert expected[0] != expected[1]
    for file in [file for table in PARTS for file in paused.all_files(table.name)]:
        paused.delete(file)
    waits_or_is_done, real = threading.Event(), made_days.MadeDays.build
    found: list[dict[str, object]] = [{}, {}]

    def run(number: int) -> None:
        ledger = load_ledger(paused, SETTINGS[number], warn=lambda _: waits_or_is_done.set())
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
    assert [numbers(paused, idle_after_ms=each.idle_after_ms) for each in SETTINGS] == expected


def test_rows_that_another_command_replaces_while_they_are_read_are_not_taken_for_the_named_ones(
    paused: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window is read without a turn: a command with other settings keeps its tables between two of the steps."""
    load_ledger(paused, SETTINGS[1], warn=silent)
    expected = load_ledger(paused, SETTINGS[0], warn=silent)
    real = cache.read_days

    def read_days(*arguments: Any) -> Any:
        monkeypatch.setattr(cache, "read_days", real)
        load_ledger(paused, SETTINGS[1], warn=silent)
        return real(*arguments)

    monkeypatch.setattr(cache, "read_days", read_days)
    found = load_recent(paused, SETTINGS[0], Window(T0, None), T0) or load_ledger(paused, SETTINGS[0], warn=silent)
    assert cache.read_days is real
    assert found.segments.equals(expected.segments)
    assert found.idle_intervals.equals(expected.idle_intervals)


def test_days_that_lost_their_rows_lose_their_ledger_too(filled: Lake) -> None:
    load(filled)
    for file in filled.all_files("gpu"):
        if file.date > DATES[1]:
            filled.delete(file)
    assert states(filled)[-1][2] == DAY
    for table in ("ledger", "hourly"):
        assert [file.date for file in filled.all_files(table)] == DATES[:2]


def test_no_lake_and_an_empty_lake_are_two_things(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        load(Lake.at(str(tmp_path / "nowhere")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LakeError, match="holds no gpu rows yet"):
        load(Lake.at(str(tmp_path / "empty")))
