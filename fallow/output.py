"""Output of commands. All text passes through here, because a terminal would obey control characters in names."""

from __future__ import annotations

import sys

from fallow.outside_text import visible, visible_lines


def show(text: str, end: str = "\n") -> None:
    """Print lines on standard output."""
    print(visible_lines(text), end=end, flush=True)


def say(text: str) -> None:
    """Print a sentence on standard error, after the name of the command."""
    print(f"fallow: {visible(text)}", file=sys.stderr, flush=True)


def say_lines(text: str, end: str = "\n") -> None:
    """Print lines on standard error."""
    print(visible_lines(text), end=end, file=sys.stderr, flush=True)
