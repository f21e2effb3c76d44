"""A lake that grows file by file gives what a build of all gives, and opens no day beyond its window and history."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from analytics import window
from analytics.decide.review import review
from analytics.frames import read_frame
from analytics.ledger import build, catch_up
from analytics.ledger.build import load_ledger, recent
from analytics.ledger.cache import Manifest
from analytics.ledger.lifetimes import lifetimes
from analytics.ledger.stitch import stitch
from analytics.ledger.summary import known_at
from analytics.simulation import SimulatedFleet, write_fleet
from analytics.tables.finding_list import FINDING_COLUMNS
from analytics.tables.table import record
from analytics.window import READ_MS, Inputs, history_start_ms, load_whole, load_window_ledger, open_inputs
from fallow import config, schema
from fallow.clock import DAY_MS, SystemClock, Window, utc_day
from fallow.errors import LakeError
from tests.lakes import made_lake
from tests.ledger.rows import Row, fill, ms, processes, samples, silent, snapshot, write
from tests.ledger.test_kept import Cut, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import polars as pl

    from analytics.ledger.build import Ledger
    from fallow.lake import Lake

DAY_S, HOUR_S = 86_400, 3_600
PERIOD_S = 12 * HOUR_S
DAYS = 8
HISTORY_MS = DAY_MS
UNITS = (("h1", "a"), ("h1", "b"), ("h2", "c"))
LOOKS: dict[str, dict[str, Any]] = {
    "work": {"gpu_util_pct": 60.0, "process_count": 1, "power_w": 300.5, "mem_used_bytes": 5_000_000_000},
    "slow": {"gpu_util_pct": 4.0, "process_count": 1, "sm_active_pct": 3.25},
    "edge": {"gpu_util_pct": 10.0, "process_count": 1},
    "zero": {"gpu_util_pct": 0.0, "process_count": 1},
    "free": {"gpu_util_pct": 0.0, "process_count": 0},
    "mute": {"gpu_util_pct": None, "process_count": None},
    "lost": {"gpu_util_pct": None, "process_count": None, "health": "lost"},
}
"""What rows may say; `mute` ones say nothing."""

Chunk = tuple[str, schema.LakeTable, list[Row]]


def inputs_of(lake: Lake, since_s: float, until_s: float | None = None) -> Inputs:
    """A window over the lake; an idle interval of an hour is long enough to be held."""
    loaded = config.load({"lake.path": lake.root, "ledger.idle_after": "1h"}, None)
    return Inputs(lake, Window(ms(since_s), None if until_s is None else ms(until_s)), loaded)


def load(inputs: Inputs) -> Ledger:
    return load_window_ledger(inputs, or_empty=True, history_ms=HISTORY_MS).whole


def bring_sources(lake: Lake, other: Lake) -> None:
    """Gives another lake the same source files, and nothing of the ledger that this one keeps."""
    for table in ("gpu", "process", "allocation", "device"):
        for path in Path(lake.root, table).rglob("*.parquet"):
            copy = Path(other.root, path.relative_to(lake.root))
            if not copy.exists() or copy.stat().st_mtime_ns != path.stat().st_mtime_ns:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)


def assert_as_if_new(inputs: Inputs, found: Ledger, other: Lake) -> None:
    """The window's ledger, and all that the lake keeps, equal those of the other lake, whose days are built at once."""
    bring_sources(inputs.lake, other)
    assert_same_ledger_of_window(inputs, found, load_ledger(other, inputs.ledger_settings, warn=silent))
    for name in ("ledger", "idle_interval", "gpu_lifetime", "hourly", "process_day"):
        assert_same_table(schema.table(name), inputs.lake, other)
    says = [Manifest.read(each.all_files("gpu_lifetime")) for each in (inputs.lake, other)]
    kept, new = ((each.prints, [list(days) for days in each.contents.values()]) for each in says if each is not None)
    assert kept == new


def assert_same_ledger_of_window(inputs: Inputs, found: Ledger, whole: Ledger) -> None:
    expected = recent(whole, history_start_ms(inputs.window, HISTORY_MS) or 0)
    for mine, theirs in ((found.segments, expected.segments), (found.lifetimes, expected.lifetimes)):
        by = [name for name in ("gpu", "time", "host") if name in theirs.columns]
        assert_same_rows(mine.select(theirs.columns).sort(by), theirs.sort(by))
    assert_same_rows(
        *(
            each.idle_intervals.filter(each.idle_intervals["time"] >= inputs.window.since_ms)
            for each in (found, expected)
        )
    )


def assert_same_rows(mine: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """All but the last digits of means, which depend on what else was added up at the same time."""
    assert_frame_equal(mine, theirs, check_dtypes=False, rel_tol=1e-12, abs_tol=0.0)


def assert_same_table(table: schema.LakeTable, lake: Lake, other: Lake) -> None:
    mine, theirs = ({file.date: file for file in each.all_files(table.name)} for each in (lake, other))
    assert mine.keys() == theirs.keys(), table.name
    by = [name for name in ("gpu", "time", "host", "pid") if name in table.names]
    for date, file in theirs.items():
        if Path(mine[date].url).read_bytes() == Path(file.url).read_bytes():
            continue
        rows, expected = (read_frame([each], table).sort(by) for each in (mine[date], file))
        assert_same_rows(rows, expected)


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """How often all days were put together (`whole`), and the newest ones alone (`newest`)."""
    calls = {"whole": 0, "newest": 0, "loads": 0}

    def spy(name: str, real: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return real(*arguments, **named)

        return call

    with (
        mock.patch.object(build, "stitch", spy("whole", stitch)),
        mock.patch.object(catch_up, "stitch", spy("newest", stitch)),
        mock.patch.object(window, "load_ledger", spy("loads", load_ledger)),
    ):
        yield calls


def assert_finished(inputs: Inputs) -> None:
    """Another command over the window finds all as it is."""
    before = snapshot(inputs.lake)
    with counted() as calls:
        load(inputs)
    assert calls == {"whole": 0, "newest": 0, "loads": 0}
    assert snapshot(inputs.lake) == before


def assert_finished_whole(inputs: Inputs) -> None:
    """So does one that reads everything."""
    before = snapshot(inputs.lake)
    with counted() as calls:
        load_ledger(inputs.lake, inputs.ledger_settings, warn=silent)
    assert calls["whole"] == 0
    assert snapshot(inputs.lake) == before


@st.composite
def histories(draw: st.DrawFn) -> list[list[Chunk]]:
    """Files in order of arrival: first some days at once, then half a day at a time, some of them late."""
    chunks: dict[tuple[int, str, str], list[Row]] = {}
    for host, gpu in UNITS[: draw(st.integers(1, 3))]:
        at = draw(st.sampled_from([0, 0, 0, 5 * DAY_S + 7200, 6 * DAY_S + 1200]))
        while at < DAYS * DAY_S:
            look = draw(st.sampled_from(["gap", "mute", "lost", "free", *["work", "slow", "edge", "zero"] * 2]))
            length_s = 1200 * draw(st.sampled_from([300, 200, 100, 72, 40, 5, 3, 2, 1]))
            every_s = draw(st.sampled_from([1200, 1200, 3600, 18_000]))
            user = draw(st.sampled_from([None, "ann", "bob"]))
            rows = [] if look == "gap" else samples(gpu, at, at + length_s, every_s=every_s, **LOOKS[look])
            lists = [] if user is None else processes(gpu, *range(at, at + length_s, HOUR_S), user=user, every_s=HOUR_S)
            for table, each in (("gpu", rows), ("process", lists)):
                for row in each:
                    key = ((row["time"] - ms(0)) // 1000 // PERIOD_S, host, table)
                    chunks.setdefault(key, []).append(row)
            at += length_s + draw(st.sampled_from([0, 0, 0, -600, 300]))
    steps: dict[int, list[Chunk]] = {}
    first = 2 * draw(st.integers(2, 5)) - 1
    for (period, host, table), rows in sorted(chunks.items()):
        late = draw(st.sampled_from([0] * 8 + [1, 2, 4])) if period >= first - 2 else 0
        steps.setdefault(max(period + late, first), []).append((host, schema.table(table), rows))
    return [steps[number] for number in sorted(steps)]


def grow(history: list[list[Chunk]]) -> None:
    """Files arrive, and after each step a command over the last day is compared with a build of all that there is."""
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("os.fsync"),
        mock.patch.object(SystemClock, "now_ms") as clock,
    ):
        lake, other = (made_lake(Path(folder, name)) for name in ("grown", "whole"))
        last_s = 0.0
        for number, chunks in enumerate(history):
            for host, table, rows in chunks:
                write(lake, table, rows, host, split=lambda _: "")
                last_s = max(last_s, *((row["time"] - ms(0)) / 1000 for row in rows))
            if not lake.all_files("gpu"):
                continue
            inputs = inputs_of(lake, last_s - DAY_S)
            clock.return_value = ms(last_s + HOUR_S)
            with counted() as calls:
                found = load(inputs)
            event(f"loads {calls['loads']} newest {min(calls['newest'], 2)}" if number else "first")
            assert_as_if_new(inputs, found, other)
            if max(file.date for file in lake.all_files("gpu")) >= utc_day(ms(last_s - DAY_S) - HISTORY_MS):
                assert_finished(inputs)  # a window without any sample is looked for in the whole ledger
        if lake.all_files("gpu"):
            assert_finished_whole(inputs)
            shutil.rmtree(other.root)
            assert_as_if_new(inputs, load(inputs), made_lake(other.root))


@settings(
    max_examples=max(2, settings().max_examples // 10)
)  # each is a dozen builds; `make test-all` and `make fuzz` try more
@given(histories())
def test_each_new_file_gives_what_a_build_of_all_gives(history: list[list[Chunk]]) -> None:
    grow(history)


def steady(until_s: float, gpu: str = "a", first_s: float = 0, look: str = "work") -> list[Row]:
    return samples(gpu, first_s, until_s, every_s=1200, **LOOKS[look])


NOW_S = 6 * DAY_S + 7200
"""Up to when the files reach that are there before each of these tests."""

ARRIVALS: dict[str, tuple[list[Row], list[Row], str]] = {
    "the newest rows": (steady(NOW_S + 7200, first_s=NOW_S), [], "h1"),
    "a new day": (steady(7 * DAY_S + 7200, first_s=NOW_S), [], "h1"),
    "rows of the day before": (steady(NOW_S - DAY_S + 1200, first_s=NOW_S - DAY_S, look="zero"), [], "h1"),
    "another owner": ([], processes("a", *range(NOW_S, NOW_S + 7200, 600), user="eve", every_s=600), "h1"),
    "a GPU that nobody had seen": (steady(NOW_S, "n", NOW_S - 3600), [], "h3"),
    "a host that comes back after three days": (steady(NOW_S, "late", NOW_S - 3600), [], "h2"),
    "less work than before": (steady(NOW_S + 7200, first_s=NOW_S, look="slow"), [], "h1"),
}
"""Files by what they are: gpu rows, process rows and their host."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with a finished ledger: a GPU that works from the first day on; an idle host last seen three days ago."""
    lake = made_lake(tmp_path_factory.mktemp("finished") / "lake")
    write(lake, schema.GPU, steady(NOW_S))
    write(lake, schema.GPU, steady(NOW_S, "idle", look="zero"))
    write(lake, schema.GPU, steady(3 * DAY_S + 3600, "late", look="zero"), "h2")
    with mock.patch.object(SystemClock, "now_ms", return_value=ms(NOW_S + 3600)):
        load(inputs_of(lake, NOW_S - DAY_S))
    return lake


@pytest.fixture
def inputs(finished: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """The last day of a copy of that lake."""
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: ms(NOW_S + 3600))
    return inputs_of(made_lake(shutil.copytree(finished.root, tmp_path / "lake")), NOW_S - DAY_S)


@pytest.mark.parametrize("whole_at", [1, pytest.param(0, marks=pytest.mark.long)])
def test_what_arrives_day_by_day_needs_the_newest_days_alone(inputs: Inputs, tmp_path: Path, whole_at: int) -> None:
    """Files of all kinds, one after the other; every second time, a command that reads everything sees them first."""
    other = made_lake(tmp_path / "other")
    for number, (what, (gpu_rows, lists, host)) in enumerate(ARRIVALS.items()):
        write(inputs.lake, schema.GPU, gpu_rows, host)
        write(inputs.lake, schema.PROCESS, lists, host)
        with counted() as calls:
            if number % 2 == whole_at:
                load_ledger(inputs.lake, inputs.ledger_settings, warn=silent)
            else:
                found = load(inputs)
        assert (calls["loads"], calls["whole"], calls["newest"] > 0) == (0, 0, True), what
        assert_as_if_new(inputs, load(inputs) if number % 2 == whole_at else found, other)
    assert_finished(inputs)
    assert_finished_whole(inputs)


def lose_a_day(lake: Lake) -> None:
    for file in lake.all_files("gpu"):
        if file.date == utc_day(ms(NOW_S)):
            lake.delete(file)


DOUBTS: dict[str, Callable[[Lake], object]] = {
    "a GPU on two hosts": lambda lake: write(lake, schema.GPU, steady(NOW_S + 7200, first_s=NOW_S), "h9"),
    "a MIG instance": lambda lake: write(lake, schema.GPU, steady(NOW_S + 7200, "MIG-1", NOW_S)),
    "a day without its files": lose_a_day,
    "an older day as well": lambda lake: write(lake, schema.GPU, steady(2 * DAY_S, "older", DAY_S)),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(each, marks=[] if "two hosts" in each or "without" in each else pytest.mark.long) for each in DOUBTS],
)
def test_what_the_newest_days_cannot_tell_is_put_together_from_all(inputs: Inputs, tmp_path: Path, what: str) -> None:
    DOUBTS[what](inputs.lake)
    since_s = 2 * DAY_S if "older" in what else NOW_S - DAY_S
    load(replace(inputs, window=Window(ms(since_s))))
    assert_same_ledger(inputs, made_lake(tmp_path / "other"))


def assert_same_ledger(inputs: Inputs, other: Lake) -> None:
    """The whole ledger is that of the other lake, where all is built anew."""
    bring_sources(inputs.lake, other)
    mine, whole = (load_ledger(each, inputs.ledger_settings, warn=silent) for each in (inputs.lake, other))
    assert_same_rows(mine.segments, whole.segments)
    assert_same_rows(mine.idle_intervals, whole.idle_intervals)


@pytest.mark.parametrize("util_pct", [9.9, pytest.param(10.1, marks=pytest.mark.long)])
def test_a_segment_that_is_judged_otherwise_changes_its_older_days(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, util_pct: float
) -> None:
    """Eight days of work just above or below the threshold, and some hours that take the mean to its other side."""
    monkeypatch.setattr(catch_up, "_BACK_DAYS", (1, 2))  # of sixteen: eight days are then more than it looks back
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: ms(9 * DAY_S))
    write(lake, schema.GPU, samples("a", 0, 8 * DAY_S, every_s=7200, gpu_util_pct=util_pct, process_count=1))
    found = inputs_of(lake, 7 * DAY_S)
    load(found)
    for hours, util, loads in ((2, util_pct, 0), (22, 20.0 - util_pct, 0), (24, 100.0 if util_pct < 10 else 0.5, 1)):
        first_s = 8 * DAY_S + {2: 0, 22: 2, 24: 24}[hours] * HOUR_S
        rows = samples("a", first_s, first_s + hours * HOUR_S, every_s=3600, gpu_util_pct=util, process_count=1)
        write(lake, schema.GPU, rows)
        with counted() as calls:
            ledger = load(found)
        assert calls["loads"] == loads
        assert_as_if_new(found, ledger, made_lake(tmp_path / "other"))


@pytest.mark.long
@pytest.mark.parametrize(("error", "first"), [(KeyboardInterrupt(), 0), (LakeError("full"), 3)])
def test_dying_while_catching_up_never_leaves_a_mixture(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, first: int
) -> None:
    for rows, lists, host in (ARRIVALS["a new day"], ARRIVALS["a host that comes back after three days"]):
        write(inputs.lake, schema.GPU, rows, host)
        write(inputs.lake, schema.PROCESS, lists, host)
    start = snapshot(inputs.lake)
    for allowed in range(first, 200, 6):  # each write of one run would take a minute of CPU
        with monkeypatch.context() as limited:
            Cut(limited, allowed, error)
            with suppress(KeyboardInterrupt), counted() as calls:
                load(inputs)
                if not calls["loads"] and calls["newest"]:
                    break
        assert_as_if_new(inputs, load(inputs), made_lake(tmp_path / "other"))
        restore(inputs.lake, start)
    assert allowed >= 20


@pytest.mark.parametrize(
    "allowed", [pytest.param(count, marks=[] if count == 76 else pytest.mark.long) for count in range(40, 90, 6)]
)
def test_a_build_with_other_settings_that_died_is_not_built_upon(
    inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    with monkeypatch.context() as limited, suppress(KeyboardInterrupt):
        Cut(limited, allowed, KeyboardInterrupt())
        load_ledger(inputs.lake, replace(inputs.ledger_settings, low_below_pct=90.0), warn=silent)
    write(inputs.lake, schema.GPU, ARRIVALS["the newest rows"][0])
    other = made_lake(tmp_path / "other")
    bring_sources(inputs.lake, other)
    whole = load_ledger(other, inputs.ledger_settings, warn=silent)
    assert_same_ledger_of_window(inputs, load(inputs), whole)
    assert_same_ledger(inputs, other)


SMALL = ("device", "allocation", "request", "event", "device_day", "allocation_day", "request_day", "event_day")
"""Tables that are read whole: who moved where, and allocations that began long ago."""


def spoil(lake: Lake, first_ms: int, *, but: Collection[str] = ()) -> int:
    """Fill every file of the days before a moment's with zeros, except in some tables; size and time stay the same.

    The lifetimes of the last day before stay: they hold what those days knew.
    """
    spoilt = 0
    for path in Path(lake.root).glob("*/date=*/**/*.parquet"):
        table, date = path.relative_to(lake.root).parts[:2]
        is_snapshot = (table, date) == ("gpu_lifetime", f"date={utc_day(first_ms - DAY_MS)}")
        if date < f"date={utc_day(first_ms)}" and table not in {*SMALL, *but} and not is_snapshot:
            facts = path.stat()
            path.write_bytes(bytes(facts.st_size))
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            spoilt += 1
    return spoilt


def test_a_new_file_of_the_newest_day_opens_no_day_outside_the_window_and_its_history(inputs: Inputs) -> None:
    before = load(inputs)
    assert spoil(inputs.lake, history_start_ms(inputs.window, HISTORY_MS) or 0) > 20
    os.utime(inputs.lake.files("gpu")[-1].url)
    changed = {path: path.stat().st_mtime_ns for path in Path(inputs.lake.root).rglob("*.parquet")}
    with counted() as calls:
        found = load(inputs)
    assert (calls["loads"], calls["newest"]) == (0, 1)
    assert_same_ledger_of_window(inputs, found, before)
    # the day that changed, and the newest ledger, idle intervals and lifetimes, which say what all days are made of
    written = {path.parent.name for path, time_ns in changed.items() if path.stat().st_mtime_ns != time_ns}
    assert written == {f"date={utc_day(ms(NOW_S))}"}


def test_days_without_samples_are_in_a_kept_ledger_as_in_a_new_one(lake: Lake) -> None:
    fill(lake, samples("a", 0, DAY_S, every_s=1200) + samples("a", 5 * DAY_S, 8 * DAY_S, every_s=1200))
    inputs = inputs_of(lake, 6 * DAY_S, 8 * DAY_S)
    new, kept = (load_window_ledger(inputs).whole.segments.sort("time") for _ in range(2))
    assert "unknown" in new["state"].to_list()
    assert kept.select("gpu", "time", "end", "state").equals(new.select("gpu", "time", "end", "state"))


@pytest.mark.long
def test_the_findings_of_a_week_open_only_the_ledger_of_days_outside_the_window_and_its_history(lake: Lake) -> None:
    until_ms, days, window_days = 20_700 * DAY_MS, 90, 4
    write_fleet(lake, SimulatedFleet(gpus=6, days=days, seed=3, interval_ms=3_600_000, until_ms=until_ms))
    since = utc_day(until_ms - window_days * DAY_MS)
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=since, until=None, config=None))
    first_ms = history_start_ms(inputs.window, READ_MS) or 0
    built = load_window_ledger(inputs)  # of all of the lake: nothing is kept yet
    findings = [record(FINDING_COLUMNS, each) for each in review(inputs, built).shown]
    whole = lifetimes(load_whole(inputs).segments).sort("gpu", "host")
    assert findings
    quick = load_window_ledger(inputs).whole
    assert (bool(quick.earlier.dates), bool(built.whole.earlier.dates)) == (True, False)
    for since_ms in (0, until_ms - 43 * DAY_MS, until_ms - 3 * DAY_MS):
        worked = [each.activity(since_ms).sort("gpu", "time") for each in (built.whole, quick)]
        assert_frame_equal(*worked, check_dtypes=False)
    # decisions rest on five weeks, and the findings of the week before those are looked at again
    weeks = Window(until_ms - 42 * DAY_MS, until_ms)
    idle_intervals = [known_at(each, weeks).idle_intervals.sort("gpu", "time") for each in (built.whole, quick)]
    assert not idle_intervals[0].is_empty()
    assert_frame_equal(*idle_intervals, check_dtypes=False)
    # idle intervals are remembered for a year: of each day's ledger six columns are read
    assert spoil(lake, first_ms, but=["ledger"]) > 7 * (days - 76)
    found = load_window_ledger(inputs)
    assert [record(FINDING_COLUMNS, each) for each in review(inputs, found).shown] == findings
    assert_frame_equal(found.inside.segments, built.inside.segments)
    assert found.summary == built.summary
    assert int(found.whole.segments["time"].min()) >= first_ms  # type: ignore[arg-type]  # of integers
    # and yet it knows of each GPU what it has done in all of its life
    known = found.whole.lifetimes.sort("gpu", "host").select(whole.columns)
    assert_frame_equal(known, whole, check_dtypes=False)
    assert found.whole.first_ms == until_ms - days * DAY_MS
