"""A bare Debian in a folder, with the test driver, in which packages are installed for real."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.nvml import library_folder

if TYPE_CHECKING:
    from tests.fakes.nvml import Scenario

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
            quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": False}
        done = subprocess.run(command, timeout=200, env=where, **quiet)  # type: ignore[call-overload]
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
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=where, stdin=subprocess.DEVNULL)
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
