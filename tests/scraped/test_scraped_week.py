"""The week through the agent and through scrapes: what docs say is what was stored, and bounds hold on a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.scraped_lakes import Scraping
from benchmarks.scraped_week import PAGE, as_json, page, weeks_seen
from fallow.clock import DAY_MS, SECOND_MS

if TYPE_CHECKING:
    from pathlib import Path


def test_the_docs_have_the_stored_figures() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


@pytest.mark.long
def test_the_truth_of_a_day_lies_inside_what_is_said_of_it(tmp_path: Path) -> None:
    """In GPU-hours: what is seen at moments has a range that holds the truth, and every finding that the agent has not is of low confidence."""
    truth, agent, scraped = weeks_seen(tmp_path, DAY_MS, [Scraping(30 * SECOND_MS)])
    for seen in (agent, scraped):
        low, high = seen.held_between
        assert low <= truth.held <= high
        assert seen.unoccupied == pytest.approx(truth.unoccupied, abs=0.2)
    assert (agent.at_moments, scraped.at_moments) == (0, pytest.approx(1, abs=0.01))
    held = as_json(scraped, agent)["findings"]["held"]
    assert (held["lost"], held["more"]) == (0, held["more_low"])
    assert held["same"] > 0
