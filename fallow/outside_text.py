"""Text from outside (names of hosts, users, jobs and files, notes, answers of servers) as it is displayed: one function for each place.

Data stay what they are: the lake, JSON and Parquet hold every name as it was given. Only what people look at is made safe: a
terminal, a table for a spreadsheet, a page, a chart, a chat, a mail. HTML is escaped by its templates, which get `plain` text.
"""

from __future__ import annotations

import json
import re
from typing import Any

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff"
    "\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Marks that have no width or that turn the direction of the text around them."""

_HIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""What a reader cannot see and a terminal may obey: C0 and C1 controls, lone surrogates and invisible marks."""

_HIDDEN_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""The same without tabs and line ends."""

_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""What spreadsheets take for the start of a formula; the last four are wide forms, which some take for the others."""

_RISKY = re.compile(rf"^(?='*[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])(?='*[{_FORMULA}])")
"""Where a cell begins a formula: at its start, and where a spreadsheet whose separator is not the comma begins another cell."""

_MADE_SAFE = re.compile(rf"^'(?='*[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])'(?='*[{_FORMULA}])")
_MADE_VISIBLE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def plain(text: str, most: int = 80) -> str:
    """A name on one line: control, direction and invisible marks become `?` and long ones end in `…`."""
    line = "".join(each if each.isprintable() else "?" for each in _HIDDEN.sub("?", " ".join(text.split())))
    return line if len(line) <= most else line[: most - 1] + "…"


def revealed(text: str) -> str:
    """Text of any length with `?` in the place of what is hidden; line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _HIDDEN_IN_LINES.sub("?", text)


def has_hidden(text: str) -> bool:
    """Whether there is anything in it that a reader cannot see, or that is no letter of any language."""
    return not text.isprintable() or _HIDDEN.search(text) is not None


def visible(text: str, most: int = 4000) -> str:
    r"""Text on one line in which nothing is hidden and nothing lost: `a\u{1b}b`. Long text ends in `…`."""
    line = _HIDDEN.sub(_notation, text[:most])
    return line if len(text) <= most else line + "…"


def visible_lines(text: str) -> str:
    """The same of a whole page, whose line ends and tabs stay."""
    return _HIDDEN_IN_LINES.sub(_notation, text)


def _notation(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def csv_cell(value: object) -> object:
    """A text that no spreadsheet runs and in which nothing is hidden; numbers stay numbers, and `true` is as JSON has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    # what already looks like the notation is told from it by the sign that begins it
    shown = _HIDDEN_IN_LINES.sub(_notation, value.replace("\\u{", "\\u{5c}u{").replace("\r", "\\u{d}"))
    return _RISKY.sub("'", shown)


def from_csv_cell(cell: str) -> str:
    """The text that `csv_cell` was given."""
    return _MADE_VISIBLE.sub(_meant, _MADE_SAFE.sub("", cell))


def _meant(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    character = chr(code) if code < 0x110000 else ""
    return character if character == "\\" or _HIDDEN.fullmatch(character) else found[0]


def json_text(content: Any, indent: int | None = 2) -> str:
    """JSON in which letters of all languages are themselves, and what is hidden is written with its number."""
    return _HIDDEN_IN_LINES.sub(_json_notation, json.dumps(content, indent=indent, ensure_ascii=False))


def _json_notation(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def chart_text(text: str, most: int) -> str:
    """A label of plotly, which takes some of HTML for markup of its own, links among it, and `%{...}` for a value."""
    return _with_entities(plain(text, most)).replace("%{", "&#37;{")


_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&@$"})
_LINK = re.compile(r"(://|www\d{0,3}\.)", re.IGNORECASE)
"""What Markdown turns into a link although nobody asked for one."""


def markdown_text(text: str, most: int = 400) -> str:
    """At most so many characters, on one line, that Markdown shows as they are."""
    literal = plain(text, most).translate(_MARKDOWN)
    return _unlinked(literal, "\\")


def _unlinked(text: str, mark: str) -> str:
    return _LINK.sub(lambda found: found[0][:-1] + mark + found[0][-1], text)


def markdown_code(text: str) -> str:
    """Text as a code span, in a fence longer than any run of backticks in it."""
    shown = visible(text, len(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


_MATTERMOST = re.compile(r"([\\`*_{}\[\]()#+\-!|<>~&$])")


def mattermost_text(text: str) -> str:
    """On one line, without markup, links and mentions; a mark of no width parts what would be one of these."""
    literal = _MATTERMOST.sub(r"\\\1", plain(text, 1000))
    return _unlinked(literal.replace("@", "@\N{ZERO WIDTH SPACE}"), "\N{ZERO WIDTH SPACE}")


def slack_text(text: str) -> str:
    """Text outside of Slack's blocks, where it is read as markup."""
    return _with_entities(text)


def _with_entities(text: str) -> str:
    """The three characters with which markup begins, as both Slack and plotly read them."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text
