"""The pages of docs/answers/ show what their commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.made_once import made_once
from tests.plan.answers import PAGES, current, demo_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_an_answer_shows_what_its_commands_print(page: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    parent = made_once(tmp_path_factory.getbasetemp(), "answers", demo_folder)
    text = page.read_text(encoding="utf-8")
    assert "$ fallow plan " in text
    assert current(text, parent) == text, "`make docs` writes it again"
