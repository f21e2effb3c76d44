"""What a remark on the data is, and what a check is given and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from analytics.inventory import Inventory
from analytics.language.sentences import tr, tr_many
from analytics.money.costs import Costs
from analytics.quality.host_clocks import SeenUntil
from fallow.clock import Window
from fallow.quarantine import LeftOut

MOST_NAMED = 5
"""A remark on hosts or GPUs names so many, the worst first, and counts the others."""


@dataclass(frozen=True)
class Remark:
    """One thing to know about the data: a stable kind, and a sentence that says what fallow made of it.

    `count` is how many rows, GPUs, hosts or claims it is about, `example` the worst of them; empty where none stands out.
    """

    kind: str
    sentence: str
    count: int = 0
    example: str = ""


@dataclass(frozen=True)
class Data:
    """What a check may look at, all of it inside a window both of whose ends are known.

    Times are integer milliseconds. `stretches` is the ledger, `values` the `quality` table, `hours` gpu, host, time and
    observed_ms of the `hourly` table. `claims` are whole rows of the `claim` table that reach into the window, `cards`
    the window's rows of the `device` table (time, host, gpu, pci_bus_id) of whole GPUs, `steps` its clock_stepped events
    (time, host, detail). `seen` names the hosts whose clock is ahead,
    `left_out` the files and names in the lake that its listings and readers left out.
    """

    window: Window
    stretches: pl.DataFrame
    inventory: Inventory
    values: pl.DataFrame
    hours: pl.DataFrame
    claims: pl.DataFrame
    cards: pl.DataFrame
    steps: pl.DataFrame
    costs: Costs
    seen: SeenUntil
    left_out: Sequence[LeftOut] = ()


class QualityCheck(Protocol):
    """One check, one function: the remarks it has to make, none where all is well."""

    def __call__(self, data: Data) -> Iterable[Remark]:
        """The remarks, the worst first."""
        ...


_MORE = {
    "GPU": ("{number} more GPU", "{number} more GPUs"),
    "host": ("{number} more host", "{number} more hosts"),
    "claim": ("{number} more allocation", "{number} more allocations"),
    "day": ("{number} more day", "{number} more days"),
    "model": ("{number} more model", "{number} more models"),
}


def named(names: Sequence[str], thing: str) -> str:
    """`a, b and c`, or `a, b, c, d, e and 3 more hosts`; things are those of `_MORE`."""
    shown, rest = list(names[:MOST_NAMED]), len(names) - MOST_NAMED
    last = tr_many(*_MORE[thing], rest) if rest > 0 else shown.pop()
    return tr("{names} and {last}", names=", ".join(shown), last=last) if shown else last
