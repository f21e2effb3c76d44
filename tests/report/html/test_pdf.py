"""The PDF: the page's text on numbered sheets, nothing fetched, the same bytes again."""

from __future__ import annotations

import builtins
import logging
import re
import shutil
import subprocess
import zlib
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from analytics.language.languages import language
from analytics.ledger.card_use import CardUse
from analytics.money.accounts import EfficiencyRank
from analytics.render.html.page import page
from analytics.render.pdf import pdf
from fallow.clock import HOUR_MS
from fallow.errors import MissingExtraError
from tests.report.html.reports import changed, report_of

if TYPE_CHECKING:
    from fallow.lake import Lake

A4 = rb"/MediaBox \[0 0 595(\.\d+)? 841(\.\d+)?\]"


@pytest.fixture(scope="module")
def html(full: Lake) -> str:
    return page(report_of(full, "2026-W40"), language("en"))


@pytest.fixture(scope="module")
def whole(html: str) -> bytes:
    return pdf(labelled(html, 0))


def inflated(document: bytes) -> bytes:
    """The document with what its streams hold."""
    streams = re.findall(rb"FlateDecode.*?>>\nstream\n(.*?)\nendstream", document, re.DOTALL)
    return document + b"".join(zlib.decompress(each) for each in streams)


def test_sheets_are_a4_and_headings_are_its_contents(html: str, whole: bytes) -> None:
    assert whole.startswith(b"%PDF-")
    content = inflated(whole)
    assert len(re.findall(A4, content)) == len(re.findall(rb"/Type /Page\b", content)) >= 3
    on_paper = re.findall(r"<section>\n<h2>(.*?)</h2>", labelled(html, 0))[1:]  # the first page needs no heading
    assert len(on_paper) >= 3
    for heading in on_paper:
        assert f"/Title ({heading})".encode() in content


def labelled(html: str, rows_before: int) -> str:
    """The page with a number of its own for each title and row, and its tables that many rows further down."""
    numbers = count()
    filler = "<tr><td>filler</td></tr>" * rows_before
    html = html.replace("</tbody>", f"{filler}</tbody>", 1)
    return re.sub(
        r"(<h[23]>|<th scope=\"row\">).*?(?=</h[23]>|</th>)", lambda tag: f"{tag[1]}label{next(numbers):03}x", html
    )


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed (package poppler-utils)")
@pytest.mark.parametrize("rows_before", [0, *(pytest.param(rows, marks=pytest.mark.long) for rows in (4, 8, 12))])
def test_no_row_and_no_title_is_printed_twice(html: str, whole: bytes, rows_before: int) -> None:
    """Wherever the sheet ends; WeasyPrint prints a float that it breaks a second time."""
    document = pdf(labelled(html, rows_before)) if rows_before else whole
    text = subprocess.run(["pdftotext", "-", "-"], input=document, capture_output=True, check=True).stdout.decode()
    printed = Counter(re.findall(r"(?i:label)\d{3}x", text))
    assert len(printed) > 30
    assert [label for label, times in printed.items() if times > 1] == []


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext is not installed (package poppler-utils)")
def test_the_widest_table_ends_at_the_margin(full: Lake) -> None:
    """Users with all columns: on paper, nobody scrolls to the last ones."""
    whole = report_of(full)
    use = CardUse(HOUR_MS, HOUR_MS, HOUR_MS // 3, HOUR_MS // 2, "dram", HOUR_MS, HOUR_MS // 4, HOUR_MS // 9)
    rank = EfficiencyRank(19, 119, "NVIDIA A100-SXM4-80GB", 9e8, 0.189)
    people = [
        replace(each, name=f"user-{number}", label=f"user-{number}", team="vision", card_use=use, efficiency_rank=rank)
        for number, each in enumerate(whole.people.users)
    ]
    wide = changed(whole, people=replace(whole.people, users=tuple(people)))
    document = pdf(page(wide, language("en")))
    found = subprocess.run(["pdftotext", "-bbox", "-", "-"], input=document, capture_output=True, check=True)
    words = re.findall(r'xMax="([\d.]+)" yMax="[\d.]+">(.*?)<', found.stdout.decode())
    assert sum(word == "bandwidth)" for _, word in words) == len(people) > 1
    assert max(float(end) for end, _ in words) / 72 * 25.4 <= 210 - 14 + 0.1


def test_the_same_page_gives_the_same_bytes_without_a_warning(
    html: str, whole: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    from weasyprint.text.ffi import harfbuzz_subset  # `whole` has loaded it

    with caplog.at_level(logging.WARNING):
        again = pdf(labelled(html, 0))
    assert [each.getMessage() for each in caplog.records if "Failed" in each.getMessage()] == []
    if harfbuzz_subset is None:
        pytest.skip("without libharfbuzz-subset fontTools writes the time into each font")
    assert again == whole


def test_an_address_outside_the_page_is_never_fetched(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        pdf('<p>text</p><img src="file:///etc/hostname">')
    assert "disallowed protocol" in caplog.text


def test_a_missing_library_is_one_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_pango(name: str, *arguments: Any, **named: Any) -> Any:
        if name == "weasyprint":
            raise OSError("cannot load library 'libpango-1.0-0'")
        return real(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without_pango)
    with pytest.raises(MissingExtraError, match="a PDF needs WeasyPrint and pango") as found:
        pdf("<p>text</p>")
    assert "fallow[pdf]" in str(found.value.hint)
