"""What a remark on the data is, what a check is given and gives back, and the words that several checks use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from analytics.inventory import Inventory
from analytics.language.language import Sentence, SentenceList
from analytics.language.plain_text import moment
from analytics.language.quantities import Moment
from analytics.language.sentences import tr, tr_many
from analytics.ledger.summary import WALL_CLOCK, hosts_ahead
from analytics.money.costs import Costs
from analytics.window import WindowLedger
from fallow.clock import Window
from fallow.quarantine import LeftOut


def gpus_of(number: int) -> Sentence:
    """`1 GPU`, `2 GPUs`."""
    return tr_many("{number} GPU", "{number} GPUs", number)


def hosts_of(number: int) -> Sentence:
    """`1 host`, `2 hosts`."""
    return tr_many("{number} host", "{number} hosts", number)


def allocations_of(number: int) -> Sentence:
    """`1 allocation`, `2 allocations`."""
    return tr_many("{number} allocation", "{number} allocations", number)


def rows_of(number: int) -> Sentence:
    """`1 row`, `2 rows`."""
    return tr_many("{number} row", "{number} rows", number)


class Stamp(Moment):
    """A moment whose English form is that of the commands: `2026-11-20 06:00 UTC`."""

    def __str__(self) -> str:
        return moment(self.moment_ms)


@dataclass(frozen=True)
class SeenUntil:
    """The end of what was seen in a window, and the newest row of each host whose clock is ahead of `ahead_of`.

    Of such a host nobody knows what is the case at that end: its row of that moment was written long before or after.
    """

    until_ms: int
    ahead: Mapping[str, int] = field(default_factory=dict)
    ahead_of: str = WALL_CLOCK


def seen_until(ledger: WindowLedger, now_ms: int) -> SeenUntil:
    """Up to when the hosts of a window were seen; `now_ms` is the wall clock's time."""
    ahead, ahead_of = hosts_ahead(ledger.whole.host_ends, now_ms)
    inside = _ends(ledger.inside.stretches)
    own = [end for host, end in inside.items() if host not in ahead] or list(inside.values())
    until_ms = max(own, default=ledger.summary.until_ms)
    return SeenUntil(until_ms, ahead, ahead_of)


def _ends(stretches: pl.DataFrame) -> dict[str, int]:
    return dict(stretches.group_by("host").agg(pl.col("end").max()).iter_rows())


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


def named(names: Sequence[str], thing: str, number: int | None = None) -> str:
    """`a, b and c`, or `a, b, c, d, e and 3 more hosts` of a number in all; things are those of `_MORE`."""
    shown = list(names[:MOST_NAMED])
    rest = (len(names) if number is None else number) - len(shown)
    last = tr_many(*_MORE[thing], rest) if rest else shown.pop()
    return tr("{names} and {last}", names=SentenceList(shown, ", "), last=last) if shown else last
