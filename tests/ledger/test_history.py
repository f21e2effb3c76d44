"""Years of history: a window opens and lists what it would with a few months; changed old days are still noticed."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.inventory import load_inventory
from analytics.ledger.build import load_ledger
from analytics.small_tables import read_small
from analytics.window import load_window_ledger, open_inputs
from analytics.workloads.idle_intervals import idle_intervals
from fallow import schema
from fallow.clock import DAY_MS, utc_day
from fallow.stores import LocalStore, regular_files
from fallow.stores.model import Stored
from tests.lakes import made_lake
from tests.ledger.rows import T0, Row, allocation, device, fill, load, samples, silent, write

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from analytics.window import Inputs, WindowLedger
    from fallow.lake import Lake

DAY_S = 86_400
FEW, MANY = 100, 200
"""Days of history: a window of a week is read with ten weeks before it."""


def history(lake: Lake, days: int) -> Lake:
    """One GPU with a job in the morning of every day, an inventory entry a day, and an allocation a week."""
    rows: list[Row] = []
    for day in range(-days, 0):
        rows += samples("a", day * DAY_S, day * DAY_S + 6 * 3600, every_s=1800, gpu_util_pct=90.0, process_count=1)
        rows += samples("a", day * DAY_S + 6 * 3600, (day + 1) * DAY_S, every_s=1800)
    weeks = range(-days, 0, 7)
    allocations = [allocation("a", day * DAY_S, day * DAY_S + 3600, allocation_id=f"j{day}") for day in weeks]
    return fill(lake, rows, (), allocations, devices=[device("a", time=T0 + day * DAY_MS) for day in range(-days, 0)])


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Lake]:
    """The same last days with few and with many days before; both with a kept ledger."""
    many = history(made_lake(tmp_path_factory.mktemp("history") / "many"), MANY)
    few = Path(many.root).with_name("few")
    shutil.copytree(many.root, few)
    for folder in few.glob("*/date=*"):
        if folder.name < f"date={days_ago(FEW)}":
            shutil.rmtree(folder)
    both = (made_lake(few), many)
    for lake in both:
        findings_of(inputs_of(lake))  # keeps the ledger, and what life tables and the inventory need of its months
        findings_of(inputs_of(lake))
    return both


def days_ago(days: int) -> str:
    return utc_day(T0 - days * DAY_MS)


def inputs_of(lake: Lake) -> Inputs:
    return open_inputs(argparse.Namespace(lake=lake.root, since=days_ago(7), until=None, config=None))


def findings_of(inputs: Inputs) -> WindowLedger:
    """What the findings of a window read: its ledger, a year of states, the work of each day, and every allocation."""
    ledger = load_window_ledger(inputs)
    ledger.whole.states(T0 - 364 * DAY_MS)
    read_small(inputs.lake, schema.ALLOCATION, schema.ALLOCATION.names)
    return ledger


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Counts the files that are listed, and those that are opened."""
    found: Counter[str] = Counter()
    look_at, descriptor_of = LocalStore._look_at, regular_files.descriptor_of  # noqa: SLF001  # to count

    def listed(store: LocalStore, entry: os.DirEntry[str]) -> Stored:
        found["listed"] += 1
        return look_at(store, entry)

    def opened(path: str, root: str) -> int:
        found["opened"] += 1
        return descriptor_of(path, root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "_look_at", listed)
        patch.setattr(regular_files, "descriptor_of", opened)
        yield found


@pytest.mark.long
def test_a_window_lists_and_opens_hardly_more_with_many_months_than_with_few(lakes: tuple[Lake, Lake]) -> None:
    found = []
    for lake in lakes:
        with counted() as number:
            findings_of(inputs_of(lake))
        found.append(number)
    few, many = found
    assert few["opened"] > 70  # the days of the window and of ten weeks
    assert many["listed"] <= 1.2 * few["listed"]
    assert many["opened"] <= 1.2 * few["opened"]


@pytest.mark.long
def test_a_new_file_of_the_newest_day_lists_and_opens_hardly_more_either(lakes: tuple[Lake, Lake]) -> None:
    found = []
    for lake in lakes:
        Path(lake.files("gpu")[-1].url).touch()
        with counted() as number:
            findings_of(inputs_of(lake))
        found.append(number)
    few, many = found
    assert many["listed"] <= 1.2 * few["listed"]
    assert many["opened"] <= 1.2 * few["opened"]


@pytest.mark.long
def test_kept_months_give_the_idle_intervals_of_the_whole_ledger(lakes: tuple[Lake, Lake]) -> None:
    _, many = lakes
    kept = load_window_ledger(inputs_of(many)).whole
    whole = load_ledger(many, inputs_of(many).ledger_settings, warn=silent)
    assert kept.earlier.dates
    for days in (MANY, MANY - 45, 100):
        since_ms = T0 - days * DAY_MS
        expected = idle_intervals(whole.states(since_ms)).sort("gpu", "time")
        assert idle_intervals(kept.states(since_ms)).sort("gpu", "time").equals(expected)


def test_a_late_file_of_a_month_long_ago_is_read_though_its_month_is_kept(lake: Lake) -> None:
    rows = [device(gpu, time=T0 + day * DAY_MS) for gpu in ("a", "b") for day in (-260, -255, -230)]
    write(lake, schema.DEVICE, rows)
    for _ in range(2):
        assert {*load_inventory(lake).devices} == {"a", "b"}
    with counted() as number:
        load_inventory(lake)
    assert number["listed"] < len(lake.files("device"))
    [late] = write(lake, schema.DEVICE, [device("c", time=T0 - 258 * DAY_MS)], host="h2")
    assert {*load_inventory(lake).devices} == {"a", "b", "c"}
    lake.delete(late)
    assert {*load_inventory(lake).devices} == {"a", "b"}


def test_files_that_another_program_copied_into_an_old_month_are_found_with_the_whole_ledger(
    lake: Lake, tmp_path: Path
) -> None:
    fill(lake, samples("a", 0, 3600), devices=[device("a", time=T0 - 260 * DAY_MS), device("a")])
    load(lake)
    other = made_lake(tmp_path / "other")
    [late] = write(other, schema.DEVICE, [device("c", time=T0 - 258 * DAY_MS)], host="h2")
    target = Path(lake.root, late.key)
    target.parent.mkdir(parents=True)
    shutil.copy(late.url, target)
    assert {*load_inventory(lake).devices} == {"a"}
    inventory = load(lake).inventory
    assert inventory is not None
    assert {*inventory.devices} == {"a", "c"}
