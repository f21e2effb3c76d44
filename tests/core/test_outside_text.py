"""Text from outside where it is displayed: nothing hidden, nothing run, and data that come back as they were."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.csv_text import csv_text
from fallow.outside_text import (
    chart_text,
    csv_cell,
    from_csv_cell,
    json_text,
    markdown_code,
    markdown_text,
    mattermost_text,
    plain,
    visible,
    visible_lines,
)
from tests.conftest import REPOSITORY
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

HIDING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI", "BN")
"""Classes of characters that turn the direction of text or have no width (UAX 9)."""


@cache
def hidden() -> list[str]:
    """The characters that nobody sees; it takes half a second to look for them."""
    characters = map(chr, range(0x110000))
    return [
        each for each in characters if unicodedata.bidirectional(each) in HIDING or unicodedata.category(each) == "Cc"
    ]


def test_nothing_hidden_is_displayed() -> None:
    every = "".join(hidden())
    lines = "".join(each for each in hidden() if each not in "\t\n")
    displayed = [
        plain(f"a{every}b", 10**6),
        visible(f"a{every}b", 10**6),
        chart_text(every, 10**6),
        markdown_code(every),
    ]
    displayed += [visible_lines(lines), str(csv_cell(lines)), json_text(lines, None)]
    assert [set(shown) & set(hidden()) for shown in displayed] == [set()] * 7


def test_what_is_hidden_is_told_and_not_lost() -> None:
    assert visible("gn\x1b[2J\u202e01\n") == r"gn\u{1b}[2J\u{202e}01\u{a}"
    assert visible("a" * 5000) == "a" * 4000 + "…"
    assert visible_lines("a\x9b\n\tb") == "a\\u{9b}\n\tb"
    assert json.loads(json_text({"é\x85": "\u202e\U000e0041"})) == {"é\x85": "\u202e\U000e0041"}


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@a", "\t=1", "\n=1", "\uff1d1", "a;=1", "a\t+1", "a;-1", "'=1"])
def test_a_cell_begins_no_formula(text: str) -> None:
    cell = str(csv_cell(text))
    parts = cell.replace("\t", ";").replace("\n", ";").split(";")
    assert not any(each.startswith(("=", "+", "-", "@", "\uff1d")) for each in parts)
    assert not cell.startswith(("\t", "\n"))
    assert from_csv_cell(cell) == text


@given(st.text(alphabet=st.sampled_from("'=+-@;\t\r\na\\u{5c}\x1b\u202e\uff1d")))
def test_a_cell_reads_back_as_the_text(text: str) -> None:
    assert from_csv_cell(str(csv_cell(text))) == text


def test_numbers_stay_numbers() -> None:
    assert csv_text(("figure", "=x"), [(-1.5, None), (-2, "CORP\\u0007")]) == "figure,'=x\n-1.5,\n-2,CORP\\u0007\n"
    assert next(csv.reader(io.StringIO(csv_text(("a\n=b",), [])))) == ["a\n'=b"]
    assert from_csv_cell("CORP\\u0007") == "CORP\\u0007"


def test_a_label_of_a_chart_holds_no_link_and_no_value() -> None:
    assert chart_text("<a href='//x'>%{x}", 60) == "&lt;a href='//x'&gt;&#37;{x}"


def test_a_chat_makes_no_link_of_a_name() -> None:
    text = "https://e.vil WWW.e.vil www2.e.vil"
    assert markdown_text(text) == r"https:/\/e.vil WWW\.e.vil www2\.e.vil"
    assert mattermost_text(text).replace("\N{ZERO WIDTH SPACE}", "|") == "https:/|/e.vil WWW|.e.vil www2|.e.vil"


def test_an_error_names_a_file_on_one_line_without_controls(tmp_path: Path) -> None:
    file = f"{tmp_path}/\x1b]0;owned\x07\n\u202egpu.csv"
    done = run_in_process("import", "nvidia-smi", file, "--host", "h", "--lake", str(tmp_path))
    shown = f"{tmp_path}/\\u{{1b}}]0;owned\\u{{7}}\\u{{a}}\\u{{202e}}gpu.csv"
    assert (done.returncode, done.stderr) == (1, f"fallow: there is no file {shown}; check the path\n")


PACKAGES = ("fallow", "agent", "analytics", "dashboard")
PRINTING = {
    "fallow/output.py": "what all others print with",
    "agent/top/command.py": "JSON, and a screen that rich draws",
    "agent/doctor/look.py": "what a child tells its parent",
    "agent/attribution/pods.py": "what a child tells its parent",
    "agent/spool/publisher.py": "what a child tells its parent",
}


def test_whatever_is_printed_passes_through_one_module() -> None:
    """And every table of CSV through another; what the simulation writes are inputs, not outputs."""
    wrong = []
    for file in sorted(each for name in PACKAGES for each in (REPOSITORY / name).rglob("*.py")):
        name, source = str(file.relative_to(REPOSITORY)), file.read_text(encoding="utf-8")
        if not re.search(r"\b(print|stdout|stderr|csv)\b", source):
            continue
        for node in ast.walk(ast.parse(source)):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            prints = called in ("print", "sys.stdout.write", "sys.stderr.write") and name not in PRINTING
            tables = called in ("csv.writer", "csv.DictWriter") and name != "fallow/csv_text.py"
            if prints and not (name == "fallow/cli.py" and ast.unparse(node) in OWN_WORDS):
                wrong.append(f"{name}:{node.lineno}: {called}")
            if tables and "analytics/simulation/" not in name:
                wrong.append(f"{name}:{node.lineno}: {called}")
    assert wrong == []


OWN_WORDS = ("print(end='', flush=True)", "print(_overview())", "print(f'fallow {__version__}')")
