"""A unit of deploy/systemd as it is, and systemd's own judgement of it."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

SYSTEMD = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
_SYSTEM_UNITS = Path("/usr/lib/systemd/system")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not (_SYSTEM_UNITS / "sysinit.target").exists(),
    reason="no systemd here to judge the unit (Debian: apt-get install systemd)",
)


def units_root(root: Path, *names: str) -> Path:
    """The folder as a root of its own with systemd's units, these of ours, and stand-ins for the two programs that they start."""
    shutil.copytree(_SYSTEM_UNITS, root / "usr/lib/systemd/system", symlinks=True)
    (root / "lib").symlink_to("usr/lib")
    for program in ("opt/fallow/bin/fallow", "bin/kill"):
        path = root / program
        path.parent.mkdir(parents=True)
        path.touch(mode=0o755)
    (root / "etc/systemd/system").mkdir(parents=True)
    for name in names:
        shutil.copy(SYSTEMD / name, root / "etc/systemd/system")
    return root


def analyze(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", f"--root={root}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@dataclass(frozen=True)
class JudgedUnit:
    """A unit in a root of its own."""

    name: str
    root: Path

    @classmethod
    def installed(cls, name: str, root: Path) -> JudgedUnit:
        return cls(name, units_root(root, name))

    def analyze(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return analyze(self.root, *arguments, self.name)

    def assert_sound(self) -> None:
        """Nothing is wrong, the exposure is below two, and a mistake would have been found."""
        found = self.analyze("verify")
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
        exposed = self.analyze("security", "--offline=true", "--threshold=20")
        assert exposed.returncode == 0, exposed.stdout
        unit = self.root / "etc/systemd/system" / self.name
        unit.write_text(unit.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")
        assert "KilMode" in self.analyze("verify").stderr


def settings_of(name: str) -> dict[str, list[str]]:
    """The unit's keys with their values, whatever their sections."""
    found = defaultdict(list)
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return dict(found)
