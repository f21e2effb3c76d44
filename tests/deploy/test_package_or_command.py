"""A host has its agent from a package or from `fallow agent install`: the other one refuses, and names the host's own way."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from agent.deployment.command import uninstall
from agent.deployment.host_files import Host
from fallow.cli import main
from tests.conftest import REPOSITORY
from tests.deploy.test_installed_versions import PREFIX, files, make_version, put_in, root

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["root"]


def unpack(kind: str, folder: Path, root: Path) -> None:
    """Builds the package as a site does, and unpacks it without its scripts."""
    folder.mkdir()
    (folder / "fallow-0.1.0-py3-none-any.whl").touch()
    build = ["deploy/packages/build.sh", kind, folder, folder]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    package = done.stdout.strip()
    if kind == "deb":
        subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    else:
        flags = ["--root", str(root), "--nodeps", "--noscripts", "--nosignature", "--noplugins"]
        subprocess.run(["rpm", *flags, "-i", package], check=True)


@pytest.mark.parametrize(
    ("kind", "verb", "own_way"),
    [
        ("deb", "install", "apt-get install ./fallow-agent_*.deb"),
        ("deb", "upgrade", "apt-get install ./fallow-agent_*.deb"),
        ("deb", "uninstall", "apt-get remove fallow-agent"),
        ("rpm", "upgrade", "dnf install ./fallow-agent-*.rpm"),
        ("rpm", "uninstall", "dnf remove fallow-agent"),
    ],
)
def test_on_the_host_of_a_package_the_command_names_the_packages_tool(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *, kind: str, verb: str, own_way: str
) -> None:
    tool = {"deb": "dpkg-deb", "rpm": "rpmbuild"}[kind]
    if shutil.which(tool) is None or (kind == "rpm" and os.geteuid() != 0):
        pytest.skip(f"{tool} is not installed, or this is not root")
    unpack(kind, tmp_path / "dist", root)
    wheel = make_version(root, 1)
    before = files(root)
    source = [] if verb == "uninstall" else ["--from", str(wheel)]
    assert main(["agent", verb, "--root", str(root), *source]) == 2
    assert capsys.readouterr().err == (
        f"fallow: a package installed the agent on this host, so `fallow agent {verb}` leaves it alone; "
        f"use the package's own tool: {own_way}\n"
    )
    assert files(root) == before


def preinst(root: Path, argument: str) -> subprocess.CompletedProcess[str]:
    """The packages' script before unpacking, with the paths of an image."""
    script = (REPOSITORY / "deploy/packages/preinst").read_text(encoding="utf-8")
    for folder in ("/etc/", "/opt/"):
        script = script.replace(folder, f"{root}{folder}")
    return subprocess.run(["sh", "-c", script, "preinst", argument], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("argument", ["install", "1"])
def test_on_a_host_that_the_command_installed_the_package_names_the_command(root: Path, argument: str) -> None:
    assert preinst(root, argument).returncode == 0
    put_in(root, make_version(root, 1))
    refused = preinst(root, argument)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "remove that one first with `fallow agent uninstall`" in refused.stderr
    assert preinst(root, "upgrade").returncode == 0
    uninstall(Host(str(root)), PREFIX, "fallow", None, purge=False, packaged=False)
    assert preinst(root, argument).returncode == 0


def postrm(root: Path, argument: str) -> None:
    """The Debian package's script after removal, with the paths of an image and without its users."""
    script = (REPOSITORY / "deploy/packages/deb/postrm").read_text(encoding="utf-8")
    script = re.sub(r"/(etc|opt|var|run)/", lambda found: f"{root}{found[0]}", script)
    programs = "getent() { false; }\n"
    subprocess.run(["sh", "-c", programs + script, "postrm", argument], check=True)


def test_a_purge_of_the_removed_package_spares_the_agent_that_the_command_installed_since(root: Path) -> None:
    put_in(root, make_version(root, 1))
    spool = root / "var/lib/fallow/spool.sqlite"
    spool.parent.mkdir(parents=True, exist_ok=True)
    spool.touch()
    for argument in ("remove", "purge"):
        postrm(root, argument)
        assert spool.exists()
    uninstall(Host(str(root)), PREFIX, "fallow", None, purge=False, packaged=False)
    postrm(root, "purge")
    assert not spool.parent.exists()
