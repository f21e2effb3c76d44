"""The price table: which line wins, what a rate is made of, other currencies, and mistakes."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from analytics.money.prices import PriceBook
from fallow.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.money.prices import Price

H100 = "NVIDIA H100 80GB HBM3"


def book(folder: Path, text: str, currency: str = "USD") -> PriceBook:
    file = folder / "prices.csv"
    file.write_text(text, encoding="utf-8")
    return PriceBook.load(str(file), currency)


def price(found: PriceBook, model: str | None, pool: str | None) -> Price:
    result = found.hourly(model, pool)
    assert result is not None
    return result


def test_the_most_specific_line_wins(tmp_path: Path) -> None:
    found = book(tmp_path, "model,pool,hourly\nH100 SXM5,,4\n,train,3\nH100 SXM,train,2\n,legacy,0\n")
    assert price(found, H100, "train").hourly == 2
    assert price(found, "NVIDIA L40S", "train").hourly == 3
    assert price(found, H100, "other").hourly == 4
    assert price(found, H100, None).hourly == 4
    assert price(found, None, "legacy").hourly == 0, "free of charge is a price"
    assert price(found, "NVIDIA L40S", "other").origin == "catalog"
    assert found.hourly("NVIDIA A100", "other") is None
    assert found.hourly(None, None) is None
    unheard_of = book(tmp_path, "model,hourly\nNVIDIA Foo 9000,1.5\n")
    assert price(unheard_of, "nvidia foo-9000", None).hourly == Decimal("1.5")
    assert unheard_of.hourly("NVIDIA Foo 9001", None) is None


def test_a_price_says_where_it_is_from(tmp_path: Path) -> None:
    found = book(tmp_path, "model,hourly,date,source\nH100 SXM,2,2025-03-01,contract 4711\nL40S,1,,\n")
    dated = price(found, H100, "train")
    said = (dated.origin, dated.source, str(dated.date), dated.currency)
    assert said == ("site", "contract 4711", "2025-03-01", "USD")
    assert price(found, "NVIDIA L40S", None).date is None
    listed = price(found, "Tesla T4", None)
    assert (listed.origin, listed.source, str(listed.date)) == ("catalog", "AWS g4dn.xlarge, us-east-1", "2026-05-07")


def test_a_purchase_is_spread_over_its_years(tmp_path: Path) -> None:
    found = book(tmp_path, "model,purchase,amortisation_years,yearly_cost\nH100 SXM,35064,4,\nL40S,8766,2,4383\n")
    assert price(found, H100, None).hourly == 1
    assert price(found, "NVIDIA L40S", None).hourly == 1
    assert price(found, "NVIDIA L40S", None).stated == "8766 over 2 years and 4383 a year"


def test_a_price_says_whether_the_gpu_is_bought_or_rented_and_what_it_costs_to_run(tmp_path: Path) -> None:
    table = (
        "model,hourly,purchase,amortisation_years,yearly_cost,kind\nH100"
        " SXM,,8766,2,4383,\nL40S,2,,,,On_Demand\nA40,2,,,,\n"
    )
    found = book(tmp_path, table)
    bought, rented = price(found, H100, None), price(found, "NVIDIA L40S", None)
    assert (bought.kind, bought.yearly_cost, rented.kind, rented.yearly_cost) == ("buy", 4383, "on_demand", None)
    assert price(found, "NVIDIA A40", None).kind is price(found, "Tesla T4", None).kind is None
    for line, said in (
        ("A40,2,,,,lent", "'lent' is no kind of price"),
        ("A40,,9,1,,spot", "purchase price is not spot"),
    ):
        with pytest.raises(ConfigError, match=said):
            book(tmp_path, f"model,hourly,purchase,amortisation_years,yearly_cost,kind\n{line}\n")


def test_other_currencies_go_by_the_tables_own_rates(tmp_path: Path) -> None:
    table = "model,hourly,currency,exchange\n,,usd,0.5\nH100 SXM,2,EUR,\nL40S,2,USD,\nA40,2,,\n"
    found = book(tmp_path, table, "eur")
    assert found.currency == "EUR"
    assert price(found, H100, None).hourly == 2
    assert price(found, "NVIDIA L40S", None).hourly == 1
    assert price(found, "NVIDIA A40", None).hourly == 2
    assert price(found, "Tesla T4", None).hourly == Decimal("0.2630"), "the catalog is in USD"
    assert price(found, "Tesla T4", None).stated == "0.526 USD"
    assert PriceBook.load(None, "EUR").hourly("Tesla T4", None) is None, "nobody states a rate"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("A100-SXM4-80GB,,2,,,,,,", "line 3: line 2 prices the same GPUs already"),
        (",,2,,,,,,", "line 3: a price needs a model, a pool or both"),
        ("L40S,,,,,,,,", "line 3: a price is either hourly, or purchase and amortisation_years"),
        ("L40S,,2,,9000,4,,,", "line 3: a price is either hourly, or purchase and amortisation_years"),
        ("L40S,,2,,,,100,,", "line 3: a price is either hourly, or purchase and amortisation_years"),
        ("L40S,,,,9000,,,,", "line 3: a price is either hourly, or purchase and amortisation_years"),
        ("L40S,,,,9000,0,,,", "line 3: amortisation_years '0' is not a number from 0.1"),
        ("L40S,,-2,,,,,,", "line 3: hourly '-2' is not a number from 0 to"),
        ("L40S,,$2,,,,,,", "line 3: hourly '$2' is not a number"),
        ("L40S,,1,,,,,,x", "line 3: date 'x' is not a day"),
        ("L40S,,1e999999999,,,,,,", "line 3: hourly '1e999999999' is not a number from 0 to 1,000,000,000,000"),
        ("L40S,,inf,,,,,,", "line 3: hourly 'inf' is not a number from 0 to"),
        ("L40S,,2,GBP,,,,,", "line 3: it is in GBP, and sums are in USD; add a line with currency GBP"),
        (",,,USD,,,,1,", "line 3: the rate of USD is 1"),
        (",,,EUR,,,,0,", "line 3: exchange '0' is not a number from 0.000001 to"),
        (",,,,,,,2,", "line 3: an exchange rate needs a currency"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: str, said: str) -> None:
    header = "model,pool,hourly,currency,purchase,amortisation_years,yearly_cost,exchange,date"
    with pytest.raises(ConfigError) as caught:
        book(tmp_path, f"{header}\nNVIDIA A100-SXM4-80GB,,2,,,,,,\n{line}\n")
    assert f"prices.csv, {said}" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "clear"),
    [("31.500", "write 31500, or 31,5"), ("100.000", "write 100000, or 100"), ("1.250.000", "write 1250000")],
)
def test_points_that_may_be_between_thousands_are_not_guessed_at(tmp_path: Path, number: str, clear: str) -> None:
    table = "model;purchase;amortisation_years\nH100 SXM;{};4\n"
    with pytest.raises(ConfigError) as caught:
        book(tmp_path, table.format(number))
    assert f"line 2: purchase '{number}' is not clear in a file with decimal commas" in str(caught.value)
    assert caught.value.hint == clear
    for meant in ("31500", "31500,00", "31.500,00", "31500.00"):
        assert price(book(tmp_path, table.format(meant)), H100, None).hourly == Decimal(31500) / 4 / 8766
    for meant, hourly in (("0.125", "0.125"), ("2,5", "2.5")):
        found = book(tmp_path, f"model;hourly\nH100 SXM;{meant}\n")
        assert price(found, H100, None).hourly == Decimal(hourly)


def test_a_price_that_no_gpu_can_have_is_a_mistake(tmp_path: Path) -> None:
    table = "model,hourly,currency,exchange\nH100 SXM,{},EUR,\n,,EUR,2000000\n"
    assert price(book(tmp_path, table.format("400000"), "IRR"), H100, None).hourly == 800_000_000_000
    with pytest.raises(ConfigError, match="line 2: it comes to 2,000,000,000,000 IRR per GPU-hour"):
        book(tmp_path, table.format("1000000"), "IRR")
