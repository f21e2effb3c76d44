"""Names of people: refused, never repaired, where they look like another name; and the kinds of actors."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.decide.actions import actor_words
from fallow.actors import ANONYMOUS, LINK, TOKEN, Actor, command_actor, name_fault
from fallow.errors import UsageError
from fallow.os_user import os_user

NAMES = """\
ann, Müller, jean-luc, DOMAIN\\ann, DOMAIN+ann, ann@example.org, O'Brien, O\u2019Brien, Ann Lee, svc_gpu$, somebody,
山田 たろう, 佐々木, ヨーコ・オノ, 田中Ken, 김철수, 李小龍, Nguyễn Văn, Иван Петров, γιάννης, نور, ปรีชา, राम"""
REFUSED = {
    "": "is empty",
    "a" * 301: "is longer than 300 characters",
    "ann\u00a0": "contains U+00A0 (NO-BREAK SPACE), which readers cannot see",
    "ann\n": "contains U+000A, which readers cannot see",
    "a\tnn": "contains U+0009, which readers cannot see",
    "an\u200dn": "contains U+200D (ZERO WIDTH JOINER), which readers cannot see",
    "ann\u202e": "contains U+202E (RIGHT-TO-LEFT OVERRIDE), which readers cannot see",
    "ann\u034f": "contains U+034F (COMBINING GRAPHEME JOINER), which readers cannot see",
    "ann\u3164": "contains U+3164 (HANGUL FILLER), which readers cannot see",
    "ann\ufe0f": "contains U+FE0F (VARIATION SELECTOR-16), which readers cannot see",
    "ann\u3000lee": "contains U+3000 (IDEOGRAPHIC SPACE), which readers cannot see",
    "ann\ud800": "contains U+D800, which readers cannot see",
    "ann ": "has a blank at its start or end, or two blanks in a row",
    " ann": "has a blank at its start or end, or two blanks in a row",
    "ann  lee": "has a blank at its start or end, or two blanks in a row",
    "Mu\u0308ller": "is not in Unicode's normal form NFKC, which is Müller",
    "\uff41nn": "is not in Unicode's normal form NFKC, which is ann",
    "\ufb01n": "is not in Unicode's normal form NFKC, which is fin",
    "ann\u2010lee": "contains U+2010 (HYPHEN), which is not a letter",
    "ann\U0001f600": "contains U+1F600 (GRINNING FACE), which is not a letter",
    "\u0301ann": "begins with U+0301 (COMBINING ACUTE ACCENT), a mark that needs a letter before it",
    "\u0430nn": (
        "mixes letters of different scripts: U+0430 (CYRILLIC SMALL LETTER A) and U+006E (LATIN SMALL LETTER N)"
    ),
    "\u03bfnn": (
        "mixes letters of different scripts: U+03BF (GREEK SMALL LETTER OMICRON) and U+006E (LATIN SMALL LETTER N)"
    ),
    "ann\u0660": (
        "mixes letters of different scripts: U+0061 (LATIN SMALL LETTER A) and U+0660 (ARABIC-INDIC DIGIT ZERO)"
    ),
    "Иван たろう": (
        "mixes letters of different scripts: U+0418 (CYRILLIC CAPITAL LETTER I) and U+305F (HIRAGANA LETTER TA)"
    ),
}


def test_real_names_are_taken_as_they_are() -> None:
    names = [*(each.strip() for each in NAMES.split(",")), "a" * 300]
    assert [name for name in names if name_fault(name) is not None] == []


@pytest.mark.parametrize(("text", "fault"), REFUSED.items(), ids=map(ascii, REFUSED))
def test_what_looks_like_another_name_is_refused_with_its_reason(text: str, fault: str) -> None:
    assert name_fault(text) == fault


@given(st.text(max_size=20))
def test_a_name_is_its_own_normal_form_and_shows_every_character(text: str) -> None:
    if name_fault(text) is None:
        assert unicodedata.normalize("NFKC", text) == text == " ".join(text.split())
        assert text.isprintable()


@pytest.mark.parametrize("given", ["", "ann ", "ann\u00a0", "\u0430nn"])
def test_a_command_refuses_to_act_under_such_a_name(given: str) -> None:
    with pytest.raises(UsageError):
        command_actor(given)


def test_a_command_acts_beside_the_user_of_the_operating_system() -> None:
    assert command_actor("zoe") == Actor("zoe", os_user=os_user())
    assert command_actor(None) == Actor(os_user(), os_user=os_user())


def test_no_person_reads_like_another_kind_of_actor() -> None:
    """In the log and on pages, no name of a person reads like a token, a link, or a page without a sign-in."""
    others = [
        Actor("prometheus", TOKEN),
        Actor("everybody", ANONYMOUS),
        Actor("ann", LINK),
        Actor("ann", os_user="root"),
    ]
    people = [Actor(str(actor_words(each))) for each in others] + [Actor(each.log_words) for each in others]
    people += [Actor(each.name) for each in others]
    assert not any(name_fault(each.name) for each in people)
    for words in (lambda each: str(actor_words(each)), lambda each: each.log_words):
        shown = {words(each) for each in people}
        assert not shown & {words(each) for each in others if each.os_user is None}
    assert str(actor_words(Actor("ann", os_user="root"))) not in {str(actor_words(each)) for each in people}
