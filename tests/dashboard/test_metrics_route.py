"""The dashboard's /metrics: the numbers of the ledger and of the decisions, and an end to their number."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from analytics.report.report import Report
from dashboard.access.people import Reader
from dashboard.metrics import FAMILIES, MOST_POOLS, OTHER_POOLS, collect
from dashboard.source import LATE
from dashboard.view import View
from fallow.clock import HOUR_MS
from fallow.exposition import OPEN_METRICS, TEXT
from tests.dashboard.acting import PLAN, VIEW_ALPHA, Held
from tests.dashboard.sites import Site
from tests.pools import release

Found = dict[str, dict[tuple[tuple[str, str], ...], float]]


def parsed(text: str) -> Found:
    """The values by family and labels."""
    return {
        each.name: {tuple(sorted(sample.labels.items())): sample.value for sample in each.samples}
        for each in text_string_to_metric_families(text)
    }


def scraped(held: Held, search: str = "?span=all", who: Reader = PLAN) -> Found:
    answer = held.pages(who).client.get(f"/metrics{search}")
    assert (answer.status_code, answer.content_type) == (200, TEXT), answer.text
    return parsed(answer.text)


def only(found: Found, family: str, **labels: str) -> float:
    return sum(value for own, value in found[family].items() if labels.items() <= dict(own).items())


@pytest.fixture(scope="module")
def view(teams: Site) -> View:
    """Ten simulated GPUs in four pools."""
    return teams.view("?span=all")


def collected(view: View, now_ms: int = 0) -> Found:
    return parsed(collect(view, now_ms, is_stale=False).render(TEXT).decode())


def test_the_ledger_is_that_of_the_pages(view: View) -> None:
    found = collected(view, now_ms=view.as_of_ms + 90_000)
    totals, accounts = view.report.ledger.summary.totals, view.report.money.accounts
    assert only(found, "fallow_ledger_gpus") == totals.gpus == 10
    assert only(found, "fallow_ledger_gpu_hours") == pytest.approx(totals.total_ms / HOUR_MS)
    assert only(found, "fallow_ledger_gpu_hours", state="held") == totals.state_ms["held"] / HOUR_MS > 0
    assert accounts.total.paid_cents is not None
    assert only(found, "fallow_ledger_cost", currency="USD") == pytest.approx(accounts.total.paid_cents / 100)
    assert only(found, "fallow_ledger_coverage_ratio") == view.report.ledger.summary.coverage
    assert only(found, "fallow_data_age_seconds") == 90
    assert only(found, "fallow_data_end_timestamp_seconds") * 1000 == view.as_of_ms
    assert only(found, "fallow_data_stale") == 0


def test_decisions_add_up_to_the_waste_and_to_what_they_are_worth(planned: Site) -> None:
    view = planned.view()
    found, own = collected(view), view.report.recommendations
    assert only(found, "fallow_recommendations") == len(own.listed) > 3
    assert only(found, "fallow_recommendation_unconfirmed_gpu_hours") == pytest.approx(
        sum(each.unconfirmed_ms for each in own.listed) / HOUR_MS
    )
    assert only(found, "fallow_recommendation_gpu_hours") == pytest.approx(
        only(found, "fallow_waste_gpu_hours", actionable="true")
    )
    assert only(found, "fallow_waste_gpu_hours") == pytest.approx(own.waste.gpu_ms / HOUR_MS)
    assert own.value is not None
    assert own.value.freed is not None
    for bound in ("low", "point", "high"):
        freed = only(found, "fallow_recommendation_freed_per_year", bound=bound)
        assert freed == pytest.approx(getattr(own.value.freed, bound))
    cash = [each.value.cash for each in own.ranked if each.value is not None and each.value.cash is not None]
    assert ("fallow_recommendation_cash_per_year" in found) == bool(cash)
    assert own.fleet is not None
    assert only(found, "fallow_free_gpus") == own.fleet.free_now > 0
    assert set(found) <= {each.name for each in FAMILIES}


def test_what_is_not_known_is_absent(held: Held) -> None:
    found = scraped(held)
    assert "fallow_releasable_gpus" not in found  # after three hours the demand is unknown
    assert only(found, "fallow_free_gpus") == 0  # all of them are held
    unpriced = scraped(held, "?span=all&team=beta")
    assert "fallow_ledger_cost" not in unpriced
    assert only(unpriced, "fallow_ledger_unpriced_gpu_hours") == pytest.approx(3.0)


def test_a_viewer_of_a_team_gets_that_team_only(held: Held) -> None:
    found = scraped(held, "?span=all&team=beta", VIEW_ALPHA)
    assert only(found, "fallow_ledger_gpus") == 1
    assert only(found, "fallow_ledger_gpu_hours") == pytest.approx(3.0)
    assert not [
        name for name in found if name.startswith(("fallow_re", "fallow_free")) and "recommendation" not in name
    ]


def test_a_fleet_of_many_pools_has_an_end_of_series(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    own = view.report.recommendations
    assert own.fleet is not None
    pool, listed = own.fleet.pools[0], own.listed[0]
    released = release({"h1": ["GPU-1"]})
    many = replace(
        own,
        listed=tuple(replace(listed, pool=f"pool-{number}", gpu_ms=HOUR_MS * (number + 1)) for number in range(200)),
        fleet=replace(
            own.fleet,
            pools=tuple(replace(pool, pool=f"pool-{number}", gpus=number, release=released) for number in range(200)),
        ),
    )
    monkeypatch.setattr(Report, "recommendations", property(lambda _: many))
    found = collected(view)
    for family in ("fallow_recommendation_gpu_hours", "fallow_releasable_gpus"):
        names = {dict(labels)["pool"] for labels in found[family]}
        assert len(names) == MOST_POOLS + 1
        assert {OTHER_POOLS, "pool-199"} <= names
    assert only(found, "fallow_recommendation_gpu_hours") == sum(range(1, 201))
    assert only(found, "fallow_releasable_gpus") == 200
    assert many.fleet is not None
    first, *others = many.fleet.pools
    many = replace(many, fleet=replace(own.fleet, pools=(replace(first, release=None), *others)))
    # of the others one is not known, so their sum is not
    assert only(collected(view), "fallow_releasable_gpus") == MOST_POOLS


def test_both_formats_are_what_prometheus_reads(held: Held) -> None:
    client = held.pages().client
    answer = client.get("/metrics?span=all", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.content_type == OPEN_METRICS
    assert {each.name for each in openmetrics(answer.text)} == set(scraped(held))


@pytest.mark.parametrize(
    ("search", "status"),
    [
        ("?span=never", 409),
        ("?team=nobody", 409),
        ("?since=x", 409),
        ("?tem=alpha", 409),
        ("?team=alpha&team=beta", 409),
    ],
)
def test_what_cannot_be_answered_fails_the_scrape(held: Held, search: str, status: int) -> None:
    answer = held.pages().client.get(f"/metrics{search}")
    assert (answer.status_code, answer.mimetype) == (status, "text/plain")
    assert answer.text.startswith("fallow: ")


def test_what_takes_long_fails_the_scrape(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = held.pages()
    monkeypatch.setattr(pages.source, "look", lambda *_, **__: LATE)
    assert pages.client.get("/metrics").status_code == 503
