"""A bare Debian in a folder, with the test driver, in which packages are installed and an agent runs for real."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fallow.lake import Lake
from tests.agent.conftest import wait_until
from tests.agent.spooled import rows_of
from tests.fakes.nvml import Gpu, Process, Scenario, constant, library_folder, ms_ago

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = "bookworm"
_DRIVER = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
_ENTER = 'mount --bind /proc "$1/proc" && shift && exec "$@"'
_KEPT_BY_DPKG = ("proc", "dev", "sys", "tmp", "run", "var/lib/dpkg", "var/log", "var/cache", "var/lib/rpm", "root")


def reason_for_none() -> str:
    """Why there can be no such Debian here; empty where there can."""
    if os.geteuid() != 0:
        return "only root can make and enter another root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed (Debian: apt-get install mmdebstrap)"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "mount namespaces are not permitted here"


def bare_debian() -> Path:
    """An archive with the smallest Debian that has Python, made once for all tests of a run."""
    folder = Path(tempfile.gettempdir()) / "fallow-debian"
    folder.mkdir(exist_ok=True)
    archive, new = folder / f"{SUITE}.tar", folder / "new.tar"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            # it need not outlive a power cut
            options = ["--quiet", "--variant=minbase", "--include=python3", "--dpkgopt=force-unsafe-io"]
            command = ["mmdebstrap", *options, SUITE, new]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
            assert done.returncode == 0, done.stderr[-2000:]
            new.rename(archive)
    return archive


@dataclass
class Chroot:
    """One Debian with a scenario that plays."""

    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    _agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def unpacked(cls, folder: Path, scenario: Scenario) -> Chroot:
        subprocess.run(["tar", "-C", folder, "-xf", bare_debian()], check=True)
        (folder / "proc").mkdir(exist_ok=True)
        shutil.copy(library_folder() / "libnvidia-ml.so.1", folder / _DRIVER.lstrip("/"))
        path = scenario.write(folder / "opt" / "scenario")
        path.chmod(0o644)
        return cls(folder, {"FALLOW_FAKE_NVML": f"/{path.relative_to(folder)}"})

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def command(self, *arguments: str, user: str = "root") -> list[str]:
        """What runs a program inside, in mounts of its own."""
        enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self.root)]
        return [*enter, "chroot", f"--userspec={user}:", str(self.root), *arguments]

    def environment(self) -> dict[str, str]:
        path = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"} | self.variables

    def run(self, *arguments: str, user: str = "root", code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs a program inside to its end, which has to have this exit code."""
        command, where = self.command(*arguments, user=user), self.environment()
        # the input of the tests may be a pipe, which Ansible refuses
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=200, env=where, stdin=subprocess.DEVNULL
        )
        assert done.returncode == code, f"{' '.join(arguments)}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def put(self, file: Path, folder: str) -> str:
        """Copies a file or a folder inside; its path there."""
        target = self.at(folder) / file.name
        if file.is_dir():
            shutil.copytree(file, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
        return f"/{target.relative_to(self.root)}"

    def files(self) -> set[str]:
        """Every path inside that is not the bookkeeping of packages."""
        found = set()
        for folder, _, names in os.walk(self.root):
            inside = os.path.relpath(folder, self.root)
            if not inside.startswith(_KEPT_BY_DPKG):
                found |= {f"/{inside}/{name}".replace("/./", "/") for name in names}
        return found


INTERVAL_S = 4
FALLOW = "/opt/fallow/bin/fallow"
LAKE = "/srv/fallow/lake"
# What a service manager does, for a Debian in which none runs: ends the agent, waits for it and starts another one.
RESTART = """#!/bin/sh
pid=$(cat /run/agent.pid)
kill $pid && while kill -0 $pid 2>/dev/null; do sleep 0.05; done
setpriv --reuid fallow --regid fallow --clear-groups /opt/fallow/bin/fallow agent run </dev/null >/run/agent.log 2>&1 &
echo $! >/run/agent.pid
"""


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Chroot]:
    gpus = tuple(Gpu(f"GPU-{n}", util=constant(80), processes=(Process(os.getpid()),)) for n in range(8))
    root = tmp_path / "root"
    root.mkdir()
    made = Chroot.unpacked(root, Scenario(gpus, ms_ago(60)))
    yield made
    if (pid := made.at("/run/agent.pid")).exists():
        made.run("sh", "-c", f"kill {pid.read_text().strip()}; true")
        wait_until(lambda: status(made) is None)


def status(debian: Chroot) -> dict[str, Any] | None:
    """What the agent inside says of itself; None where none runs."""
    command = debian.command(FALLOW, "agent", "status", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=debian.environment())
    found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return found


def closes_intervals(debian: Chroot, version: str) -> None:
    def does() -> bool:
        now = status(debian)
        return now is not None and now["version"] == version and now["time_ms"] is not None

    wait_until(does, 60)


def write_restart(debian: Chroot) -> None:
    """Puts in what stands for a service manager."""
    script = debian.at("/usr/local/bin/restart-agent")
    script.write_text(RESTART, encoding="utf-8")
    script.chmod(0o755)
    debian.at("/run/agent.pid").write_text("4000000\n", encoding="utf-8")  # nobody's


def make_lake(debian: Chroot) -> None:
    debian.run("install", "-d", "-o", "fallow", "-g", "fallow", LAKE)
    debian.run(FALLOW, "lake", "init", "--lake", LAKE, user="fallow")


def restart(debian: Chroot) -> None:
    debian.run("restart-agent")


def gaps(debian: Chroot) -> list[tuple[int, int]]:
    """Segments without a row of GPU-0, in the lake once the agent has ended, as start and number of intervals."""
    rows = [row for row in rows_of(Lake.at(str(debian.at(LAKE))), "gpu") if row["gpu"] == "GPU-0"]
    times = [row["time"] for row in rows]
    assert len(times) == len(set(times)) > 0
    step_ms = INTERVAL_S * 1000
    return [(early, (late - early) // step_ms - 1) for early, late in pairwise(times) if late - early > step_ms]


def stop(debian: Chroot) -> None:
    debian.run("sh", "-c", "kill $(cat /run/agent.pid)")
    wait_until(lambda: status(debian) is None)
    debian.at("/run/agent.pid").unlink()
