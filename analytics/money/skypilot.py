"""Price catalogs in the CSV form of SkyPilot (github.com/skypilot-org/skypilot-catalog, `vms.csv` of each cloud), as offers.

A line prices an instance: `InstanceType`, `AcceleratorName`, `AcceleratorCount`, `Price` on demand and `SpotPrice`, both in USD an hour for the
whole instance, `Region`, `AvailabilityZone`, and `GpuInfo`, a dictionary that has the memory of each GPU. Any column may be empty, and their order
differs from cloud to cloud.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from analytics.money.cards import Card, cards, is_called
from analytics.money.csv_tables import CsvLine, read_lines
from analytics.money.offers import TableKind

_COLUMNS = ("instancetype", "acceleratorname", "acceleratorcount", "price", "spotprice", "region", "gpuinfo")
_PRICES: Mapping[TableKind, str] = {"on_demand": "price", "spot": "spotprice"}
_MEMORY = re.compile(r"['\"]SizeInMiB['\"]:\s*(\d+)")
_MEMORY_LESS, _MEMORY_MORE = 0.9, 1.1
"""A catalog has the memory of a data sheet, a card shows what is left beside ECC."""
_LEAST_MIB = 1024
_DIGITS = 6


@dataclass(frozen=True)
class ImportedCatalog:
    """The cells of offers that a catalog has: for each card and kind the cheapest GPU. `unknown` are names of no card that fallow knows."""

    offers: tuple[Mapping[str, object], ...]
    unknown: tuple[str, ...]


def import_catalog(path: str, provider: str, day: date, region: str = "") -> ImportedCatalog:
    """Reads a catalog of a day; raises ConfigError for a file that is no such catalog.

    Lines without an instance price an accelerator alone, without the host that it needs (GCP), and are left out; so are shares of a GPU.

    Args:
        path: the CSV file.
        provider: whose prices they are; the file does not say.
        day: of when they are; the file does not say.
        region: only regions that begin so; all of them if empty.
    """
    best: dict[tuple[str, TableKind], tuple[Decimal, CsvLine]] = {}
    fitting: dict[tuple[str, int | None], tuple[Card, ...]] = {}
    for line in _lines(path, region):
        name, memory = line.text("acceleratorname") or "", _memory_mib(line)
        if (name, memory) not in fitting:
            fitting[name, memory] = tuple(_cards(name, memory))
        for kind, hourly in _hourly(line):
            for card in fitting[name, memory]:
                if (card.name, kind) not in best or hourly < best[card.name, kind][0]:
                    best[card.name, kind] = hourly, line
    offers = tuple(_cells(*key, found, provider, day) for key, found in sorted(best.items(), key=lambda each: each[0]))
    known = {name for (name, _), own in fitting.items() if own}
    return ImportedCatalog(offers, tuple(sorted({name for name, _ in fitting} - known)))


def _lines(path: str, region: str) -> Iterator[CsvLine]:
    """Those of whole instances with whole GPUs."""
    for line in read_lines(path, _COLUMNS, _COLUMNS[:-1]):
        count = line.number_of("acceleratorcount")
        if (
            line.text("instancetype")
            and line.text("acceleratorname")
            and count
            and count >= 1
            and (line.text("region") or "").startswith(region)
        ):
            yield line


def _hourly(line: CsvLine) -> Iterator[tuple[TableKind, Decimal]]:
    """The prices of a GPU-hour; an empty cell is no price, and neither is 0."""
    count = line.number_of("acceleratorcount")
    for kind, column in _PRICES.items():
        price = line.number_of(column)
        if price and count:
            yield kind, round(price / count, _DIGITS)


def _memory_mib(line: CsvLine) -> int | None:
    """Some clouds (RunPod) write GiB under the name of MiB: no card has less than a GiB."""
    found = _MEMORY.search(line.text("gpuinfo") or "")
    if found is None:
        return None
    size = int(found[1])
    return size if size >= _LEAST_MIB else size * 1024


def _cards(name: str, memory_mib: int | None) -> Iterator[Card]:
    """The cards that a catalog may mean: `H100` is any with its memory; without a memory only those that are all alike in it."""
    asked = re.sub(r"^RTX(?=[A-Z0-9])", "RTX ", re.sub(r"^A(?=\d000$)", "RTX A", name))
    called = [each for each in cards() if is_called(asked, each.name)]
    sizes = [each.memory_bytes / 2**20 for each in called]
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
    """The lines of a table of offers with a provider's prices by the hour as the catalog has them; how often its spot GPUs are taken away stays as it was."""
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
