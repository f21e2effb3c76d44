"""The report in French: no English is left, its signs stand apart, and its numbers are those of the English one."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import pytest

from analytics.language.catalogue import catalogue
from analytics.language.languages import language
from analytics.render.html.mail import mail_body
from analytics.render.html.page import page
from tests.report.html.pages import Page
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

WEEK = "--week 2026-W40"
JOINED = re.compile(r"[\w)\]»%][;:](?=\s)")
"""A sign that French sets apart, without a space before it."""


@cache
def parts() -> tuple[str, ...]:
    """Parts of the catalogue's English texts that are longer than 12 characters and absent from their French."""
    texts = ((text, " ".join(forms).casefold()) for text, forms in catalogue("fr").forms.items())
    split = ((" ".join(each.split()).casefold(), french) for text, french in texts for each in re.split(r"{\w+}", text))
    return tuple(words for words, french in split if len(words) > 12 and words not in french)


def english_of(shown: str) -> list[str]:
    """The English parts that stand in a document, outside names of commands."""
    flat = re.sub(r"fallow [a-z]+", "fallow", " ".join(shown.split()).casefold())
    return [words for words in parts() if words in flat]


@pytest.mark.parametrize("flags", ["", WEEK, "--pool train", "--user ann"])
@pytest.mark.parametrize("name", ["text", "md"])
def test_no_english_is_left_and_signs_stand_apart(
    full: Lake, report: Callable[..., Outcome], name: str, flags: str
) -> None:
    french, english = (report(full, "--lang", code, "--format", name, *flags.split()) for code in ("fr", "en"))
    assert (french.code, french.err) == (0, "")
    assert english_of(french.out) == []
    assert [line for line in french.out.splitlines() if JOINED.search(line)] == []
    assert len(english_of(english.out)) > 30
    assert len(JOINED.findall(english.out)) > 20


@pytest.mark.parametrize("form", ["page", "mail"])
@pytest.mark.parametrize("week", [None, "2026-W40"])
def test_no_english_is_left_on_the_page_and_in_the_mail(full: Lake, week: str | None, form: str) -> None:
    content = report_of(full, week)
    make = page if form == "page" else lambda each, speaks: mail_body(each, speaks)[0]
    french, english = (Page(make(content, language(code))) for code in ("fr", "en"))
    bodies = [shown.all("body")[0].words for shown in (french, english)]
    assert english_of(bodies[0]) == []
    assert len(english_of(bodies[1])) > 10
    assert [text for text in words_of(french) if JOINED.search(text)] == []
    assert len([text for text in words_of(english) if JOINED.search(text)]) > 5


def words_of(shown: Page) -> list[str]:
    """What each element says, and what those hear who do not see it."""
    said = [each for each in shown.elements if each.name not in ("style", "head", "html")]
    heard = [each.attributes.get(name) or "" for each in said for name in ("alt", "aria-label")]
    return [each.words for each in said] + heard


@pytest.mark.parametrize("code", ["en", "fr"])
def test_a_threshold_has_one_form_everywhere(full: Lake, report: Callable[..., Outcome], code: str) -> None:
    for form in ("text", "md", "html"):
        shown = report(full, "--lang", code, *WEEK.split(), "--format", form).out
        text = Page(shown).all("body")[0].words if form == "html" else shown
        assert re.search(r"\b5 min\b", text)
        assert re.findall(r"(?<![\w-])\d+(?:m|min)\b", text) == []


@pytest.mark.parametrize("flags", ["", WEEK])
def test_the_numbers_are_those_of_the_english_report(full: Lake, report: Callable[..., Outcome], flags: str) -> None:
    shown = [report(full, "--format", "md", "--lang", code, *flags.split()).out for code in ("en", "fr")]
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in shown]
    assert len(tables[0]) == len(tables[1]) > 30
    for line, other in zip(*tables, strict=True):
        assert figures_of(line, ",", ".") == figures_of(other.replace("\u202f", " "), " ", ","), other


def figures_of(row: str, group: str, point: str) -> list[float]:
    """The cells of a table's row that are figures, whatever their unit."""
    cells = (re.fullmatch(r"([+-]?\d[\d., ]*)(?:\s(?:%|points))?", cell.strip(" *")) for cell in row.split("|"))
    return [float(cell[1].replace(group, "").replace(point, ".")) for cell in cells if cell]
