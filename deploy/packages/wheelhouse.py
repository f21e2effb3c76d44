"""Gathers the wheels that a host needs to install the agent without a package index: `wheelhouse.py FOLDER`.

The wheel of this checkout, the wheels that requirements/base.txt locks for each Python of the agent, and pip, for
systems whose Python lacks it. It needs the packages `build`, `hatchling` and `packaging` (requirements/dev.txt).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.markers import Marker

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PLATFORMS = {
    "x86_64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux2010_x86_64"),
    "aarch64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
}
"""glibc 2.28 and newer: RHEL 8, Debian 10, Ubuntu 20.04 and all later ones."""

_ENTRY = re.compile(
    r"^(?P<pin>[a-z0-9._-]+==\S+)(?: ; (?P<marker>[^\\\n]+?))?(?P<hashes>(?: \\\n    --hash=\S+)+)", re.MULTILINE
)


def locked_for(python: str, lock: str) -> str:
    """The lock's entries for one Python, without markers: pip would judge those by the Python that it runs on."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    entries = [
        f"{found['pin']}{found['hashes']}"
        for found in _ENTRY.finditer(lock)
        if found["marker"] is None or Marker(found["marker"]).evaluate(environment)
    ]
    if not entries:
        raise SystemExit("requirements/base.txt holds nothing that this script can read")
    return "\n".join(entries) + "\n"


def gather(folder: Path, machine: str, pythons: tuple[str, ...]) -> None:
    """Puts in what the agent needs, and pip."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    platforms = [f"--platform={each}" for each in PLATFORMS[machine]]
    download = ("-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--no-deps")
    for python in pythons:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as exact:
            exact.write(locked_for(python, lock))
            exact.flush()
            run(
                *download,
                "--require-hashes",
                f"--python-version={python}",
                *platforms,
                f"--dest={folder}",
                "-r",
                exact.name,
            )
    run(*download, f"--dest={folder}", "pip")


def build(folder: Path) -> None:
    """Adds this checkout's own wheel."""
    run("-m", "build", "--quiet", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))


def run(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", choices=sorted(PLATFORMS), default="x86_64")
    parser.add_argument("--python", action="append", choices=PYTHONS, help="only for this Python (default: all)")
    args = parser.parse_args()
    build(args.folder)
    gather(args.folder, args.machine, tuple(args.python or PYTHONS))


if __name__ == "__main__":
    main()
