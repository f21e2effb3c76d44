"""Whether to publish what looks wrong: asked on a terminal, refused elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from fallow.errors import InputError
from fallow.output import say_lines, show


def ask(odd: Sequence[str], told: str, summary: str) -> None:
    """Returns if somebody at a terminal, who was `told`, says yes; raises InputError otherwise, with the summary on standard output."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        say_lines(told)
        say_lines("This looks wrong. Publish it all the same? [y/N] ", end="")
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
        raise InputError("nothing was published", "put right what is odd, or answer y")
    show(summary)
    raise InputError(
        f"nothing was published, for this looks wrong: {'; '.join(odd)}", "add --yes to publish all the same"
    )
