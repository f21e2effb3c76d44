"""The body of the mail: what mail programs show, and nothing that they drop."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from analytics.language.languages import language
from analytics.language.sentences import tr
from analytics.render.html.mail import IMAGE_ID, mail_body
from analytics.tables.facts import facts
from analytics.tables.palette import LIGHT
from analytics.tables.trends import unfinished
from fallow import __version__
from tests.ledger.rows import fill, samples
from tests.report.conftest import HOUR
from tests.report.html.pages import Page
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from analytics.report.report import Report
    from fallow.lake import Lake

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def week(full: Lake) -> Report:
    return report_of(full, "2026-W40")


def test_golden(week: Report, full: Lake) -> None:
    shown = mail_body(week, language("en"))[0].replace(full.root, "LAKE")
    shown = shown.replace(f"fallow {__version__}", "fallow VERSION")
    file = GOLDEN / "mail.html"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


def test_the_body_is_tables_with_inline_styles_and_one_image_that_comes_with_it(week: Report) -> None:
    html, _ = mail_body(week, language("en"))
    found = Page(html)
    assert found.all("script", "style", "link", "svg", "details", "form", "a") == []
    assert [each.attributes["src"] for each in found.all("img")] == [f"cid:{IMAGE_ID}"]
    assert not re.search(r"https?:|url\(|var\(|display:(grid|flex)", html)
    assert all(int(width or 0) <= 600 for each in found.all("table", "img") if (width := each.attributes.get("width")) != "100%")  # fmt: skip
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


def test_every_figure_stands_in_words_for_those_who_see_no_image(week: Report) -> None:
    html, _ = mail_body(week, language("en"))
    for spent_ms in week.ledger.summary.totals.state_ms.values():
        assert f"{spent_ms / 3_600_000:,.1f}</td>" in html


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


def test_an_hour_in_which_nothing_was_observed(lake: Lake) -> None:
    fill(lake, samples("GPU-0", 0, HOUR, gpu_util_pct=None, process_count=None))
    html, image = mail_body(report_of(lake), language("en"))
    assert "Nothing was observed in this window." in html
    assert Image.open(io.BytesIO(image)).size == (1124, 80)
