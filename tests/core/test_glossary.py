"""docs/glossary.md, and that the words with a meaning are those that the code uses."""

from __future__ import annotations

from analytics import glossary
from fallow.schema import STATES
from tests.core import pages


def test_the_page_is_current() -> None:
    assert (pages.DOCS / "glossary.md").read_text(encoding="utf-8") == pages.glossary_page(), "run `make docs`"


def test_every_state_has_a_meaning_and_a_short_one() -> None:
    assert tuple(glossary.STATES) == STATES
    assert all(term.short for term in glossary.STATES.values())


def test_words_are_in_order_and_stand_once() -> None:
    names = [term.name for term in glossary.TERMS]
    assert names == sorted(set(names), key=str.lower)
