"""`fallow prices`: the prices in force with their sources and GPUs, and the offers of GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace

from analytics.commands.prices_import import add_import_arguments, run_import
from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables, open_settings
from analytics.commands.written_file import write_out
from analytics.inventory import Inventory, load_inventory
from analytics.language.sentences import count, plain, tr
from analytics.money.costs import Costs
from analytics.money.offers import load_offers
from analytics.money.prices import COLUMNS, PriceBook, catalog, priced_as
from analytics.money.window_money import PriceBasis, newest_basis, open_prices, unmatched_prices
from analytics.tables.site_tables import offers, prices_in_force
from fallow.clock import from_ms
from fallow.csv_text import csv_of
from fallow.output import say


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:  # noqa: ARG001  # as every verb
    """Yield the prices of the site and of the catalog, and the offers."""
    book, basis = _priced(given)
    found = prices_in_force(book, basis)
    notes = [tr("`fallow prices --csv` writes a table to put your own in: name it as money.prices")]
    if not any(price.origin == "catalog" for price in found.rows):
        notes.insert(0, tr("the catalog is in USD: add an exchange line (docs/money.md)"))
    yield replace(found, shown=None, notes=tuple(notes))
    yield offers(load_offers(given.settings, book), book.currency, from_ms(given.now_ms).date())


def _priced(given: LakeInputs) -> tuple[PriceBook, tuple[PriceBasis, ...]]:
    """Return the prices, and the GPUs of the lake by price; prints the names of the site's tables that match no GPU."""
    book = open_prices(given.settings)
    inventory = load_inventory(given.lake) if given.settings.text("lake.path") else Inventory({})
    if unmatched := unmatched_prices(given.settings, book, inventory):
        say(unmatched)
    return book, newest_basis(inventory, Costs(book, inventory))


def _price_file(given: LakeInputs) -> str:
    """Return the site's price table as CSV, below it the list prices in force, and GPUs without a price as remarks."""
    book, basis = _priced(given)
    lines: list[Mapping[str, object]] = list(book.lines)
    for listed in catalog().values():
        if priced_as(listed.model, None) not in book.site and book.from_catalog(listed.model) is not None:
            cells = {"model": listed.model, "hourly": listed.hourly, "currency": listed.currency}
            lines.append(cells | {"date": str(listed.date), "source": listed.source})
    remarks = [
        f"# no price: {count(each.gpus, 'GPU')} of {plain(each.model)} in {plain(each.pool)}\n"
        for each in basis
        if each.price is None
    ]
    return csv_of(COLUMNS, lines) + "".join(remarks)


_PRICES = LakeVerb(tr("Prices"), _tables, flags=add_import_arguments, why="prices are of the whole lake and of today")
add_arguments = _PRICES.add_arguments


def run(args: argparse.Namespace) -> int:
    """Print the prices or the table to edit, or import a catalog; return the exit code."""
    if args.catalog is not None:
        run_import(args, open_settings(args).settings)
        return 0
    if args.format == "csv" and args.table is None:
        write_out(args.out, _price_file(open_settings(args)).encode())
        return 0
    return _PRICES.run(args)
