"""The price of a GPU-hour: the site's own table, and a catalog of public list prices for other GPUs.

The built-in catalog (`catalog.csv`) has public list prices per GPU-hour, each with its day and source. They are
prices of the same GPU in a public cloud, with its share of the host, and not what a site pays. Every figure
comes from a public record of that day and none is guessed: a model without a listed price or without a day is not in
the catalog. `AWS p5.48xlarge / 8` is the hourly price of that instance divided by its eight GPUs. Prices are on demand,
without any discount, or the lowest that a marketplace asks (`lowest`), for models without another listing.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Literal, get_args

from analytics.cards import card, words
from analytics.money.csv_tables import CsvLine, read_lines
from fallow.clock import parse_day_ms
from fallow.errors import ConfigError

_IN_USE = """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLF CLP
    CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR
    ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT
    MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
    SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND
    VUV WST XAF XCD XCG XDR XOF XPF YER ZAR ZMW ZWG
"""

CODES = frozenset(_IN_USE.split())

_SIGNS = {
    "$": "USD",
    "US$": "USD",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "RMB": "CNY",
    "KČ": "CZK",
    "ZŁ": "PLN",
    "₹": "INR",
}


def wrong_code(code: str) -> tuple[str, str] | None:
    """Return what is wrong with a currency code, and the remedy; None for a valid code."""
    if code in CODES:
        return None
    near = _SIGNS.get(code) or next(iter(get_close_matches(code, sorted(CODES), n=1)), None)
    hint = f"did you mean {near}?" if near else "write its ISO 4217 code, such as USD or EUR"
    return f"'{code}' is no currency code", hint


COLUMNS = (
    "model",
    "pool",
    "hourly",
    "currency",
    "date",
    "source",
    "purchase",
    "amortisation_years",
    "yearly_cost",
    "exchange",
    "kind",
)
"""Columns of the price table. A line has `hourly`, or `purchase` with `amortisation_years`, or `exchange`."""

TableKind = Literal["buy", "reserved", "spot", "on_demand"]
"""Kinds of GPUs: bought, rented for a term, or rented by the hour."""

HOURS_PER_YEAR = 8766
"""Hours of a year of 365.25 days."""

_LEAST_YEARS = Decimal("0.1")
_LEAST_RATE = Decimal("0.000001")
_MOST_HOURLY = Decimal(10**12)

PricedAs = tuple[object, str | None]
"""What a price applies to: a card, by any of its names, and a pool."""


@dataclass(frozen=True)
class Price:
    """The price of a GPU-hour in the book's currency, and its source.

    Attributes:
        origin: `site` or `catalog` (also for a site line that repeats the catalog).
        model, pool: those of its line; None if the line has none.
        stated: the figure as stated, if it was not stated per hour in the book's currency.
        kind: bought or rented; None if the table does not have it.
        yearly_cost: the running cost of a bought GPU that is a part of `hourly`.
        listing: what a list price is, `on_demand` or the `lowest` of a marketplace; None for the site's.
    """

    hourly: Decimal
    currency: str
    date: date | None
    source: str
    origin: str
    model: str | None
    pool: str | None
    stated: str | None = None
    kind: TableKind | None = None
    yearly_cost: Decimal | None = None
    listing: str | None = None

    @property
    def basis(self) -> str:
        """Return the kind of price: a list's `on_demand` or `lowest`, else `spot` or `site`. Kinds are not compared."""
        return self.listing or ("spot" if self.kind == "spot" else self.origin)


@cache
def catalog() -> Mapping[str, Price]:
    """Return every listed price by the name of its card."""
    text = resources.files(__package__).joinpath("catalog.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        hourly, day = Decimal(row["hourly"]), date.fromisoformat(row["date"])
        price = Price(
            hourly, row["currency"], day, row["source"], "catalog", row["model"], None, listing=row["listing"]
        )
        found[row["model"]] = price
    return found


def listed(model_name: str | None) -> Price | None:
    """Return the list price of a GPU model as NVML names it; None if there is none."""
    found = card(model_name)
    return catalog().get(found.name) if found is not None else None


@dataclass(frozen=True)
class PriceBook:
    """The prices. `exchange` has the worth of one unit of another currency in `currency`.

    `site` has the site's prices of the same GPUs, by day: each price holds from its day on, and the first one also
    before. `lines` are the table as written.
    """

    currency: str
    site: Mapping[PricedAs, tuple[Price, ...]] = field(default_factory=dict)
    exchange: Mapping[str, Decimal] = field(default_factory=dict)
    lines: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def load(cls, path: str | None, currency: str) -> PriceBook:
        """Read the table at a path, or the catalog alone. Raises ConfigError that names an invalid line."""
        lines = list(read_lines(path, COLUMNS, ())) if path else []
        currency = currency.strip().upper()
        if (wrong := wrong_code(currency)) is not None:
            raise ConfigError(f"money.currency: {wrong[0]}", wrong[1])
        exchange = _exchange((line for line in lines if line.text("exchange") is not None), currency)
        site: dict[PricedAs, list[Price]] = defaultdict(list)
        numbers: dict[PricedAs, dict[date | None, int]] = defaultdict(dict)
        for line in lines:
            if line.text("exchange") is not None:
                continue
            key, day = priced_as(line.text("model"), line.text("pool")), line.date_of("date")
            if (stated := numbers[key]) and (day in stated or None in (day, *stated)):
                raise line.error(
                    f"line {stated.get(day, min(stated.values()))} prices the same GPUs already",
                    "leave one of them, or give each the date from which on it holds",
                )
            site[key].append(_price(line, currency, exchange))
            stated[day] = line.number
        by_day = {key: tuple(sorted(prices, key=lambda each: str(each.date))) for key, prices in site.items()}
        return cls(currency, by_day, exchange, tuple(line.cells for line in lines))

    def hourly(self, model: str | None, pool: str | None, at_ms: int | None = None) -> Price | None:
        """Return the price of a GPU-hour of a model in a pool; None if there is none.

        By default it is the last price. A site price for model and pool wins over a price for the pool, a price for the
        model, and the catalog.
        """
        prices = self._stated(model, pool)
        if not prices:
            return self.from_catalog(model)
        begun = [price for price in prices if at_ms is None or _since_ms(price) <= at_ms]
        return begun[-1] if begun else prices[0]

    def changes(self, model: str | None, pool: str | None) -> list[int]:
        """Return the times (ms) from which another price of these GPUs holds."""
        return [_since_ms(price) for price in self._stated(model, pool)[1:]]

    def _stated(self, model: str | None, pool: str | None) -> tuple[Price, ...]:
        for named in ((model, pool), (None, pool), (model, None)):
            if named != (None, None) and (prices := self.site.get(priced_as(*named))):
                return prices
        return ()

    def rate(self, other: str) -> Decimal | None:
        """Return the worth of one unit of another currency; None if it is unknown."""
        return _rate(other, self.currency, self.exchange)

    def from_catalog(self, model: str | None) -> Price | None:
        """Return the list price of a model; None without one in a currency with a known rate."""
        found = listed(model)
        rate = None if found is None else self.rate(found.currency)
        if found is None or rate is None:
            return None
        return _catalog_price(found, rate, self.currency, None)


def _since_ms(price: Price) -> int:
    """Return when a price begins: its day, UTC."""
    return 0 if price.date is None else parse_day_ms(price.date.isoformat())


def _catalog_price(found: Price, rate: Decimal, currency: str, pool: str | None) -> Price:
    stated = None if found.currency == currency else f"{found.hourly} {found.currency}"
    return replace(found, hourly=found.hourly * rate, currency=currency, pool=pool, stated=stated)


def _exchange(lines: Iterable[CsvLine], currency: str) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for line in lines:
        other, rate = _currency(line, ""), line.number_of("exchange", least=_LEAST_RATE)
        if not other or rate is None:
            raise line.error("an exchange rate needs a currency", "such as EUR and 1.08")
        if other == currency or other in found:
            raise line.error(f"the rate of {other} is {'1' if other == currency else 'stated above'}", "leave it out")
        found[other] = rate
    return found


def _rate(other: str, currency: str, exchange: Mapping[str, Decimal]) -> Decimal | None:
    return Decimal(1) if other == currency else exchange.get(other)


def _price(line: CsvLine, currency: str, exchange: Mapping[str, Decimal]) -> Price:
    model, pool = line.text("model"), line.text("pool")
    if model is None and pool is None:
        raise line.error("a price needs a model, a pool or both")
    stated_in = _currency(line, currency)
    rate = _rate(stated_in, currency, exchange)
    if rate is None:
        raise line.error(
            f"it is in {stated_in}, and sums are in {currency}",
            f"add a line with currency {stated_in} and, as exchange, what 1 {stated_in} is worth in {currency}",
        )
    hourly, stated = _hourly(line)
    kind, yearly = _kind(line), line.number_of("yearly_cost")
    if stated_in != currency:
        stated = f"{stated or f'{hourly} an hour'}, in {stated_in}"
    source = line.text("source") or "the site's price table"
    public = listed(model)
    if public and (hourly, stated_in, line.date_of("date"), source) == (
        public.hourly,
        public.currency,
        public.date,
        public.source,
    ):
        # a copied line is a public price still
        return replace(_catalog_price(public, rate, currency, pool), kind=kind)
    if hourly * rate >= _MOST_HOURLY:
        raise line.error(
            f"it comes to {hourly * rate:,.0f} {currency} per GPU-hour", f"mend it: {_MOST_HOURLY:,} is too much"
        )
    running = None if yearly is None else yearly * rate
    return Price(hourly * rate, currency, line.date_of("date"), source, "site", model, pool, stated, kind, running)


def _kind(line: CsvLine) -> TableKind | None:
    """Return the stated kind; a line with a purchase price is of a bought GPU."""
    text, is_bought = line.text("kind"), line.text("purchase") is not None
    if text is None:
        return "buy" if is_bought else None
    kind: TableKind | None = next((each for each in get_args(TableKind) if each == text.lower()), None)
    if kind is None:
        raise line.error(
            f"'{text}' is no kind of price", f"take one of {', '.join(get_args(TableKind))}, or leave it empty"
        )
    if is_bought and kind != "buy":
        raise line.error(
            f"a GPU with a purchase price is not {text}", "write buy as its kind, or give its price as hourly"
        )
    return kind


def _hourly(line: CsvLine) -> tuple[Decimal, str | None]:
    """Return the stated or computed hourly rate, and the origin of a computed one."""
    hourly, purchase, yearly = (line.number_of(name) for name in ("hourly", "purchase", "yearly_cost"))
    years = line.number_of("amortisation_years", least=_LEAST_YEARS)
    if hourly is not None and purchase is None and years is None and yearly is None:
        return hourly, None
    if hourly is None and purchase is not None and years is not None:
        stated = f"{purchase} over {years} years" + ("" if yearly is None else f" and {yearly} a year")
        return (purchase / years + (yearly or 0)) / HOURS_PER_YEAR, stated
    raise line.error("a price is either hourly, or purchase and amortisation_years with, if you like, yearly_cost")


def _currency(line: CsvLine, otherwise: str) -> str:
    code = (line.text("currency") or otherwise).upper()
    if code and (wrong := wrong_code(code)) is not None:
        raise line.error(*wrong)
    return code


def priced_as(model: str | None, pool: str | None) -> PricedAs:
    """Return the subject of a line: a card by any of its names, else the model's words; and the pool."""
    if model is None:
        return None, pool
    known = card(model)
    return (known.name if known is not None else words(model)), pool
