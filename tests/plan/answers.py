"""The pages of docs/answers/: their commands as typed, over the demo's fleet of one fixed day.

`python -m tests.plan.answers` (part of `make docs`) runs the commands and writes their output below them;
test_answers.py fails when a page is not current. The simulated fleet is that of `fallow demo`, ended at a fixed
midnight, so that the pages do not change. A fence such as ```` ```console 12 ```` shows the first 12 lines of each
output, and `...` for the others. The banner and the window, the same for all commands of a page, are shown once.
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
FENCE = re.compile(r"```console(?P<lines> \d+)?\n(?P<session>.*?)```\n", re.DOTALL)
HEAD = re.compile(r"SIMULATED FLEET.*?\n\n\S+ \S+ UTC to \S+ \S+ UTC\n\n", re.DOTALL)
"""The banner of a simulated fleet, and the window."""


def demo_folder(parent: Path) -> Path:
    """`parent`, with what `fallow demo --out demo --no-serve` makes of its lake and tables in `demo`."""
    DemoFolder(parent / "demo").prepare(SimulatedFleet(until_ms=UNTIL_MS, gpus=64, days=28, seed=1, showcase=True))
    return parent


def on_its_day() -> AbstractContextManager[object]:
    """A minute after the fleet's end is now."""
    return patch.object(SystemClock, "now_ms", lambda _: UNTIL_MS + 60_000)


def current(page: str, parent: Path) -> str:
    """The page with what its commands print today; raises AssertionError where one of them fails."""
    heads: set[str] = set()

    def printed(fence: re.Match[str]) -> str:
        limit = None if fence["lines"] is None else int(fence["lines"])
        commands = [line.removeprefix("$ ") for line in fence["session"].splitlines() if line.startswith("$ ")]
        outputs = (_shortened(_output(command), limit, heads) for command in commands)
        session = "".join(f"$ {command}\n{output}" for command, output in zip(commands, outputs, strict=True))
        return f"```console{fence['lines'] or ''}\n{session}```\n"

    with chdir(parent), on_its_day():
        return FENCE.sub(printed, page)


def _shortened(output: str, limit: int | None, heads: set[str]) -> str:
    """Return the first `limit` lines without the head, and the head in its place unless in `heads`, which it joins."""
    match = HEAD.search(output)
    head, at = (match[0], match.start()) if match else ("", 0)
    shown_head = "" if head in heads else head
    heads.add(head)
    lines = output.replace(head, "", 1).splitlines(keepends=True)
    kept = "".join(lines if limit is None or len(lines) <= limit else [*lines[:limit], "...\n"])
    return kept[:at] + shown_head + kept[at:]


def _output(command: str) -> str:
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
