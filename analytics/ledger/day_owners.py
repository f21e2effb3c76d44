"""The user of each GPU row: of its processes, else of its allocation, else unknown where memory is in use.

MIG instances are units of their own, with their share of the GPU; the GPU itself keeps the part that no instance has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.ledger.columns import NONE, Codes, Floats, Ints, Mask, Places
from analytics.ledger.day_processes import Lists, RowOwner, last_at, sort_key
from analytics.ledger.day_rows import ASLEEP, DayRows
from analytics.ledger.settings import LedgerSettings
from analytics.mig import MIG_PREFIX, Instance
from fallow.stall_evidence import NO_CONTEXT_BYTES


@dataclass(frozen=True)
class Shares:
    """The part of a GPU that each row describes."""

    share: Floats
    split: Mask
    """Rows of GPUs that are split at that moment."""
    left_out: Mask
    """Rows of instances whose size or parent is unknown: their time is in their parent's."""
    related: Mask
    """All rows of the other instances and of their GPUs."""


def shares_of(rows: DayRows, instances: Mapping[tuple[str, str], Instance]) -> Shares:
    """Return the shares of a day's rows, given the instances by host and UUID."""
    share, split = np.ones(len(rows)), np.zeros(len(rows), bool)
    left_out, related = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    codes = {name: code for code, name in enumerate(rows.names)}
    for name, code in codes.items():
        if not name[1].startswith(MIG_PREFIX):
            continue
        mine = np.flatnonzero(rows.gpu == code)
        instance = instances.get(name)
        parent = None if instance is None else codes.get((name[0], instance.parent))
        if instance is None or parent is None:
            left_out[mine] = True
            continue
        share[mine] = instance.share
        whole = np.flatnonzero(rows.gpu == parent)
        related[mine] = related[whole] = True
        # the same tick writes both rows; half an interval separates one tick from the next
        start, slack = rows.start[whole], rows.interval[whole] // 2
        for first, last in _spans(rows, mine):
            during = whole[(start >= first - slack) & (start < last - slack)]
            share[during] -= instance.share
            split[during] = True
    return Shares(np.where(share < 1e-9, 0.0, share), split, left_out, related)


def _spans(rows: DayRows, mine: Places) -> Iterator[tuple[int, int]]:
    """Return the times in which an instance existed: its rows, with the time that each lasts; a larger gap ends it.

    There are none where every row of the instance is impossible, for example without an interval.
    """
    if not len(mine):
        return
    ends = rows.start[mine] + rows.span[mine]
    begins = np.flatnonzero(np.concatenate(([True], rows.start[mine][1:] > ends[:-1])))
    for first, last in zip(begins, np.append(begins[1:], len(mine)) - 1, strict=True):
        yield int(rows.start[mine[first]]), int(ends[last])


UNAVAILABLE, FREE, RESERVED, USE, UNSEEN = 0, 1, 2, 3, 8

UNWATCHED_SOURCES = ("unwatched", "allocation_unwatched")
"""User sources of time with neither process list nor proof of empty memory: free or allocated, possibly in use."""

_ZERO_BELOW_PCT = 0.5
"""An average that the GPU keeps itself may lie a little above the driver's samples of whole percents."""


@dataclass(frozen=True)
class Held:
    """The state of the GPU in each row: `kind`, `zero` and `measured`, and `owner` as a code into `owners`.

    An owner is a user and the source: process, allocation, allocation_unwatched, memory, unwatched or None.
    """

    kind: Codes
    zero: Mask
    measured: Mask
    owner: Places
    owners: tuple[tuple[RowOwner, str | None], ...]
    list_of_row: Places


@dataclass(frozen=True)
class Allocated:
    """Intervals in which GPUs of one host-day are allocated, by GPU and start; `owner` are codes into `owners`."""

    key: Ints
    end: Ints
    gpu: Ints
    owner: Places
    owners: tuple[RowOwner, ...]

    @classmethod
    def of(cls, spans: pl.DataFrame, gpus: Sequence[tuple[str, str]]) -> Allocated:
        """Return the allocated intervals of GPUs, from disjoint rows (gpu, start, end, user, account, job).

        `gpu` is a `unit`: a GPU that two hosts report has, on each host, the allocations made for it there.
        """
        order = pl.DataFrame({"gpu": ["/".join(name) for name in gpus]}, schema={"gpu": pl.String}).with_row_index(
            "code"
        )
        known = spans.join(order, on="gpu").select("code", "start", "end", "user", "account", "job")
        found = ((code, start, end, RowOwner(*whose)) for code, start, end, *whose in known.iter_rows())
        rows = sorted(found, key=lambda row: row[:2])
        owners = {owner: code for code, owner in enumerate(dict.fromkeys(row[3] for row in rows))}
        gpu = np.array([row[0] for row in rows], np.int64)
        start = np.array([row[1] for row in rows], np.int64)
        return cls(
            sort_key(gpu.astype(np.int32), start),
            np.array([row[2] for row in rows], np.int64),
            gpu,
            np.array([owners[row[3]] for row in rows], np.intp),
            tuple(owners),
        )

    def of_rows(self, rows: DayRows) -> Places:
        """Return the allocation in whose interval each row starts, as a code into `owners`; NONE for none."""
        if not len(self.key):
            return np.full(len(rows), NONE, np.intp)
        at = last_at(self.key, sort_key(rows.gpu, rows.start))
        inside = (at >= 0) & (self.gpu[at] == rows.gpu) & (rows.start < self.end[at])
        return np.where(inside, self.owner[at], NONE)


def unit(host: pl.Expr) -> pl.Expr:
    """Return the host and GPU as one name; no host's name has a slash."""
    return pl.concat_str(host, pl.col("gpu"), separator="/")


def who_holds(
    rows: DayRows, lists: Lists, allocated: Allocated, settings: LedgerSettings, *, is_split: Mask, unseen: Mask
) -> Held:
    """Return kind and owner of every row.

    The work of GPUs that `is_split` is that of their MIG instances; `unseen` rows of both carry no state.
    """
    split = is_split | unseen
    util, util_max = rows.floats["gpu_util_pct"], rows.floats["gpu_util_max_pct"]
    out_of_order = rows.out_of_order
    known = ~np.isnan(util) & ~split
    nothing_sampled = (util_max == 0) & (util < _ZERO_BELOW_PCT)
    zero = known & (((util == 0) & np.isnan(util_max)) | nothing_sampled)
    by_process = (rows.process_count > 0) & ~split
    no_list = rows.process_count < 0
    # without a process list, memory in use counts as a user; user_source states that in the evidence
    by_memory = no_list & (rows.floats["mem_used_bytes"] > settings.held_min_bytes) & ~split
    allocation = np.where(split, NONE, allocated.of_rows(rows))
    use = by_process | by_memory | (known & ~zero)
    kind = np.where(out_of_order, UNAVAILABLE, np.where(use, USE, np.where(allocation != NONE, RESERVED, FREE)))
    kind[unseen] = UNSEEN
    list_of_row = lists.of_rows(rows, by_process & (kind == USE))
    unwatched = (
        ((kind == FREE) | (kind == RESERVED))
        & no_list
        & ~(rows.floats["mem_used_bytes"] < NO_CONTEXT_BYTES)
        & ~split
        & ~rows.health.where_in((ASLEEP,))
    )
    # the users of the processes where a list names any, else the allocation, else only processes or memory
    sources = (None, "process", "memory", "unwatched")
    owners: list[tuple[RowOwner, str | None]] = [(RowOwner(), source) for source in sources]
    owners += [(owner, "process") for owner in lists.owners]
    owners += [(owner, source) for source in ("allocation", "allocation_unwatched") for owner in allocated.owners]
    names_user = np.array([owner.user is not None for owner in lists.owners] + [False])
    list_owner = np.append(lists.owner, NONE)[list_of_row]
    code = np.zeros(len(rows), np.intp)
    code[unwatched] = sources.index("unwatched")
    code[by_memory & (kind == USE)] = sources.index("memory")
    code[by_process & (kind == USE)] = sources.index("process")
    listed = by_process & (kind == USE) & (list_owner != NONE)
    code[listed] = len(sources) + list_owner[listed]
    from_allocation = (allocation != NONE) & ((kind == RESERVED) | (kind == USE)) & ~(listed & names_user[list_owner])
    blind = unwatched[from_allocation] * len(allocated.owners)
    code[from_allocation] = len(sources) + len(lists.owners) + allocation[from_allocation] + blind
    # equal owners get the same code, so that a change of code is a change of owner
    distinct: dict[tuple[RowOwner, str | None], int] = {}
    renumbered = np.array([distinct.setdefault(owner, len(distinct)) for owner in owners], np.intp)
    zero, known = zero & ~out_of_order, known & ~out_of_order
    return Held(kind.astype(np.int32), zero, known, renumbered[code], tuple(distinct), list_of_row)
