"""The order of the house: what each package is for, one name for one class, and state sets that stand once."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from fallow.schema import STATES
from tests.conftest import REPOSITORY, run_python

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = ("fallow", "agent", "analytics", "dashboard")
SETS = {"analytics/states.py", "fallow/schema/__init__.py"}


@cache
def modules() -> dict[Path, str]:
    files = (file for package in PACKAGES for file in sorted((REPOSITORY / package).rglob("*.py")))
    return {file.relative_to(REPOSITORY): file.read_text(encoding="utf-8") for file in files}


def test_every_package_says_in_one_sentence_what_is_in_it() -> None:
    packages = {str(file): ast.parse(source) for file, source in modules().items() if file.name == "__init__.py"}
    said = {name: ast.get_docstring(tree) or "" for name, tree in packages.items()}
    folders = {str(file.parent / "__init__.py") for file in modules()}
    assert set(said) == folders, "a folder without __init__.py"
    bad = {file: text for file, text in said.items() if not text.split("\n\n")[0].strip().endswith((".", "`."))}
    assert not bad


def test_one_class_has_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for file, source in modules().items():
        for name in re.findall(r"^class ([A-Za-z]\w*)", source, re.MULTILINE):
            homes[name].append(str(file))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_tests_that_load_duckdb_end_without_a_report_of_leaks() -> None:
    case = "test_duckdb_and_polars_read_every_observed_table_with_its_partitions[gpu]"
    ended = run_python("-m", "pytest", "-q", "-n", "0", f"tests/core/test_parquet.py::{case}")
    assert (ended.returncode, "leaked" in ended.stdout + ended.stderr) == (0, False)


def test_sets_of_states_stand_in_one_module() -> None:
    """Elsewhere three and more states are imported by the name that says what they mean; legends list what is drawn."""
    literals, legends = [], {("active", "held", "reserved"), ("low", "reserved", "free")}
    for file, source in modules().items():
        if str(file) in SETS or sum(f'"{state}"' in source for state in STATES) < 3:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                words = [each.value for each in node.elts if isinstance(each, ast.Constant)]
                if len(words) == len(node.elts) > 2 and set(words) <= set(STATES) and tuple(words) not in legends:
                    literals.append(f"{file}:{node.lineno}: {', '.join(words)}")
    assert literals == []


AROUND = {
    "analytics/report/model.py": "narrows for the parts, by `narrowed`",
    "analytics/report/report.py": "makes the parts, each of what its reader may see",
    "analytics/report/part_tables.py": "the one way past a part, which narrows what it gives",
    "analytics/report/decision_window.py": "the window of decisions, which `Whole.recommendations` narrows",
    "analytics/report/coverage.py": "narrows what it fills in, by the function that it is given",
    "analytics/tables/card_fit.py": (
        "the workloads of rows of the part, and the cards of the fleet, which everybody may know"
    ),
    "analytics/tables/plan_old_cards.py": (
        "the works and servers of rows of the part, and the cards of the fleet, which everybody may know"
    ),
    "analytics/tables/report_columns.py": "how long rules wait for data, which is the same for everybody",
    "analytics/tables/wording.py": "how long rules wait for data, which is the same for everybody",
    "dashboard/source.py": "makes plans of everybody ahead, and shows nothing of them",
}
"""Who may read the ledger of everybody around what a reader may see, in a report, a section or on a page."""

_AROUND = re.compile(
    r"\bwhole\.(ledger|review|found|context|quality|decision\w*)\b"
    r"|\bwhole\.plan\.(?!(waits_of|allocation|used_share|open_ms|carbon)\b)\w+"
    r"|\bledger\.whole\b|\breview\.context\b"
)


class _ByOneName(ast.NodeTransformer):
    """Replace each expression that is a `Whole` by `whole`: results of `whole_of`, names bound to them, parameters."""

    def __init__(self, tree: ast.AST) -> None:
        self._names: set[str | None] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and node.annotation is not None and ast.unparse(node.annotation) == "Whole":
                self._names.add(node.arg)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and self._is_whole(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._names |= {each.id for each in targets if isinstance(each, ast.Name)}

    def visit(self, node: ast.AST) -> ast.AST:
        is_name = isinstance(node, ast.Name) and node.id in self._names
        if is_name or (isinstance(node, ast.Call | ast.NamedExpr) and self._is_whole(node)):
            return ast.Name("whole")
        return super().visit(node)  # type: ignore[no-any-return]

    @classmethod
    def _is_whole(cls, node: ast.AST | None) -> bool:
        if isinstance(node, ast.NamedExpr):
            return cls._is_whole(node.value)
        if isinstance(node, ast.Call):
            return ast.unparse(node.func).split(".")[-1] == "whole_of"
        return isinstance(node, ast.Attribute) and node.attr == "whole"


def _read_around(source: str) -> set[str]:
    """What a module reads of the window of everybody: nothing where no name of it stands."""
    if not re.search(r"whole|Whole|review\.context", source):
        return set()
    tree = ast.parse(source)
    named = _ByOneName(tree).visit(tree)
    attributes = (ast.unparse(node) for node in ast.walk(named) if isinstance(node, ast.Attribute))
    return {match.group() for text in attributes if (match := _AROUND.search(text))}


AROUND_IT = """view.whole.ledger; view.whole_of(w).ledger; every = view.whole\nevery.review; (a := whole_of(w)).found;
def f(all: Whole): return all.quality; whole.ledger; view.part.ledger.whole; view.whole.plan.rooms"""


def test_a_reading_around_is_seen_by_whatever_name() -> None:
    assert all(_read_around(text.strip()) for text in AROUND_IT.split(";"))


def test_no_section_reads_around_what_its_reader_may_see() -> None:
    """`analytics.scope` narrows a part once: code that reads the frame around it can show other readers' data."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, source in modules().items():
        if str(file).startswith(("analytics/report", "analytics/tables", "dashboard")):
            found[str(file)] |= _read_around(source)
    found = {file: names for file, names in found.items() if names}
    assert {file: names for file, names in found.items() if file not in AROUND} == {}
    assert set(AROUND) <= set(found), "no longer reads around it: take it off the list"
