"""Names are other people's: whatever they hold, a report stays a report."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from analytics.render.report.markdown_words import code, escape

from fallow.lake import Lake
from tests.ledger.rows import device, fill, processes, samples
from tests.report.conftest import HELD, HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.fixture(scope="module", params=NAMES, ids=range(len(NAMES)))
def odd(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> tuple[Lake, str]:
    """The name as user, command, pod, model and pool of a GPU that is held."""
    name: str = request.param
    lake = Lake.at(str(tmp_path_factory.mktemp("odd") / "lake"))
    lists = processes("GPU-0", *range(0, 2 * HOUR, 60), every_s=60, user=name, command=name, pod=name)
    rows = samples("GPU-0", 0, 2 * HOUR, **HELD)
    return fill(lake, rows, lists, devices=[device("GPU-0", model=name, pool=name)]), name


def test_markdown_stays_the_document_that_it_is(odd: tuple[Lake, str], report: Callable[..., Outcome]) -> None:
    plain_lines = report(odd[0], "--format", "md").out.splitlines()
    assert [line for line in plain_lines if line.startswith("#")] == HEADINGS + plain_finding(plain_lines) + TAIL
    tables = [line for line in plain_lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} == {3, 5, 7, 11}
    assert all(line.isprintable() for line in plain_lines)
    for line in outside_code(plain_lines):
        assert not re.search(r"(?<!\\)(`|<script|\[link|\*\*bold|~~)", line)
        assert not re.search(r"://|www\.(?!\\)|(?<!\\)@|(?<!\\)&", line)
    assert max(map(len, tables)) < 300


HEADINGS = [
    "# GPU waste report", "## Where the time went",
    "## From paid to useful (shares of all GPU time, unknown time included)", "## Money and energy",
    "## At zero utilization, whoever holds the GPU", "## GPUs beyond what was needed at once", "## By pool",
    "## By model", "## By day", "## By holder",
    "## What holders were given (efficiency: the used share of the time given, and its rank among all)",
    "## Findings: what can be taken back first, then by cost",
]  # fmt: skip
TAIL = [
    "## Busy but inefficient (not reclaimable: these GPUs work, but could do more)", "## Winding down", "## Off-peak hours",
    "## Closed and reversed since last week", "## Suppressed", "## Data quality", "## How each figure is made",
]  # fmt: skip


def plain_finding(lines: list[str]) -> list[str]:
    found = [line for line in lines if line.startswith("### ")]
    assert len(found) == 1
    return found


def outside_code(lines: list[str]) -> list[str]:
    """Lines without their code spans, as CommonMark finds those: a run of backticks up to the next of its length."""
    spans = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
    return [spans.sub("", line) for line in lines]


def test_text_columns_stay_in_their_places(odd: tuple[Lake, str], report: Callable[..., Outcome]) -> None:
    out = report(odd[0]).out
    lines = out.splitlines()
    assert all(line.isprintable() for line in lines)
    for section in ("BY POOL", "BY MODEL", "BY HOLDER"):
        at = next(number for number, line in enumerate(lines) if line.startswith(section))
        header, row = lines[at + 1 : at + 3]
        assert len(header) == len(row) <= 100
        assert row.endswith("   100.0 %    0.0 %   0.0 %    0.0 % 100.0 %   0.0 %   0.0 %")
    wide = [line for line in lines if len(line) > 100 and not line.startswith("    next ")]
    assert wide == []


def test_json_keeps_every_name_whole(odd: tuple[Lake, str], report: Callable[..., Outcome]) -> None:
    content = json.loads(report(odd[0], "--format", "json").out)
    assert content["findings"][0]["holder"] == odd[1]
    assert list(content["by"]["pool"]) == [odd[1]]


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
