"""Actors: the names that people may have, the kinds of actors, and how both are recorded and shown."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fallow.errors import UsageError
from fallow.os_user import login_name, os_user
from fallow.outside_text import has_hidden, plain

LONGEST_NAME = 300
"""Characters of a person's name: longer than any mail address."""

PERSON, TOKEN, LINK, ANONYMOUS = "person", "token", "link", "anonymous"
ACTOR_KINDS = (PERSON, TOKEN, LINK, ANONYMOUS)
"""A person, by name; a program, by its token; the user of a link, by its address; readers without a sign-in."""

_MARKS_IN_NAMES = "\N{RIGHT SINGLE QUOTATION MARK}\N{MIDDLE DOT}\N{KATAKANA MIDDLE DOT}"
"""The typographic apostrophe of O'Brien, the dot of Catalan `paral·lel`, and that of foreign names in Japanese."""

_NO_SCRIPT = frozenset({"COMBINING", "MODIFIER", "DIGIT"})
"""First words of the names of characters that belong to all scripts (Unicode's `Common` and `Inherited`)."""

_SCRIPTS = {"IDEOGRAPHIC": "CJK", "ARABIC-INDIC": "ARABIC", "EXTENDED": "ARABIC", "KATAKANA-HIRAGANA": "KATAKANA"}
"""Scripts of characters by the first word of their name, where that word is not the script."""

_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
"""Scripts that a name may mix: `Highly Restrictive` of UTS 39, section 5.2 (Japanese, Chinese, Korean)."""

_LETTERS = frozenset({"Lu", "Ll", "Lt", "Lo", "Lm", "Mn", "Mc", "Nd"})
_SAYS_MORE = re.compile(r'[:,;"()]')


@dataclass(frozen=True, order=True)
class Actor:
    """The actor of an action.

    name: the person's, the token's, the address that the link was sent to, or a word for readers without a name.
    kind: one of ACTOR_KINDS; a person with the name `everybody` is a person.
    os_user: the user of the operating system that ran the command; None on the pages.
    """

    name: str
    kind: str = PERSON
    os_user: str | None = None

    @property
    def log_words(self) -> str:
        """Kind and name for the log: `person ann`, `token prometheus`."""
        return f"{self.kind} {shown_name(self.name)}"

    def columns(self) -> dict[str, object]:
        """Return the actor's columns of the lake, which are also the keys in JSON."""
        return {"actor": self.name, "actor_kind": self.kind, "os_user": self.os_user}


def actor_of(row: dict[str, Any]) -> Actor:
    """Return the actor of a row of the lake, and remove its columns from the row."""
    return Actor(row.pop("actor"), row.pop("actor_kind"), row.pop("os_user"))


def command_actor(given: str | None) -> Actor:
    """Return the person that `--as` names, else the login name, and the OS user; raises UsageError without a name."""
    name = login_name() if given is None else given
    if name is None:
        raise UsageError("your user name is unknown", "give --as NAME")
    if (fault := name_fault(name)) is not None:
        raise UsageError(f"the name {shown_name(name)} {fault}", "give --as a name in ordinary letters of one script")
    return Actor(name, PERSON, os_user())


def name_fault(text: str) -> str | None:
    """Return why a text cannot be a person's name: the end of a sentence that begins with the name; None if it can.

    Names are not repaired: otherwise a person who chooses `ann` followed by a blank would act as `ann`. The form is
    NFKC, as RFC 8265 requires for user names: with NFC, a full-width `ann` would be another name.
    """
    return next(_name_faults(text), None)


def _name_faults(text: str) -> Iterator[str]:
    """Yield the faults, the simplest first."""
    if not text:
        yield "is empty"
    if len(text) > LONGEST_NAME:
        yield f"is longer than {LONGEST_NAME} characters"
    for character in filter(has_hidden, text):
        yield f"contains {_called(character)}, which readers cannot see"
    if text != text.strip() or "  " in text:
        yield "has a blank at its start or end, or two blanks in a row"
    if text != (normal := unicodedata.normalize("NFKC", text)):
        yield f"is not in Unicode's normal form NFKC, which is {shown_name(normal)}"
    for character in text:
        if not (character.isascii() or character in _MARKS_IN_NAMES or unicodedata.category(character) in _LETTERS):
            yield f"contains {_called(character)}, which is not a letter"
    if unicodedata.category(text[0]).startswith("M"):
        yield f"begins with {_called(text[0])}, a mark that needs a letter before it"
    first = {script: each for each in reversed(text) if (script := _script(each)) is not None}
    if len(first) > 1 and not any(first.keys() <= together for together in _TOGETHER):
        yield f"mixes letters of different scripts: {' and '.join(map(_called, reversed(first.values())))}"


def shown_name(name: str) -> str:
    """Return the name on one line, in quotes if it contains a colon, a bracket or similar punctuation."""
    words = plain(name, LONGEST_NAME)
    return json.dumps(words, ensure_ascii=False) if not words or _SAYS_MORE.search(words) else words


def _script(character: str) -> str | None:
    """Return the script of a letter, mark or digit, by the first word of its name; None if it fits all scripts."""
    if unicodedata.category(character) not in _LETTERS:
        return None
    word = unicodedata.name(character, "").partition(" ")[0]
    return None if word in _NO_SCRIPT else _SCRIPTS.get(word, word)


def _called(character: str) -> str:
    name = unicodedata.name(character, "")
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")
