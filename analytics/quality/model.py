"""Remarks on data quality, the input of a check, and the sentences that several checks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from analytics.inventory import Inventory
from analytics.language.sentences import Moment, Sentence, SentenceList, moment, tr, tr_many
from analytics.ledger.summary import WALL_CLOCK, hosts_ahead
from analytics.money.costs import Costs
from analytics.window import WindowLedger
from fallow.clock import Window
from fallow.quarantine import LeftOut


def gpus_of(number: int) -> Sentence:
    return tr_many("{number} {GPU|GPUs}", number)


def hosts_of(number: int) -> Sentence:
    return tr_many("{number} {host|hosts}", number)


def allocations_of(number: int) -> Sentence:
    return tr_many("{number} {allocation|allocations}", number)


def rows_of(number: int) -> Sentence:
    return tr_many("{number} {row|rows}", number)


class Stamp(Moment):
    """A moment whose English form is that of the commands: `2026-11-20 06:00 UTC`."""

    def __str__(self) -> str:
        return moment(self.moment_ms)


@dataclass(frozen=True)
class SeenUntil:
    """The end of the observed time in a window, and the hosts whose clocks are ahead.

    The state of a host with a wrong clock is unknown then: it wrote its row of that moment much earlier or later.
    """

    until_ms: int
    """End of the newest row in the window, without hosts whose clocks are ahead unless there are no others."""
    ahead: Mapping[str, int] = field(default_factory=dict)
    """Time of the newest row of each host whose clock is ahead."""
    ahead_of: str = WALL_CLOCK
    """The clock that these hosts are ahead of."""


def seen_until(ledger: WindowLedger, now_ms: int) -> SeenUntil:
    """Return the end of the observed time in a window. `now_ms` is the current time."""
    ahead, ahead_of = hosts_ahead(ledger.whole.host_ends, now_ms)
    inside = _ends(ledger.inside.segments)
    own = [end for host, end in inside.items() if host not in ahead] or list(inside.values())
    until_ms = max(own, default=ledger.summary.until_ms)
    return SeenUntil(until_ms, ahead, ahead_of)


def _ends(segments: pl.DataFrame) -> dict[str, int]:
    return dict(segments.group_by("host").agg(pl.col("end").max()).iter_rows())


MOST_NAMED = 5
"""A remark names at most this number of hosts or GPUs, the worst first, and counts the others."""


@dataclass(frozen=True)
class Remark:
    """A problem with the data."""

    kind: str
    """Stable name of the problem."""
    sentence: str
    """The problem, and how fallow handled it."""
    count: int = 0
    """Number of affected rows, GPUs, hosts or allocations."""
    example: str = ""
    """The worst of them; empty if none stands out."""


@dataclass(frozen=True)
class Data:
    """The data of a check, all of it inside a window both of whose ends are known. Times are integer milliseconds."""

    window: Window
    segments: pl.DataFrame
    inventory: Inventory
    values: pl.DataFrame
    """The `quality` table."""
    hours: pl.DataFrame
    """gpu, host, time and observed_ms of the `hourly` table."""
    allocations: pl.DataFrame
    """Whole rows of the `allocation` table that reach into the window."""
    cards: pl.DataFrame
    """Rows of the `device` table for whole GPUs: time, host, gpu, pci_bus_id."""
    steps: pl.DataFrame
    """clock_stepped events: time, host, detail."""
    costs: Costs
    seen: SeenUntil
    """The end of the observations, and the hosts whose clock is ahead."""
    left_out: Sequence[LeftOut] = ()
    """Files and names in the lake that its listings and readers left out."""


class QualityCheck(Protocol):
    """One check, one function: it returns its remarks, none where all is well."""

    def __call__(self, data: Data) -> Iterable[Remark]:
        """Return the remarks, the worst first."""
        ...


_MORE = {
    "GPU": "{number} more {GPU|GPUs}",
    "host": "{number} more {host|hosts}",
    "allocation": "{number} more {allocation|allocations}",
    "day": "{number} more {day|days}",
    "model": "{number} more {model|models}",
}


def named(names: Sequence[str], thing: str, number: int | None = None) -> str:
    """Return `a, b and c`, or `a, b, c, d, e and 3 more hosts` of a number in all; things are those of `_MORE`."""
    shown = list(names[:MOST_NAMED])
    unnamed = (len(names) if number is None else number) - len(shown)
    last = tr_many(_MORE[thing], unnamed) if unnamed else shown.pop()
    return tr("{names} and {last}", names=SentenceList(shown, ", "), last=last) if shown else last
