"""`fallow lake expire`: what is older than it is kept goes, and the ledger of those days stays what it was."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from analytics.lake_care.expire import Retention, carry_out, plan
from analytics.ledger.build import load_ledger, load_recent
from analytics.ledger.cache import expired_days, record_expiry
from analytics.ledger.settings import LedgerSettings
from fallow import schema
from fallow.clock import DAY_MS, Window, utc_day
from fallow.compaction import LakeCompactor
from fallow.errors import LakeError
from fallow.lake import AGENT_FIRST_SEQ, Lake
from tests.in_process import run_in_process
from tests.lake.worlds import LATER_MS
from tests.lakes import made_lake
from tests.ledger.rows import T0, ms, processes, samples, silent, write

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.lake_care.expire import ExpiryPlan
    from analytics.ledger.build import Ledger

DAY_S = 86_400
SETTINGS = LedgerSettings()
NOW_MS = T0 + 6 * DAY_MS
KEPT = Retention({"gpu": 2 * DAY_MS, "process": 2 * DAY_MS})
GONE = [utc_day(T0 + day * DAY_MS) for day in range(4)]


def as_agents(lake: Lake) -> None:
    """Gives every file a number as agents have them."""
    for table in ("gpu", "process"):
        for file in lake.files(table):
            first, last = file.first_seq + AGENT_FIRST_SEQ, file.last_seq + AGENT_FIRST_SEQ
            lake.put(replace(file, first_seq=first, last_seq=last), lake.read(file))
            lake.delete(file)


@pytest.fixture(scope="module")
def six_days(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Six days of two hosts, an hour a file, of one of which nothing is known of the last day."""
    lake = made_lake(tmp_path_factory.mktemp("six-days") / "lake")
    for host, days in (("h1", 6), ("h2", 5)):
        for day, hour in product(range(days), (0, 7, 23)):
            begin_s = day * DAY_S + hour * 3600
            busy = {"gpu_util_pct": 40.0 * (hour == 7), "process_count": 1}
            write(lake, schema.GPU, samples(f"{host}-gpu", begin_s, begin_s + 1800, every_s=60, **busy), host)
        write(lake, schema.PROCESS, processes(f"{host}-gpu", *range(0, days * DAY_S, 7200)), host)
    as_agents(lake)
    return lake


@pytest.fixture
def filled(six_days: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake."""
    return made_lake(shutil.copytree(six_days.root, tmp_path / "lake"))


@pytest.fixture(scope="module")
def kept(six_days: Lake, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Ledger]:
    """The same with its ledger."""
    lake = made_lake(shutil.copytree(six_days.root, tmp_path_factory.mktemp("kept") / "lake"))
    return lake, ledger(lake)


@pytest.fixture
def built(kept: tuple[Lake, Ledger], tmp_path: Path) -> Lake:
    """A copy of that."""
    return made_lake(shutil.copytree(kept[0].root, tmp_path / "lake"))


@pytest.fixture
def before(kept: tuple[Lake, Ledger]) -> Ledger:
    return kept[1]


def ledger(lake: Lake) -> Ledger:
    return load_ledger(lake, SETTINGS, warn=silent)


def same(found: Ledger, expected: Ledger) -> None:
    by = ["gpu", "time", "host"]
    assert found.segments.sort(by).equals(expected.segments.sort(by))
    assert found.idle_intervals.sort(by).equals(expected.idle_intervals.sort(by))
    assert found.lifetimes.sort("gpu").equals(expected.lifetimes.sort("gpu"))
    assert found.rollups.hourly().equals(expected.rollups.hourly())


def expire(lake: Lake, retention: Retention = KEPT) -> ExpiryPlan:
    planned = plan(lake, retention, SETTINGS, NOW_MS)
    carry_out(lake, planned, NOW_MS)
    return planned


def test_compaction_does_not_change_the_ledger(filled: Lake) -> None:
    before = ledger(filled)
    for _ in range(2):
        LakeCompactor(filled, LATER_MS, DAY_MS, 3_600_000).run()
    assert (len(filled.all_files("gpu")), len(filled.all_files("process"))) == (11, 11)
    same(ledger(filled), before)


def test_samples_go_and_their_ledger_stays(built: Lake, before: Ledger) -> None:
    planned = expire(built)
    found = [(each.table, sorted(each.files), each.count) for each in planned.expiries]
    assert found == [("gpu", GONE, 24), ("process", GONE, 8)]
    assert min(file.date for file in built.files("gpu")) > max(GONE)
    assert expired_days(built) == set(GONE)
    same(ledger(built), before)
    recent = load_recent(built, SETTINGS, Window(T0 + DAY_MS, T0 + 6 * DAY_MS), T0)
    assert recent is not None
    same(recent, before)
    assert plan(built, KEPT, SETTINGS, NOW_MS).expiries == []


def test_the_ledger_goes_on_after_days_have_expired(built: Lake) -> None:
    expire(built)
    more = samples("h1-gpu", 6 * DAY_S, 6 * DAY_S + 3600, every_s=60, process_count=1)
    write(built, schema.GPU, more, "h1", lambda _: "later")
    found = load_recent(built, SETTINGS, Window(T0 + 5 * DAY_MS, None), T0 + 4 * DAY_MS)
    expected = ledger(built)
    assert found is not None
    assert found.segments["end"].max() == expected.segments["end"].max() == ms(6 * DAY_S + 3600)
    assert expected.first_ms == T0


def test_rows_that_come_for_an_expired_day_change_nothing_and_go_next_time(built: Lake, before: Ledger) -> None:
    expire(built)
    write(built, schema.GPU, samples("h3-gpu", 0, 600, every_s=60), "h3")
    same(ledger(built), before)
    assert [each.count for each in expire(built).expiries] == [1]
    same(ledger(built), before)


def test_days_whose_ledger_is_not_kept_as_it_is_now_stay(filled: Lake) -> None:
    planned = plan(filled, KEPT, SETTINGS, NOW_MS)
    assert (planned.expiries, planned.held_back) == ([], set(GONE))
    ledger(filled)
    write(filled, schema.GPU, samples("h1-gpu", DAY_S + 40_000, DAY_S + 40_600, every_s=60), "h1", lambda _: "late")
    assert plan(filled, KEPT, SETTINGS, NOW_MS).held_back == {GONE[1]}


def test_a_damaged_ledger_of_an_expired_day_is_told_and_no_other_is_lost(built: Lake, before: Ledger) -> None:
    expire(built)
    part = next(file for file in built.files("ledger_part") if file.date == GONE[1])
    built.store.put(part.key, b"noise")
    said: list[str] = []
    found = load_ledger(built, SETTINGS, warn=said.append)
    assert any(f"lacks {GONE[1]}" in each for each in said)
    kept = before.segments.filter(before.segments["time"] < T0 + DAY_MS)
    assert found.segments.filter(found.segments["time"] < T0 + DAY_MS)["state"].to_list() == kept["state"].to_list()


def test_an_expiry_that_was_cut_short_is_finished_by_the_next(
    built: Lake, before: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(built, KEPT, SETTINGS, NOW_MS)
    real, left = type(built.store).delete, [5]

    def delete(store: object, key: str) -> None:
        if key.startswith("gpu/"):
            left[0] -= 1
            if left[0] < 0:
                raise LakeError("the store went away")
        real(store, key)  # type: ignore[arg-type]  # the store of the lake

    with monkeypatch.context() as patch:
        patch.setattr(type(built.store), "delete", delete)
        with pytest.raises(LakeError):
            carry_out(built, planned, NOW_MS)
    same(ledger(built), before)
    expire(built)
    assert not [file for file in built.all_files("gpu") if file.date in GONE]
    same(ledger(built), before)


def test_hourly_rows_go_and_the_hours_by_state_stay(built: Lake, before: Ledger) -> None:
    retention = Retention({"hourly": 2 * DAY_MS})
    assert [(each.table, each.rows > 0) for each in expire(built, retention).expiries] == [("hourly", True)]
    found = ledger(built)
    assert found.segments.equals(before.segments)
    assert found.rollups.hourly()["time"].min() == T0 + 4 * DAY_MS
    assert plan(built, retention, SETTINGS, NOW_MS).expiries == []


def test_the_command_deletes_only_with_yes(built: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.clock.SystemClock.now_ms", lambda _: T0 + 18 * DAY_MS)
    files = len(built.all_files("gpu"))
    told = run_in_process("lake", "expire", "--lake", built.root, FALLOW_RETENTION_GPU="14d")
    assert told.returncode == 0
    assert told.stdout.startswith("gpu: 24 files, 720 rows, ")
    assert (
        f"of {GONE[0]} to {GONE[3]} would be deleted (kept for 14d); then the ledger of these days cannot be built"
        " again" in told.stdout
    )
    assert len(built.all_files("gpu")) == files
    ran = run_in_process("lake", "expire", "--lake", built.root, "--yes", "--json", FALLOW_RETENTION_GPU="14d")
    done = json.loads(ran.stdout)
    assert (done["done"], done["tables"][0]["files"]) == (True, 24)
    assert len(built.all_files("gpu")) == files - 24


def test_keeping_for_less_than_reports_look_back_is_refused(lake: Lake) -> None:
    unset = run_in_process("lake", "expire", "--lake", lake.root, "--yes")
    assert unset.returncode == 0
    assert "everything is kept for ever; to change this, set for example retention.gpu" in unset.stdout
    told = run_in_process("lake", "expire", "--lake", lake.root, FALLOW_RETENTION_GPU="3d")
    assert "'3d' is less than the 14d that reports read" in told.stderr


def test_a_record_alone_changes_no_ledger(built: Lake, before: Ledger) -> None:
    record_expiry(built, GONE[0], {})
    same(ledger(built), before)
