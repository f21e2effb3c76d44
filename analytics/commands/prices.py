"""`fallow prices`: the prices in force, where each is from, and which GPUs of the lake have it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from analytics.commands.prices_import import add_import_arguments, run_import
from analytics.inventory import Inventory, load_inventory
from analytics.language.plain_text import PAGE_COLUMNS, folded, page_columns, plain, wrap
from analytics.money.cards import catalog
from analytics.money.costs import Costs
from analytics.money.offers import OLD_AFTER, GpuOffer, is_old, load_offers
from analytics.money.prices import COLUMNS, Price, PriceBook, priced_as
from analytics.money.window_money import PriceBasis, gpus_at, in_force, newest_basis, open_prices, unmatched_prices
from analytics.tables.ledger_columns import PRICE_COLUMNS
from analytics.tables.money_basis import price_source
from analytics.tables.table import record
from fallow import config
from fallow.clock import SystemClock, from_ms
from fallow.csv_text import csv_of
from fallow.lake import Lake
from fallow.output import say, show

_HEADINGS = {"site": "the site's own prices", "catalog": "what public clouds ask on demand, which is not what you pay"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's own flags."""
    parser.add_argument("--lake", metavar="DIR", help="say of each price how many of the lake's GPUs have it")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    add_import_arguments(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="machine-readable")
    form.add_argument("--csv", action="store_true", help="a table to edit and to name as money.prices")


def run(args: argparse.Namespace) -> int:
    """Prints the prices."""
    settings = config.load({"lake.path": args.lake}, args.config)
    if args.catalog is not None:
        run_import(args, settings)
        return 0
    book = open_prices(settings)
    path = settings.text("lake.path")
    inventory = load_inventory(Lake.at(path)) if path else Inventory({})
    basis = newest_basis(inventory, Costs(book, inventory))
    if said := unmatched_prices(settings, book, inventory):
        say(said)
    offers, today = load_offers(settings, book), from_ms(SystemClock().now_ms()).date()
    if args.csv:
        _write_csv(book, basis)
    elif args.json:
        told = [_offer_json(each, today) for each in offers]
        show(json.dumps(_as_json(book, basis, with_lake=bool(path)) | {"offers": told}, indent=2))
    else:
        width = page_columns()
        lines = [
            *_as_text(book, basis, width, with_lake=bool(path)),
            *_offer_lines(offers, book.currency, today, width),
        ]
        show(folded("\n".join(lines), width))
    return 0


def _as_text(book: PriceBook, basis: Sequence[PriceBasis], width: int, *, with_lake: bool) -> list[str]:
    prices = in_force(book)
    lines: list[str] = []
    for origin, heading in _HEADINGS.items():
        own = [price for price in prices if price.origin == origin]
        if own:
            lines += [
                f"{heading}, {book.currency} per GPU-hour",
                *_price_lines(own, basis, width, with_lake=with_lake),
                "",
            ]
    missing = [each for each in basis if each.price is None]
    if missing:
        lines += ["no price", *(f"{each.gpus:>6}  {plain(f'{each.model} ({each.pool})', 80)}" for each in missing), ""]
    if not any(price.origin == "catalog" for price in prices):
        lines.append(f"the catalog is in USD: add an exchange line to {book.currency} (docs/money.md)")
    return [*lines, "`fallow prices --csv` writes a table to put your own in: name it as money.prices"]


def _price_lines(
    prices: Sequence[Price], basis: Sequence[PriceBasis], columns: int, *, with_lake: bool
) -> Iterator[str]:
    width = min(28, max(len(_about(price)) for price in prices))
    for price in prices:
        used = f"{gpus_at(price, basis) or '-':>6}  " if with_lake else "  "
        day = "" if price.date is None else price.date.isoformat()
        start = f"{used}{plain(_about(price), width):<{width}}  {price.hourly:>8,.4f}  {day:<10}  "
        if columns < PAGE_COLUMNS:
            yield start + plain(price_source(price), columns - len(start))
        else:
            yield from wrap(plain(price_source(price), 200), columns, start, " " * len(start))


def _offer_lines(offers: Sequence[GpuOffer], currency: str, today: date, columns: int) -> Iterator[str]:
    """What GPUs could be had for, below what they cost."""
    if not offers:
        return
    yield ""
    yield f"what they could be had for (money.offers), {currency} per GPU-hour; old: before {today - OLD_AFTER}"
    for each in offers:
        day = "not dated" if each.date is None else each.date.isoformat()
        old = "old" if each.date is not None and is_old(each, today) else ""
        start = f"  {each.kind:<9}  {plain(each.model, 28):<28}  {each.hourly:>8,.4f}  {day:<10}  {old:<3}  "
        yield from wrap(plain(each.source, 200), columns, start, " " * len(start))


def _offer_json(offer: GpuOffer, today: date) -> dict[str, object]:
    return {
        "kind": offer.kind,
        "provider": offer.provider,
        "model": offer.model,
        "hourly": float(offer.hourly),
        "date": None if offer.date is None else offer.date.isoformat(),
        "is_old": is_old(offer, today),
        "source": offer.source,
        "years": None if offer.years is None else float(offer.years),
        "interruptions_per_day": None if offer.interruptions_per_day is None else float(offer.interruptions_per_day),
    }


def _about(price: Price) -> str:
    return f"{price.model or 'any model'} ({price.pool})" if price.pool else price.model or ""


def _as_json(book: PriceBook, basis: Sequence[PriceBasis], *, with_lake: bool) -> dict[str, object]:
    prices = [
        {"model": price.model, "pool": price.pool}
        | record(PRICE_COLUMNS, price)
        | ({"gpus": gpus_at(price, basis)} if with_lake else {})
        for price in in_force(book)
    ]
    missing = [{"model": each.model, "pool": each.pool, "gpus": each.gpus} for each in basis if each.price is None]
    return {"currency": book.currency, "prices": prices, "missing": missing}


def _write_csv(book: PriceBook, basis: Sequence[PriceBasis]) -> None:
    """The site's table as it is, the list prices in force below it, and what has no price as remarks."""
    lines: list[Mapping[str, object]] = list(book.lines)
    for listed in catalog().values():
        if priced_as(listed.model, None) not in book.site and book.from_catalog(listed.model) is not None:
            cells = {"model": listed.model, "hourly": listed.hourly, "currency": listed.currency}
            lines.append(cells | {"date": listed.date.isoformat(), "source": listed.source})
    show(csv_of(COLUMNS, lines), end="")
    for each in basis:
        if each.price is None:
            show(f"# no price: {each.gpus} GPUs {plain(each.model)} in {plain(each.pool)}")
