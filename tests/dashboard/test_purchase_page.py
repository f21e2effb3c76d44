"""Prices: the mix of each pool, drawn and listed; for people a sentence, and for a table that cannot be used what is wrong with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.dashboard.conftest import page, words
from tests.dashboard.planned import LANGUAGE, WEEK, Planned, offering_site, planned_site
from tests.dashboard.test_users_page import table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return planned_site(tmp_path_factory.getbasetemp())


def test_each_pool_has_its_mix_and_each_price_its_row(planned: Planned) -> None:
    found = planned.view().whole.plan.purchases
    shown = page(planned.client(), "/purchase", WEEK)
    assert len(table(shown, "purchase-title")) - 1 == len(found) > 1
    rows = {
        name: [row for row in table(shown, f"{name}-title") if row[0] != "pool"]
        for name in ("purchase-mix", "purchase-offers")
    }
    assert len(rows["purchase-mix"]) == sum(len(each.mix.parts) for each in found if each.mix is not None)
    assert len(rows["purchase-offers"]) == sum(len(each.options) for each in found)
    assert "as now: up to" in json.dumps(shown)
    assert "Internal prices by hour" in words(shown)


def test_nobody_buys_gpus_for_people(planned: Planned) -> None:
    shown = words(page(planned.client(LANGUAGE), "/purchase", WEEK))
    assert "GPUs are bought and rented for pools" in shown
    assert "Offers and break-even" not in shown


def test_a_table_of_offers_that_cannot_be_used_is_named(planned: Planned, tmp_path: Path) -> None:
    offering = offering_site(planned, tmp_path, "kind,provider,model,hourly\nrent,cloud,L40S,1\n")
    shown = words(page(offering.client(), "/purchase", WEEK))
    assert "the table of offers cannot be used" in shown
    assert "Offers and break-even" not in shown
