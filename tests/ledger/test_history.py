"""A command over the last days of a long lake opens no file of the days outside its window and history, and says the same."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from polars.testing import assert_frame_equal

from analytics.decide.review import review
from analytics.ledger.build import load_recent
from analytics.ledger.lifetimes import lifetimes
from analytics.ledger.summary import known_at
from analytics.simulation import SimulatedFleet, write_fleet
from analytics.tables.finding_list import FINDING_COLUMNS
from analytics.tables.table import record
from analytics.window import history_start_ms, load_whole, load_window_ledger, open_inputs
from fallow.clock import DAY_MS, Window, utc_day
from tests.lakes import made_lake
from tests.ledger.rows import fill, ms, samples

if TYPE_CHECKING:
    from analytics.window import Inputs
    from fallow.lake import Lake

UNTIL_MS = 20_700 * DAY_MS
DAYS = 46
FLEET = SimulatedFleet(gpus=6, days=DAYS, seed=3, interval_ms=3_600_000, until_ms=UNTIL_MS)
WINDOW_DAYS = 4
SMALL = ("device", "claim", "event", "device_day", "claim_day", "event_day")
"""Tables that are read whole: who moved where, and allocations that began long ago."""


def inputs_of(lake: Lake, *, until: str | None = None) -> Inputs:
    since = utc_day(UNTIL_MS - WINDOW_DAYS * DAY_MS)
    return open_inputs(argparse.Namespace(lake=lake.root, since=since, until=until, config=None))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    found = made_lake(tmp_path_factory.mktemp("history") / "lake")
    write_fleet(found, FLEET)
    return found


def spoil(lake: Lake, before: str) -> int:
    """Fills every file of the days before a date with zeros; neither its size nor its time tells."""
    spoilt = 0
    for path in Path(lake.root).glob("*/date=*/**/*.parquet"):
        table, date = path.relative_to(lake.root).parts[:2]
        is_snapshot = table == "gpu_lifetime" and date == f"date={utc_day(history_ms(lake) - DAY_MS)}"
        if date < f"date={before}" and table not in SMALL and not is_snapshot:
            facts = path.stat()
            path.write_bytes(bytes(facts.st_size))
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
            spoilt += 1
    return spoilt


def history_ms(lake: Lake) -> int:
    return history_start_ms(inputs_of(lake).window) or 0


@pytest.mark.long
def test_days_outside_the_window_and_its_history_are_never_opened(lake: Lake) -> None:
    inputs = inputs_of(lake)
    built = load_window_ledger(inputs)  # of all of the lake: nothing is kept yet
    findings = [record(FINDING_COLUMNS, each) for each in review(inputs, built).shown]
    whole = lifetimes(load_whole(inputs).stretches).sort("gpu", "host")
    assert findings
    quick = load_window_ledger(inputs).whole
    assert quick.earlier.files
    assert not built.whole.earlier.files
    for since_ms in (0, UNTIL_MS - 43 * DAY_MS, UNTIL_MS - 3 * DAY_MS):
        days = [each.activity(since_ms).sort("gpu", "time") for each in (built.whole, quick)]
        assert_frame_equal(*days, check_dtypes=False)
    # findings of the week before are looked at again
    week = Window(UNTIL_MS - (WINDOW_DAYS + 7) * DAY_MS, UNTIL_MS - 7 * DAY_MS)
    spells = [known_at(each, week).spells.sort("gpu", "time") for each in (built.whole, quick)]
    assert not spells[0].is_empty()
    assert_frame_equal(*spells, check_dtypes=False)
    assert spoil(lake, utc_day(history_ms(lake))) > 8 * (DAYS - 40)
    found = load_window_ledger(inputs)
    assert [record(FINDING_COLUMNS, each) for each in review(inputs, found).shown] == findings
    assert_frame_equal(found.inside.stretches, built.inside.stretches)
    assert found.summary == built.summary
    assert int(found.whole.stretches["time"].min()) >= history_ms(lake)  # type: ignore[arg-type]  # of integers
    # and yet it knows of each GPU what it has done in all of its life
    known = found.whole.lifetimes.sort("gpu", "host").select(whole.columns)
    assert_frame_equal(known, whole, check_dtypes=False)
    assert found.whole.first_ms == UNTIL_MS - DAYS * DAY_MS


def test_a_new_file_of_the_newest_day_opens_no_day_outside_the_window_and_its_history(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = inputs_of(lake)
    load_window_ledger(inputs)  # keeps what the next one needs not make of all days
    before = load_window_ledger(inputs)
    spoil(lake, utc_day(history_ms(lake)))
    monkeypatch.setattr("analytics.window.load_whole", None)
    os.utime(lake.files("gpu")[-1].url)
    changed = {path: path.stat().st_mtime_ns for path in Path(lake.root).rglob("*.parquet")}
    found = load_window_ledger(inputs)
    assert_frame_equal(found.whole.stretches, before.whole.stretches)
    assert_frame_equal(found.whole.spells, before.whole.spells)
    assert found.summary == before.summary
    columns = before.whole.lifetimes.columns
    assert_frame_equal(*(each.whole.lifetimes.select(columns).sort("gpu", "host") for each in (found, before)))
    # the day that changed, and the newest ledger, spells and lifetimes, which say what all days are made of
    written = {path.parent.name for path, time_ns in changed.items() if path.stat().st_mtime_ns != time_ns}
    assert written == {f"date={utc_day(UNTIL_MS - DAY_MS)}"}


def test_a_day_in_the_history_that_changed_is_seen(lake: Lake) -> None:
    inputs = inputs_of(lake)
    first_ms = history_ms(lake)
    assert load_recent(lake, inputs.ledger_settings, inputs.window, first_ms) is not None
    file = lake.files("gpu", dates=[utc_day(first_ms + DAY_MS)])[0]
    os.utime(file.url)
    assert load_recent(lake, inputs.ledger_settings, inputs.window, first_ms) is None


def test_days_without_samples_are_in_a_kept_ledger_as_in_a_new_one(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    day_s = 86_400
    fill(lake, samples("a", 0, day_s, every_s=1200) + samples("a", 5 * day_s, 8 * day_s, every_s=1200), host="h1")
    window = Window(ms(6 * day_s), ms(8 * day_s))
    inputs = replace(
        open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None)), window=window
    )
    new, kept = (load_window_ledger(inputs).whole.stretches.sort("time") for _ in range(2))
    assert "unknown" in new["state"].to_list()
    assert kept.select("gpu", "time", "end", "state").equals(new.select("gpu", "time", "end", "state"))
