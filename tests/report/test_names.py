"""Names are other people's: whatever they hold, a report stays a report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from fallow.outside_text import markdown_code as code
from fallow.outside_text import markdown_text as escape
from tests.ledger.rows import device, fill, processes, samples
from tests.report.conftest import HELD, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from fallow.lake import Lake
    from tests.report.conftest import Outcome

NAMES = [
    "a|b|c",
    "`code` and ``more``",
    "**bold** _em_ ~~gone~~ <script>alert(1)</script>",
    "[link](http://evil.example) ![image](x)",
    "# heading\n\n- item\n\n| a | b |\n|---|---|",
    "&lt;b&gt; &#42;",
    "www.evil.example https://evil.example me@evil.example",
    "x" * 200,
    "שלום\u202eevil\u202c עולם",
    "\x1b[31mred\x1b[0m\x07",
    "tab\tand\r\nreturn",
    "$x^2$ {{ template }}",
]


def odd(lake: Lake, name: str) -> Lake:
    """The name as user, command, pod, model and pool of a GPU that is held."""
    lists = processes("GPU-0", *range(0, 2 * HOUR, 60), every_s=60, user=name, command=name, pod=name)
    return fill(lake, samples("GPU-0", 0, 2 * HOUR, **HELD), lists, devices=[device("GPU-0", model=name, pool=name)])


@pytest.mark.parametrize("name", NAMES)
def test_a_report_stays_one_in_every_form(lake: Lake, report: Callable[..., Outcome], name: str) -> None:
    odd(lake, name)
    check_markdown(report(lake, "--format", "md").out.splitlines())
    check_text(report(lake).out.splitlines())
    content = json.loads(report(lake, "--format", "json").out)
    assert content["findings"][0]["holder"] == name
    assert list(content["by"]["pool"]) == [name]


def check_markdown(plain_lines: list[str]) -> None:
    assert [line for line in plain_lines if line.startswith("#") and not line.startswith("#### ")] == HEADINGS
    assert len(plain_finding(plain_lines)) == 1
    tables = [line for line in plain_lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} <= set(range(5, 13))
    assert all(line.isprintable() for line in plain_lines)
    for line in outside_code(plain_lines):
        assert not re.search(r"(?<!\\)(`|<script|\[link|\*\*bold|~~)", line)
        assert not re.search(r"://|www\.(?!\\)|(?<!\\)@|(?<!\\)&", line)
    assert max(map(len, tables)) < 600


HEADINGS = [
    "# GPU waste report", "## Decisions", "### What to do", "### What can be given back", "## Behind the decisions",
    "### Behind each decision", "## Totals and what to look at", "### How the waste adds up", "### To look at",
    "## Where the money goes", "### From paid to useful", "### Every hour by state", "## Who was given GPUs",
    "### What users were given", "## When and where", "### Every GPU over time", "### By pool",
    "## What became of last week's findings", "### Closed and reversed since last week", "### Suppressed",
    "## What the figures rest on", "### Data quality", "### How each figure is made", "## Prices and energy", "### Prices",
    "### Energy and CO2",
]  # fmt: skip


def plain_finding(lines: list[str]) -> list[str]:
    found = [line for line in lines if line.startswith("#### ")]
    assert len(found) == 1
    return found


def outside_code(lines: list[str]) -> list[str]:
    """Lines without their code spans, as CommonMark finds those: a run of backticks up to the next of its length."""
    spans = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
    return [spans.sub("", line) for line in lines]


def check_text(lines: list[str]) -> None:
    """Columns stay in their places."""
    assert all(line.isprintable() for line in lines)
    for section, word, figures in (
        ("WHAT USERS WERE GIVEN", "held idle", "2.0 0.0 0.0 2.0 0.0 0.0 %"),
        ("BY POOL", "unavail.", "1 2.0 100.0 % 0.0 % 0.0 % 0.0 % 100.0 % 0.0 % 0.0 %"),
    ):
        at = next(number for number, line in enumerate(lines) if line.startswith(section))
        at = next(number for number in range(at, at + 9) if word in lines[number])
        header, row = lines[at : at + 2]
        assert max(len(header), len(row)) <= 100
        assert " ".join(row.split()).endswith(f" {figures}")
    wide = [line for line in lines if len(line) > 100 and not line.startswith("    next ")]
    assert wide == []


@pytest.mark.parametrize("text", ["a", "`a`", "``", "a `b` ``c``", "`"])
def test_a_code_span_outlasts_the_backticks_in_it(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence is not None
    inside = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip(" ") == text


def test_escaping_leaves_ordinary_names_alone() -> None:
    assert escape("svc-vision.v2 (A100) 80 %") == "svc-vision.v2 (A100) 80 %"
    assert escape("  two\n lines ") == "two lines"
