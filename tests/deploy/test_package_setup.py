"""What the packages do on a host (deploy/packages/setup): the Python that they choose, and successive versions."""

from __future__ import annotations

import os
import re
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

needs_root = pytest.mark.skipif(
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
    definitions = SETUP[: SETUP.index("as_user() {")].replace("/usr/bin/", f"{place}/usr/")
    script = f'{definitions}\nfind_python "$@"\n'
    return run_shell(script, *command, PATH=f"{place}/root:/usr/sbin:{place}/bin")


def run_shell(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", script, "setup", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def bare(place: Path) -> Path:
    """The place with a PATH that has the programs but no other Python."""
    (place / "bin").mkdir()
    for name in ("sh", "setpriv"):
        (place / "bin" / name).symlink_to(str(shutil.which(name)))
    return place


@needs_root
def test_the_systems_python_comes_first_and_one_that_only_root_can_run_is_passed_over(bare: Path) -> None:
    only_roots = put(bare / "root", "python3", mode=0o700)
    assert chosen(bare, ()).stdout == f"{only_roots}\n"
    system = put(bare / "usr", "python3.11")
    assert chosen(bare).stdout == f"{system}\n"
    put(bare / "root", "python3")
    assert chosen(bare).stdout == f"{system}\n"


@needs_root
@pytest.mark.parametrize("begins", ["exit 1", HIDDEN])
def test_a_python_that_does_not_run_gives_way_to_the_next(bare: Path, begins: str) -> None:
    put(bare / "usr", "python3", begins=begins)
    other = put(bare / "usr", "python3.10")
    assert chosen(bare).stdout == f"{other}\n"


@needs_root
def test_without_one_that_the_user_can_run_the_remedy_is_one_sentence(bare: Path) -> None:
    put(bare / "root", "python3", mode=0o700)
    done = chosen(bare)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "the user fallow can run no Python 3.10 to 3.13 here; install the system's own" in done.stderr


AGENT = """#!/bin/sh
# An agent that runs once restart-agent has written its version down; one of version 0.9.0 never answers.
[ "$*" = "agent status --json" ] || exit {code}
[ "$(cat {running})" = {version} ] && [ {version} != 0.9.0 ] && printf '"version": "%s",\\n"time_ms": 1\\n' {version}
"""
STAND_INS = """
getent() {{ :; }}
as_user() {{ "$@"; }}
systemctl() {{ :; }}
sleep() {{ :; }}
install() {{ echo "$*" >>{folder}/installed; }}
find_python() {{ echo {base}; }}
make_environment() {{
    mkdir -p "$2/bin" && cp {folder}/agent "$2/bin/fallow" && [ ! -e {folder}/no-wheel ] &&
        ln -sf "$([ -e {folder}/no-import ] && echo /bin/false || echo /bin/true)" "$2/bin/python"
}}
"""


class Host:
    """A folder that stands for a host, on which programs stand for what makes environments and runs agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running = folder / "running"
        self.running.write_text("none", encoding="ascii")
        (folder / "usr/lib/fallow-agent/wheels").mkdir(parents=True)
        (folder / "usr/lib/fallow-agent/requirements.txt").touch()

    def unpack(self, version: str, status_code: int = 0) -> None:
        """Puts the wheels of a version in; `status_code` is the exit code of `fallow agent status` without --json."""
        for wheel in (self.folder / "usr/lib/fallow-agent/wheels").iterdir():
            wheel.unlink()
        (self.folder / f"usr/lib/fallow-agent/wheels/fallow-{version}-py3-none-any.whl").write_text(version)
        agent = AGENT.format(running=self.running, version=version, code=status_code)
        (self.folder / "agent").write_text(agent, encoding="ascii")
        (self.folder / "agent").chmod(0o755)

    def setup(self, verb: str) -> subprocess.CompletedProcess[str]:
        script = re.sub(r"(?<![\\w.])/(usr/lib|opt|var|etc|run)/", lambda found: f"{self.folder}{found[0]}", SETUP)
        definitions, commands = script.split("\ncase $1 in\n")
        stand_ins = STAND_INS.format(base=BASE, folder=self.folder)
        text = f"{definitions}\n{stand_ins}\ncase $1 in\n{commands}"
        restart = f"basename $(readlink {self.folder}/opt/fallow/current) | cut -d - -f 1 >{self.running}"
        return run_shell(text, verb, PATH=os.environ["PATH"], AGENT_RESTART=restart, AGENT_WAIT_S="1")

    def install(self, version: str, status_code: int = 0) -> subprocess.CompletedProcess[str]:
        self.unpack(version, status_code)
        return self.setup("install")

    @property
    def in_force(self) -> str:
        return (self.folder / "opt/fallow/current").readlink().name.partition("-")[0]

    @property
    def versions(self) -> list[str]:
        return sorted(each.name.partition("-")[0] for each in (self.folder / "opt/fallow/versions").iterdir())


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_version_is_put_in_force_once_and_the_one_before_stays_while_it_may_run(host: Host) -> None:
    (host.folder / "opt/fallow/versions/0.0.9-interrupted").mkdir(parents=True)
    done = host.install("0.1.0")
    assert "0.1.0 is in force; set lake.path" in done.stderr
    assert (host.in_force, host.versions) == ("0.1.0", ["0.1.0"])
    assert host.running.read_text() == "none", "nobody has started it yet"
    assert host.setup("install").stderr == "fallow-agent: 0.1.0 is in force already\n"
    assert "0.2.0 is in force and runs" in host.install("0.2.0").stderr
    assert (host.in_force, host.versions) == ("0.2.0", ["0.1.0", "0.2.0"])
    host.install("0.1.0")
    assert (host.in_force, host.running.read_text().strip()) == ("0.1.0", "0.1.0"), "the way back is the package before"


def test_an_environment_stays_as_long_as_a_process_runs_from_it(host: Host) -> None:
    """Without systemd an agent may be two upgrades old; its Python is the system's, its programs are in the folder."""
    host.install("0.1.0")
    program = (host.folder / "opt/fallow/current").resolve() / "bin/python"
    with subprocess.Popen([str(program), "60"], executable=str(shutil.which("sleep"))) as agent:
        for version in ("0.2.0", "0.3.0"):
            host.install(version)
        assert (host.in_force, host.versions) == ("0.3.0", ["0.1.0", "0.2.0", "0.3.0"])
        host.install("0.1.0")  # made over itself, and in force
        assert (host.in_force, host.versions) == ("0.1.0", ["0.1.0", "0.3.0"])
        agent.kill()
    host.install("0.2.0")
    host.install("0.3.0")
    assert host.versions == ["0.2.0", "0.3.0"]


def test_a_version_that_closes_no_interval_gives_way_to_the_one_before(host: Host) -> None:
    host.install("0.1.0")
    failed = host.install("0.9.0")
    assert failed.returncode == 1
    assert "0.9.0 does not work here: 0.1.0 runs again" in failed.stderr
    assert (host.in_force, host.versions, host.running.read_text().strip()) == ("0.1.0", ["0.1.0"], "0.1.0")
    host.install("0.2.0")
    host.running.write_text("0.1.0", encoding="ascii")  # killed before the restart
    assert host.setup("install").stderr == "fallow-agent: 0.2.0 is in force already\n"
    assert host.running.read_text().strip() == "0.2.0"


@pytest.mark.parametrize("fault", ["no-wheel", "no-import", "wrong settings"])
def test_a_version_that_cannot_be_installed_imported_or_set_up_changes_nothing(host: Host, fault: str) -> None:
    host.install("0.1.0")
    (host.folder / fault).touch()
    failed = host.install("0.2.0", status_code=2 if fault == "wrong settings" else 0)
    assert failed.returncode == 1
    assert "0.2.0 cannot run here; the version before stays in force" in failed.stderr
    assert (host.in_force, host.versions) == ("0.1.0", ["0.1.0"])


def test_removal_leaves_settings_and_spool(host: Host) -> None:
    assert host.setup("remove").returncode == 0, "a package that never worked"
    own = [host.folder / "etc/fallow/fallow.toml", host.folder / "var/lib/fallow/spool.sqlite"]
    for file in own:
        file.parent.mkdir(parents=True)
        file.write_text("the site's own", encoding="ascii")
    host.install("0.1.0")
    assert not (host.folder / "installed").exists()
    assert host.setup("remove").returncode == 0
    assert not (host.folder / "opt/fallow").exists()
    assert [file.read_text(encoding="ascii") for file in own] == ["the site's own"] * 2
