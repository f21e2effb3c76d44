"""A spool whose writes others could redirect is refused before anything in it is touched; ordinary ones are not."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from agent.spool.spool import Spool
from agent.spool.spool_file import BALLAST_BYTES, Ballast
from fallow.errors import UnsafeSpoolError
from tests.agent.spooled import ticks
from tests.conftest import REPOSITORY, RunFallow, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER = 65533
"""A user that is not this one."""
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")

FILES = ("spool.sqlite", "agent.lock", "spool.sqlite-wal", "spool.sqlite-shm", "spool.sqlite-journal")


@pytest.fixture
def tmp() -> Iterator[Path]:
    """A folder of this user's below /tmp, as one makes it by hand."""
    with TemporaryDirectory() as folder:
        yield Path(folder)


def works(folder: Path) -> bool:
    with closing(Spool(str(folder), for_agent=True)) as spool:
        spool.append({"gpu": ticks(0, 2)})
        return spool.count() == 2


def test_ordinary_folders_are_taken(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert works(tmp / "new" / "and deeper")
    assert (tmp / "new" / "and deeper").stat().st_mode & 0o777 == 0o750
    (tmp / "private").mkdir()
    (tmp / "state").symlink_to("private")  # as systemd makes it for DynamicUser=yes
    assert works(tmp / "state" / "fallow")
    assert works(tmp / "private" / ".." / "beside")
    monkeypatch.chdir(tmp)
    assert works(Path("relative"))
    sticky = tmp / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    assert works(sticky / "own")


@pytest.fixture
def treasure(tmp: Path) -> Iterator[Path]:
    """A file of great worth, which stays as it is."""
    path = tmp / "treasure"
    path.write_text("of great worth")
    yield path
    assert path.read_text() == "of great worth"


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        *((Path.symlink_to, name, f"{name} cannot be a file of the spool: it is a link") for name in FILES),
        *((Path.hardlink_to, name, "hard links") for name in FILES[:3]),
        (lambda path, _: os.mkfifo(path), "agent.lock", "not a regular file"),
    ],
)
def test_what_is_no_file_of_this_spool_alone_is_neither_followed_nor_written(
    tmp: Path, treasure: Path, make: Callable[[Path, Path], None], name: str, said: str
) -> None:
    (tmp / "spool").mkdir()
    make(tmp / "spool" / name, treasure)
    with pytest.raises(UnsafeSpoolError, match=said):
        Spool(str(tmp / "spool"), for_agent=True)


@pytest.mark.parametrize("make", [Path.symlink_to, Path.hardlink_to])
def test_the_reserve_follows_no_link(tmp: Path, treasure: Path, make: Callable[[Path, Path], None]) -> None:
    make(tmp / "ballast", treasure)
    assert not Ballast(tmp).take()
    (tmp / "ballast").unlink()
    assert Ballast(tmp).take()
    assert (tmp / "ballast").stat().st_size == BALLAST_BYTES


@pytest.mark.parametrize(
    ("mode", "remedy"), [(0o770, "chmod go-w"), (0o757, "chmod go-w"), (0o1777, "name a subfolder of it")]
)
def test_a_folder_that_others_can_write_to_is_refused(tmp: Path, mode: int, remedy: str) -> None:
    spool = tmp / "spool"
    spool.mkdir()
    spool.chmod(mode)
    with pytest.raises(UnsafeSpoolError, match=remedy):
        Spool(str(spool), for_agent=True)
    assert list(spool.iterdir()) == []
    with pytest.raises(UnsafeSpoolError) as below:
        Spool(str(spool / "own"), for_agent=True) if mode != 0o1777 else Spool(str(spool), for_agent=True)
    assert below.value.exit_code == 2


@AS_ROOT
def test_a_folder_of_somebody_elses_is_refused_whatever_is_below(tmp: Path) -> None:
    theirs = tmp / "theirs"
    own = theirs / "own"
    own.mkdir(parents=True)
    os.chown(theirs, OTHER, OTHER)
    for spool in (theirs, own, theirs / "new" / "deeper"):
        with pytest.raises(UnsafeSpoolError, match=f"belongs to user {OTHER}"):
            Spool(str(spool), for_agent=True)
    assert sorted(path.name for path in theirs.rglob("*")) == ["own"]


@AS_ROOT
def test_a_link_of_somebody_elses_in_tmp_is_refused(tmp: Path) -> None:
    tmp.chmod(0o1777)
    (tmp / "target").mkdir()
    link = tmp / "spool"
    link.symlink_to("target")
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(UnsafeSpoolError, match="cannot hold a spool"):
        Spool(str(link), for_agent=True)
    assert list((tmp / "target").iterdir()) == []


@AS_ROOT
def test_the_agent_by_hand_as_root_says_so_and_overwrites_nothing(
    run_fallow: RunFallow, tmp: Path, treasure: Path
) -> None:
    theirs = tmp / "theirs"
    theirs.mkdir()
    for name in ("spool.sqlite", "ballast", "agent.lock"):
        (theirs / name).symlink_to(treasure)
    os.chown(theirs, OTHER, OTHER)
    done = run_fallow("agent", "run", "--lake", str(tmp / "lake"), "--spool", str(theirs))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fallow: {theirs} cannot hold a spool of root: {theirs} belongs to user {OTHER}")
    assert done.stderr.count("\n") == 1


_AS_OTHER = """
import os, sys
sys.path[:0] = {path!r}
from contextlib import closing
from agent.spool.spool import Spool
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
with closing(Spool({folder!r}, for_agent=True)) as spool:
    spool.append({{"event": [{{"time": 1, "kind": "agent_start"}}]}})
    print(spool.count())
"""


@AS_ROOT
def test_a_service_user_has_its_own_folder_below_roots(tmp: Path) -> None:
    """StateDirectory=fallow: root's /var/lib, and in it a folder of the user's with mode 0750."""
    tmp.chmod(0o755)
    folder = tmp / "fallow"
    folder.mkdir(mode=0o750)
    os.chown(folder, OTHER, OTHER)
    program = _AS_OTHER.format(uid=OTHER, path=[*sys.path], folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
        cwd=REPOSITORY,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
    with pytest.raises(UnsafeSpoolError, match="run the agent as user"):
        Spool(str(folder), for_agent=True)


def test_a_volume_of_a_container_may_have_any_owner_and_mode(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A persistent volume with fsGroup has mode 2775, an emptyDir 0777."""
    volume = tmp / "volume"
    volume.mkdir()
    volume.chmod(0o2777)
    monkeypatch.setattr("agent.spool.spool_folder.in_container", lambda: True)
    with pytest.raises(UnsafeSpoolError):
        Spool(str(volume), for_agent=True)
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == volume)
    assert works(volume)
    assert works(volume / "below")


def test_a_file_that_is_swapped_while_the_agent_runs_is_not_written(tmp: Path) -> None:
    treasure = tmp / "treasure.sqlite"
    with closing(sqlite3.connect(treasure)) as db:
        db.execute("CREATE TABLE kept (value)")
    before = treasure.read_bytes()
    folder = tmp / "spool"
    with closing(Spool(str(folder), for_agent=True)) as spool:
        (folder / "spool.sqlite").unlink()
        (folder / "spool.sqlite").symlink_to(treasure)
        with pytest.raises(UnsafeSpoolError):
            spool.append({"gpu": ticks(0, 1)})
        assert treasure.read_bytes() == before
        (folder / "spool.sqlite").unlink()
        spool.append({"gpu": ticks(0, 1)})
        assert spool.count() == 1
