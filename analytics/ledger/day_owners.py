"""Whose each row of a GPU is: its processes' users, else who claims it, else only that memory is in use.

MIG instances are units of their own, with their share of the GPU; the GPU itself keeps what no instance has.
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


@dataclass(frozen=True)
class Shares:
    """The part of a GPU that each row is about, and which rows are of GPUs that are split at that moment.

    `left_out` are rows of instances whose size or parent is unknown: their time is in their parent's. `related` are all
    rows of the other instances and of their GPUs.
    """

    share: Floats
    split: Mask
    left_out: Mask
    related: Mask


def shares_of(rows: DayRows, instances: Mapping[tuple[str, str], Instance]) -> Shares:
    """Shares of a day's rows, given the instances by host and UUID."""
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
        # the same tick writes both rows; half an interval tells one tick from the next
        start, slack = rows.start[whole], rows.interval[whole] // 2
        for first, last in _spans(rows, mine):
            during = whole[(start >= first - slack) & (start < last - slack)]
            share[during] -= instance.share
            split[during] = True
    return Shares(np.where(share < 1e-9, 0.0, share), split, left_out, related)


def _spans(rows: DayRows, mine: Places) -> Iterator[tuple[int, int]]:
    """The times in which an instance was there: its rows, with what each stands for; a gap beyond that ends it.

    There are none where every row of the instance was one that cannot be, as with no interval.
    """
    if not len(mine):
        return
    ends = rows.start[mine] + rows.span[mine]
    begins = np.flatnonzero(np.concatenate(([True], rows.start[mine][1:] > ends[:-1])))
    for first, last in zip(begins, np.append(begins[1:], len(mine)) - 1, strict=True):
        yield int(rows.start[mine[first]]), int(ends[last])


UNAVAILABLE, FREE, RESERVED, USE, UNSEEN = 0, 1, 2, 3, 8

NOBODY_LOOKED = ("unwatched", "claim_unwatched")
"""Holder sources of time in which no process list and no empty memory were read: free or claimed, and somebody may work there."""

NO_CONTEXT_BYTES = 64 * 2**20
"""Less memory in use than any CUDA context takes: nobody was on the GPU at that moment."""

_ZERO_BELOW_PCT = 0.5
"""An average that the GPU keeps itself may lie a little above the driver's samples of whole percents."""


@dataclass(frozen=True)
class Held:
    """What each row says of the GPU: `kind`, `zero` and `measured`, and `owner` as a code into `owners`.

    An owner is who it is and how that is known: process, claim, claim_unwatched, memory, unwatched or None.
    """

    kind: Codes
    zero: Mask
    measured: Mask
    owner: Places
    owners: tuple[tuple[RowOwner, str | None], ...]
    list_of_row: Places


@dataclass(frozen=True)
class Claimed:
    """Spans in which GPUs of one host-day are claimed, by GPU and start; `owner` are codes into `owners`."""

    key: Ints
    end: Ints
    gpu: Ints
    owner: Places
    owners: tuple[RowOwner, ...]

    @classmethod
    def of(cls, spans: pl.DataFrame, gpus: Sequence[tuple[str, str]]) -> Claimed:
        """From spans (gpu, start, end, holder, account, job) that do not overlap; those of other GPUs are left out.

        `gpu` is a `unit`: a GPU that two hosts report has on each the claims that were given for it there.
        """
        order = pl.DataFrame({"gpu": ["/".join(name) for name in gpus]}, schema={"gpu": pl.String}).with_row_index(
            "code"
        )
        known = spans.join(order, on="gpu").select("code", "start", "end", "holder", "account", "job")
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
        """The claim in whose span each row starts, as a code into `owners`; NONE for none."""
        if not len(self.key):
            return np.full(len(rows), NONE, np.intp)
        at = last_at(self.key, sort_key(rows.gpu, rows.start))
        inside = (at >= 0) & (self.gpu[at] == rows.gpu) & (rows.start < self.end[at])
        return np.where(inside, self.owner[at], NONE)


def unit(host: pl.Expr) -> pl.Expr:
    """A GPU of a host in one name; no host's name has a slash."""
    return pl.concat_str(host, pl.col("gpu"), separator="/")


def who_holds(
    rows: DayRows, lists: Lists, claimed: Claimed, settings: LedgerSettings, *, is_split: Mask, unseen: Mask
) -> Held:
    """Kind and owner of every row.

    The work of GPUs that `is_split` is that of their MIG instances; of split GPUs and instances, `unseen` rows say nothing.
    """
    split = is_split | unseen
    util, util_max = rows.floats["gpu_util_pct"], rows.floats["gpu_util_max_pct"]
    out_of_order = rows.out_of_order
    known = ~np.isnan(util) & ~split
    nothing_sampled = (util_max == 0) & (util < _ZERO_BELOW_PCT)
    zero = known & (((util == 0) & np.isnan(util_max)) | nothing_sampled)
    by_process = (rows.process_count > 0) & ~split
    no_list = rows.process_count < 0
    # without a process list, memory in use stands for a holder; the evidence says so through holder_source
    by_memory = no_list & (rows.floats["mem_used_bytes"] > settings.held_min_bytes) & ~split
    claim = np.where(split, NONE, claimed.of_rows(rows))
    use = by_process | by_memory | (known & ~zero)
    kind = np.where(out_of_order, UNAVAILABLE, np.where(use, USE, np.where(claim != NONE, RESERVED, FREE)))
    kind[unseen] = UNSEEN
    list_of_row = lists.of_rows(rows, by_process & (kind == USE))
    unwatched = (
        ((kind == FREE) | (kind == RESERVED))
        & no_list
        & ~(rows.floats["mem_used_bytes"] < NO_CONTEXT_BYTES)
        & ~split
        & ~rows.health.where_in((ASLEEP,))
    )
    # the users of the processes where a list names any, else the claim, else that there are processes or memory
    sources = (None, "process", "memory", "unwatched")
    owners: list[tuple[RowOwner, str | None]] = [(RowOwner(), source) for source in sources]
    owners += [(owner, "process") for owner in lists.owners]
    owners += [(owner, source) for source in ("claim", "claim_unwatched") for owner in claimed.owners]
    names_user = np.array([owner.holder is not None for owner in lists.owners] + [False])
    list_owner = np.append(lists.owner, NONE)[list_of_row]
    code = np.zeros(len(rows), np.intp)
    code[unwatched] = sources.index("unwatched")
    code[by_memory & (kind == USE)] = sources.index("memory")
    code[by_process & (kind == USE)] = sources.index("process")
    listed = by_process & (kind == USE) & (list_owner != NONE)
    code[listed] = len(sources) + list_owner[listed]
    from_claim = (claim != NONE) & ((kind == RESERVED) | (kind == USE)) & ~(listed & names_user[list_owner])
    blind = unwatched[from_claim] * len(claimed.owners)
    code[from_claim] = len(sources) + len(lists.owners) + claim[from_claim] + blind
    # owners that read the same get the same code, so that a change of code is a change of owner
    distinct: dict[tuple[RowOwner, str | None], int] = {}
    renumbered = np.array([distinct.setdefault(owner, len(distinct)) for owner in owners], np.intp)
    zero, known = zero & ~out_of_order, known & ~out_of_order
    return Held(kind.astype(np.int32), zero, known, renumbered[code], tuple(distinct), list_of_row)
