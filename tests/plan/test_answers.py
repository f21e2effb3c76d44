"""The pages of docs/answers/ show what their commands print, and the fleet's report keeps within its limits."""

from __future__ import annotations

import re
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest

from tests.in_process import run_in_process
from tests.made_once import made_once
from tests.plan.answers import PAGES, current, demo_folder, on_its_day
from tests.report.html.test_pdf import inflated

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory.getbasetemp(), "answers", demo_folder)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_an_answer_shows_what_its_commands_print(page: Path, parent: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "$ fallow plan " in text
    assert current(text, parent) == text, "`make docs` writes it again"


def test_a_week_of_the_demo_is_a_page_of_100_kb_and_five_sheets(parent: Path, tmp_path: Path) -> None:
    page, sheets = tmp_path / "week.html", tmp_path / "week.pdf"
    with chdir(parent), on_its_day():
        for file in (page, sheets):
            asked = (
                "--config",
                "demo/fallow.toml",
                "--week",
                "2026-W47",
                "--format",
                file.suffix[1:],
                "--out",
                str(file),
            )
            assert run_in_process("report", *asked).returncode == 0
    assert page.stat().st_size < 100_000
    assert len(re.findall(rb"/Type /Page\b", inflated(sheets.read_bytes()))) <= 5
