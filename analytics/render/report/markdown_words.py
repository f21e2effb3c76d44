"""Text inside Markdown: names come from users and may hold markup."""

from __future__ import annotations

import re

from analytics.language.plain_text import plain

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&@$"})
_LINK = re.compile(r"(://|www\.)", re.IGNORECASE)
"""What GitHub's Markdown turns into a link although nobody asked for one."""


def escape(text: str, most: int = 400) -> str:
    """At most so many characters, on one line, that Markdown shows as they are."""
    literal = plain(text, most).translate(_SPECIAL)
    return _LINK.sub(lambda found: found[0][:-1] + "\\" + found[0][-1], literal)


def name(text: str) -> str:
    """A name in the cell of a table."""
    return escape(plain(text))


def code(text: str) -> str:
    """Text as a code span, in a fence longer than any run of backticks in it."""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"
