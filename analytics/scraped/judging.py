"""What looks wrong with scraped rows: the questions that every import is asked, host by host, before anything is published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import polars as pl

from analytics.importers.doubts import doubts
from analytics.importers.model import Imported
from analytics.importers.overview import overview_of
from analytics.importers.plausibility import Claim, check_values
from analytics.mig import MIG_PREFIX
from fallow.schema import DEVICE, GPU

_MOST = 10


def judged(hosts: Iterable[Imported], now_ms: int) -> tuple[str, ...]:
    """Sentences on what is odd, the first few; `now_ms` is the server's time.

    Raises InputError for values that cannot be, with the unit that they are probably in.
    """
    found = dict.fromkeys(odd for each in hosts for odd in _of_host(each, now_ms))
    sentences = tuple(found)
    more = (f"and {len(sentences) - _MOST:,} more of this kind",) if len(sentences) > _MOST else ()
    return sentences[:_MOST] + more


def _of_host(imported: Imported, now_ms: int) -> Iterator[str]:
    # a host may have 56 MIG instances, and their values are not a card's
    cards = imported.gpu.filter(~pl.col("gpu").str.starts_with(MIG_PREFIX))
    if cards.is_empty():
        return
    own = replace(imported, gpu=cards)
    nulled = {(each.column, each.reason): each.count for file in imported.files for each in file.nulled}
    for table, frame in ((GPU, cards), (DEVICE, imported.device)):
        claims = _claims([column.name for column in table.columns if column.name in frame.columns])
        yield from (f"{imported.host}: {odd}" for odd in check_values(frame, claims, nulled, _card_bytes(imported)))
    yield from (f"{imported.host}: {odd}" for odd in doubts(own, overview_of(own), now_ms))


def _claims(names: Iterable[str]) -> Mapping[str, Claim]:
    return {name: Claim(name, declared=False, declare=_in_mapping(name)) for name in names}


def _in_mapping(name: str) -> Callable[[str], str]:
    return lambda unit: f"check the unit of {name} in the mapping" + (f": is it {unit}?" if unit else "")


def _card_bytes(imported: Imported) -> int | None:
    if "mem_total_bytes" not in imported.device.columns:
        return None
    largest = imported.device["mem_total_bytes"].max()
    return int(str(largest)) if largest else None
