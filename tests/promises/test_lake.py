"""What fallow promises of publishing and of the lake: no row lost, none doubled, and never into another lake."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agent.spool.admission import Admission
from agent.spool.installation import begin_run, settle_installation
from agent.spool.publisher import Publisher
from agent.spool.publishing import Publishing
from agent.spool.spool import Spool
from fallow.clock import MINUTE_MS
from fallow.errors import HostNameTakenError, LakeError, NoLakeError, SchemaVersionError
from fallow.lake import Lake, LakeFile
from fallow.lake_marker import MARKER_KEY
from fallow.leases import FOLDER, LeaseClock, leased
from tests.ledger.rows import load, samples, states, write
from tests.publishing.rows import MIDNIGHT_MS, adopted, numbers, settings, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from fallow import schema

TICKET = "{began},ana,gpu-7,4711,99,another-host"
"""Of a writer on another host, whom nobody here can look for."""
EARLIER, LATER = (TICKET.format(began=f"{began}abcdef01") for began in ("001000000000000", "999999999999999"))


class Hands(LeaseClock):
    """A clock that a test sets; a sleep takes ten seconds, and then something may happen."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.s = 1_000_000.0
        self._meanwhile = meanwhile

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s

    def now_ms(self) -> int:
        return MIDNIGHT_MS + int(self.s * 1000)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.s += 10
        self._meanwhile()


@pytest.fixture
def spool(tmp_path: Path, lake: Lake) -> Iterator[Spool]:
    with closing(Spool(str(tmp_path / "spool"), for_agent=True)) as made:
        yield adopted(made, lake)


def test_publishing_twice_writes_the_same_names_and_doubles_no_row(
    spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/how-a-number-is-made.md, section 2: "Publishing rows twice writes the same names, so no row is doubled"."""
    spool.append({"gpu": ticks(0, 3)})
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "publish_until", lambda *_: sys.exit("killed"))
        with pytest.raises(SystemExit):
            Publisher(spool, lake, "h").publish()
    first = [file.key for file in lake.files("gpu")]
    assert spool.count() == 3, "nothing was noted as published"
    spool.append({"gpu": ticks(3, 2)})
    Publisher(spool, lake, "h").publish()
    assert numbers(lake) == [0, 1, 2, 3, 4]
    assert [file.key for file in lake.files("gpu")][:1] == first
    assert lake.all_files("gpu") == lake.files("gpu")
    assert len(lake.files("gpu")) == 2


def test_rows_leave_the_spool_only_after_the_lake_has_confirmed_them(
    spool: Spool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/how-a-number-is-made.md, section 2: "removes them from the spool only after the lake has confirmed them"."""
    spool.append({"gpu": ticks(0, 3)})
    with monkeypatch.context() as patch:
        patch.setattr(type(lake.store), "put", lambda *_: None)  # a store that says yes and keeps nothing
        with pytest.raises(LakeError, match="and does not have it"):
            Publisher(spool, lake, "h").publish()
    assert (spool.count(), numbers(lake)) == (3, [])
    assert Publisher(spool, lake, "h").publish() == 3
    assert (spool.count(), numbers(lake)) == (0, [0, 1, 2])


@pytest.mark.parametrize("marker", [None, {"id": "11111111-2222-4333-8444-555555555555"}], ids=["away", "another"])
def test_an_agent_publishes_only_into_the_lake_that_it_was_given(
    spool: Spool, lake: Lake, marker: dict[str, str] | None
) -> None:
    """docs/storage.md, Which lake this is; docs/security.md: "A mount that is away costs no row"."""
    place, known = Path(lake.root, MARKER_KEY), Path(lake.root, MARKER_KEY).read_bytes()
    spool.append({"gpu": ticks(0, 3)})
    place.unlink() if marker is None else place.write_text(json.dumps(marker))
    with pytest.raises(NoLakeError):
        Publisher(spool, lake, "h").run()
    assert [path.name for path in Path(lake.root).rglob("*") if path.is_file() and path != place] == []
    place.write_bytes(known)
    assert Publisher(spool, lake, "h").run() == 3
    assert numbers(lake) == [0, 1, 2]


def test_a_mount_that_goes_away_between_two_files_gets_no_other_file(spool: Spool, lake: Lake) -> None:
    """docs/storage.md: read the marker "again before each file gets its name, and before rows count as published"."""
    spool.append({"gpu": ticks(-2, 4)})  # of two days, so two files
    publisher = Publisher(spool, lake, "h", clock=Hands())
    put = type(lake).put

    def put_and_go(self: Lake, file: LakeFile, data: bytes) -> LakeFile:
        written = put(self, file, data)
        Path(lake.root, MARKER_KEY).unlink(missing_ok=True)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lake), "put", put_and_go)
        with pytest.raises(NoLakeError):
            publisher.publish()
    assert spool.count() == 4


@pytest.mark.parametrize(("silent_s", "is_given"), [(0, False), (899, False), (900, True)])
def test_of_two_agents_with_one_name_the_first_publishes_until_it_was_silent_for_three_periods(
    tmp_path: Path, lake: Lake, silent_s: int, *, is_given: bool
) -> None:
    """docs/storage.md, One agent per host name: "void" after "three times `agent.publish_every`"; no row is doubled."""
    hands = Hands()

    def publish(name: str, first: int, started_ms: int) -> bool:
        with closing(Spool(str(tmp_path / name))) as own:
            settle_installation(own, "h", f"machine of {name}")
            begin_run(own, started_ms, "boot")
            own.append({"gpu": ticks(first, 3)})
            publisher = Publisher(own, lake, "h", clock=hands)
            publisher.admission = Admission(own, lake, "h", 300.0, clock=hands, now_s=hands.now_s)
            with suppress(HostNameTakenError):
                publisher.run()
                return True
            assert own.count() >= 3, "its rows wait"
            return False

    assert publish("first", 0, 1)
    assert not publish("second", 3, 2)
    hands.s += silent_s
    assert publish("second", 6, 2) is is_given
    assert numbers(lake)[:3] == [0, 1, 2]
    assert len(numbers(lake)) == len({*numbers(lake)})


def test_a_power_cut_loses_nothing_that_was_committed(tmp_path: Path, spool: Spool, lake: Lake) -> None:
    """docs/how-a-number-is-made.md, section 2: it "loses at most the interval that was not yet closed"."""
    spool.append({"gpu": ticks(0, 3)})
    spool.append({"gpu": ticks(3, 1)})
    shutil.copytree(spool.folder, tmp_path / "after the cut")  # what the disk has, with nothing closed
    with closing(Spool(str(tmp_path / "after the cut"))) as again:
        assert Publisher(again, lake, "h").publish() == 4
    assert numbers(lake) == [0, 1, 2, 3]


def test_after_a_failed_publish_the_pause_begins_with_its_end_doubles_and_stays_below_a_quarter_of_an_hour(
    spool: Spool, lake: Lake, tmp_path: Path
) -> None:
    """docs/storage.md, Which lake this is: "publishes nothing; rows wait in the spool; event `store_down`", once."""
    hands = Hands()
    publishing = Publishing(settings(tmp_path, lake.root, 2 * MINUTE_MS), spool, hands)
    spool.append({"gpu": ticks(0, 3)})
    Path(lake.root).rename(f"{lake.root}.away")
    for expected in (120, 240, 480, 900, 900):
        publishing.start_if_due(hands.s)
        running = publishing._running  # noqa: SLF001  # its end is what has to be waited for
        assert running is not None
        running.wait(60)
        hands.s += 100  # a try that took long
        publishing.start_if_due(hands.s)
        publishing.start_if_due(hands.s + 0.8 * expected - 1)
        assert publishing._running is None, "the pause begins now, and not when the try began"  # noqa: SLF001
        hands.s += 1.2 * expected
    assert [each["kind"] for each in publishing.take_incidents()] == ["store_down"]
    Path(f"{lake.root}.away").rename(lake.root)
    publishing.start_if_due(hands.s)
    assert publishing._running is not None  # noqa: SLF001
    publishing._running.wait(60)  # noqa: SLF001
    publishing.start_if_due(hands.s)
    assert (numbers(lake), publishing.status.failing_since_ms) == ([0, 1, 2], None)


def put_ticket(lake: Lake, name: str, content: str = "1") -> None:
    lake.store.put(f"{FOLDER}/x/{name}", content.encode())


def own_tickets(lake: Lake) -> list[str]:
    names = [Path(each.key).name for each in lake.store.list(FOLDER)]
    return [name for name in names if name not in (EARLIER, LATER)]


def test_of_two_writers_that_see_each_other_the_later_one_yields(lake: Lake) -> None:
    """docs/security.md: "Two writers at once leave the union of their rows": one goes first; none waits for itself."""
    seen: list[list[str]] = []

    def meanwhile() -> None:
        seen.append(own_tickets(lake))
        lake.store.delete(f"{FOLDER}/x/{LATER}")

    put_ticket(lake, LATER)
    with leased(lake, "x", "a test", clock=Hands(meanwhile), tell=lambda _: None):
        assert [len(each) for each in seen] == [1], "the earlier one's ticket stays while the later one yields"
    store, seen_by_user = type(lake.store), []
    put = store.put

    def put_and_meet(self: Any, key: str, data: bytes, *rest: Any) -> None:
        put(self, key, data, *rest)
        if not seen_by_user:
            seen_by_user.append(key)
            put(self, f"{FOLDER}/x/{EARLIER}", b"1")

    seen.clear()

    def then() -> None:
        seen.append(own_tickets(lake))
        lake.store.delete(f"{FOLDER}/x/{EARLIER}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "put", put_and_meet)
        with leased(lake, "x", "a test", clock=Hands(then), tell=lambda _: None):
            assert seen == [[]], "the later one's ticket was taken back"


@pytest.mark.parametrize(("since_s", "may_write"), [(29.9, True), (30, False), (120, False)])
def test_a_writer_that_was_stopped_in_its_turn_gives_up_before_its_file_gets_a_name(
    lake: Lake, since_s: float, *, may_write: bool
) -> None:
    """docs/security.md: "One that was stopped in its turn for minutes gives up before its file gets a name"."""
    clock, file = Hands(), LakeFile("gpu", "2026-11-20", "h", 1, 2)
    with leased(lake, "x", "a test", clock=clock) as mine:
        clock.s += since_s
        with suppress(LakeError):
            mine.put(file, b"x")
    assert Path(lake.root, file.key).exists() is may_write


def test_a_bad_file_takes_its_own_rows_along_and_nothing_else(lake: Lake) -> None:
    """docs/security.md, The lake; docs/storage.md, Bad files: "everything else reads as if the file were not there"."""
    write(lake, schema.GPU, samples("a", 0, 100), split=lambda row: row["time"] // 50_000)
    write(lake, schema.GPU, samples("b", 0, 100), host="h2")
    bad = lake.files("gpu", hosts=["h1"])[0]
    content = bytearray(Path(bad.url).read_bytes())
    content[len(content) // 2] ^= 0xFF
    Path(bad.url).write_bytes(content)
    assert states(Lake.at(lake.root)) == [("free", 50, 100), ("free", 0, 100)]


def test_a_file_of_another_schema_version_stops_reading(lake: Lake) -> None:
    """docs/security.md: "A file of another schema version alone stops reading, on purpose".

    The reason: "figures without it would be wrong".
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fallow.parquet_writer.SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
        write(lake, schema.GPU, samples("a", 0, 100))
    with pytest.raises(SchemaVersionError):
        load(lake)


def test_a_reader_counts_the_rows_of_a_file_inside_a_wider_one_once(lake: Lake) -> None:
    """docs/storage.md: "A reader that must be exact skips such a file"."""
    (narrow,) = write(lake, schema.GPU, samples("a", 0, 100))
    content = Path(narrow.url).read_bytes()
    lake.put(LakeFile("gpu", narrow.date, "h1", narrow.first_seq, narrow.last_seq + 5), content)
    lake.put(LakeFile("gpu", narrow.date, "h1", narrow.last_seq + 6, narrow.last_seq + 6), content)
    assert [(each.first_seq, each.last_seq) for each in lake.files("gpu")] == [
        (narrow.first_seq, narrow.last_seq + 5),
        (narrow.last_seq + 6, narrow.last_seq + 6),
    ]
