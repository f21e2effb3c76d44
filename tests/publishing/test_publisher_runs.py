"""The publisher in the agent's own process: what hangs or breaks in it costs no row, no interval and no agent."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.spool.publishing import ProcessRun, Publishing, ThreadRun
from agent.spool.spool import Spool
from fallow import parquet_writer
from fallow.lake_marker import MARKER_KEY
from fallow.stores import LocalStore
from tests.agent.spooled import waiting
from tests.conftest import REPOSITORY, run_python
from tests.lakes import made_lake
from tests.publishing.rows import adopted, numbers, settings, ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake

_DEADLINE_S = 60.0


class HungMount:
    """While it hangs, a writer below the folder waits in the store; a publisher that another test left does not."""

    def __init__(self, patched: pytest.MonkeyPatch, folder: Path) -> None:
        self.entered, self.left = threading.Semaphore(0), threading.Event()
        put = LocalStore.put

        def hang(store: LocalStore, key: str, data: bytes, before: Callable[[], None] = lambda: None) -> None:
            if key == MARKER_KEY or Path(store.root).parent != folder:  # a lake is made by hand
                return put(store, key, data, before)
            self.entered.release()
            self.left.wait(_DEADLINE_S)
            return put(store, key, data, before)

        patched.setattr(LocalStore, "put", hang)

    def wait_until_entered(self) -> None:
        assert self.entered.acquire(timeout=_DEADLINE_S)


def run_of(publishing: Publishing) -> ThreadRun | ProcessRun:
    """The publisher that runs, or is left, once it is over."""
    run = publishing._running or publishing._left  # noqa: SLF001  # its end is what has to be waited for
    assert isinstance(run, ThreadRun | ProcessRun)
    run.wait(_DEADLINE_S)
    assert run.is_over()
    return run


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HungMount]:
    hung = HungMount(monkeypatch, tmp_path)
    yield hung
    hung.left.set()


@pytest.fixture
def publishing(spool: Spool, lake: Lake, tmp_path: Path) -> Publishing:
    """Three rows wait."""
    spool.append({"gpu": ticks(0, 3)})
    return Publishing(settings(tmp_path, lake.root), spool)


def test_a_folder_is_published_to_by_a_thread_and_an_object_store_by_a_process(
    publishing: Publishing, spool: Spool, lake: Lake, tmp_path: Path
) -> None:
    publishing.start_if_due(0)
    assert isinstance(run_of(publishing), ThreadRun)
    assert publishing.finish(_DEADLINE_S)
    assert numbers(lake) == [0, 1, 2]
    publishing.configure(settings(tmp_path, "s3://no.such.bucket.in.any.store/lake"))
    spool.append({"gpu": ticks(3, 1)})
    publishing.start_if_due(1)
    run = publishing._running  # noqa: SLF001
    assert isinstance(run, ProcessRun)
    run.end()


def test_a_mount_that_hangs_holds_up_neither_the_sampling_nor_the_end(
    publishing: Publishing, spool: Spool, mount: HungMount
) -> None:
    publishing.start_if_due(0)
    mount.wait_until_entered()
    spool.append({"gpu": ticks(3, 3)})  # an interval is closed meanwhile
    publishing.start_if_due(100)
    assert publishing.status.waiting_rows == 6
    assert not publishing.finish(0.1)
    assert publishing.status.last_error == "the store did not take the rows in time"
    assert [incident["kind"] for incident in publishing.take_incidents()] == ["store_down"]


def test_a_publisher_that_hangs_is_left_and_no_other_started_until_it_comes_back(
    publishing: Publishing, spool: Spool, lake: Lake, mount: HungMount
) -> None:
    publishing.start_if_due(0)
    mount.wait_until_entered()
    for now_s in (10_000, 20_000):
        publishing.start_if_due(now_s)
        assert publishing.status.last_error == "the store did not take the rows in time"
        assert publishing._running is None, "it would hang beside the other one"  # noqa: SLF001
    assert not mount.entered.acquire(blocking=False)
    mount.left.set()
    run_of(publishing)
    assert spool.count() == 3, "nobody waited for it any more: it says nothing"
    spool.append({"gpu": ticks(3, 3)})
    publishing.start_if_due(30_000)
    run_of(publishing)
    publishing.start_if_due(30_000)
    assert publishing.status.last_error is None
    assert numbers(lake) == list(range(6))
    assert [incident["kind"] for incident in publishing.take_incidents()] == ["store_down", "store_up"]


def test_another_lake_is_published_to_while_the_old_one_hangs(
    publishing: Publishing, spool: Spool, tmp_path: Path, mount: HungMount
) -> None:
    publishing.start_if_due(0)
    mount.wait_until_entered()
    assert not publishing.finish(0.0)
    hung = publishing._left  # noqa: SLF001
    other = made_lake(tmp_path / "other")
    adopted(spool, other)
    publishing.configure(settings(tmp_path, other.root))
    publishing.start_if_due(0)
    mount.wait_until_entered()
    mount.left.set()
    assert publishing.finish(_DEADLINE_S)
    assert hung is not None
    hung.wait(_DEADLINE_S)
    assert numbers(other) == [0, 1, 2]
    assert spool.count() == 0
    assert {file.lake for file in spool.published_files()} == {other.root}


def test_a_panic_of_the_library_is_told_in_a_line_and_tried_again(
    publishing: Publishing, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PanicException(BaseException):
        """As Rust's panics arrive in Python."""

    def panic(*_: object) -> bytes:
        raise PanicException("index out of bounds\nnote: run with RUST_BACKTRACE=1")

    with monkeypatch.context() as patched:
        patched.setattr(parquet_writer, "encode", panic)
        publishing.start_if_due(0)
        run_of(publishing)
        publishing.start_if_due(0)
    assert publishing.status.last_error == "PanicException: index out of bounds"
    assert publishing.finish(_DEADLINE_S)
    assert numbers(lake) == [0, 1, 2]


DYING_AGENT = """
import signal, sys
from agent.spool.publishing import Publishing
from agent.spool.spool import Spool
from fallow import parquet_writer
from tests.lakes import made_lake
from tests.publishing.rows import adopted, settings, ticks
from pathlib import Path

folder = Path(sys.argv[1])
lake = made_lake(folder / "lake")
spool = adopted(Spool(str(folder / "spool"), for_agent=True), lake)
spool.append({"gpu": ticks(0, 3)})
parquet_writer.encode = lambda *_: signal.raise_signal(signal.SIGSEGV)  # in this thread, as a fault would be
publishing = Publishing(settings(folder, str(folder / "lake")), spool)
publishing.start_if_due(0)
publishing.finish(60)
"""


def test_an_agent_that_the_library_ended_publishes_by_a_process_next(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    done = subprocess.run([sys.executable, "-c", DYING_AGENT, str(tmp_path)], cwd=REPOSITORY, check=False)
    assert done.returncode == -11
    with closing(Spool(str(tmp_path / "spool"), for_agent=True)) as spool:
        publishing = Publishing(settings(tmp_path, lake.root), spool)
        assert len(waiting(spool)) == 3
        publishing.start_if_due(0)
        assert isinstance(run_of(publishing), ProcessRun)
        publishing.start_if_due(0)
        assert numbers(lake) == [0, 1, 2]
        spool.append({"gpu": ticks(3, 1)})
        publishing.start_if_due(10)
        assert isinstance(run_of(publishing), ThreadRun), "nothing happened to the process"
        assert not spool.ended_in_agent()


def test_the_publishers_connection_leaves_the_locks_of_the_agents_alone(tmp_path: Path) -> None:
    """Whoever closes any descriptor of a file lets go of all locks that the process has on it."""
    with closing(Spool(str(tmp_path / "spool"), for_agent=True)) as spool:
        spool.append({"gpu": ticks(0, 3)})
        Spool(str(tmp_path / "spool")).close()
        other = (
            "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('SELECT count(*) FROM row'); db.close()"
        )
        subprocess.run([sys.executable, "-c", other, str(spool.folder / "spool.sqlite")], check=True)
        assert (spool.folder / "spool.sqlite-wal").exists(), "the other one took itself for the last"
        spool.append({"gpu": ticks(3, 3)})
        with closing(Spool(str(tmp_path / "spool"))) as again:
            assert again.count() == 6


def test_a_process_ends_while_its_publisher_hangs(tmp_path: Path) -> None:
    code = (
        "import sys, threading, time; from agent.spool.publishing import ThreadRun\n"
        "from agent.spool.publisher_arguments import PublisherArguments\n"
        "from fallow.stores import LocalStore\n"
        "entered = threading.Event()\n"
        "LocalStore.put = lambda *_: (entered.set(), time.sleep(3600))\n"
        "run = ThreadRun(PublisherArguments(sys.argv[1] + '/spool', sys.argv[1] + '/lake', 'h')); entered.wait(60)\n"
        "print(run.end().exit_code)"
    )
    made_lake(tmp_path / "lake")
    with closing(Spool(str(tmp_path / "spool"))) as spool:
        spool.append({"gpu": ticks(0, 3)})
    done = run_python("-c", code, str(tmp_path))
    assert done.stdout == "5\n", done.stderr
