"""Other people's names as one line of text."""

from __future__ import annotations


def plain(text: str, most: int = 80) -> str:
    """A name on one line: names are other people's, so control and direction marks become `?` and long ones end in `…`."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"
