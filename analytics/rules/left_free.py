"""GPUs that were used before and are unallocated for more than two weeks since.

Look-alikes that it leaves alone: a GPU between two jobs, a holiday, a reservation, a lost or silent GPU, GPUs that an
allocation counts without naming them, GPUs without a readable process list.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.states import ALLOCATED
from analytics.workloads import waste
from analytics.workloads.commands import watch_command
from analytics.workloads.finding_parts import label
from analytics.workloads.model import Context, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.window_end import unoccupied_now
from fallow.clock import DAY_MS

FREE_MIN_MS = 14 * DAY_MS


def left_free_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per host with GPUs that are unallocated in all observed time since their last use."""
    free = context.inside.segments.filter(pl.col("state") == "free")
    rows = free.join(_left_free(context), on="gpu", maintain_order="left").filter(pl.col("time") >= pl.col("left_ms"))
    for (host,), own in rows.group_by("last_host", maintain_order=True):
        gpus = own["gpu"].unique().sort().to_list()
        yield Candidate(
            own,
            subject="",
            host=str(host),
            since_ms=min(own["left_ms"].to_list()),
            numbers={
                "free_days": min(own["free_ms"].to_list()) / DAY_MS,
                "model": "+".join(sorted({context.inventory.model(gpu) for gpu in gpus})),
            },
            reclaimable_gpus=gpus,
            next_command=watch_command(str(host)),
        )


LEFT_FREE = Rule(
    name="left_free",
    category="reclaim",
    sentence=of_gpus("used before and unallocated since"),
    kinds=(waste.LEFT_FREE,),
    precedence=10,
    per_host=True,
    history=HistoryNeed(FREE_MIN_MS),
    thresholds={"free": f"no process and no allocation in more than {FREE_MIN_MS // DAY_MS} d of observed time"},
    labels=(label("free_days", "unallocated for at least {value} days since the last use"),),
    find=left_free_findings,
)


def _left_free(context: Context) -> pl.DataFrame:
    """Return GPUs that were unallocated for long enough.

    Columns: gpu, last_host, left_ms (when), free_ms (observed time since then). All hosts count: a card that moved must
    be unallocated everywhere, and belongs to the host where it was last observed.
    """
    used = context.whole.lifetimes.filter(pl.col("used_ms") > 0)["gpu"].unique()
    now = sorted(unoccupied_now(context, used))
    # a GPU whose processes could not be read may have been in use
    taken = pl.col("state").is_in(ALLOCATED) | pl.col("user_source").is_in(UNWATCHED_SOURCES).fill_null(value=False)
    rows = context.whole.segments.filter(pl.col("gpu").is_in(pl.Series(now, dtype=pl.String).implode()))
    rows = rows.with_columns(taken_ms=pl.col("end").filter(taken).max().over("gpu"))
    free = rows.filter(pl.col("state") == "free", (pl.col("time") >= pl.col("taken_ms")).fill_null(value=True))
    found = free.group_by("gpu").agg(
        last_host=pl.col("host").sort_by("end").last(), left_ms=pl.col("segment_start").min(), free_ms=SPAN_MS.sum()
    )
    return found.filter(pl.col("free_ms") > FREE_MIN_MS)
