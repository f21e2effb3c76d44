"""Offers of providers and vendors for GPUs, from the site's own table (`money.offers`).

An offer is a possible price of a GPU-hour, and never a paid one; paid prices are in `analytics.money.prices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Literal, get_args

from analytics.cards import Card, cards, is_called
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.money.prices import HOURS_PER_YEAR, PriceBook, TableKind, priced_as
from fallow.config import Config

COLUMNS = (
    "kind",
    "provider",
    "model",
    "hourly",
    "currency",
    "date",
    "source",
    "years",
    "purchase",
    "yearly_cost",
    "interruptions_per_day",
)

OLD_AFTER = timedelta(days=90)
"""Greatest age of an offer: public prices change several times a year, and one older than a quarter may be withdrawn.
"""

_LEAST_YEARS = Decimal("0.01")

OfferKind = Literal["own", TableKind]
"""Kinds of offers; `own` continues as now, at the site's price in force."""

COMMITTED: tuple[OfferKind, ...] = ("own", "buy", "reserved")
"""Kinds that are paid with or without use."""


@dataclass(frozen=True)
class GpuOffer:
    """One way to get a GPU of a model, in the book's currency.

    Attributes:
        hourly: price per GPU-hour: of use for `spot` and `on_demand`; of the whole term of `years` for `reserved`; of
            the whole life of `years`, without electricity, for `buy`; of every hour, with everything in the site's
            price, for `own`.
        interruptions_per_day: of spot; None is unknown.
    """

    kind: OfferKind
    provider: str
    model: str
    hourly: Decimal
    date: date | None
    source: str
    years: Decimal | None = None
    interruptions_per_day: Decimal | None = None


def is_old(offer: GpuOffer, today: date) -> bool:
    """Return True if it is older than 90 days, or its day is unknown. The site's own price holds until it changes."""
    return offer.kind != "own" and (offer.date is None or today - offer.date > OLD_AFTER)


def load_offers(settings: Config, book: PriceBook) -> tuple[GpuOffer, ...]:
    """Read the offers table of the settings; empty without one. Raises ConfigError that names the line."""
    path = settings.text("money.offers")
    return tuple(_offer(line, book) for line in offer_lines(path)) if path else ()


def offer_lines(path: str) -> tuple[CsvLine, ...]:
    """Return the lines of an offers table as written. Raises ConfigError."""
    return tuple(read_lines(path, COLUMNS, ("kind", "provider", "model")))


def is_of(offer: GpuOffer, model: str) -> bool:
    """Return True if it is for this GPU model, by any name of its card."""
    return priced_as(offer.model, None) == priced_as(model, None)


def _offer(line: CsvLine, book: PriceBook) -> GpuOffer:
    kind = next((each for each in get_args(TableKind) if each == line.text("kind")), None)
    if kind is None:
        raise line.error(f"kind '{line.text('kind') or ''}' is none of {', '.join(get_args(TableKind))}")
    provider, model = line.text("provider"), line.text("model")
    if provider is None or model is None:
        raise line.error("an offer needs a provider and a model")
    code = (line.text("currency") or book.currency).upper()
    rate = book.rate(code)
    if rate is None:
        raise line.error(
            f"it is in {code}, and sums are in {book.currency}", f"add an exchange line for {code} to money.prices"
        )
    years = line.number_of("years", least=_LEAST_YEARS)
    if kind in ("buy", "reserved") and years is None:
        raise line.error(f"{kind} needs years", "say for how many years it is bought or reserved, such as 3 or 0.5")
    return GpuOffer(
        kind,
        provider,
        model,
        _hourly(line, kind, years) * rate,
        line.date_of("date"),
        line.text("source") or provider,
        years,
        line.number_of("interruptions_per_day"),
    )


def _hourly(line: CsvLine, kind: TableKind, years: Decimal | None) -> Decimal:
    hourly, purchase, yearly = (line.number_of(name) for name in ("hourly", "purchase", "yearly_cost"))
    if kind == "buy" and years is not None and purchase is not None and hourly is None:
        return (purchase / years + (yearly or 0)) / HOURS_PER_YEAR
    if kind != "buy" and hourly is not None and purchase is None and yearly is None:
        return hourly
    raise line.error(
        "buy has a purchase and, if you like, a yearly_cost; every other kind has an hourly price",
        "leave the other cells empty",
    )


def useful_hourly(offer: GpuOffer, lost_hours: float) -> float | None:
    """Return the cost of an hour of finished work on spot GPUs; None if interruptions are unknown or no work finishes.

    Interruptions come at a rate of r an hour, and each loses L hours of work (the work since the last checkpoint, and
    the new start): of each paid hour, r L is lost, so an hour of work takes 1 / (1 - r L) of them.

    L is `lost_hours`.
    """
    if offer.interruptions_per_day is None:
        return None
    kept = 1 - float(offer.interruptions_per_day) / 24 * lost_hours
    return float(offer.hourly) / kept if kept > 0 else None


_COLUMNS = ("instancetype", "acceleratorname", "acceleratorcount", "price", "spotprice", "region", "gpuinfo")
_PRICES: Mapping[TableKind, str] = {"on_demand": "price", "spot": "spotprice"}
_MEMORY = re.compile(r"['\"]SizeInMiB['\"]:\s*(\d+)")
_MEMORY_LESS, _MEMORY_MORE = 0.9, 1.1
"""Memory margin: a catalog has the memory of a data sheet, a card shows the memory that ECC leaves."""
_LEAST_MIB = 1024
_DIGITS = 6


@dataclass(frozen=True)
class ImportedCatalog:
    """Offers in a catalog: for each card and kind the cheapest GPU.

    `unknown`: names of cards that fallow does not know. `hostless` counts lines that price GPUs without the instance.
    """

    offers: tuple[Mapping[str, object], ...]
    unknown: tuple[str, ...]
    hostless: int = 0


def import_catalog(path: str, provider: str, day: date, region: str = "") -> ImportedCatalog:
    """Read a catalog of a day. Raises ConfigError for an invalid catalog.

    Lines without an instance price an accelerator alone, without the host that it needs (GCP), and are left out, as are
    shares of a GPU.

    The file names neither the provider nor the day of its prices. `region` is a prefix of regions; empty for all.
    """
    best: dict[tuple[str, TableKind], tuple[Decimal, CsvLine]] = {}
    fitting: dict[tuple[str, int | None], tuple[Card, ...]] = {}
    lines = tuple(_lines(path, region))
    whole = [line for line in lines if line.text("instancetype")]
    for line in whole:
        name, memory = line.text("acceleratorname") or "", _memory_mib(line)
        if (name, memory) not in fitting:
            fitting[name, memory] = tuple(_cards(name, memory))
        for kind, hourly in _listed_hourly(line):
            for card in fitting[name, memory]:
                if (card.name, kind) not in best or hourly < best[card.name, kind][0]:
                    best[card.name, kind] = hourly, line
    offers = tuple(_cells(*key, found, provider, day) for key, found in sorted(best.items(), key=lambda each: each[0]))
    known = {name for (name, _), own in fitting.items() if own}
    return ImportedCatalog(offers, tuple(sorted({name for name, _ in fitting} - known)), len(lines) - len(whole))


def _lines(path: str, region: str) -> Iterator[CsvLine]:
    for line in read_lines(path, _COLUMNS, _COLUMNS[:-1]):
        count = line.number_of("acceleratorcount")
        if line.text("acceleratorname") and count and count >= 1 and (line.text("region") or "").startswith(region):
            yield line


def _listed_hourly(line: CsvLine) -> Iterator[tuple[TableKind, Decimal]]:
    """Return the prices of a GPU-hour; an empty cell is no price, and neither is 0."""
    count = line.number_of("acceleratorcount")
    for kind, column in _PRICES.items():
        price = line.number_of(column)
        if price and count:
            yield kind, round(price / count, _DIGITS)


def _memory_mib(line: CsvLine) -> int | None:
    """Return the memory in MiB. Some clouds (RunPod) write GiB under the name of MiB: no card has less than a GiB."""
    found = _MEMORY.search(line.text("gpuinfo") or "")
    if found is None:
        return None
    size = int(found[1])
    return size if size >= _LEAST_MIB else size * 1024


def _cards(name: str, memory_mib: int | None) -> Iterator[Card]:
    """Return the cards that a catalog may mean: `H100` with its memory; without a memory only cards that are alike."""
    asked = re.sub(r"^RTX(?=[A-Z0-9])", "RTX ", re.sub(r"^A(?=\d000$)", "RTX A", name))
    called = [each for each in cards() if is_called(asked, each.name)]
    sizes = [each.installed_bytes / 2**20 for each in called]
    wanted = memory_mib or (min(sizes) if sizes and max(sizes) <= min(sizes) * _MEMORY_MORE else None)
    if wanted is not None:
        yield from (
            each
            for each, size in zip(called, sizes, strict=True)
            if _MEMORY_LESS * wanted <= size <= _MEMORY_MORE * wanted
        )


def _cells(
    card: str, kind: TableKind, cheapest: tuple[Decimal, CsvLine], provider: str, day: date
) -> Mapping[str, object]:
    hourly, line = cheapest
    count = f"{line.number_of('acceleratorcount') or 0:f}".rstrip("0").rstrip(".")
    whole = "" if count == "1" else f" / {count}"
    source = f"{provider} {line.text('instancetype')}{whole}, {line.text('region')}"
    return {
        "kind": kind,
        "provider": provider,
        "model": card,
        "hourly": hourly,
        "currency": "USD",
        "date": day.isoformat(),
        "source": source,
    }


def merged(kept: Iterable[CsvLine], catalog: ImportedCatalog, provider: str) -> list[Mapping[str, object]]:
    """Return the lines of an offers table with a provider's catalog prices; the interruptions of its spot GPUs stay."""
    rows = [line.cells for line in kept]
    is_replaced = [row.get("provider") == provider and row.get("kind") in _PRICES for row in rows]
    rates = {
        row.get("model"): row.get("interruptions_per_day")
        for row, old in zip(rows, is_replaced, strict=True)
        if old and row.get("kind") == "spot"
    }
    return [
        *(row for row, old in zip(rows, is_replaced, strict=True) if not old),
        *(
            {**each, "interruptions_per_day": rates.get(str(each["model"])) if each["kind"] == "spot" else None}
            for each in catalog.offers
        ),
    ]
