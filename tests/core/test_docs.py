"""What docs and docstrings list is what there is: words, errors, promises, links, stored figures."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache

from analytics import glossary
from benchmarks import calibration_page, demand_forecast, rollout_sizing, scale_page, storage_page
from fallow import errors
from fallow.errors import ConfigError, FallowError, UnsafeSpoolError, UsageError
from fallow.schema import STATES
from tests.attacks.__main__ import ATTACKS
from tests.conftest import REPOSITORY
from tests.core import pages
from tests.in_process import run_in_process

SECURITY = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
DRAWN_ERROR = re.compile(r"^(?P<indent>[│├└─ ]*)(?P<name>\w+Error)\s{2,}\S", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[/ ]|`)fallow ([a-z][^`#|&;>]*)")


def test_the_glossary_is_current_and_its_words_are_those_of_the_code() -> None:
    assert (pages.DOCS / "glossary.md").read_text(encoding="utf-8") == pages.glossary_page(), "run `make docs`"
    assert tuple(glossary.STATES) == STATES
    assert all(term.short for term in glossary.STATES.values())
    names = [term.name for term in glossary.TERMS]
    assert names == sorted(set(names), key=str.lower)


def test_the_drawn_tree_of_errors_is_the_real_one_and_each_is_described() -> None:
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in DRAWN_ERROR.finditer(errors.__doc__ or ""):
        depth = len(line["indent"]) // 4
        above[depth:] = [line["name"]]
        drawn[line["name"]] = above[depth - 1] if depth else "Exception"
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, FallowError)]
    assert drawn == {each.__name__: each.__bases__[0].__name__ for each in found}
    for error in found:
        assert inspect.getdoc(error), error
        assert error.exit_code == (2 if issubclass(error, (UsageError, UnsafeSpoolError)) else 1), error
    assert str(FallowError("the disk is full", "free some space")) == "the disk is full; free some space"
    assert str(ConfigError("it is wrong")) == "it is wrong"


def test_every_promise_of_security_names_a_test_that_is_there() -> None:
    promised = SECURITY.partition("## What is promised")[2]
    promises = [each for each in re.findall(r"^\| (.+?) \| (.+?) \|$", promised, re.MULTILINE) if each[0] != "promise"]
    assert len(promises) > 15
    for promise, tested in promises:
        named = re.findall(r"`((?:tests|requirements)/[^`]+)`", tested)
        assert named, promise
        assert not [each for each in named if not (REPOSITORY / each).exists()], promise


def test_every_attack_stands_beside_a_promise_and_is_one() -> None:
    named = {name for each in re.findall(r"attacks? (`[^|]+`)", SECURITY) for name in re.findall(r"`([a-z-]+)`", each)}
    assert named == {each.name for each in ATTACKS}


def test_links_between_pages_lead_somewhere() -> None:
    every = [REPOSITORY / "README.md", REPOSITORY / "SECURITY.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    link = re.compile(r"\]\((?!https?://|mailto:|#)([^)#\s]+)")
    targets = [(each, target) for each in every for target in link.findall(each.read_text(encoding="utf-8"))]
    assert [(each.name, target) for each, target in targets if not (each.parent / target).exists()] == []


def test_commands_in_the_pages_are_there_with_their_flags() -> None:
    wrong = {
        f"{page.name}: fallow {command}"
        for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
        for command in _commands(page.read_text(encoding="utf-8"))
        if not _is_known(command)
    }
    assert wrong == set()


def _commands(page: str) -> Iterator[str]:
    """Yield what follows `fallow` in blocks of commands, and in code within a text."""
    joined = page.replace("\\\n", " ")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", joined, re.MULTILINE | re.DOTALL):
        for line in block.splitlines() if language in ("", "sh") else ():
            if not re.search(r"kubectl|helm|pip install|namespace", line):
                yield from COMMAND.findall(line)
    yield from (found for code in re.findall(r"`fallow [a-z][^`\n]*`", joined) for found in COMMAND.findall(code))


def _is_known(command: str) -> bool:
    """True if the help of the command and of its verbs names every flag."""
    verbs, shown = "", ""
    for word in re.findall(r"(?<!\S)[a-z][a-z-]*(?!\S)", command):
        if (found := _help(f"{verbs} {word}".strip())) is not None:
            verbs, shown = f"{verbs} {word}".strip(), shown + found
    flags = set(re.findall(r"(?<=\s)--[a-z][a-z-]*", command))
    return bool(shown) and flags <= {"--help", *re.findall(r"--[a-z][a-z-]*", shown)}


@cache
def _help(verb: str) -> str | None:
    shown = run_in_process(*verb.split(" "), "--help")
    return shown.stdout if shown.returncode == 0 else None


def test_pages_have_the_stored_figures() -> None:
    assert calibration_page.page() == calibration_page.PAGE.read_text(encoding="utf-8"), "run `make calibrate`"
    sizes = rollout_sizing.PAGE.read_text(encoding="utf-8")
    assert rollout_sizing.page(sizes) == sizes, "run `python -m benchmarks.rollout_sizing`"
    scale = scale_page.PAGE.read_text(encoding="utf-8")
    assert scale_page.page(scale) == scale, "run `python -m benchmarks ledger fleet history`"
    costs = storage_page.PAGE.read_text(encoding="utf-8")
    assert storage_page.page(costs) == costs, "run `python -m benchmarks.storage_page`"
    planning = demand_forecast.PAGE.read_text(encoding="utf-8")
    assert demand_forecast.page(planning) == planning, "run `python -m benchmarks forecast PATH...`"
