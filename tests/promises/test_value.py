"""What fallow promises of yearly figures: cash apart from GPU time, one basis everywhere, bounds, list prices."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.decide.recommendations import value_of
from analytics.decide.value import KIND_UNKNOWN, Value, total_value
from analytics.delivery.content import pack
from analytics.language.languages import language
from analytics.proportions import Estimate
from analytics.report.model import Asked, Whole
from analytics.report.report import Report
from analytics.report.weeks import parse_week
from analytics.scope import Scope
from analytics.tables.value import cash_words, freed_words, value_headline
from analytics.window import load_window_ledger, open_inputs
from tests.answers import rows_of
from tests.dashboard.sites import Site as Pages
from tests.findings.scenarios.builder import H100, T_END, Fleet
from tests.findings.scenarios.situations import train
from tests.in_process import run_in_process
from tests.lakes import made_lake
from tests.promises.site import Site

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.decide.recommendations import Recommendation, Recommendations

PRICES = """model,pool,hourly,currency,source,purchase,amortisation_years,yearly_cost,kind
,rented,3,USD,a cloud,,,,on_demand
,booked,2,USD,a contract,,,,reserved
,owned,,USD,an invoice,35064,4,876.6,
"""
HOURLY = {"rented": 3.0, "booked": 2.0, "owned": 1.1}
WINDOWS = (("--since", "1d"), ("--since", "7d"), ("--since", "2026-10-01"))
LAST = "2026-W46"
"""The last complete week of the lake, which ends on Friday, 20 November."""


def fleet() -> Fleet:
    """Five weeks of pools of every price kind: work on two of four GPUs; in `owned`, eve holds a GPU ever longer."""
    made = Fleet(35, interval_s=3600, process_interval_s=3600)
    for pool in ("rented", "booked", "owned", "listed"):
        gpus = made.host(pool, H100, 4, pool=pool)
        train(made, gpus[:2], "ann", job=pool)
        if pool == "owned":
            for first, last in ((-32, -31), (-25, -23), (-18, -15)):
                made.run(gpus[3], "eve", made.between(first, last))
            made.run(gpus[3], "eve", made.between(-11))
    return made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The fleet with a table of prices that leaves out one pool."""
    folder = tmp_path_factory.mktemp("value")
    (folder / "prices.csv").write_text(PRICES)
    config = folder / "fallow.toml"
    config.write_text(f'[money]\nprices = "{folder}/prices.csv"\n')
    return Site(fleet().write(made_lake(folder / "lake")), config)


@pytest.fixture(scope="module")
def found(site: Site) -> Recommendations:
    return site.recommendations()


def returned(found: Recommendations, pool: str) -> Recommendation:
    """What is to be given back of a pool."""
    (one,) = (each for each in found.ranked if each.action == "release" and each.pool == pool)
    return one


def of_value(each: Recommendation) -> Value:
    assert each.value is not None
    return each.value


def test_cash_is_the_rent_or_the_running_cost_that_ends_and_freed_time_counts_at_the_whole_price(
    found: Recommendations,
) -> None:
    """docs/recommendations.md, What it is worth."""
    for pool, hourly in HOURLY.items():
        one = returned(found, pool)
        value, paid = of_value(one), len(one.gpus_now) * 8766 * hourly
        assert value.gpu_hours.point == len(one.gpus_now) * 8766
        assert value.freed is not None
        assert value.cash is not None
        assert value.freed.point == pytest.approx(paid)
        if pool == "owned":  # its yearly cost is more than the power of an idle GPU costs
            assert 0 < value.cash.low < value.cash.point < value.cash.high
            assert value.cash.point == pytest.approx(len(one.gpus_now) * 876.6)
            assert value.cash.high < value.freed.point / 4
        else:
            assert value.cash.point == pytest.approx(paid)
            assert (value.cash.low > 0) == (pool == "rented"), "a reservation is paid to the end of its term"


def test_cash_is_unknown_and_not_0_where_nothing_says_whether_gpus_are_bought_or_rented(found: Recommendations) -> None:
    """docs/money.md, Prices: the column `kind`."""
    one = of_value(returned(found, "listed"))
    assert (one.cash, one.cash_unknown) == (None, KIND_UNKNOWN)
    assert one.freed is not None
    assert found.value is not None
    assert (found.value.cash, found.value.unknown) == (None, 1), "a part would look like the whole"
    assert str(cash_words(one, "USD")) == "not known"
    assert "money.prices" in language("en").translate(value_headline(found))


def test_gpus_that_are_freed_and_stay_save_no_cash(found: Recommendations) -> None:
    """docs/recommendations.md, What it is worth: "the bill stays"."""
    (held,) = (each for each in found.listed if each.user == "eve" and each.gpus_now)
    assert of_value(held).cash == Estimate(0.0, 0.0, 0.0)


def test_cash_and_freed_time_are_never_added(site: Site, found: Recommendations) -> None:
    """design: "Value is two figures, never added"; the sum of either is that of the rows, in every format."""
    content = told(site, *WINDOWS[1], "--pool", "owned")
    total, rows = content["value_per_year"], [each for each in content["recommendations"] if each["ranked"]]
    assert set(total) == {"gpu_hours", "freed", "cash", "cash_unknown", "list_price_share"}
    for name in ("gpu_hours", "freed", "cash"):
        for edge in ("low", "point", "high"):
            assert total[name][edge] == pytest.approx(sum(each["value_per_year"][name][edge] for each in rows))
    shown = language("en").translate(value_headline(found)).replace("\N{NO-BREAK SPACE}", " ")
    for value in (total_value([of_value(returned(found, pool)) for pool in HOURLY]), found.value):
        assert value is not None
        assert value.freed is not None
        assert f"{round(value.freed.point + (value.cash.point if value.cash else 1)):,}" not in shown


def test_a_yearly_figure_rests_on_the_last_four_complete_weeks_whatever_window_is_asked_for(site: Site) -> None:
    """docs/recommendations.md: "the same in every window with the same end"."""
    answers = [told(site, *window) for window in WINDOWS]
    (first, *others) = [(each["value_per_year"], each["value_weeks"]) for each in answers]
    assert first[1] == {"since": "2026-10-19T00:00:00Z", "until": "2026-11-16T00:00:00Z", "weeks": 4}
    assert others == [first] * 2
    own = [
        [(each["id"], each["value_per_year"]) for each in answer["recommendations"] if each["ranked"]]
        for answer in answers
    ]
    assert len(own[0]) == 5
    assert own[1:] == [own[0]] * 2, "and of each recommendation"
    assert len({answer["waste"]["cost"] for answer in answers}) == 3, "the waste is that of the window"


def test_report_mail_page_api_sql_and_csv_show_the_same_yearly_figures(site: Site, tmp_path: Path) -> None:
    """docs/recommendations.md: "on every channel"; for a week, and for the end of the data."""
    week = told(site, "--week", LAST)
    config = ("--config", str(site.config))
    report = run_in_process("report", "--lake", site.lake.root, "--week", LAST, "--json", *config)
    assert json.loads(report.stdout)["value_per_year"] == week["value_per_year"]
    assert words(week["value_per_year"]) in mail(site)
    now = told(site, *WINDOWS[1])
    pages = Pages(site.lake, site.config)
    answer = pages.client().get("/api/v1/recommendations/totals?span=7d").get_json()["data"]
    assert answer["value_per_year"] == now["value_per_year"]
    assert words(now["value_per_year"]) in said(value_headline(pages.view("?span=7d").report.recommendations))
    asked = ("--lake", site.lake.root, *config)
    statement = "select sum(freed_low), sum(freed), sum(freed_high) from recommendations where ranked"
    (sums,) = rows_of(run_in_process("sql", statement, *asked, *WINDOWS[1], "--json").stdout)["result"]
    assert list(sums.values()) == pytest.approx(list(now["value_per_year"]["freed"].values()))
    run_in_process("recommendations", *asked, *WINDOWS[1], "--csv", "--out", str(tmp_path / "own.csv"))
    table = pl.read_csv(tmp_path / "own.csv")
    csv_sum = table.filter(pl.col("ranked"))["value_per_year_freed_point"].sum()
    assert csv_sum == pytest.approx(now["value_per_year"]["freed"]["point"])


def test_every_yearly_figure_has_its_bounds(found: Recommendations) -> None:
    """docs/recommendations.md: "never without its bounds"; eve's holding grows, so that its weeks differ."""
    for each in found.listed:
        if each.value is None:
            continue
        for estimate in (each.value.gpu_hours, each.value.freed, each.value.cash):
            assert estimate is None or 0 <= estimate.low <= estimate.point <= estimate.high
        assert " to " in said(freed_words(each.value, "USD"))
    (held,) = (each for each in found.listed if each.user == "eve" and each.gpus_now)
    hours = of_value(held).gpu_hours
    by_week = [1, 2, 3, 7]  # days of the weeks from 19 October on
    assert (hours.low, hours.high) == pytest.approx((min(by_week) / 7 * 8766, max(by_week) / 7 * 8766), rel=0.05)
    bounds = value_of(found.ranked)
    assert bounds is not None
    assert bounds.gpu_hours.low == pytest.approx(sum(of_value(each).gpu_hours.low for each in found.ranked))


def test_the_share_that_rests_on_list_prices_is_stated(found: Recommendations) -> None:
    """docs/recommendations.md: `list_price_share`."""
    shares = {pool: of_value(returned(found, pool)).list_price_share for pool in (*HOURLY, "listed")}
    assert shares == dict.fromkeys(HOURLY, 0.0) | {"listed": 1.0}
    listed, value = of_value(returned(found, "listed")), found.value
    assert listed.freed is not None
    assert value is not None
    assert value.freed is not None
    assert value.list_price_share == pytest.approx(listed.freed.point / value.freed.point)
    assert f"{value.list_price_share:.1%}".replace("%", " %") in said(value_headline(found))


def test_below_one_complete_week_there_is_no_yearly_figure(site: Site) -> None:
    """docs/recommendations.md: "below one the value is null"."""
    content = told(site, "--until", "2026-10-24")
    assert (content["value_per_year"], content["value_weeks"]) == (None, None)
    assert not any(each["ranked"] or each["value_per_year"] for each in content["recommendations"])
    one = told(site, "--until", "2026-10-25")
    assert one["value_weeks"] == {"since": "2026-10-19T00:00:00Z", "until": "2026-10-26T00:00:00Z", "weeks": 1}


def told(site: Site, *flags: str) -> dict[str, Any]:
    """What `fallow recommendations --json` prints."""
    done = run_in_process("recommendations", "--lake", site.lake.root, "--config", str(site.config), "--json", *flags)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def said(sentence: Any) -> str:
    return language("en").translate(sentence).replace("\N{NO-BREAK SPACE}", " ")


def words(value: dict[str, Any]) -> str:
    """The GPU time of all as people read it."""
    low, point, high = (f"{round(value['freed'][edge]):,}" for edge in ("low", "point", "high"))
    return f"GPU time worth {point} USD ({low} to {high}) a year"


def mail(site: Site) -> str:
    """The text of the weekly mail."""
    english = language("en")
    week = parse_week(LAST, english.zone, T_END)
    opened = open_inputs(argparse.Namespace(lake=site.lake.root, since=None, until=None, config=str(site.config)))
    inputs = replace(opened, window=week.window)
    whole = Whole(inputs, load_window_ledger(inputs))
    message = pack(Report(whole, Asked(week, Scope(), english.zone)), week, english, (), None)
    return " ".join(message.text.replace("\N{NO-BREAK SPACE}", " ").split())
