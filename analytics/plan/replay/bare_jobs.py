"""Use of GPUs that no job of the queue accounts for, as jobs: what a user, or a job that the queue does not know, took on one host at about the same time."""

from __future__ import annotations

import polars as pl

from analytics.plan.replay.idle_spells import NUMBERED_ROWS
from analytics.plan.waiting_jobs import POOL_MODEL
from analytics.states import ALLOCATED
from analytics.workloads.ledger_rows import by_job
from fallow.clock import MINUTE_MS

TOGETHER_MS = 5 * MINUTE_MS
"""GPUs that one user takes, and lets go, within so long of one another are one job."""

_WHOSE = ("host", *POOL_MODEL, "holder", "account", "job")


def bare_jobs(whole: pl.DataFrame, claimed: pl.DataFrame, first_number: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Jobs made of rows without a job of the queue, numbered from `first_number` on, and their rows with NUMBERED_ROWS.

    The jobs have `number`, POOL_MODEL, `user`, `account`, `gpus`, `started` and `end`. A user's rows on a host on which a job of his runs
    are that job's: which GPUs it has is then known by their number only.

    Args:
        whole: the ledger's rows of whole GPUs, with POOL_MODEL.
        claimed: see `analytics.plan.waiting_jobs.claimed_spans`, with all ends.
        first_number: of the jobs.
    """
    held = whole.filter(pl.col("state").is_in(ALLOCATED)).with_row_index("row")
    known = by_job(held).join(claimed.select(work="job").unique(), on="work", how="semi")
    rows = _of_nobodys_job(held.join(known.select("row").unique(), on="row", how="anti"), claimed)
    stays = _stays(rows)
    jobs = stays.group_by("number", *_WHOSE, maintain_order=True).agg(
        gpus=pl.col("gpu").n_unique(), started=pl.col("time").min(), end=pl.col("end").max()
    )
    numbers = jobs.select("number", renumbered=pl.int_range(first_number, first_number + jobs.height, dtype=pl.UInt32))
    own = rows.join(stays.select("gpu", "number", first="time", last="end"), on="gpu")
    own = own.filter(pl.col("time") >= pl.col("first"), pl.col("end") <= pl.col("last"))
    named = [each.join(numbers, on="number").with_columns(number="renumbered") for each in (jobs, own)]
    return named[0].rename({"holder": "user"}).drop("renumbered", "job"), named[1].select(NUMBERED_ROWS)


def _of_nobodys_job(rows: pl.DataFrame, claimed: pl.DataFrame) -> pl.DataFrame:
    numbered = rows.filter(pl.col("job").is_null())
    spans = claimed.drop_nulls("user").select("host", holder="user", first="time", last="end")
    met = numbered.select("row", "host", "holder", "time", "end").join(spans, on=("host", "holder"))
    taken = met.filter(pl.col("time") < pl.col("last"), pl.col("end") > pl.col("first"))
    return rows.join(taken.select("row").unique(), on="row", how="anti").drop("row")


def _stays(rows: pl.DataFrame) -> pl.DataFrame:
    """Unbroken use of one GPU by one user, `time` to `end`, with _WHOSE and the `number` of the job that it is a part of."""
    ordered = rows.select("gpu", *_WHOSE, "time", "end").sort("gpu", "time")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("gpu", *_WHOSE))
    follows = (pl.col("time") == pl.col("end").shift(1)).fill_null(value=False)
    stays = (
        ordered.with_columns(stay=(~(same & follows)).cum_sum())
        .group_by("stay", maintain_order=True)
        .agg(pl.col("gpu", *_WHOSE).first(), pl.col("time").min(), pl.col("end").max())
    )
    begun = _clustered(stays, (*_WHOSE,), "time", "began")
    return _clustered(begun, (*_WHOSE, "began"), "end", "number")


def _clustered(stays: pl.DataFrame, by: tuple[str, ...], moment: str, name: str) -> pl.DataFrame:
    """The stays with a number in the column `name`: the same for those of one `by` whose moments lie TOGETHER_MS apart at most."""
    ordered = stays.sort(*by, moment, "gpu", nulls_last=True)
    same = pl.all_horizontal(pl.col(each).eq_missing(pl.col(each).shift(1)) for each in by)
    near = pl.col(moment) - pl.col(moment).shift(1) <= TOGETHER_MS
    return ordered.with_columns((~(same & near).fill_null(value=False)).cum_sum().alias(name))
