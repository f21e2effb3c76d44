"""What commands print: every text passes here on its way to a terminal, which would obey control characters in a name."""

from __future__ import annotations

import sys

from fallow.outside_text import visible, visible_lines


def show(text: str, end: str = "\n") -> None:
    """Prints lines on standard output."""
    print(visible_lines(text), end=end, flush=True)


def say(text: str) -> None:
    """Prints one sentence on standard error, behind the command's name."""
    print(f"fallow: {visible(text)}", file=sys.stderr, flush=True)


def say_lines(text: str, end: str = "\n") -> None:
    """Prints lines on standard error, as they are."""
    print(visible_lines(text), end=end, file=sys.stderr, flush=True)
