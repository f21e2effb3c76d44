"""The texts of the code that are said in other languages, by its syntax tree, and those of the catalogues."""

from __future__ import annotations

import ast
import importlib
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, nodes

import analytics
from analytics.glossary import STATUSES
from analytics.language.catalogue import catalogue
from analytics.language.sentences import Sentence, SentenceList, both_forms
from analytics.tables.finding_heading import evidence
from analytics.workloads.model import GRADES, Finding
from fallow.config import SETTINGS

ROOT = Path(analytics.__file__).parent
_SAYERS = {"tr": (0, 1), "tr_many": (0, 1), "translate": (0, 1), "of_gpus": (0, 2), "said": (1, 1)} | {
    "label": (1, 1),
    "counted": (1, 1),
    "_counted": (1, 1),
    "varying": (1, 1),
    "rank_label": (0, 1),
    "bounded": (1, 1),
    "words_for": (0, 1),
}
"""Functions and methods that make or say a sentence: which argument its first form is, and how many forms there are."""

_WORDS_MIN = 8
"""Letters that an f-string has to have for it to be a label."""

LOOKED_UP = (*STATUSES, *GRADES, "no user", "not known", *(setting.meaning for setting in SETTINGS))
"""Texts that findings, ledgers and settings hold as values and that a format says by `language.say(value)`."""


@dataclass(frozen=True)
class Template:
    """One text, its plural where it has one, and where it stands."""

    one: str
    many: str | None
    where: str


def files() -> list[Path]:
    """Every module of the packages that speak to readers, in order."""
    return [path for root in (ROOT, ROOT.parent / "dashboard") for path in sorted(root.rglob("*.py"))]


def place(path: Path) -> str:
    """Where a file stands: below analytics, or below the package that it is in."""
    return str(path.relative_to(ROOT if path.is_relative_to(ROOT) else ROOT.parent))


def fields(text: str) -> frozenset[str]:
    """The names in braces."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)


@cache
def templates() -> tuple[Template, ...]:
    """What is said literally, through a constant, or as a constant with names in braces."""
    return (*(each for path in files() for each in _of_file(path)), *_of_pages())


@cache
def literals() -> frozenset[str]:
    """Every string in the code: a text that is none of them is said no more."""
    every = (node for path in files() for node in ast.walk(_tree(path)))
    strings = {node.value for node in every if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    written = {form for each in strings for form in both_forms(each)}
    return frozenset(written | {each.one for each in _of_pages()} | set(LOOKED_UP))


def is_said(text: str) -> bool:
    """Whether the code has the text: as a string, or as what one of its f-strings can make."""
    return text in literals() or any(each.fullmatch(text) for each in _formed())


def names_passed(path: Path) -> Iterator[tuple[ast.Call, set[str], set[str]]]:
    """Yield each call of `tr` or `tr_many` of a literal, with the names in braces and the names of its arguments."""
    for call in ast.walk(_tree(path)):
        if not isinstance(call, ast.Call) or _name(call.func) not in {"tr", "tr_many"} or not call.args:
            continue
        texts = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        given = {each.arg for each in call.keywords}
        if texts and None not in given:
            number = {"number"} if _name(call.func) == "tr_many" else set()
            wanted = {name.split(".")[0] for text in texts for form in both_forms(text) for name in fields(form)}
            yield call, wanted, {each for each in given if each} | number


@cache
def _formed() -> tuple[re.Pattern[str], ...]:
    """What f-strings make that have words of their own, such as a label with a number in it."""
    every = (node for path in files() for node in ast.walk(_tree(path)) if isinstance(node, ast.JoinedStr))
    parts = ([each.value if isinstance(each, ast.Constant) else None for each in node.values] for node in every)
    return tuple(
        re.compile("".join(r"\w+" if each is None else re.escape(str(each)) for each in own))
        for own in parts
        if sum(len(str(each).strip()) for each in own if each) >= _WORDS_MIN
    )


@cache
def _of_pages() -> tuple[Template, ...]:
    """What the templates of pages say, which are Jinja's."""
    return tuple(
        Template(call.args[0].value, None, f"{place(path)}:{call.lineno}")
        for path in sorted(ROOT.rglob("templates/*.html"))
        for call in Environment(autoescape=True).parse(path.read_text(encoding="utf-8")).find_all(nodes.Call)
        if isinstance(call.node, nodes.Name) and call.node.name == "translate" and isinstance(call.args[0], nodes.Const)
    )


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _of_file(path: Path) -> Iterator[Template]:
    tree = _tree(path)
    for node in ast.walk(tree):
        first, count = _SAYERS.get(_name(node.func), (0, 0)) if isinstance(node, ast.Call) else (0, 0)
        if isinstance(node, ast.Call) and count and node.args[first:]:
            where = f"{place(path)}:{node.lineno}"
            is_plural = _name(node.func) in {"tr_many", "counted"}
            for forms in _forms(path, node.args[first:], count, is_plural=is_plural):
                yield Template(forms[0], forms[1] if len(forms) > 1 else None, where)
    if "analytics.language.sentences" in path.read_text(encoding="utf-8"):
        yield from _braced(path, tree)


def _name(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )


def _forms(path: Path, arguments: list[ast.expr], count: int, *, is_plural: bool) -> Iterator[tuple[str, ...]]:
    first = arguments[0]
    if isinstance(first, ast.Starred):
        yield from (each for each in _pairs(_constant(path, first.value)))
        return
    one = list(_texts(path, first))
    many = list(_texts(path, arguments[1])) if count > 1 and len(arguments) > 1 else []
    if count > 1 and one:
        yield one[0], *(many or one)
    elif count == 1:
        yield from (both_forms(each) if is_plural or "|" in each else (each,) for each in one)


def _texts(path: Path, argument: ast.expr) -> Iterator[str]:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.IfExp):
        yield from _texts(path, argument.body)
        yield from _texts(path, argument.orelse)
    else:
        yield from _strings(_constant(path, argument))


def _constant(path: Path, expression: ast.expr) -> object:
    """The value of a module's constant that is looked up, None for anything else."""
    while isinstance(expression, ast.Subscript):
        expression = expression.value
    if not isinstance(expression, ast.Name) or not re.fullmatch(r"_?[A-Z][A-Z0-9_]+", expression.id):
        return None
    return getattr(_module(path), expression.id, None)


def _module(path: Path) -> object:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return importlib.import_module(".".join(part for part in parts if part != "__init__"))


def _strings(value: object) -> Iterator[str]:
    """The texts of a constant; of what is looked up by a key, not the keys."""
    if type(value) is str:
        yield value
    elif isinstance(value, Mapping) and not any(isinstance(key, int) for key in value):  # a table of `str.translate`
        yield from (text for each in value.values() for text in _strings(each))
    elif isinstance(value, tuple | list):
        yield from (text for each in value for text in _strings(each))


def _pairs(value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        yield from (pair for each in value.values() for pair in _pairs(each))
    elif isinstance(value, tuple) and len(value) == 2:
        yield value[0], value[1]


def _braced(path: Path, tree: ast.Module) -> Iterator[Template]:
    """Constants with names in braces, that functions further down say."""
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        value = getattr(_module(path), node.targets[0].id)
        where = f"{place(path)}:{node.lineno}"
        pairs = [pair for pair in _pairs(value) if all(isinstance(each, str) for each in pair)]
        of_pairs = {text for pair in pairs for text in pair}
        yield from (Template(one, many, where) for one, many in pairs if _is_template(one))
        for text in _strings(value):
            if _is_template(text) and text not in of_pairs:
                one, many = both_forms(text)
                yield Template(one, None if one == many else many, where)


def _is_template(text: str) -> bool:
    return re.search(r"\{[a-z_]+\}", text) is not None and "\n" not in text


def unique(found: Iterable[Template]) -> dict[str, Template]:
    """By text, those with a plural before those without."""
    return {
        each.one: each for each in sorted(found, key=lambda each: (each.one, each.many is not None, each.many or ""))
    }


def unsaid(findings: Iterable[Finding], code: str = "fr") -> list[str]:
    """Texts that are plain strings, or of which some part has no translation."""
    texts = (text for each in findings for text in _said(each))
    return sorted({part for text in texts for part in _unknown(text, code)})


def _said(finding: Finding) -> Iterator[str]:
    yield from (finding.sentence, *finding.confidence.failed, *finding.notes, *evidence(finding).parts)


def _unknown(text: str, code: str) -> Iterator[str]:
    if isinstance(text, SentenceList):
        yield from (part for each in text.parts for part in _unknown(each, code))
    elif isinstance(text, Sentence):
        if text.template not in catalogue(code).forms:
            yield text.template
        inner = (value for value in text.values.values() if isinstance(value, Sentence | SentenceList))
        yield from (part for value in inner for part in _unknown(value, code))
    else:
        yield text
