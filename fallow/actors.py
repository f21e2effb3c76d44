"""Who acts: the names that people may have, the kinds of actors, and how both are recorded and shown."""

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
"""A person by name; a program by its token; the holder of a link, by the link's address; and a reader whom the pages did not ask."""

_MARKS_IN_NAMES = "\N{RIGHT SINGLE QUOTATION MARK}\N{MIDDLE DOT}\N{KATAKANA MIDDLE DOT}"
"""O'Brien as typographers write it, `paral·lel` in Catalan, and the dot between the parts of a foreign name in Japanese."""

_NO_SCRIPT = frozenset({"COMBINING", "MODIFIER", "DIGIT"})
"""First words of the names of characters that go with every script (Unicode's `Common` and `Inherited`)."""

_SCRIPTS = {"IDEOGRAPHIC": "CJK", "ARABIC-INDIC": "ARABIC", "EXTENDED": "ARABIC", "KATAKANA-HIRAGANA": "KATAKANA"}
"""Where the first word of a character's name is not its script: for all other letters of living languages it is."""

_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
"""Scripts that one name may mix: `Highly Restrictive` of UTS 39, section 5.2 (Japanese, Chinese, Korean)."""

_LETTERS = frozenset({"Lu", "Ll", "Lt", "Lo", "Lm", "Mn", "Mc", "Nd"})
_SAYS_MORE = re.compile(r'[:,;"()]')


@dataclass(frozen=True, order=True)
class Actor:
    """Who did something.

    name: the person's, the token's, the address that the link was sent to, or a word for readers without a name.
    kind: one of ACTOR_KINDS: a person who is called `everybody` stays a person.
    os_user: the operating system's user that a command ran as; None on the pages.
    """

    name: str
    kind: str = PERSON
    os_user: str | None = None

    @property
    def log_words(self) -> str:
        """Kind and name as the log shows them: `person ann`, `token prometheus`."""
        return f"{self.kind} {shown_name(self.name)}"

    def columns(self) -> dict[str, object]:
        """The columns of the lake, and the keys in JSON, that say who acted."""
        return {"actor": self.name, "actor_kind": self.kind, "os_user": self.os_user}


def actor_of(row: dict[str, Any]) -> Actor:
    """The actor of a row of the lake, whose columns are taken out of it."""
    return Actor(row.pop("actor"), row.pop("actor_kind"), row.pop("os_user"))


def command_actor(given: str | None) -> Actor:
    """The person whom `--as` names, else the login name, beside the operating system's user; UsageError for no name."""
    name = login_name() if given is None else given
    if name is None:
        raise UsageError("your user name is not known", "give --as NAME")
    if (fault := name_fault(name)) is not None:
        raise UsageError(f"the name {shown_name(name)} {fault}", "give --as a name in ordinary letters of one script")
    return Actor(name, PERSON, os_user())


def name_fault(text: str) -> str | None:
    """Return why a text cannot be a person's name, as the end of a sentence that begins with the name; None where it can be.

    Nothing is repaired: a person who could choose `ann` with a blank behind it would act as `ann`.
    The form is NFKC, as RFC 8265 asks of user names (it refuses all that has a compatibility form): NFC would take a
    full-width `ann` for another name than `ann`.
    """
    return next(_name_faults(text), None)


def _name_faults(text: str) -> Iterator[str]:
    """The faults, the plainest first."""
    if not text:
        yield "is empty"
    if len(text) > LONGEST_NAME:
        yield f"is longer than {LONGEST_NAME} characters"
    for character in filter(has_hidden, text):
        yield f"holds {_called(character)}, which readers cannot see"
    if text != text.strip() or "  " in text:
        yield "has a blank at its start or end, or two in a row"
    if text != (normal := unicodedata.normalize("NFKC", text)):
        yield f"is not in Unicode's normal form NFKC, which is {shown_name(normal)}"
    for character in text:
        if not (character.isascii() or character in _MARKS_IN_NAMES or unicodedata.category(character) in _LETTERS):
            yield f"holds {_called(character)}, which is no letter"
    if unicodedata.category(text[0]).startswith("M"):
        yield f"begins with {_called(text[0])}, a mark that belongs on a letter"
    first = {script: each for each in reversed(text) if (script := _script(each)) is not None}
    if len(first) > 1 and not any(first.keys() <= together for together in _TOGETHER):
        yield f"mixes letters of different scripts: {' and '.join(map(_called, reversed(first.values())))}"


def shown_name(name: str) -> str:
    """A name on one line; in quotes where it holds a sign that the words around it use, such as a colon or a bracket."""
    words = plain(name, LONGEST_NAME)
    return json.dumps(words, ensure_ascii=False) if not words or _SAYS_MORE.search(words) else words


def _script(character: str) -> str | None:
    """The script of a letter, mark or digit, by the first word of its name; None for one that goes with every script."""
    if unicodedata.category(character) not in _LETTERS:
        return None
    word = unicodedata.name(character, "").partition(" ")[0]
    return None if word in _NO_SCRIPT else _SCRIPTS.get(word, word)


def _called(character: str) -> str:
    name = unicodedata.name(character, "")
    return f"U+{ord(character):04X}" + (f" ({name})" if name else "")
