"""A unit of deploy/systemd as it is, and systemd's own judgement of it."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
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


def settings_of(name: str) -> dict[str, list[str]]:
    """The unit's keys with their values, whatever their sections."""
    found = defaultdict(list)
    for line in (SYSTEMD / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return dict(found)
