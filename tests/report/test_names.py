"""Names come from others: whatever they hold, every document stays one document, in which the name is only text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.language.sentences import plain
from analytics.render.html.mail import mail_body
from analytics.render.html.page import page
from analytics.workloads.model import Confidence
from fallow.actors import Actor
from fallow.clock import DAY_MS, WEEK_MS
from fallow.outside_text import markdown_code, markdown_text
from tests.delivery.made_items import worth
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, processes, samples
from tests.report.conftest import HELD, HOUR
from tests.report.html.pages import Page
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from analytics.report.report import Report
    from fallow.lake import Lake
    from tests.report.conftest import Outcome

NAMES = [
    "a|b|c",
    "`code` and ``more``",
    "**bold** _em_ ~~gone~~",
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}",
    "</title></head><body>",
    "[link](http://evil.example) ![image](x)",
    "# heading\n\n- item\n\n| a | b |\n|---|---|",
    "&lt;b&gt; &#42; &amp;",
    "{{ 7 * 7 }} {% raw %}",
    "<!-- comment --> ]]> <![CDATA[",
    "javascript:alert(1) www.evil.example https://evil.example/?a=1&b=2 me@evil.example",
    "x" * 200,
    "שלום\u202eevil\u202c עולם",
    "\x1b[31mred\x1b[0m\x07",
    "tab\tand\r\nreturn",
    "$x^2$ 名前 😀 é",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Each name as user, command, pod, model and pool of two GPUs that are held, and as the reason of a snooze."""
    lake = made_lake(tmp_path_factory.mktemp("odd") / "lake")
    for number, name in enumerate(NAMES):
        for gpu, host in ((f"GPU-{number}", f"h{number}"), (f"GPU-{number}-other", f"other{number}")):
            lists = processes(gpu, *range(0, 3 * HOUR, 60), every_s=60, user=name, command=name, pod=name)
            rows = samples(gpu, 0, 3 * HOUR, **HELD)
            fill(lake, rows, lists, devices=[device(gpu, model=name, pool=name)], host=host)
    for each in report_of(lake).review.shown:
        if each.host.startswith("other"):
            reason = NAMES[int(each.host.removeprefix("other"))]
            when = {"now_ms": ms(3 * HOUR), "expires_ms": ms(0) + 30 * DAY_MS}
            record(lake, "snooze", [each.finding_id], Actor(reason), reason=reason, **when)
    return lake


@pytest.fixture(scope="module")
def odd(lake: Lake) -> Report:
    return report_of(lake)


@pytest.mark.usefixtures("low_is_listed")
def test_text_keeps_its_columns_and_json_the_names(lake: Lake, report: Callable[..., Outcome]) -> None:
    lines = report(lake).out.splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if len(line) > 100 and not line.startswith("    next ")] == []
    for section, figures in (
        ("GPU TIME BY USER", "6.0 0.0 0.0 0.0 6.0 0.0 0.0 %"),
        ("BY POOL", "2 6.0 100.0 % 0.0 % 0.0 %"),
    ):
        at = next(number for number, line in enumerate(lines) if line.startswith(section))
        assert sum(figures in " ".join(line.split()) for line in lines[at : at + 40]) >= 12
    content = json.loads(report(lake, "--format", "json").out)
    assert {each["user"] for each in content["findings"]} == set(NAMES) == set(content["by"]["pool"])


@pytest.mark.usefixtures("low_is_listed")
def test_markdown_has_no_other_heading_cell_link_or_code_than_its_own(
    lake: Lake, report: Callable[..., Outcome]
) -> None:
    lines = report(lake, "--format", "md").out.splitlines()
    assert [line for line in lines if line.startswith("#") and not line.startswith("#### ")] == HEADINGS
    tables = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in tables} <= set(range(5, 15))
    assert max(map(len, tables)) < 600
    assert all(line.isprintable() for line in lines)
    # code spans are as CommonMark finds them: a run of backticks up to the next of its length
    spans = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")
    for line in (spans.sub("", each) for each in lines):
        assert not re.search(r"(?<!\\)(`|<script|\[link|\*\*bold|~~)", line)
        assert not re.search(r"://|www\.(?!\\)|(?<!\\)@|(?<!\\)&", line)


HEADINGS = [
    "# GPU waste report",
    "## Recommendations",
    "### Recommendations",
    "### What each pool can release",
    "## Evidence of the recommendations",
    "### Evidence of each recommendation",
    "## Totals and waste without a known value",
    "### How the waste adds up",
    "### Waste without a known value",
    "## Where the money goes",
    "### From paid to busy",
    "### GPU time by hour",
    "## Who had GPUs",
    "### GPU time by user",
    "## When and where",
    "### Every GPU over time",
    "### By pool",
    "## Last week's findings",
    "### Last week's findings that ended",
    "### Snoozed",
    "## Where the figures come from",
    "### Data quality",
    "### How the figures are computed",
    "## Prices and energy",
    "### Prices",
    "### Energy and CO2",
]


def test_a_name_is_text_on_the_page(odd: Report) -> None:
    html = page(odd, language("en"))
    is_only_text(html)
    assert "{{ 7 * 7 }}" in html
    assert html.count("<style>") == 1
    kept_apart = {each.words for each in Page(html).all("bdi")}
    assert [name for name in NAMES if " ".join(plain(name, 200).split()) not in kept_apart] == []


def test_names_are_text_in_the_mail(odd: Report) -> None:
    """With a value for each recommendation: three hours say nothing of a year."""
    sure = {"value": worth(1.0, 2.0, 3.0), "action": "reclaim", "confidence": Confidence(())}
    listed = tuple(replace(each, **sure) for each in odd.recommendations.listed)
    whole = changed(odd, recommendations=replace(odd.recommendations, listed=listed, weeks=((0, WEEK_MS),)))
    html, _ = mail_body(whole, language("en"))
    is_only_text(html)
    shown = Page(html).all("body")[0].words
    assert sum(" ".join(plain(name, 200).split()) in shown for name in NAMES) > 2


def is_only_text(html: str) -> None:
    found = Page(html)
    assert found.all("script", "iframe", "object", "form", "a") == []
    assert all(not key.startswith("on") for each in found.elements for key in each.attributes)
    assert all(each.attributes["src"] != "x" for each in found.all("img"))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u200e\u200f]", html)
    assert "<!-- comment" not in html


@pytest.mark.parametrize("text", ["a", "`a`", "``", "a `b` ``c``", "`"])
def test_a_code_span_outlasts_the_backticks_in_it(text: str) -> None:
    span = markdown_code(text)
    fence = re.match("`+", span)
    assert fence is not None
    inside = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
    assert inside.strip(" ") == text


def test_escaping_leaves_ordinary_names_alone() -> None:
    assert markdown_text("svc-vision.v2 (A100) 80 %") == "svc-vision.v2 (A100) 80 %"
    assert markdown_text("  two\n lines ") == "two lines"
