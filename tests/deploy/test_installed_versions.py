"""Versions beside one another in an image's root: put in force, back, refused, removed.

Here each is a folder with a program that is the checkout's Python, so that its check is the real one; test_package_chroot.py
makes whole environments and runs agents in them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from agent.deployment.command import WantedInstall, go_back, install, uninstall
from agent.deployment.host_files import Host
from agent.deployment.service import CONFIG, UNIT_PATH
from agent.deployment.versions import Layout, VersionEnvironment, base_python, check_user
from fallow import __version__
from fallow.errors import FallowError
from tests.conftest import REPOSITORY
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "/opt/fallow"


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() or path.is_symlink())
    return {
        str(path.relative_to(root)): str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for path in found
    }


def make_version(root: Path, number: int, python: str = f"shift; exec {sys.executable}") -> Path:
    """A finished version, and the wheel that it is of."""
    wheel = root.parent / f"{number}" / f"fallow-{__version__}-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("fallow/number", str(number))
    layout, name = Layout(Host(str(root)), PREFIX), f"{__version__}-{number}"
    program = root / layout.path(name).lstrip("/") / "bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nPYTHONPATH={REPOSITORY}; export PYTHONPATH; {python} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    layout.finish(VersionEnvironment(name, __version__, digest, " ".join(base_python(None, layout.host))))
    return wheel


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image in which somebody has made the user."""
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/passwd").write_text(
        f"fallow:x:{os.getuid()}:{os.getgid()}::/var/lib/fallow:/bin/false\n", encoding="utf-8"
    )
    return tmp_path / "root"


def in_force(root: Path) -> str:
    current = Layout(Host(str(root)), PREFIX).current()
    assert current is not None
    assert (root / "opt/fallow/bin/python").exists()
    return current.name


def put_in(root: Path, wheel: Path, *, dry_run: bool = False, lake: str | None = "/mnt/lake", keep: int = 2) -> Host:
    host = Host(str(root), dry_run)
    install(host, WantedInstall(PREFIX, "fallow", str(wheel), lake=lake, keep=keep), None)
    return host


def test_a_version_is_put_in_force_once_and_the_one_before_again(root: Path) -> None:
    first, second = make_version(root, 1), make_version(root, 2)
    (root / "opt/fallow/versions/0.0.9-3").mkdir()  # an installation that was interrupted
    before = files(root)
    assert put_in(root, first, dry_run=True).changed
    assert files(root) == before

    put_in(root, first)
    assert in_force(root) == f"{__version__}-1"
    assert not (root / "opt/fallow/versions/0.0.9-3").exists()
    assert '\npath = "/mnt/lake"\n' in (root / CONFIG.lstrip("/")).read_text(encoding="utf-8")
    drop_in = root / f"{UNIT_PATH}.d/10-install.conf".lstrip("/")
    assert "ReadWritePaths=-/mnt/lake\n" in drop_in.read_text(encoding="utf-8")
    assert (root / "var/lib/fallow").stat().st_mode & 0o777 == 0o750
    assert put_in(root, first, lake=None).changed == []

    put_in(root, second, lake=None)
    assert in_force(root) == f"{__version__}-2"
    go_back(Host(str(root)), WantedInstall(PREFIX, "fallow", ""), None)
    assert in_force(root) == f"{__version__}-1"
    put_in(root, first, lake=None, keep=0)
    with pytest.raises(FallowError, match="no other version is kept"):
        go_back(Host(str(root)), WantedInstall(PREFIX, "fallow", ""), None)


def test_a_version_that_cannot_run_leaves_all_as_it_was(root: Path) -> None:
    put_in(root, make_version(root, 1), lake=None)
    bad = make_version(root, 2, "echo no such library >&2; false")
    (root / CONFIG.lstrip("/")).unlink()
    before = files(root)
    with pytest.raises(FallowError, match=r"the check of fallow .* failed: no such library"):
        put_in(root, bad)
    assert files(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")
def test_a_python_that_the_services_user_cannot_run_is_refused(root: Path) -> None:
    make_version(root, 1)
    layout = Layout(Host(str(root)), PREFIX)
    [environment] = layout.environments()
    check_user(layout, environment, "root", (0, 0))
    with pytest.raises(
        FallowError, match=r"the user fallow cannot run the agent with /.*: Permission denied"
    ) as refused:
        check_user(layout, environment, "fallow", (65534, 65534))
    assert "--python /usr/bin/python3" in refused.value.hint


def test_settings_that_are_wrong_are_refused_before_the_switch(root: Path) -> None:
    wheel = make_version(root, 1)
    (root / "etc/fallow").mkdir()
    (root / CONFIG.lstrip("/")).write_text('[agent]\ninterval = "soon"\n', encoding="utf-8")
    with pytest.raises(FallowError, match=r"agent\.interval"):
        put_in(root, wheel, lake=None)
    assert not (root / "opt/fallow/current").exists()


@pytest.mark.parametrize("purge", [False, True])
def test_what_is_removed_leaves_data_alone(root: Path, *, purge: bool) -> None:
    before = files(root)
    put_in(root, make_version(root, 1))
    (root / "var/lib/fallow/spool.sqlite").touch()
    uninstall(Host(str(root)), PREFIX, "fallow", None, purge=purge, packaged=False)
    data = {"etc/fallow/fallow.toml", "var/lib/fallow/spool.sqlite"}
    assert files(root).keys() - before.keys() == (set() if purge else data)
    again = Host(str(root))
    uninstall(again, PREFIX, "fallow", None, purge=purge, packaged=False)
    assert again.changed == []


def test_two_installers_do_not_work_at_once(root: Path) -> None:
    wheel = make_version(root, 1)
    with Layout(Host(str(root)), PREFIX).locked(), pytest.raises(FallowError, match="another installation"):
        put_in(root, wheel)


def test_a_wheel_that_is_none_is_named(root: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "fallow-0.3.0-py3-none-any.whl"
    wheel.write_bytes(b"half a downl")
    with pytest.raises(FallowError, match="cannot be read"):
        put_in(root, wheel)
    assert json.dumps(sorted(files(root))) == json.dumps(["etc/passwd"])


@pytest.mark.parametrize("wrong", [("--keep", "-1"), ("--user", "bad user"), ("--lake", "nonsense://x")])
def test_what_cannot_be_is_refused_before_anything_is_touched(root: Path, wrong: tuple[str, str]) -> None:
    done = run_in_process("agent", "install", "--root", str(root), *wrong)
    assert done.returncode == 2, done
    assert not (root / "opt").exists()
