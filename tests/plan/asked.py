"""`fallow plan` in the process of a test, with its environment's settings: tables, texts, and refusals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.answers import rows_of
from tests.in_process import run_in_process

if TYPE_CHECKING:
    import subprocess

    from fallow.lake import Lake

Answer = dict[str, list[dict[str, Any]]]


def run(lake: Lake, verb: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_in_process("plan", verb, "--lake", lake.root, *flags, **os.environ)


def answer(lake: Lake, verb: str, *flags: str) -> Answer:
    """The rows of each table, by its name."""
    done = run(lake, verb, "--json", *flags)
    assert done.returncode == 0, done.stderr
    return rows_of(done.stdout)


def text(lake: Lake, verb: str, *flags: str) -> str:
    """All that people read, in one line."""
    done = run(lake, verb, "--all", *flags)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def refusal(lake: Lake, verb: str, *flags: str) -> str:
    """The one sentence on wrong use."""
    done = run(lake, verb, *flags)
    assert done.returncode in {1, 2}
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done.stderr
    return done.stderr
