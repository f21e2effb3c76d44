"""The view is read once per version of the lake."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analytics.decide.actions import record
from analytics.window import Inputs
from dashboard.access.people import ADMIN, PLANNER, VIEWER, Reader
from dashboard.error_panels import stale_data_notice
from dashboard.query import Query
from dashboard.source import LakeSource
from dashboard.view import Problem, View
from fallow.actors import Actor
from fallow.clock import HOUR_MS, MINUTE_MS
from fallow.lake import Lake, LakeFile
from tests.dashboard.conftest import inputs_of
from tests.delivery.hands import Hands
from tests.lakes import made_lake
from tests.ledger.rows import T0, device, fill, load, processes, samples

ADA = Reader("ada", ADMIN)


@pytest.fixture(scope="module")
def two_hosts(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two hosts with one GPU each, which a user holds for three hours."""
    lake = made_lake(tmp_path_factory.mktemp("two") / "lake")
    for gpu, user, pool in (("GPU-1", "ann", "legacy"), ("GPU-2", "bob", "train")):
        rows = samples(gpu, 0, 3 * 3600, every_s=60, process_count=1, gpu_util_coverage_ratio=1.0)
        lists = processes(gpu, *range(0, 3 * 3600, 60), every_s=60, user=user)
        fill(lake, rows, lists, devices=[device(gpu, pool=pool)], host=f"h{gpu[-1]}")
    return lake


@pytest.fixture
def own_lake(two_hosts: Lake, tmp_path: Path) -> Lake:
    shutil.copytree(two_hosts.root, tmp_path / "lake")
    return made_lake(tmp_path / "lake")


def look(source: LakeSource, query: Query | None = None, reader: Reader = ADA) -> View | Problem:
    return source.look(query or Query(), reader)


def test_the_same_question_is_answered_once(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    first, again, other = (
        viewed(source),
        viewed(source, reader=Reader("eve", ADMIN)),
        viewed(source, Query(pool="legacy")),
    )
    assert first.report is again.report
    assert first.report is not other.report
    assert (first.reader.name, again.reader.name) == ("ada", "eve")
    viewer = viewed(source, reader=Reader("ada", VIEWER))
    assert first.key == again.key != viewer.key  # what a page offers is a matter of the role, the figures are not
    assert first.report is viewer.report
    source.refresh()
    assert viewed(source).report is first.report  # the lake has not changed


def test_work_ahead_on_an_empty_lake_logs_no_reader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of every site between `fallow lake init` and the first row: nobody looked, so nothing was shown."""
    lake, done = made_lake(tmp_path / "lake"), threading.Event()
    source = LakeSource(lambda: inputs_of(lake), Hands())
    monkeypatch.setattr(source, "refresh", done.set)  # what follows after the work ahead
    end = source.follow(pause_s=0.01)
    try:
        assert done.wait(30)
    finally:
        end.set()
    assert not caplog.messages


def test_the_rules_run_in_a_window_only_for_pages_with_its_findings(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    hour = Query(span="1h")
    decided = source.look(hour, ADA, findings=False)
    assert isinstance(decided, View)
    assert decided.report.recommendations.listed
    assert "found" not in vars(decided.whole)
    found = viewed(source, hour)
    assert found.report is decided.report
    assert found.report.is_reviewed


def test_a_new_file_gives_a_new_view_when_the_lake_is_read_again(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    first, version = viewed(source), source.version()
    own_lake.delete(own_lake.files("gpu")[-1])
    assert viewed(source).report is first.report  # no reader waits for the lake
    source.refresh()
    second = viewed(source)
    assert second.report.ledger.summary.totals.total_ms < first.report.ledger.summary.totals.total_ms
    assert source.version() == second.version != version == first.version


@pytest.mark.long
def test_a_lake_that_is_followed_shows_what_comes_until_it_is_followed_no_more(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    end = source.follow(pause_s=0.01)
    try:
        before = source.version()
        own_lake.delete(own_lake.files("gpu")[-1])
        wait_for(lambda: source.version() != before)
    finally:
        end.set()
    wait_for(lambda: "follow the lake" not in {each.name for each in threading.enumerate()})


def test_whatever_waits_for_the_clock_is_made_again_every_hour(own_lake: Lake) -> None:
    """Who is silent and what is snoozed changes though no file does."""
    clock = Hands()
    source = LakeSource(lambda: inputs_of(own_lake), clock)
    first, version = viewed(source), source.version()
    clock.at_ms += HOUR_MS - 1
    source.refresh()
    assert viewed(source).report is first.report
    clock.at_ms += 1
    source.refresh()
    assert source.version() != version
    assert viewed(source).report is not first.report


def wait_for(is_so: Callable[[], bool]) -> None:
    for _ in range(1200):
        if is_so():
            return
        time.sleep(0.05)
    pytest.fail("it never came")


def test_requested_views_are_ready_in_the_new_version_before_a_reader_waits(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands(), patience_s=60)
    viewed(source, Query(pool="legacy"))
    own_lake.delete(own_lake.files("gpu")[-1])
    source.refresh()
    impatient = LakeSource(lambda: inputs_of(own_lake), Hands(), patience_s=0)
    impatient.__dict__["_snapshot"] = source.__dict__["_snapshot"]
    assert isinstance(look(impatient, Query(pool="legacy")), View)


def test_a_late_answer_is_announced_and_arrives_without_a_request(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands(), patience_s=0)
    source.refresh()
    late = look(source)
    assert isinstance(late, Problem)
    assert late.is_passing
    wait_for(lambda: isinstance(look(source), View))


def test_an_action_shows_at_once_to_its_actor_and_soon_to_others(own_lake: Lake) -> None:
    clock = Hands()
    mine, theirs = LakeSource(lambda: inputs_of(own_lake), clock), LakeSource(lambda: inputs_of(own_lake), clock)
    finding, version = viewed(mine).report.review.findings[0], viewed(theirs).version
    assert mine.version() == theirs.version() == version
    record(own_lake, "ack", [finding.finding_id], Actor("ada"), now_ms=T0)
    mine.forget()
    assert status(mine, finding.finding_id) == "acknowledged"
    assert status(theirs, finding.finding_id) == "new"  # not listed for every click
    clock.at_ms += 2_000
    assert status(theirs, finding.finding_id) == "acknowledged"
    assert mine.version() == theirs.version() != version


def status(source: LakeSource, finding_id: str) -> str:
    return next(each.status for each in viewed(source).report.review.findings if each.finding_id == finding_id)


def test_a_broken_file_stops_nothing_and_is_named_in_data_quality(own_lake: Lake) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    Path(own_lake.files("gpu")[0].url).write_bytes(b"PAR1")
    assert [each.count for each in viewed(source).report.quality if each.kind == "files_left_out"] == [1]
    assert source.stale_because is None


def test_after_the_loss_of_a_lake_the_pages_show_the_last_data_and_a_notice(own_lake: Lake, tmp_path: Path) -> None:
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    first = viewed(source)
    Path(own_lake.root).rename(tmp_path / "elsewhere")
    source.refresh()
    assert viewed(source).report is first.report
    assert source.stale_because is not None
    assert "no lake" in source.stale_because.message
    (tmp_path / "elsewhere").rename(own_lake.root)
    source.refresh()
    assert source.stale_because is None
    assert viewed(source).report is first.report


def test_a_reading_without_an_end_is_reported(own_lake: Lake) -> None:
    begun, hangs = threading.Event(), threading.Event()
    clock, is_hung = Hands(), False

    def open_inputs() -> Inputs:
        if is_hung:
            begun.set()
            hangs.wait(timeout=60)
        return inputs_of(own_lake)

    source = LakeSource(open_inputs, clock)
    first = viewed(source)
    is_hung = True
    reading = threading.Thread(target=source.refresh)
    reading.start()
    try:
        assert begun.wait(timeout=60)
        clock.at_ms += 20 * MINUTE_MS
        assert source.stale_because is None
        clock.at_ms += 1
        assert source.stale_because is not None
        assert "has not ended" in source.stale_because.message
        assert viewed(source).report is first.report
    finally:
        hangs.set()
        reading.join()
    assert source.stale_because is None


def test_an_unreadable_action_leaves_the_last_data_and_a_notice(own_lake: Lake) -> None:
    clock = Hands()
    source = LakeSource(lambda: inputs_of(own_lake), clock)
    first = viewed(source)
    record(own_lake, "ack", [first.report.review.findings[0].finding_id], Actor("ada"), now_ms=T0)
    (file,) = own_lake.files("action")
    content = Path(file.url).read_bytes()
    Path(file.url).write_bytes(content[:50])
    clock.at_ms += 2_000
    assert viewed(source).report is first.report
    assert source.stale_because is not None
    assert "not a whole Parquet file" in source.stale_because.message
    source.refresh()  # the data are as they were
    assert source.stale_because is not None
    clock.at_ms += HOUR_MS
    source.refresh()  # newer data count for more than one action
    assert source.stale_because is None
    assert [each.example for each in viewed(source).report.quality if each.kind == "files_left_out"] == [file.host]
    Path(file.url).write_bytes(content)
    clock.at_ms += 2_000
    source.refresh()
    assert source.stale_because is None
    assert viewed(source).report.review.findings[0].status == "acknowledged"


def test_a_table_of_the_sites_own_shows_when_it_changes_and_with_a_mistake_in_it_the_one_before_stays(
    own_lake: Lake, tmp_path: Path
) -> None:
    owners, config = tmp_path / "owners.csv", tmp_path / "fallow.toml"
    config.write_text(f'[money]\nowners = "{owners}"\n')

    def write(team: str) -> None:
        owners.write_text(f"kind,name,team\nuser,ann,{team}\n")

    write("first")
    source = LakeSource(lambda: inputs_of(own_lake, config=str(config)), Hands())
    assert viewed(source).names["team"] == ("first",)
    write("second")
    source.refresh()
    assert viewed(source).names["team"] == ("second",)
    write("")
    source.refresh()
    assert viewed(source).names["team"] == ("second",)
    assert source.stale_because is not None
    assert "owners.csv" in source.stale_because.message
    write("third")
    source.refresh()
    assert source.stale_because is None
    assert viewed(source).names["team"] == ("third",)


def test_a_lost_lake_promises_no_new_data_and_only_admins_see_its_place(own_lake: Lake, tmp_path: Path) -> None:
    load(own_lake)  # its ledger is kept, so that the view reads no more than its window
    source = LakeSource(lambda: inputs_of(own_lake), Hands())
    view = viewed(source, Query(since="2026-11-20", until="2026-11-20"))
    Path(own_lake.root).rename(tmp_path / "elsewhere")
    source.refresh()
    readers = (ADA, Reader("vic", VIEWER), Reader("pia", PLANNER), Reader("tea", ADMIN, "no such team"))
    for reader in readers:
        found = look(source, Query(span="all"), reader)  # has rows that no view has read
        never = look(LakeSource(lambda: inputs_of(own_lake), Hands()), None, reader)
        assert reader is not ADA or "no lake" in str(found)
        for each in (found, never):
            assert isinstance(each, Problem)
            assert (own_lake.root in each.message) == (reader is ADA)
            assert not each.is_passing
        assert (own_lake.root in str(stale_data_notice(source, replace(view, reader=reader)))) == (reader is ADA)


def test_a_lake_that_is_filled_later_shows_when_it_is(own_lake: Lake, tmp_path: Path) -> None:
    later = Lake.at(str(tmp_path / "later"))
    source = LakeSource(lambda: inputs_of(later), Hands())
    assert isinstance(look(source), Problem)
    shutil.copytree(own_lake.root, later.root)
    assert isinstance(look(source), View)


def viewed(source: LakeSource, query: Query | None = None, reader: Reader = ADA) -> View:
    found = look(source, query, reader)
    assert isinstance(found, View), found
    return found


def test_a_reader_of_one_team_gets_no_other(own_lake: Lake, tmp_path: Path) -> None:
    """A team in the request is ignored before the lake is read."""
    owners = tmp_path / "owners.csv"
    owners.write_text("kind,name,team\nuser,ann,team0\nuser,bob,team1\n")
    config = tmp_path / "fallow.toml"
    config.write_text(f'[money]\nowners = "{owners}"\n')
    source = LakeSource(lambda: inputs_of(own_lake, config=str(config)), Hands())
    reader = Reader("bob", VIEWER, "team1")
    for asked in (Query(span="all"), Query(span="all", team="team0")):
        found = look(source, asked, reader)
        assert isinstance(found, View)
        assert {each.name for each in found.report.people.users} == {"bob"}
        assert found.names["team"] == ("team1",)
        assert found.query.team == "team1"
    nobody = look(source, Query(span="all"), Reader("eve", VIEWER, "no such team"))
    assert isinstance(nobody, Problem)


def test_a_lake_that_does_not_answer_delays_no_reader(own_lake: Lake) -> None:
    class Silent(Lake):
        """Lists nothing until the test sets an event."""

        heard = threading.Event()
        is_silent = False

        def all_files(self, table: str, **only: Any) -> list[LakeFile]:
            if self.is_silent:
                self.heard.wait(timeout=60)
            return super().all_files(table, **only)

    lake = Silent(own_lake.store)
    source = LakeSource(lambda: replace(inputs_of(own_lake), lake=lake), Hands())
    first = viewed(source)
    lake.is_silent = True
    source.forget()
    try:
        assert viewed(source).report is first.report
        source.forget()
        assert viewed(source).report is first.report
        assert not lake.heard.is_set()
    finally:
        lake.heard.set()
