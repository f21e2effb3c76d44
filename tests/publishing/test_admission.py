"""Who may publish: only into the lake that was given, and only one agent under one name, in any order of arrival."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.spool.admission import Admission
from agent.spool.installation import COPIED_UNTIL, begin_run, identity_of, settle_installation
from agent.spool.publisher import Publisher, outcome_of
from agent.spool.publisher_arguments import EXIT_NAME_TAKEN, NAME_CONFLICT, PublisherArguments
from agent.spool.spool import Spool
from fallow import parquet, schema
from fallow.errors import HostNameTakenError, LakeError, NoLakeError
from fallow.host_claims import read_claims
from fallow.lake_marker import MARKER_KEY
from tests.in_process import run_in_process
from tests.lakes import LAKE_ID, made_lake
from tests.publishing.rows import MIDNIGHT_MS, Hands, numbers, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake

PERIOD_S = 300.0
OTHER_ID = "11111111-2222-4333-8444-555555555555"


@dataclass
class Agent:
    """What of an agent is asked whether it may publish: each time by a publisher of its own."""

    spool: Spool
    lake: Lake
    hands: Hands
    lake_id: str = ""

    @property
    def admission(self) -> Admission:
        return Admission(
            self.spool, self.lake, "h", PERIOD_S, lake_id=self.lake_id, clock=self.hands, now_s=lambda: self.hands.s
        )

    def check(self) -> None:
        self.admission.check()

    def publish(self) -> None:
        publisher = Publisher(self.spool, self.lake, "h", clock=self.hands)
        publisher.admission = self.admission
        publisher.run()

    @property
    def may(self) -> bool:
        try:
            self.check()
        except HostNameTakenError:
            return False
        return True

    def told(self) -> list[str]:
        """The kinds of all events so far."""
        rows = (row for segment in self.spool.segments_until(2**62) for row in self.spool.rows_of(segment))
        return [str(row.body["kind"]) for row in rows if row.table == "event"]


@pytest.fixture
def hands() -> Hands:
    return Hands(1000.0, MIDNIGHT_MS)


@pytest.fixture
def start(tmp_path: Path, lake: Lake, hands: Hands) -> Iterator[Callable[..., Agent]]:
    """Starts an agent on the spool of a name; the later it starts, the later it began."""
    opened: list[Spool] = []

    def begin(name: str, *, machine: str = "", started_ms: int = 0, boot: str = "boot") -> Agent:
        spool = Spool(str(tmp_path / name))
        opened.append(spool)
        settle_installation(spool, "h", machine or name)
        begin_run(spool, started_ms or len(opened), boot)
        return Agent(spool, lake, hands)

    yield begin
    for spool in opened:
        spool.close()


def test_a_lake_is_adopted_once(start: Callable[..., Agent], lake: Lake) -> None:
    agent = start("a")
    agent.check()
    assert agent.told() == ["lake_adopted"]
    agent.check()
    again = start("a")
    again.check()
    assert again.told() == ["lake_adopted"], "the spool remembers it"
    Path(lake.root, MARKER_KEY).write_text(json.dumps({"id": OTHER_ID}))
    with pytest.raises(NoLakeError) as other:
        again.check()
    assert f"the lake at {lake.root} has the id {OTHER_ID}" in str(other.value)
    assert LAKE_ID in str(other.value)
    assert f"set lake.id to {OTHER_ID}" in other.value.hint
    again.lake_id = OTHER_ID  # what the hint says
    again.check()
    assert again.told() == ["lake_adopted", "lake_adopted"]
    again.lake_id = ""
    again.check()


def test_a_mount_that_is_away_is_no_lake(start: Callable[..., Agent], lake: Lake) -> None:
    agent = start("a")
    agent.check()
    Path(lake.root).rename(f"{lake.root}.away")
    for empty in (False, True):
        if empty:
            Path(lake.root).mkdir()
        for check in (agent.check, agent.admission.check_again):
            with pytest.raises(NoLakeError) as gone:
                check()
            assert (
                str(gone.value)
                == f"there is no fallow lake at {lake.root}; mount it, or create a lake with `fallow lake init --lake"
                f" {lake.root}`"
            )
    assert list(Path(lake.root).iterdir()) == []
    Path(lake.root).rmdir()
    Path(f"{lake.root}.away").rename(lake.root)
    agent.check()


def test_the_setting_pins_the_lake_and_a_marker_that_says_nothing_stops_publishing(
    start: Callable[..., Agent], lake: Lake
) -> None:
    agent = start("a")
    agent.lake_id = OTHER_ID
    with pytest.raises(NoLakeError, match=f"lake.id is {OTHER_ID}"):
        agent.check()
    assert not Path(lake.root, "agents").exists()
    Path(lake.root, MARKER_KEY).write_text("{}")
    with pytest.raises(LakeError, match="is not a marker of a lake; restore it from a backup"):
        agent.check()


def test_the_first_of_two_keeps_the_name_and_both_say_so(start: Callable[..., Agent], hands: Hands) -> None:
    first, second = start("a"), start("b")
    assert (first.may, second.may) == (True, False)
    with pytest.raises(HostNameTakenError) as taken:
        second.check()
    assert "another agent publishes under the name h: the installation" in str(taken.value)
    assert first.admission.identity.install[:12] in str(taken.value)
    assert "set a different agent.host" in taken.value.hint
    for _ in range(4):
        hands.s += PERIOD_S
        assert (first.may, second.may) == (True, False)
    assert first.told() == ["lake_adopted", "host_name_taken"], "told once"
    assert second.told() == ["lake_adopted", "host_name_taken"]
    assert second.admission.identity.install[:12] in str(first.spool.noted(NAME_CONFLICT))
    second.admission.leave()
    for _ in range(3):
        hands.s += PERIOD_S
        assert first.may
    assert first.spool.noted(NAME_CONFLICT) == ""


def test_the_later_one_takes_over_where_the_first_falls_silent(start: Callable[..., Agent], hands: Hands) -> None:
    first, second = start("a"), start("b")
    assert (first.may, second.may) == (True, False)
    for _ in range(2):
        hands.s += PERIOD_S
        assert not second.may
    hands.s += PERIOD_S
    assert second.may, "three periods without a change"
    assert not first.may, "it was away for so long that it has to ask"
    hands.s += PERIOD_S
    assert (second.may, first.may) == (True, False)


def test_a_killed_agent_goes_on_at_once(start: Callable[..., Agent], hands: Hands) -> None:
    start("a").check()
    hands.s += 5
    again = start("a")
    assert again.may
    [claim] = read_claims(again.lake.store, "h")
    assert (claim.state, claim.run != "", claim.machine) == ("holds", True, "a")


def test_a_new_spool_waits_until_the_old_claim_is_silent_also_over_a_restart(
    start: Callable[..., Agent], hands: Hands
) -> None:
    start("lost", machine="m").check()
    assert not start("new", machine="m").may
    hands.s += 2 * PERIOD_S
    assert not start("new", machine="m").may
    hands.s += PERIOD_S
    assert start("new", machine="m").may, "what it had seen before its restart counts"


def test_after_a_reboot_the_clock_begins_anew(start: Callable[..., Agent], hands: Hands) -> None:
    start("lost").check()
    assert not start("new").may
    hands.s += 10 * PERIOD_S
    assert not start("new", boot="another").may


@pytest.mark.parametrize("began_ms", [(1, 2), (2, 1)], ids=["the earlier asks first", "the later asks first"])
def test_of_two_that_want_the_name_at_once_the_earlier_gets_it_once_the_later_has_yielded(
    start: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, began_ms: tuple[int, int]
) -> None:
    asks, other = (start(name, started_ms=each) for name, each in zip("ab", began_ms, strict=True))
    put, answers = type(asks.lake.store).put, list[bool]()

    def put_and_let_the_other_ask(_store: object, key: str, data: bytes, *rest: Callable[[], None]) -> None:
        put(asks.lake.store, key, data, *rest)  # type: ignore[arg-type]
        monkeypatch.undo()
        answers.append(other.may)  # it sees the other one's wish

    monkeypatch.setattr(type(asks.lake.store), "put", put_and_let_the_other_ask)
    answers.append(asks.may)
    assert answers == [False, began_ms == (1, 2)], "nobody before it is settled"
    earlier, later = (asks, other) if began_ms == (1, 2) else (other, asks)
    assert (earlier.may, later.may) == (True, False)


def test_a_spool_of_another_machine_is_another_installation(tmp_path: Path, start: Callable[..., Agent]) -> None:
    first = start("a", machine="m1")
    first.spool.append({"gpu": ticks(0, 3)})
    first.check()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    newest = first.spool.newest_seq()
    copy = start("copy", machine="m2")
    assert copy.admission.identity.install != first.admission.identity.install
    assert copy.spool.noted(COPIED_UNTIL) == str(newest)
    first.publish()
    with pytest.raises(HostNameTakenError):
        copy.publish()
    first.admission.leave()
    copy.spool.append({"gpu": ticks(200, 2)})
    copy.publish()
    assert numbers(first.lake) == [0, 1, 2, 200, 201], "the copied rows are there once"
    assert copy.spool.count() == 0
    assert copy.spool.noted(COPIED_UNTIL) is None


def test_rows_of_the_time_of_another_agent_are_kept_apart(
    tmp_path: Path, start: Callable[..., Agent], hands: Hands
) -> None:
    first, second = start("a"), start("b")
    for number in (100, 130):  # 1000 s and 1300 s after midnight
        hands.s = 10.0 * number
        for agent in (first, second):
            agent.spool.append({"gpu": ticks(number, 3)})
        first.publish()
        with pytest.raises(HostNameTakenError):
            second.publish()
    hands.s = 1400  # the first one is killed
    second.spool.append({"gpu": ticks(140, 3)})
    hands.s += 3 * PERIOD_S
    second.publish()
    assert numbers(first.lake) == [100, 101, 102, 130, 131, 132, 140, 141, 142]
    [aside] = (tmp_path / "b").glob("other-name-*")
    refused = run_in_process("agent", "publish", "--spool", str(aside), "--lake", first.lake.root, "--host", "h")
    assert (refused.returncode, "another agent published under the name h" in refused.stderr) == (1, True), refused
    assert numbers(first.lake) == [100, 101, 102, 130, 131, 132, 140, 141, 142]
    done = run_in_process("agent", "publish", "--spool", str(aside), "--lake", first.lake.root, "--host", "h2")
    assert done.stdout.startswith(f"8 rows of {aside} are in {first.lake.root} as those of the host h2"), done
    kept = first.lake.files("gpu", hosts=["h2"])
    assert sum(parquet.read([file], schema.GPU).num_rows for file in kept) == 6
    events = parquet.read(first.lake.files("event"), schema.EVENT, ["kind"]).to_pylist()
    kinds = {host: sorted(each["kind"] for each in events if each["host"] == host) for host in ("h", "h2")}
    assert kinds["h"] == ["host_name_taken", "lake_adopted", "rows_set_aside"]
    assert kinds["h2"] == ["host_name_taken", "lake_adopted", "lake_adopted"]


def test_rows_of_a_host_that_still_publishes_are_not_published_beside_it(start: Callable[..., Agent]) -> None:
    first, second = start("a"), start("b")
    first.check()
    second.spool.append({"gpu": ticks(0, 3)})
    done = run_in_process(
        "agent", "publish", "--spool", str(second.spool.folder), "--lake", first.lake.root, "--host", "h"
    )
    assert (done.returncode, "another agent publishes under the name h" in done.stderr) == (1, True)
    for none in (first.spool.folder / "nothing", first.spool.folder.parent):
        done = run_in_process("agent", "publish", "--spool", str(none), "--lake", first.lake.root, "--host", "h2")
        assert (done.returncode, "there is no spool in" in done.stderr) == (2, True)


def test_an_agent_that_ends_takes_over_no_name(start: Callable[..., Agent]) -> None:
    first, second = start("a"), start("b")
    assert (first.may, second.may) == (True, False)
    first.admission.leave()
    second.spool.append({"gpu": ticks(200, 3)})
    last = PublisherArguments(str(second.spool.folder), first.lake.root, "h", is_last=True)
    assert outcome_of(last).exit_code == EXIT_NAME_TAKEN
    assert numbers(first.lake) == []
    assert {claim.state for claim in read_claims(first.lake.store, "h")} == {"left"}
    assert start("b").may, "a clean stop gives the name back at once"
    assert not start("a").may


def test_an_image_of_another_host_leaves_its_rows_aside(tmp_path: Path) -> None:
    with closing(Spool(str(tmp_path / "golden"))) as spool:
        settle_installation(spool, "golden", "m1")
        spool.append({"gpu": ticks(0, 3)})
    with closing(Spool(str(tmp_path / "golden"))) as spool:
        done = settle_installation(spool, "gn001", "m2")
        assert "the spool came from the host golden and is now" in done
        assert spool.count() == 0
        identity = identity_of(spool, "gn001")
        assert settle_installation(spool, "gn001", "m2") == ""
        assert identity_of(spool, "gn001") == identity
    [aside] = (tmp_path / "golden").glob("copied-*")
    assert str(aside) in done
    with closing(Spool(str(aside))) as kept:
        assert kept.count() == 3


def test_a_whole_copy_of_a_machine_is_found_by_its_run(
    tmp_path: Path, start: Callable[..., Agent], hands: Hands
) -> None:
    first = start("a", machine="m")
    first.check()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    copy = start("copy", machine="m")
    assert copy.may, "until the first one's next word nothing tells them apart"
    hands.s += PERIOD_S
    assert (first.may, copy.may) == (True, False)
    assert copy.admission.identity.install != first.admission.identity.install
    assert len(list(read_claims(first.lake.store, "h"))) == 2
    hands.s += PERIOD_S
    assert (first.may, copy.may) == (True, False)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"state":"holds","period_s":1e999,"started_ms":0,"count":0}'])
def test_a_claim_that_is_none_holds_nothing(start: Callable[..., Agent], lake: Lake, content: bytes) -> None:
    lake.store.put(f"agents/host=h/{'a' * 32}.json", content)
    lake.store.put("agents/host=h/readme.txt", b"x")
    assert start("a").may


def test_another_lake_has_claims_of_its_own(start: Callable[..., Agent], tmp_path: Path) -> None:
    first, second = start("a"), start("b")
    assert (first.may, second.may) == (True, False)
    second.lake = made_lake(tmp_path / "other", OTHER_ID)
    assert second.may
