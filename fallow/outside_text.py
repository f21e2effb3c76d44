"""Safe display of text from outside: names of hosts, users, jobs and files, notes, answers of servers.

The lake, JSON and Parquet keep names unchanged. Each output for people has a function that makes text safe: a terminal,
a table for a spreadsheet, a page, a chart, a chat, a mail. HTML templates escape text themselves and get `plain` text.
"""

from __future__ import annotations

import json
import re
from typing import Any

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Marks without a width, and marks that change the direction of text."""

_HIDDEN = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""Invisible characters that a terminal may obey: C0 and C1 controls, lone surrogates and invisible marks."""

_HIDDEN_IN_LINES = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_INVISIBLE}]")
"""Invisible characters except tabs and line ends."""

_FORMULA = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""Characters that start a formula in a spreadsheet; some spreadsheets accept the last four, which are wide forms."""

_RISKY = re.compile(rf"^(?='*[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])(?='*[{_FORMULA}])")
"""Positions where a formula can start: the start of a cell, and after other separators than the comma."""

_MADE_SAFE = re.compile(rf"^'(?='*[{_FORMULA}\t\r\n])|(?<=[;\t\r\n])'(?='*[{_FORMULA}])")
_MADE_VISIBLE = re.compile(r"\\u\{([0-9a-f]{1,6})\}")


def plain(text: str, most: int = 80) -> str:
    """Return a name on one line; invisible characters become `?`, and long names end in `…`."""
    line = " ".join(text.split())
    if not (line.isascii() and line.isprintable()):
        line = "".join(each if each.isprintable() else "?" for each in _HIDDEN.sub("?", line))
    return line if len(line) <= most else line[: most - 1] + "…"


def revealed(text: str) -> str:
    """Return the text with `?` for invisible characters; line ends and tabs stay."""
    return text if text.isascii() and text.isprintable() else _HIDDEN_IN_LINES.sub("?", text)


def has_hidden(text: str) -> bool:
    """Return whether the text has characters that readers cannot see, or that Unicode does not assign."""
    return not text.isprintable() or _HIDDEN.search(text) is not None


def visible(text: str, most: int = 4000) -> str:
    r"""Return the text on one line with invisible characters as numbers: `a\u{1b}b`. Long text ends in `…`."""
    line = _HIDDEN.sub(_notation, text[:most])
    return line if len(text) <= most else line + "…"


def visible_lines(text: str) -> str:
    """Return the lines with invisible characters as numbers; line ends and tabs stay."""
    return _HIDDEN_IN_LINES.sub(_notation, text)


def _notation(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"


def csv_cell(value: object) -> object:
    """Return a cell that no spreadsheet runs, with codes for invisible characters.

    Booleans are as in JSON; numbers stay numbers.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    # text that looks like the notation keeps its first character escaped
    shown = _HIDDEN_IN_LINES.sub(_notation, value.replace("\\u{", "\\u{5c}u{").replace("\r", "\\u{d}"))
    return _RISKY.sub("'", shown)


def from_csv_cell(cell: str) -> str:
    """Return the text from which `csv_cell` made the cell."""
    return _MADE_VISIBLE.sub(_meant, _MADE_SAFE.sub("", cell))


def _meant(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    character = chr(code) if code < 0x110000 else ""
    return character if character == "\\" or _HIDDEN.fullmatch(character) else found[0]


def json_text(content: Any, indent: int | None = 2) -> str:
    """Return JSON with letters of all languages as they are, and invisible characters as escapes."""
    return _HIDDEN_IN_LINES.sub(_json_notation, json.dumps(content, indent=indent, ensure_ascii=False))


def _json_notation(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def chart_text(text: str, most: int) -> str:
    """Return a label for plotly without markup: plotly interprets some HTML, links included, and `%{...}`."""
    return _with_entities(plain(text, most)).replace("%{", "&#37;{")


_MARKDOWN = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|#~&@$"})
_LINK = re.compile(r"(://|www\d{0,3}\.)", re.IGNORECASE)
"""Text that Markdown turns into a link."""


def markdown_text(text: str, most: int = 400) -> str:
    """Return the text on one line, cut to `most` characters, and escaped for Markdown."""
    literal = plain(text, most).translate(_MARKDOWN)
    return _unlinked(literal, "\\")


def _unlinked(text: str, mark: str) -> str:
    return _LINK.sub(lambda found: found[0][:-1] + mark + found[0][-1], text)


def markdown_code(text: str) -> str:
    """Return the text as a code span of Markdown."""
    shown = visible(text, len(text))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


_MATTERMOST = re.compile(r"([\\`*_{}\[\]()#+\-!|<>~&$])")


def mattermost_text(text: str) -> str:
    """Return the text on one line without markup, links and mentions, which a mark without width splits."""
    literal = _MATTERMOST.sub(r"\\\1", plain(text, 1000))
    return _unlinked(literal.replace("@", "@\N{ZERO WIDTH SPACE}"), "\N{ZERO WIDTH SPACE}")


def slack_text(text: str) -> str:
    """Return the text escaped for Slack's markup."""
    return _with_entities(text)


def _with_entities(text: str) -> str:
    """Return the text with the three characters that start markup as entities, for Slack and plotly."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text
