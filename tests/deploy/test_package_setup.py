"""The Python that the packages choose (deploy/packages/setup): the system's first, and one that the service's user can run."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Iterator

SETUP = (REPOSITORY / "deploy/packages/setup").read_text(encoding="utf-8")
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
BASE = "/usr/bin/python3"
"""That of the distribution; the one of these tests may lie in root's home."""
HIDDEN = """exec /usr/bin/python3 -I -c 'import sys; sys.base_prefix = "/root/.pyenv"; exec(sys.argv[1])' "$3\""""

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("setpriv") and Path(BASE).exists()),
    reason="only root can run a program as another user",
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def put(folder: Path, name: str, *, mode: int = 0o755, begins: str = "") -> str:
    """A Python in the folder, which other users may enter or not; the path of it."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\n{begins}\nexec {BASE} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    folder.chmod(mode)
    return str(program)


def chosen(place: Path, command: tuple[str, ...] = AS_NOBODY) -> subprocess.CompletedProcess[str]:
    """What `find_python` prints where `usr` is the system's folder and `root` comes first in root's PATH."""
    definitions = SETUP[: SETUP.index("fallow() {")].replace("/usr/bin/", f"{place}/usr/")
    script = f'{definitions}\nfind_python "$@"\n'
    return subprocess.run(
        ["sh", "-c", script, "setup", *command], capture_output=True, text=True, check=False,
        env={"PATH": f"{place}/root:/usr/sbin:{place}/bin"},
    )  # fmt: skip


@pytest.fixture
def bare(place: Path) -> Path:
    """The place with a PATH that has the programs but no other Python."""
    (place / "bin").mkdir()
    for name in ("sh", "setpriv"):
        (place / "bin" / name).symlink_to(str(shutil.which(name)))
    return place


def test_the_systems_python_comes_before_the_first_of_the_path(bare: Path) -> None:
    put(bare / "root", "python3")
    system = put(bare / "usr", "python3")
    assert chosen(bare).stdout == f"{system}\n"


def test_a_python_that_only_root_can_run_is_passed_over(bare: Path) -> None:
    only_roots = put(bare / "root", "python3", mode=0o700)
    assert chosen(bare, ()).stdout == f"{only_roots}\n"
    system = put(bare / "usr", "python3.11")
    assert chosen(bare).stdout == f"{system}\n"


@pytest.mark.parametrize("begins", ["exit 1", HIDDEN])
def test_a_python_that_does_not_run_gives_way_to_the_next(bare: Path, begins: str) -> None:
    put(bare / "usr", "python3", begins=begins)
    other = put(bare / "usr", "python3.10")
    assert chosen(bare).stdout == f"{other}\n"


def test_without_one_that_the_user_can_run_the_remedy_is_one_sentence(bare: Path) -> None:
    put(bare / "root", "python3", mode=0o700)
    done = chosen(bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "the user fallow can run no Python 3.10 to 3.13 here; install the system's own" in done.stderr
