"""`fallow prices --import`: import a provider's price catalog into the site's table of offers."""

from __future__ import annotations

import argparse
from datetime import date
from pathlib import Path

from analytics.commands.written_file import write_whole
from analytics.language.sentences import plain
from analytics.money.offers import COLUMNS, import_catalog, merged, offer_lines
from fallow.config import Config
from fallow.csv_text import csv_of
from fallow.errors import InputError, UsageError
from fallow.output import say, show


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="catalog",
        metavar="FILE",
        help="catalog in SkyPilot's CSV form; its cheapest prices replace the provider's in money.offers",
    )
    parser.add_argument("--provider", metavar="NAME", help="provider of the catalog")
    parser.add_argument("--date", metavar="DAY", help="day of the catalog, such as 2026-11-20")
    parser.add_argument(
        "--region",
        metavar="START",
        default="",
        help="only regions that begin with this text, such as eu (default: all)",
    )


def run_import(args: argparse.Namespace, settings: Config) -> None:
    """Write the table of offers; raises UsageError and ConfigError."""
    path = settings.text("money.offers")
    if not path:
        raise UsageError("money.offers names no file for the offers", "set it, such as FALLOW_MONEY_OFFERS=offers.csv")
    if not args.provider or not args.date:
        raise UsageError("the catalog names neither its provider nor its date", "give --provider and --date")
    found = import_catalog(args.catalog, args.provider, _day(args.date), args.region)
    if found.hostless and not found.offers:
        raise InputError(
            f"{args.catalog} prices its GPUs apart from the instances that hold them, as SkyPilot's GCP catalog does",
            f"add both prices to {path} by hand, one line for each card",
        )
    if not found.offers:
        raise InputError(
            f"{args.catalog} has no price of a whole instance with a card that fallow knows{_of_region(args.region)}",
            "is it a vms.csv of SkyPilot's catalogs?",
        )
    kept = offer_lines(path) if Path(path).exists() else ()
    write_whole(Path(path), csv_of(COLUMNS, merged(kept, found, args.provider)).encode())
    show(f"offers of {plain(args.provider, 40)} now in {path}: {len(found.offers)}")
    if found.unknown:
        say(
            "left out, because the card is unknown or ambiguous:"
            f" {', '.join(plain(name, 40) for name in found.unknown)}"
        )
    if any(each["kind"] == "spot" for each in found.offers):
        say(
            "spot prices count once interruptions_per_day is filled in: catalogs do not say how often spot GPUs are"
            " reclaimed"
        )


def _of_region(region: str) -> str:
    return f" in a region that begins with {plain(region, 40)}" if region else ""


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--date '{text}' is not a day", "write it as 2026-11-20") from None
