"""This machine's own GPUs, as the agent sees them: asked of the command, for the pages never import the agent."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TIMEOUT_S = 30.0

HEADING = "This machine's own GPUs (measured, not simulated)"
NO_DRIVER = "No NVIDIA driver was found on this machine: everything below is simulated."
_UNREADABLE = "This machine's own GPUs could not be read (`fallow agent once` says why): everything below is simulated."


@contextmanager
def looking() -> Iterator[subprocess.Popen[str]]:
    """A running `fallow agent once`; it is ended with the block."""
    # -P: a folder that somebody else can write to may be where this was typed
    command = [sys.executable, "-P", "-m", "fallow", "agent", "once"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as look:
        try:
            yield look
        finally:
            look.kill()


def text(look: subprocess.Popen[str]) -> str:
    """What it printed under a heading, or one line where there is nothing to see."""
    try:
        out, err = look.communicate(timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"{_UNREADABLE}\n"
    if look.returncode == 0:
        return f"{HEADING}\n{out.rstrip()}\n\nEverything below is simulated.\n"
    return f"{NO_DRIVER if 'no NVIDIA driver' in err else _UNREADABLE}\n"
