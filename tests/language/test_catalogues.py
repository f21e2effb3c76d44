"""Every text of the code is in each language's catalogues, with the same names in braces, and nothing else is."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from babel.messages.pofile import read_po

from analytics.language.catalogue import CATALOGUES, catalogue
from analytics.language.languages import CODES
from tests.language.templates import LOOKED_UP, ROOT, fields, files, is_said, names_passed, place, templates, unique

if TYPE_CHECKING:
    from pathlib import Path

    from babel.messages.catalog import Message

    from tests.language.templates import Template

OTHERS = [code for code in CODES if code != "en"]
FILES = sorted(CATALOGUES.glob("*/*.po"))
PACKAGES = sorted({place(path).split("/")[0] for path in files()})


@cache
def messages(path: Path) -> list[Message]:
    with path.open("rb") as file:
        return [each for each in read_po(file, locale=path.parent.name) if each.id]


def forms(message: Message) -> tuple[str, ...]:
    return (message.id,) if isinstance(message.id, str) else tuple(message.id)


def said(message: Message) -> tuple[str, ...]:
    return (message.string,) if isinstance(message.string, str) else tuple(message.string or ())


@cache
def every_text() -> dict[str, Template]:
    return unique(templates())


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("package", PACKAGES)
def test_every_text_is_translated(code: str, package: str) -> None:
    known = catalogue(code)
    own = unique(each for each in templates() if each.where.split("/")[0] == package)
    missing = [f"{each.where}: {each.one}" for each in own.values() if each.one not in known.forms]
    assert not missing, "\n".join(["not in the catalogues:", *missing])
    # one form fits no number, two fit both: what the code asks for has to be there
    assert [word for word in LOOKED_UP if word not in known.forms] == []
    single = [each.one for each in own.values() if each.many and len(known.forms[each.one]) == 1]
    assert not single, "\n".join(["without a plural:", *single])


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_translation_is_a_guess_or_empty(path: Path) -> None:
    assert [forms(each)[0] for each in messages(path) if each.fuzzy or not all(said(each)) or not said(each)] == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_the_names_in_braces_are_the_same(path: Path) -> None:
    for message in messages(path):
        wanted = {frozenset(fields(each)) for each in forms(message)}
        assert all(fields(each) in wanted for each in said(message)), message.id


@pytest.mark.parametrize("path", FILES, ids=name)
def test_no_translation_is_of_a_text_that_is_said_no_more(path: Path) -> None:
    stale = [form for each in messages(path) for form in forms(each) if not is_said(form)]
    assert not stale, "\n".join(["nowhere in the code:", *stale])


@pytest.mark.parametrize("code", OTHERS)
def test_the_files_of_a_language_do_not_contradict_each_other(code: str) -> None:
    told: dict[str, set[tuple[str, ...]]] = {}
    for path in sorted((CATALOGUES / code).glob("*.po")):
        for message in messages(path):
            told.setdefault(forms(message)[0], set()).add(said(message))
    assert [text for text, ways in told.items() if len(ways) > 1] == []


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_plural_has_the_forms_of_the_code(path: Path) -> None:
    code = every_text()
    for message in messages(path):
        one, *many = forms(message)
        if many and one in code:
            assert code[one].many == many[0]


def test_the_code_has_texts() -> None:
    """What finds them finds literals, constants that are looked up, forms in pairs, and rules' sentences."""
    found = every_text()
    assert {
        "utilization was not measured",
        "the disks",
        "{number} job",
        "held idle, without a running kernel",
    } <= found.keys()
    assert found["{number} job"].many == "{number} jobs"
    assert found["{number} GPU"].many == "{number} GPUs"
    assert not any("\n" in each for each in found)
    assert ROOT.name == "analytics"


def test_allocated_but_unused_is_one_state_beside_held_idle() -> None:
    """A text about several idle states names them all, or a reader takes the sum for the state `Allocated, unused`."""
    words = ("allocated but unused", "allocated and unused")
    several = [each for each in every_text() if any(part in each for part in words)]
    assert len(several) > 10
    assert [each for each in several if "held idle" not in each or "stalled" not in each] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_call_passes_the_names_in_braces(package: str) -> None:
    wrong = [
        f"{place(path)}:{call.lineno}: {sorted(wanted ^ given)}"
        for path in files()
        if place(path).split("/")[0] == package
        for call, wanted, given in names_passed(path)
        if not wanted <= given or given - wanted - {"number"}
    ]
    assert not wrong, "\n".join(wrong)
