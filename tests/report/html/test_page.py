"""The whole page and the body of the mail: against golden files, and what is true of all of them.

`UPDATE_GOLDEN=1 pytest tests/report/html` writes the golden files again: read the diff.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.render.html.mail import IMAGE_ID, mail_body
from analytics.render.html.page import page
from analytics.report.timeline import FleetTimeline
from analytics.scope import Scope
from analytics.tables.facts import facts
from analytics.tables.palette import LIGHT
from analytics.tables.trends import unfinished
from fallow import __version__
from tests.report.html.pages import Page
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from analytics.report.report import Report
    from fallow.lake import Lake

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


@pytest.fixture(scope="module")
def html(week: Report) -> str:
    return page(week, language("en"))


@pytest.mark.parametrize("name", ["page.html", "mail.html"])
def test_golden(html: str, week: Report, full: Lake, name: str) -> None:
    shown = html if name == "page.html" else mail_body(week, language("en"))[0]
    shown = shown.replace(full.root, "LAKE").replace(f"fallow {__version__}", "fallow VERSION")
    shown = re.sub(r"data:image/png;base64,[\w+/=]+", "data:image/png;base64,IMAGE", shown)
    file = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_nothing_is_fetched_from_anywhere(html: str) -> None:
    found = Page(html)
    assert found.all("script", "link", "iframe", "object", "embed", "base", "form", "audio", "video") == []
    for element in found.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on")
            assert name not in {"style", "href", "xlink:href", "srcset", "action", "background"}
            if name == "src":
                assert (value or "").startswith("data:image/png;base64,")
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    assert not re.search(r"@import|url\(|expression", style[1])


def test_the_content_security_policy_lets_in_this_style_sheet_and_images_of_the_page_alone(html: str) -> None:
    style = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    policies = [
        each.attributes["content"]
        for each in Page(html).all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(style) == 1
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    ]


def test_headings_go_down_one_level_at_a_time(html: str) -> None:
    levels = [int(each.name[1]) for each in Page(html).all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_the_headline_comes_first_and_then_the_sections_in_their_order(html: str) -> None:
    assert [each.words for each in Page(html).all("h1", "h2")] == [
        "GPU waste report, 2026-W40",
        "Recommendations",
        "Evidence of the recommendations",
        "Totals and waste without a known value",
        "Where the money goes",
        "Who had GPUs",
        "When and where",
        "Last week's findings",
        "Where the figures come from",
        "Prices and energy",
    ]
    assert html.index("observed GPU-hours were not used") < html.index("<h2>")


def test_every_drawing_has_a_name_a_finding_and_its_figures_as_a_table(html: str) -> None:
    figures = re.findall(r"<figure.*?</figure>", html, re.DOTALL)
    assert len(figures) >= 6
    for figure in figures:
        found = Page(figure)
        findings = [each.words for each in found.elements if each.attributes.get("class") == "finding"]
        assert len(findings) == 1
        for drawing in (each for each in found.all("svg") if each.attributes.get("role") == "img"):
            assert findings[0] in words(drawing.attributes["aria-label"])
            assert [each.name for each in found.all("details", "table")][:2] == ["details", "table"]
        for image in found.all("img"):
            assert findings[0] in words(image.attributes["alt"])


def words(text: str | None) -> str:
    return " ".join((text or "").split())


def test_a_personal_edition_says_whose_it_is_and_nothing_of_the_pools(full: Lake) -> None:
    own = page(report_of(full, "2026-W40", scope=Scope(user="svc")), language("en"))
    assert '<p class="edition">user <b><bdi>svc</bdi></b></p>' in own
    assert "Beyond what was needed at once" not in own
    assert "Off-peak hours" not in own
    assert "greta" not in own


def test_ids_of_the_page_are_all_different_and_every_pattern_is_there(html: str) -> None:
    ids = [each.attributes["id"] for each in Page(html).elements if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([\w-]+)\)", html)) <= set(ids)


def test_a_thousand_gpus_stay_below_100_kib(week: Report) -> None:
    """Even where each GPU changes its state at random every few hours, which no image can be small for."""
    random = np.random.default_rng(1)
    codes = np.repeat(random.integers(0, 7, (1000, 56), dtype=np.uint8), 6, axis=1)
    gpus = tuple(f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(1000))
    hosts = tuple(f"node-{number // 8:04}" for number in range(1000))
    timeline = FleetTimeline(
        gpus, hosts, week.ledger.summary.since_ms, week.timeline.bin_ms, codes, week.timeline.totals[:1] * len(gpus)
    )
    finding = week.review.shown[0]
    findings = tuple(
        replace(finding, subject=str(each), cost=float(each), gpus=gpus[:300], reclaimable_gpus=gpus[:300])
        for each in range(400)
    )
    review = replace(week.review, findings=findings, gone=findings)
    people = tuple(replace(week.people.users[0], name=f"user{each}", label=f"user{each}") for each in range(500))
    large = changed(
        week,
        heading=replace(week.heading, lake="/srv/lake"),
        timeline=timeline,
        review=review,
        people=replace(week.people, users=people, teams=people),
    )
    assert len(page(large, language("en")).encode()) < 100 * 1024


def test_the_body_is_tables_with_inline_styles_and_one_image_that_comes_with_it(week: Report) -> None:
    html, _ = mail_body(week, language("en"))
    found = Page(html)
    assert found.all("script", "style", "link", "svg", "details", "form", "a") == []
    assert [each.attributes["src"] for each in found.all("img")] == [f"cid:{IMAGE_ID}"]
    assert not re.search(r"https?:|url\(|var\(|display:(grid|flex)", html)
    assert all(
        int(width or 0) <= 600
        for each in found.all("table", "img")
        if (width := each.attributes.get("width")) != "100%"
    )
    assert len(html.encode()) < 100_000  # more than that is cut off by Gmail


def test_the_image_is_small_and_shows_the_states_in_their_shares(week: Report) -> None:
    html, image = mail_body(week, language("en"))
    picture = Image.open(io.BytesIO(image)).convert("RGB")
    shown = Page(html).all("img")[0].attributes
    assert len(image) < 100_000
    assert picture.size == (2 * int(shown["width"] or 0), 2 * int(shown["height"] or 0))
    blue = tuple(bytes.fromhex(LIGHT.state["active"][1:]))
    active = sum(picture.getpixel((x, 2)) == blue for x in range(picture.width))
    totals = week.ledger.summary.totals
    assert active == pytest.approx(picture.width * totals.state_ms["active"] / totals.total_ms, abs=2)


def test_the_same_report_gives_the_same_bytes(week: Report) -> None:
    assert mail_body(week, language("fr", "Europe/Paris")) == mail_body(week, language("fr", "Europe/Paris"))


@pytest.mark.parametrize("code", ["en", "fr"])
def test_the_body_begins_with_what_a_reader_has_to_know(week: Report, code: str) -> None:
    speaks = language(code, "Europe/Paris")
    words = " ".join(Page(mail_body(week, speaks)[0]).all("body")[0].words.split())
    for label, value in facts(week.heading, week.ledger, speaks):
        said = speaks.translate(tr("{label}: {value}", label=label, value=value))
        assert " ".join(said.split()) in words
    assert words.index(facts(week.heading, week.ledger, speaks)[0][0]) < words.index(
        speaks.translate("Where the money goes")
    )


def test_the_body_says_that_the_week_is_not_over(week: Report) -> None:
    note = " ".join(" ".join(unfinished(week.weeks)).split())
    assert note
    assert note in words_of(week)
    assert note not in words_of(changed(week, weeks=None))


def words_of(report: Report) -> str:
    return " ".join(Page(mail_body(report, language("en"))[0]).all("body")[0].words.split())
