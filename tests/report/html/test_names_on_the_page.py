"""Names are other people's: on the page and in the mail they are text, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import record
from analytics.language.languages import language
from analytics.language.plain_text import plain
from analytics.render.html import mail_body, page
from fallow.clock import DAY_MS
from tests.ledger.rows import device, fill, ms, processes, samples
from tests.report.conftest import HELD, HOUR
from tests.report.html.pages import Page
from tests.report.html.reports import report_of

if TYPE_CHECKING:
    from fallow.lake import Lake

NAMES = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "' onmouseover='alert(1)",
    "</style><style>*{display:none}",
    "</title></head><body>",
    "&lt;b&gt; &#42; &amp;",
    "{{ 7 * 7 }} {% raw %}",
    "<!-- comment --> ]]> <![CDATA[",
    "javascript:alert(1)",
    "https://evil.example/?a=1&b=2",
    "x" * 200,
    "שלום\u202eevil\u202c עולם",
    "\x1b[31mred\x1b[0m\x07",
    "tab\tand\r\nreturn",
    "名前 😀 é",
]


@pytest.fixture
def odd(lake: Lake, request: pytest.FixtureRequest) -> tuple[Lake, str]:
    """The name as user, command, pod, model and pool of two GPUs that are held, and as the reason of a suppressed finding."""
    name: str = request.param
    for host, gpu in (("h1", "GPU-0"), ("h2", "GPU-1")):
        lists = processes(gpu, *range(0, 3 * HOUR, 60), every_s=60, user=name, command=name, pod=name)
        rows = samples(gpu, 0, 3 * HOUR, **HELD)
        fill(lake, rows, lists, devices=[device(gpu, model=name, pool=name)], host=host)
    other = next(each for each in report_of(lake).findings if each.host == "h2")
    record(lake, "suppress", [other.finding_id], name, now_ms=ms(3 * HOUR), reason=name, expires_ms=ms(0) + 30 * DAY_MS)
    return lake, name


@pytest.mark.parametrize("odd", NAMES, indirect=True, ids=range(len(NAMES)))
def test_a_name_is_text_on_the_page(odd: tuple[Lake, str]) -> None:
    lake, name = odd
    html = page(report_of(lake), language("en"))
    _is_only_text(html, name)
    assert html.count("<style>") == 1
    shown = plain(name, 200)
    assert any(each.words == shown for each in Page(html).all("bdi"))


@pytest.mark.parametrize("odd", NAMES, indirect=True, ids=range(len(NAMES)))
def test_a_name_is_text_in_the_mail(odd: tuple[Lake, str]) -> None:
    lake, name = odd
    html, _ = mail_body(report_of(lake), language("en"))
    _is_only_text(html, name)
    assert any(each.words == plain(name, 200) for each in Page(html).all("bdi"))


def _is_only_text(html: str, name: str) -> None:
    found = Page(html)
    assert found.all("script", "iframe", "object", "form", "a") == []
    assert all(not key.startswith("on") for each in found.elements for key in each.attributes)
    assert all(each.attributes["src"] != "x" for each in found.all("img"))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u200e\u200f]", html)
    assert "<!-- comment" not in html
    assert "{{" not in name or "{{ 7 * 7 }}" in html
