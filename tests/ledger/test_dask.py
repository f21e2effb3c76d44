"""Dask workers build the same ledger, to the byte, whatever happens to them, the scheduler or the command."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from analytics.ledger import cache, made_days, workers
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.workers import HERE, Workers
from analytics.simulation import SimulatedFleet, write_fleet
from fallow.clock import DAY_MS, MINUTE_MS
from fallow.errors import FallowError
from fallow.lake import Lake
from tests.conftest import run_python
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.ledger.dask_cluster import running, waited_for
from tests.ledger.rows import silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analytics.ledger.day import HostDay

FLEET = SimulatedFleet(gpus=32, days=3, seed=1, interval_ms=10 * MINUTE_MS, until_ms=20_700 * DAY_MS)
HOSTS_A_FILE = 2
"""So that the hosts of a day are divided among several files."""
ONCE = """
import os, time
from analytics.ledger import made_days
real = getattr(made_days, "real", made_days.build_day)  # Dask loads this twice
made_days.real = real
def build_day(*arguments):
    try:
        os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    else:
        {fault}
    return real(*arguments)
made_days.build_day = build_day
"""


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of a small fleet, without a ledger."""
    root = tmp_path_factory.mktemp("samples") / "lake"
    write_fleet(made_lake(root), FLEET)
    return root


@pytest.fixture(autouse=True)
def _small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "HOSTS_A_FILE", HOSTS_A_FILE)


def copied(samples: Path, to: Path) -> Lake:
    return Lake.at(str(shutil.copytree(samples, to / "lake")))


def contents(lake: Lake) -> dict[str, bytes]:
    """Every whole file of the lake but the tickets of leases, with what is in it."""
    keys = [stored.key for stored in lake.store.list("") if not stored.key.startswith(".")]
    return {key: Path(lake.root, key).read_bytes() for key in keys}


def make(lake: Lake, by: Workers = HERE) -> None:
    load_ledger(lake, LedgerSettings(), workers=by, warn=silent)


@pytest.fixture(scope="module")
def undisturbed(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The lake with the ledger that one process made."""
    lake = copied(samples, tmp_path_factory.mktemp("undisturbed"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "HOSTS_A_FILE", HOSTS_A_FILE)
        make(lake)
    found = contents(lake)
    assert sum(key.startswith("hourly/") for key in found) > FLEET.days  # a day has several files
    return found


def test_without_the_extra_or_with_a_wrong_address_one_sentence_says_what_to_do(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = run_in_process("ledger", "--lake", str(samples), "--executor", "dask://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "--executor dask:// needs the package distributed, which the base install leaves out; "
        "install it with: pip install 'fallow[dask]'\n"
    )
    assert run_in_process("ledger", "--lake", str(samples), "--executor", "tcp://h:1").returncode == 2


@pytest.mark.long
@pytest.mark.parametrize("fault", ["", "os.kill(os.getpid(), 9)", "time.sleep(5)"], ids=["none", "killed", "slow"])
def test_workers_make_what_one_process_makes(
    samples: Path, undisturbed: dict[str, bytes], tmp_path: Path, fault: str
) -> None:
    lake, marker = copied(samples, tmp_path), tmp_path / "happened"
    code = ONCE.format(marker=str(marker), fault=fault) if fault else ""
    with running(tmp_path, code, code) as cluster:
        make(lake, Workers(scheduler=cluster.address))
    assert marker.exists() == bool(fault)
    assert contents(lake) == undisturbed


@pytest.mark.long
def test_late_files_are_built_by_workers_as_by_one_process(samples: Path, tmp_path: Path) -> None:
    lakes = [copied(samples, tmp_path / name) for name in ("here", "there")]
    with running(tmp_path, "", "") as cluster:
        for lake, by in zip(lakes, (HERE, Workers(scheduler=cluster.address)), strict=True):
            late = Path(lake.root, lake.files("gpu")[0].key)
            elsewhere = late.rename(tmp_path / "late.parquet")
            make(lake, by)
            elsewhere.rename(late)
            make(lake, by)
    assert contents(lakes[0]) == contents(lakes[1])


@pytest.mark.long
def test_a_restarted_scheduler_gets_the_unfinished_tasks_again(
    samples: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    lake, marker = copied(samples, tmp_path), tmp_path / "happened"
    code = ONCE.format(marker=str(marker), fault="time.sleep(600)")
    with running(tmp_path, code, code) as cluster:
        maker = threading.Thread(target=make, args=(lake, Workers(scheduler=cluster.address)))
        maker.start()
        waited_for(marker.exists)
        cluster.stop_all()
        cluster.start_scheduler(int(cluster.address.rpartition(":")[2]))
        cluster.start_worker()
        cluster.start_worker()
        maker.join(200)
    assert not maker.is_alive()
    assert contents(lake) == undisturbed


@pytest.mark.long
def test_without_the_scheduler_the_command_ends_and_the_next_run_continues(
    samples: Path, undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_RECONNECT_S", 1)
    lake = copied(samples, tmp_path)
    with running(tmp_path, "") as cluster:

        def lose_the_scheduler(_: float) -> None:
            cluster.stop_all()

        with pytest.raises(FallowError) as failed:
            load_ledger(
                lake,
                LedgerSettings(),
                workers=Workers(scheduler=cluster.address),
                warn=silent,
                progress=lose_the_scheduler,
            )
    assert str(failed.value).startswith(f"no Dask scheduler answers at {cluster.address}")
    assert str(failed.value).endswith("finished days are kept: run the command again to continue")
    built: list[str] = []
    monkeypatch.setattr(made_days, "build_days", counting(built, made_days.build_days))
    make(lake)
    assert 0 < len(built) < sum(key.startswith("gpu/") for key in undisturbed)
    assert contents(lake) == undisturbed


def counting(built: list[str], real: Callable[..., Any]) -> Callable[..., Any]:
    """`build_days`, which also lists the hosts of what it builds."""

    def build_days(days: Sequence[HostDay], *others: Any) -> Any:
        built.extend(day.host for day in days)
        return real(days, *others)

    return build_days


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("fallow", "analytics"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
OTHER_VERSION = "from analytics.ledger import made_days; made_days.__version__ = '0.0.1'"
ELSEWHERE = (
    "from analytics.ledger import made_days; from fallow.lake import Lake; from fallow.stores import open_store;"
    " Lake.at = lambda _: Lake(open_store({!r}))"
)
DIES = "import os; from analytics.ledger import made_days; made_days.build_day = lambda *_: os.kill(os.getpid(), 9)"
FAULTS = {
    "no memory": (DIES, "workers were killed again and again while they built the same hosts' day, probably because"),
    "no fallow": (
        ABSENT,
        "a Dask worker does not have this fallow: No module named 'analytics'; install the same version",
    ),
    "another version": (OTHER_VERSION, "has fallow 0.0.1 (method "),
    "no lake": (
        ELSEWHERE.format("/nonexistent"),
        "does not reach the lake: there is no lake at /nonexistent; every worker needs",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_cluster_is_one_sentence(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    code, sentence = FAULTS[name]
    lake = copied(samples, tmp_path)
    with running(tmp_path, code) as cluster:
        done = run_python("-m", "fallow", "ledger", "--lake", lake.root, "--executor", f"dask://{cluster.address}")
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_a_scheduler_that_is_not_there_is_one_sentence(samples: Path) -> None:
    done = run_python("-m", "fallow", "ledger", "--lake", str(samples), "--executor", "dask://127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no Dask scheduler answers at 127.0.0.1:1; start one with `dask scheduler`" in done.stderr


KILLED_AT = """
import os, sys
from analytics.ledger import cache
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.workers import Workers
from fallow.lake import Lake
from fallow.stores.local import LocalStore
root, scheduler, moment, cache.HOSTS_A_FILE = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
moments = iter(range(1, 10**6))
def pass_moment(*_):
    if next(moments) == moment:
        os.kill(os.getpid(), 9)
real = LocalStore.put
def put(self, key, data, before=lambda: None):
    def just_before():
        before()
        pass_moment()
    real(self, key, data, just_before)
    pass_moment()
LocalStore.put = put
load_ledger(Lake.at(root), LedgerSettings(), workers=Workers(scheduler=scheduler), progress=pass_moment)
"""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("place", "moments"), [("here", 4), ("there", 4)])
def test_after_a_kill_of_the_maker_at_any_moment_the_next_run_gives_the_same_bytes(
    samples: Path, undisturbed: dict[str, bytes], tmp_path: Path, place: str, moments: int
) -> None:
    with running(tmp_path, "", "") if place == "there" else running(tmp_path) as cluster:
        by = Workers(scheduler=cluster.address if place == "there" else "")
        for number in range(moments):
            lake = copied(samples, tmp_path / str(number))
            # before and after each write, and after each built share: some 130 moments here, 30 there;
            # tests/attacks kills the maker of days without shares at fifty
            moment = 1 + number * (7 if place == "there" else 33)
            done = run_python("-c", KILLED_AT, lake.root, by.scheduler, str(moment), str(HOSTS_A_FILE))
            assert done.returncode in (-9, 0), done.stderr
            make(lake, by)
            assert contents(lake) == undisturbed, moment
            shutil.rmtree(lake.root)
