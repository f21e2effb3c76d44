"""The agent's own compaction: files of an hour, then of a day, become one; kills at any point; small files go late."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

from agent.settings import Compaction
from agent.spool.compaction import OwnFilesCompactor
from agent.spool.publisher import Publisher, outcome_of
from agent.spool.publisher_arguments import PublisherArguments
from agent.spool.spool import Spool
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile
from tests.agent.spooled import MIDNIGHT_MS, SetClock, ticks, times

if TYPE_CHECKING:
    from pathlib import Path

    from agent.spool.publisher_arguments import Outcome

DATE = "2024-10-04"


@dataclass
class Host:
    """An agent's publishing and compaction, run by run."""

    spool: Spool
    lake: Lake
    clock: SetClock = field(default_factory=SetClock)
    settings: Compaction = field(default_factory=Compaction)

    def publish(self, rows: dict[str, list[dict[str, Any]]], lake: Lake | None = None) -> None:
        self.spool.append(rows)  # type: ignore[arg-type]  # rows of two columns
        publisher = Publisher(self.spool, lake or self.lake, "h", clock=self.clock)
        publisher.publish()
        publisher.repair()
        publisher.forget()

    def compact(self, lake: Lake | None = None) -> OwnFilesCompactor:
        compactor = OwnFilesCompactor(self.spool, lake or self.lake, "h", self.settings, self.clock)
        compactor.run()
        return compactor

    def play(self, minutes: int, every: int = 20) -> None:
        """Rows of so many minutes from the clock's time on, published every so often, and compacted."""
        for _ in range(0, minutes, every):
            first = (self.clock.moment_ms - MIDNIGHT_MS) // 10_000
            self.clock.moment_ms += every * MINUTE_MS
            self.publish({"gpu": ticks(first, 6 * every)})
            self.compact()

    def files(self, *, hidden: bool = False) -> int:
        return len(self.lake.all_files("gpu") if hidden else self.lake.files("gpu"))


@pytest.fixture
def host(tmp_path: Path, lake: Lake) -> Host:
    return Host(Spool(str(tmp_path / "spool")), lake)


def all_times(first: int, count: int) -> list[int]:
    return [MIDNIGHT_MS + number * 10_000 for number in range(first, first + count)]


def test_an_hour_that_is_over_becomes_one_file_and_its_small_ones_go_after_the_grace(host: Host) -> None:
    host.play(100)
    first, *later = host.lake.files("gpu")
    assert len(later) == 3, "those of the hour that is not over"
    assert [len(first.hides), host.files(hidden=True)] == [2, 6]
    assert times(host.lake) == all_times(0, 600)
    host.clock.moment_ms += HOUR_MS
    host.compact()
    assert next(file.hides for file in host.lake.files("gpu")) == (), "an hour after it was merged"
    host.clock.moment_ms += HOUR_MS
    host.compact()
    assert (host.files(), host.files(hidden=True)) == (2, 2)
    assert times(host.lake) == all_times(0, 600)


def test_a_day_that_is_over_becomes_one_file_a_table(host: Host) -> None:
    for hour in range(25):
        host.clock.moment_ms = MIDNIGHT_MS + hour * HOUR_MS
        host.publish({"gpu": ticks(hour * 360, 3), "agent": [{"time": host.clock.moment_ms, "interval_ms": 10_000}]})
        host.compact()
    host.clock.moment_ms += 3 * HOUR_MS
    host.compact()
    for table in ("gpu", "agent"):
        (day,) = host.lake.files(table, dates=[DATE])
        assert host.lake.all_files(table, dates=[DATE]) != [day], "the grace is not over"
    host.clock.moment_ms += HOUR_MS
    host.compact()
    for table in ("gpu", "agent"):
        assert len(host.lake.all_files(table, dates=[DATE])) == 1
    assert len(times(host.lake)) == 75


def test_rows_that_come_late_end_up_in_the_days_file(host: Host) -> None:
    host.play(60)
    host.clock.moment_ms = MIDNIGHT_MS + DAY_MS + 3 * HOUR_MS
    host.compact()
    assert host.files() == 1
    host.publish({"gpu": ticks(360, 30)})
    assert host.files() == 2
    host.compact()
    assert host.files() == 1
    assert times(host.lake) == all_times(0, 390)


def test_an_agent_with_a_new_spool_merges_the_days_that_the_old_one_left(host: Host, tmp_path: Path) -> None:
    for number in range(3):
        host.publish({"gpu": ticks(number, 1)})
    other = Host(Spool(str(tmp_path / "other")), host.lake, SetClock(MIDNIGHT_MS + 2 * DAY_MS))
    other.compact()
    assert host.files() == 1
    assert times(host.lake) == all_times(0, 3)


def test_rows_out_of_order_are_sorted_and_those_without_a_gpu_are_last(host: Host) -> None:
    rows = [
        {"gpu": gpu, "time": MIDNIGHT_MS + at, "kind": kind}
        for gpu, at, kind in [("b", 5, "xid"), ("a", 9, "xid"), (None, 1, "agent_start"), ("a", 2, "lost")]
    ]
    for row in rows:
        host.publish({"event": [row]})
    host.clock.moment_ms += 2 * DAY_MS
    host.compact()
    (file,) = host.lake.files("event")
    found = parquet.read([file], schema.EVENT).to_pylist()
    assert [(row["gpu"], row["kind"]) for row in found if row["kind"] != "lake_adopted"] == [
        ("a", "lost"),
        ("a", "xid"),
        ("b", "xid"),
        (None, "agent_start"),
    ]


def test_what_files_say_of_themselves_is_said_by_the_merged_one(host: Host) -> None:
    for number, ident in enumerate(["one", "two", "one"]):
        data = parquet.encode(
            schema.GPU, parquet.table_from_rows(schema.GPU, ticks(number, 1)), {"host": "h", "fallow_install": ident}
        )
        host.lake.put(LakeFile("gpu", DATE, "h", 10**15 + number, 10**15 + number), data)
    host.clock.moment_ms += 2 * DAY_MS
    host.compact()
    (file,) = host.lake.files("gpu")
    facts = parquet.metadata(file)
    assert (facts["host"], facts["fallow_install"]) == ("h", "one,two")
    parquet.open_file(file, whole=True)  # its checksum is its own


def test_files_of_an_import_are_not_merged_with_an_agents(host: Host) -> None:
    data = parquet.encode(schema.GPU, parquet.table_from_rows(schema.GPU, ticks(0, 1)))
    imported = host.lake.put(LakeFile("gpu", DATE, "h", MIDNIGHT_MS, MIDNIGHT_MS), data)
    for number in (1, 2):
        host.publish({"gpu": ticks(number, 1)})
    host.clock.moment_ms += 2 * DAY_MS
    host.compact()
    assert host.files() == 2
    assert imported.key in {file.key for file in host.lake.files("gpu")}


def test_a_file_that_the_lake_has_lost_is_not_covered_by_the_hours_file(host: Host) -> None:
    for number in range(5):
        host.publish({"gpu": ticks(number, 1)})
    lost = host.lake.files("gpu")[2]
    content = host.lake.read(lost)
    host.lake.delete(lost)
    host.clock.moment_ms += HOUR_MS
    host.compact()
    host.lake.put(lost, content)  # a server that comes back with what it had lost
    assert times(host.lake) == all_times(0, 5)
    assert host.files() == 3


def test_a_damaged_file_keeps_its_day_as_it_is(host: Host) -> None:
    for number in range(3):
        host.publish({"gpu": ticks(number, 1)})
    broken = host.lake.files("gpu")[1]
    host.lake.store.put(broken.key, host.lake.read(broken)[:-20])
    host.clock.moment_ms += 2 * DAY_MS
    (said,) = host.compact().messages
    assert host.files() == 3
    assert said.startswith("3 files of gpu/date=2024-10-04/host=h/")


class NoDeletes(Lake):
    """A lake whose store lets this host delete nothing."""

    def delete(self, file: LakeFile) -> None:
        raise LakeError(f"cannot remove {file.key}: access is denied")


def test_a_store_that_refuses_deletes_keeps_the_small_files_hidden(host: Host) -> None:
    mine = NoDeletes(host.lake.store)
    for number in range(3):
        host.publish({"gpu": ticks(number, 1)})
    for hours in (48, 4, 4):
        host.clock.moment_ms += hours * HOUR_MS
        host.compact(mine)
    assert (host.files(), host.files(hidden=True)) == (1, 4)
    assert times(host.lake) == all_times(0, 3)


def test_small_files_stay_where_the_merged_one_is_no_longer_whole(host: Host) -> None:
    for number in range(3):
        host.publish({"gpu": ticks(number, 1)})
    host.clock.moment_ms += 2 * DAY_MS
    host.compact()
    (day,) = host.lake.files("gpu")
    host.lake.store.put(day.key, b"noise")
    host.clock.moment_ms += 2 * HOUR_MS
    host.compact()
    assert host.files(hidden=True) == 4
    host.lake.delete(day)
    assert times(host.lake) == all_times(0, 3)


def test_a_run_without_anything_due_asks_the_store_nothing(host: Host) -> None:
    host.publish({"gpu": ticks(0, 1)})
    host.compact()

    class Silent(Lake):
        def all_files(self, *_: object, **__: object) -> list[LakeFile]:
            raise AssertionError

        def read(self, file: LakeFile) -> bytes:
            raise AssertionError(file.key)

    host.clock.moment_ms += 5 * MINUTE_MS
    host.compact(Silent(host.lake.store))


def run_publisher(host: Host, **changes: Any) -> Outcome:
    host.spool.append({"gpu": ticks(10_000 + len(times(host.lake)), 1)})
    arguments = PublisherArguments(str(host.spool.folder), host.lake.root, "h", **changes)
    return outcome_of(arguments)


def test_a_publisher_compacts_after_it_has_published_unless_it_is_told_not_to(host: Host) -> None:
    for number in range(3):
        host.publish({"gpu": ticks(number, 1)})
    for changes in ({"is_last": True}, {"compaction": Compaction(hours=False)}):
        assert run_publisher(host, **changes).exit_code == 0
        assert all(not file.hides for file in host.lake.files("gpu"))
    until_then = (datetime.now(UTC).date() - date.fromisoformat("2024-10-05")).days
    spread = Compaction(lateness_ms=0, back_days=until_then + 1)
    assert run_publisher(host, compaction=spread).exit_code == 0
    assert [len(host.lake.files("gpu", dates=[day])) for day in (DATE, "2024-10-05")] == [1, 1]


def test_rows_are_published_also_where_nothing_can_be_merged(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: OwnFilesCompactor) -> None:
        raise LakeError("cannot list the folder")

    monkeypatch.setattr(OwnFilesCompactor, "run", fail)
    exit_code, lines = run_publisher(host)
    assert (exit_code, lines[-1]) == (0, "files are not compacted: cannot list the folder")
    assert host.spool.count() == 0
