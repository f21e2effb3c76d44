"""The report in French: nothing of it is English, its numbers are those of the English one, and no text lacks a translation."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from babel.messages.pofile import read_po
from jinja2 import Environment, nodes

import analytics
from analytics.language.catalogue import CATALOGUES, catalogue
from analytics.language.language import Sentence
from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.render.html.mail import mail_body
from analytics.render.html.page import page
from tests.report.html.pages import Page
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

SOURCES = Path(analytics.__file__).parent
SAYING = {"say": 0, "say_many": 0, "of_gpus": 0, "said": 1}
"""What is called with a text that readers see, and which of its arguments that is."""

WEEK = ("--week", "2026-W40")


def texts() -> Iterator[tuple[str, str]]:
    """Every constant text that is said somewhere, and where."""
    for path in sorted(SOURCES.rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(call, "func", None), "id", None) or getattr(
                getattr(call, "func", None), "attr", None
            )
            if isinstance(call, ast.Call) and name in SAYING and len(call.args) > SAYING[name]:
                for text in constants(call.args[SAYING[name]]):
                    yield text, f"{path.relative_to(SOURCES)}:{call.lineno}"
    for path in sorted(SOURCES.rglob("*.html")):
        said = Environment(autoescape=True).parse(path.read_text(encoding="utf-8")).find_all(nodes.Call)
        for each in said:
            if getattr(each.node, "name", "") in SAYING and isinstance(each.args[0], nodes.Const):
                yield str(each.args[0].value), f"{path.relative_to(SOURCES)}:{each.lineno}"


def constants(argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.IfExp):
        yield from constants(argument.body)
        yield from constants(argument.orelse)
    elif isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value


def test_every_text_has_a_translation() -> None:
    known = catalogue("fr").forms
    assert {text: where for text, where in texts() if text not in known} == {}


def test_files_of_a_language_agree_and_keep_the_names_in_braces() -> None:
    said: dict[str, tuple[str, ...]] = {}
    for path in sorted((CATALOGUES / "fr").glob("*.po")):
        with path.open("rb") as file:
            messages = [each for each in read_po(file, locale="fr") if each.id]
        for message in messages:
            ids = (message.id,) if isinstance(message.id, str) else tuple(message.id)
            forms = (message.string,) if isinstance(message.string, str) else tuple(message.string or ())
            assert len(forms) == len(ids), message.id
            assert said.setdefault(ids[0], forms) == forms, f"{path.name}: {ids[0]}"
            assert names_in(*forms) == names_in(*ids), ids[0]


def names_in(*forms: str) -> set[str]:
    """What stands in braces; a form for one may leave its number out."""
    return {name for form in forms for name in re.findall(r"{\w+}", form)} - {"{number}"}


def english_of(shown: str) -> list[str]:
    """The parts of catalogue texts longer than 12 characters that stand in a French document, outside names of commands."""
    flat = re.sub(r"fallow [a-z]+", "fallow", " ".join(shown.split()).casefold())
    found = []
    for text, forms in catalogue("fr").forms.items():
        for part in re.split(r"{\w+}", text):
            words = " ".join(part.split()).casefold()
            if len(words) > 12 and words in flat and not any(words in form.casefold() for form in forms):
                found.append(words)
    return found


@pytest.mark.parametrize(
    "flags", [(), WEEK, ("--pool", "train"), ("--user", "ann")], ids=lambda each: " ".join(each) or "all"
)
@pytest.mark.parametrize("name", ["text", "md"])
def test_no_english_is_left(full: Lake, report: Callable[..., Outcome], name: str, flags: tuple[str, ...]) -> None:
    done = report(full, "--lang", "fr", "--format", name, *flags)
    assert (done.code, done.err) == (0, "")
    assert english_of(done.out) == []
    assert len(english_of(report(full, "--format", name, *flags).out)) > 30


@pytest.mark.parametrize("week", [None, "2026-W40"])
def test_no_english_is_left_on_the_page_and_in_the_mail(full: Lake, week: str | None) -> None:
    content = report_of(full, week)
    french, english = language("fr"), language("en")
    for make in (page, lambda each, speaks: mail_body(each, speaks)[0]):
        shown, known = (Page(make(content, each)).all("body")[0].words for each in (french, english))
        assert english_of(shown) == []
        assert len(english_of(known)) > 10


JOINED = re.compile(r"[\w)\]»%][;:](?=\s)")
"""A sign that French sets apart, without a space before it."""


@pytest.mark.parametrize("flags", [(), WEEK], ids=["all", "week"])
@pytest.mark.parametrize("name", ["text", "md"])
def test_signs_stand_apart(full: Lake, report: Callable[..., Outcome], name: str, flags: tuple[str, ...]) -> None:
    shown = report(full, "--lang", "fr", "--format", name, *flags).out
    assert [line for line in shown.splitlines() if JOINED.search(line)] == []
    assert len(JOINED.findall(report(full, "--format", name, *flags).out)) > 20


def test_signs_stand_apart_on_the_page_and_in_the_mail(full: Lake) -> None:
    content = report_of(full, "2026-W40")
    for make in (page, lambda each, speaks: mail_body(each, speaks)[0]):
        said = [list(words_of(Page(make(content, language(code))))) for code in ("fr", "en")]
        assert [text for text in said[0] if JOINED.search(text)] == []
        assert len([text for text in said[1] if JOINED.search(text)]) > 5


def words_of(shown: Page) -> Iterator[str]:
    """What each element says, and what those hear who do not see it."""
    for each in shown.elements:
        if each.name not in ("style", "head", "html"):
            yield each.words
        yield from (each.attributes.get(name) or "" for name in ("alt", "aria-label"))


@pytest.mark.parametrize("code", ["en", "fr"])
def test_a_threshold_has_one_form_everywhere(full: Lake, report: Callable[..., Outcome], code: str) -> None:
    plain, markdown, html = (
        report(full, "--lang", code, *WEEK, "--format", form).out for form in ("text", "md", "html")
    )  # fmt: skip
    words = Page(html).all("body")[0].words
    for text in (plain, markdown, words):
        assert re.search(r"\b5 min\b", text)
        assert re.findall(r"(?<![\w-])\d+(?:m|min)\b", text) == []


@pytest.mark.parametrize("flags", [(), WEEK], ids=["all", "week"])
def test_the_numbers_are_those_of_the_english_report(
    full: Lake, report: Callable[..., Outcome], flags: tuple[str, ...]
) -> None:
    english = report(full, "--format", "md", *flags).out
    french = report(full, "--format", "md", "--lang", "fr", *flags).out
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in (english, french)]
    assert len(tables[0]) == len(tables[1]) > 30
    for line, other in zip(*tables, strict=True):
        assert figures_of(line, ",", ".") == figures_of(other.replace("\u202f", " "), " ", ","), other


def figures_of(row: str, group: str, point: str) -> list[float]:
    """The cells of a table's row that are figures, whatever their unit."""
    found = []
    for cell in row.strip("|").split("|"):
        match = re.fullmatch(r"([+-]?\d[\d., ]*)(?:\s(?:%|points))?", cell.strip(" *"))
        if match:
            found.append(float(match[1].replace(group, "").replace(point, ".")))
    return found


def test_a_text_without_a_translation_stays_english() -> None:
    assert language("fr").translate(tr("nobody has translated {this}", this="it")) == "nobody has translated it"
    assert isinstance(tr("x"), Sentence)
