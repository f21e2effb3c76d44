"""Leases: one writer at a time, whoever died, wherever the lake lies, and whatever the clocks say."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallow.errors import LakeError
from fallow.lake import Lake, LakeFile
from fallow.leases import FOLDER, LeaseClock, LeaseTimes, leased
from tests.conftest import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = LakeFile("gpu", "2026-11-20", "h", 1, 2)
ELSEWHERE = "001795132800000abcdef01,ana,gpu-7,4711,99,another-host"
"""A ticket of a process that nobody here can look for; it began at 2026-11-20T00:00:00Z."""


class StillClock(LeaseClock):
    """Time goes on in `sleep` alone, by ten seconds; then somebody may do something."""

    def __init__(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.at_s = 0.0
        self._meanwhile = meanwhile

    def now_s(self) -> float:
        return self.at_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.at_s += 10
        self._meanwhile()


def tickets(lake: Lake) -> list[str]:
    return [Path(each.key).name for each in lake.store.list(FOLDER)]


def put_ticket(lake: Lake, content: str = "1", name: str = ELSEWHERE) -> None:
    lake.store.put(f"{FOLDER}/x/{name}", content.encode())


def test_writers_take_turns(lake: Lake) -> None:
    """Each adds one to a number that it reads before: without turns, most additions would be lost."""
    number = Path(lake.root, "number")
    number.write_text("0")
    often = replace(LeaseTimes(), pause_s=0.002)

    def add(_: int) -> None:
        with leased(Lake.at(lake.root), "x", "a test", times=often, tell=lambda _: None):
            number.write_text(str(1 + int(number.read_text())))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(40)))
    assert number.read_text() == "40"
    assert tickets(lake) == []


def test_a_ticket_from_elsewhere_is_waited_for_until_it_expires(lake: Lake) -> None:
    put_ticket(lake)
    clock, told = StillClock(), []
    with leased(lake, "x", "the import of h", clock=clock, tell=told.append):
        assert ELSEWHERE not in tickets(lake)
    assert 120 <= clock.at_s <= 140
    assert told == ["the import of h waits for another writer: ana on gpu-7 (process 4711) since 2026-11-20T00:00:00Z"]


@pytest.mark.parametrize("began", ["001795132800000", "999999999999999"])
def test_a_holder_that_lives_is_waited_for_so_long_and_no_longer(lake: Lake, began: str) -> None:
    """Also one whose clock is far ahead."""
    name = ELSEWHERE.replace("001795132800000", began)
    renewals = iter(range(1000))
    put_ticket(lake, name=name)
    clock = StillClock(lambda: put_ticket(lake, "x" * next(renewals), name))
    with pytest.raises(LakeError, match="has waited 10min for another writer: ana on gpu-7") as failed:
        leased(lake, "x", "the import of h", clock=clock, tell=lambda _: None).__enter__()
    assert failed.value.hint
    assert tickets(lake) == [name]


def test_what_is_no_ticket_expires_like_one_and_a_folder_or_a_pipe_keeps_nobody_waiting(lake: Lake) -> None:
    Path(lake.root, FOLDER, "x", "folder.parquet").mkdir(parents=True)
    os.mkfifo(Path(lake.root, FOLDER, "x", "pipe"))
    clock = StillClock()
    with leased(lake, "x", "a test", clock=clock), leased(lake, "another name", "a test", clock=clock) as mine:
        mine.put(FILE, b"x")
    assert (clock.at_s, [file.key for file in lake.files("gpu")]) == (0, [FILE.key])
    for name in ("noise", ",,,", "123,a", f"{'9' * 40},u,h,../../../etc,1,p"):
        put_ticket(lake, name=name)
        with leased(lake, "x", "a test", clock=StillClock(), tell=lambda _: None):
            assert name not in tickets(lake)


def test_a_tickets_name_does_nothing_to_a_terminal(lake: Lake) -> None:
    put_ticket(lake, name=f"001795132800000ab,%1B[2J%E2%80%AE{'a' * 90},%00h%0A,4711,99,p")
    told: list[str] = []
    with leased(lake, "x", "the import of h", clock=StillClock(), tell=told.append):
        pass
    assert f": ?[2J?{'a' * 58}… on ?h (process 4711) since" in told[0]


KILLED = """
import os, sys
from fallow.lake import Lake
from fallow.leases import leased
with leased(Lake.at(sys.argv[1]), "x", "a test"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_killed_holder_of_this_host_stops_nobody(lake: Lake) -> None:
    command = [sys.executable, "-c", KILLED, lake.root]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(  # type: ignore[call-overload]
        command, cwd=REPOSITORY, env=clean_environment(), **pipes
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LakeError, match=f"process {holder.pid}"):
            leased(lake, "x", "b", times=LeaseTimes(wait_s=1), clock=StillClock(), tell=lambda _: None).__enter__()
        holder.kill()
    clock = StillClock()
    with leased(lake, "x", "a test", clock=clock):
        assert clock.at_s == 0
    assert tickets(lake) == []


def test_a_holder_that_could_not_renew_writes_no_more(lake: Lake) -> None:
    clock = StillClock()
    with leased(lake, "x", "a test", clock=clock) as mine:
        mine.put(FILE, b"x")
        clock.at_s += 31
        for write in (lambda: mine.put(FILE, b"y"), lambda: mine.delete(FILE)):
            with pytest.raises(LakeError, match="lost its lease"):
                write()
    assert Path(lake.root, FILE.key).read_bytes() == b"x"


def test_a_store_that_is_too_slow_or_is_no_lake_is_given_up(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"the import of h has waited 10min for \.leases/x; check why"):
        leased(lake, "x", "the import of h", times=LeaseTimes(sure_s=0), clock=StillClock()).__enter__()
    assert tickets(lake) == []
    (tmp_path / "none").write_text("no folder")
    with pytest.raises(LakeError, match=r"there is no fallow lake at .*none; mount it"):
        leased(Lake.at(str(tmp_path / "none")), "x", "a test").__enter__()
