"""What looks wrong with scraped rows: the questions that every import is asked, before anything is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from analytics.importers.doubts import doubts
from analytics.importers.model import Imported
from analytics.importers.overview import overview_of
from analytics.importers.plausibility import Claim, check_values
from analytics.importers.ticks import MOST_GPUS
from analytics.mig import MIG_PREFIX
from fallow.schema import DEVICE, GPU

_MOST = 10
_MOMENTS = ("time", "gpu", "interval_ms", "offset_ms")
_ALL_HOSTS = "import"
"""How the doubts know that it is not one host."""


def judged(hosts: Sequence[Imported], now_ms: int, *, own_mapping: bool) -> tuple[str, ...]:
    """Sentences on what is odd, the first few; `now_ms` is the server's time.

    Values are judged of all hosts together, and only where a site's own mapping says their units: cards that rest look odd. Raises
    InputError for values that cannot be, with the unit that they are probably in.
    """
    # a host may have 56 MIG instances, and their values are not a card's
    cards = [each.gpu.filter(~pl.col("gpu").str.starts_with(MIG_PREFIX)) for each in hosts]
    found = [
        f"{gpus} GPUs on the one host {each.host}, where {MOST_GPUS} are the most"
        for each, own in zip(hosts, cards, strict=True)
        if (gpus := own["gpu"].n_unique()) > MOST_GPUS
    ]
    gpu = pl.concat(cards, how="diagonal") if cards else pl.DataFrame()
    if gpu.height:
        device = pl.concat([each.device for each in hosts], how="diagonal")
        files = tuple(file for each in hosts for file in each.files)
        found += _of_all(Imported(_ALL_HOSTS, gpu, device, files, "as scraped", "UTC"), now_ms, own_mapping=own_mapping)
    more = [f"and {len(found) - _MOST:,} more of this kind"] if len(found) > _MOST else []
    return tuple(found[:_MOST] + more)


def _of_all(imported: Imported, now_ms: int, *, own_mapping: bool) -> Iterator[str]:
    nulled = Counter[tuple[str, str]]()
    for each in (each for file in imported.files for each in file.nulled):
        nulled[each.column, each.reason] += each.count
    for table, frame in ((GPU, imported.gpu), (DEVICE, imported.device)) if own_mapping else ():
        claims = _claims([column.name for column in table.columns if column.name in frame.columns])
        yield from check_values(frame, claims, nulled, _card_bytes(imported))
    told = imported if own_mapping else replace(imported, gpu=imported.gpu.select(_MOMENTS))
    yield from doubts(told, overview_of(told), now_ms)


def _claims(names: Iterable[str]) -> Mapping[str, Claim]:
    return {name: Claim(name, declared=True, declare=_in_mapping(name)) for name in names}


def _in_mapping(name: str) -> Callable[[str], str]:
    return lambda unit: f"check the unit of {name} in the mapping" + (f": is it {unit}?" if unit else "")


def _card_bytes(imported: Imported) -> int | None:
    if "mem_total_bytes" not in imported.device.columns:
        return None
    largest = imported.device["mem_total_bytes"].max()
    return int(str(largest)) if largest else None
