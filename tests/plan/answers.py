"""The pages of docs/answers/: their commands as typed, over the demo's fleet of one fixed day.

`python -m tests.plan.answers` (part of `make docs`) runs the commands and writes what they print below them; test_answers.py fails when a
page is not current. The simulated fleet is the one of `fallow demo`, ended at a fixed midnight, so that the pages stay as they are.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from contextlib import AbstractContextManager, chdir
from pathlib import Path
from unittest.mock import patch

from analytics.simulation import SimulatedFleet
from dashboard.demo import DemoFolder
from fallow.clock import SystemClock
from tests.in_process import run_in_process

PAGES = Path(__file__).resolve().parents[2] / "docs" / "answers"
UNTIL_MS = 1_795_564_800_000
"""2026-11-25T00:00Z, a Wednesday."""
FENCE = re.compile(r"```console\n(.*?)```\n", re.DOTALL)


def demo_folder(parent: Path) -> Path:
    """`parent`, with what `fallow demo --out demo --no-serve` makes of its lake and tables in `demo`."""
    DemoFolder(parent / "demo").prepare(SimulatedFleet(until_ms=UNTIL_MS, gpus=64, days=28, seed=1, showcase=True))
    return parent


def on_its_day() -> AbstractContextManager[object]:
    """A minute after the fleet's end is now."""
    return patch.object(SystemClock, "now_ms", lambda _: UNTIL_MS + 60_000)


def current(page: str, parent: Path) -> str:
    """The page with what its commands print today; raises AssertionError where one of them fails."""
    with chdir(parent), on_its_day():
        return FENCE.sub(lambda block: f"```console\n{_session(block[1])}```\n", page)


def _session(block: str) -> str:
    commands = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{_printed(command)}" for command in commands)


def _printed(command: str) -> str:
    program, *arguments = shlex.split(command)
    assert program == "fallow", command
    if arguments[0] == "demo":  # made already, for a fixed day
        return ""
    done = run_in_process(*arguments, COLUMNS="120")
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.replace(f"{Path.cwd()}/", "").splitlines())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = demo_folder(Path(temporary))
        for file in sorted(PAGES.glob("*.md")):
            file.write_text(current(file.read_text(encoding="utf-8"), folder), encoding="utf-8")
