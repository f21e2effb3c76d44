"""Names are other people's: on the page and in the mail they are text, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from analytics.decide.actions import record
from analytics.decide.recommendations import Saving
from analytics.language.languages import language
from analytics.language.plain_text import plain
from analytics.render.html.mail import mail_body
from analytics.render.html.page import page
from analytics.workloads.model import Confidence
from fallow.actors import Actor
from fallow.clock import DAY_MS
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, ms, processes, samples
from tests.report.conftest import HELD, HOUR
from tests.report.html.pages import Page
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from analytics.report.report import Report

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


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Each name as user, command, pod, model and pool of two GPUs that are held, and as the reason of a suppressed finding."""
    lake = made_lake(tmp_path_factory.mktemp("odd") / "lake")
    for number, name in enumerate(NAMES):
        for gpu, host in ((f"GPU-{number}", f"h{number}"), (f"GPU-{number}-other", f"other{number}")):
            lists = processes(gpu, *range(0, 3 * HOUR, 60), every_s=60, user=name, command=name, pod=name)
            rows = samples(gpu, 0, 3 * HOUR, **HELD)
            fill(lake, rows, lists, devices=[device(gpu, model=name, pool=name)], host=host)
    for each in report_of(lake).review.shown:
        if each.host.startswith("other"):
            reason = NAMES[int(each.host.removeprefix("other"))]
            record(
                lake,
                "suppress",
                [each.finding_id],
                Actor(reason),
                now_ms=ms(3 * HOUR),
                reason=reason,
                expires_ms=ms(0) + 30 * DAY_MS,
            )
    return report_of(lake)


@pytest.fixture(scope="module")
def html(odd: Report) -> str:
    return page(odd, language("en"))


@pytest.fixture(scope="module")
def mail(odd: Report) -> str:
    """With a saving for each decision: three hours say nothing of a year."""
    listed = tuple(
        replace(each, saving=Saving(1.0, 2.0, 3.0), action="release", confidence=Confidence(()))
        for each in odd.recommendations.listed
    )
    return mail_body(changed(odd, recommendations=replace(odd.recommendations, listed=listed)), language("en"))[0]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_is_text_on_the_page(html: str, name: str) -> None:
    _is_only_text(html)
    assert "{{" not in name or "{{ 7 * 7 }}" in html
    assert html.count("<style>") == 1
    shown = plain(name, 200)
    assert any(each.words == shown for each in Page(html).all("bdi"))


def test_names_are_text_in_the_mail(mail: str) -> None:
    _is_only_text(mail)


def test_the_mail_shows_the_names_of_the_first(mail: str) -> None:
    shown = Page(mail).all("body")[0].words
    assert sum(" ".join(plain(name, 200).split()) in shown for name in NAMES) > 2


def _is_only_text(html: str) -> None:
    found = Page(html)
    assert found.all("script", "iframe", "object", "form", "a") == []
    assert all(not key.startswith("on") for each in found.elements for key in each.attributes)
    assert all(each.attributes["src"] != "x" for each in found.all("img"))
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u200e\u200f]", html)
    assert "<!-- comment" not in html
