"""What ledger rows say of use: how much of the time was really used, who had a GPU for which job, and whose work it may be."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analytics.intervals import SPAN_MS, islands
from analytics.ledger.rollups import Rollups
from analytics.names import JOINER, single_names
from analytics.states import ALLOCATED

LOW_ACTIVITY = ("sm_active_mean_pct", "gpu_util_mean_pct")
"""What `low` time is weighted by: SM activity where it was measured, else utilization, which counts a GPU as busy while any kernel runs."""


def used_share(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """The used share of a ledger row's time, from 0 to 1, by those columns of LOW_ACTIVITY that the rows have.

    1 for `low` time whose activity is not known: nothing is called unused that was not measured.
    """
    low = (pl.coalesce(*measured, pl.lit(None, pl.Float64)) / 100).clip(0.0, 1.0).fill_null(1.0)
    state = pl.col("state")
    return pl.when(state == "active").then(1.0).when(state == "low").then(low).otherwise(0.0)


def by_sm_activity(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """Whether SM activity is what weights a ledger row; false for all but `low` time."""
    sm = LOW_ACTIVITY[0]
    known = pl.col(sm).is_not_null() if sm in measured else pl.lit(value=False)
    return (pl.col("state") == "low") & known


def stays(stretches: pl.DataFrame) -> pl.DataFrame:
    """Per GPU and time with one holder and job: `gpu`, `host`, `holder`, `job`, `time`, `end` and a column per state.

    Times are in milliseconds; a state's column has its GPU time, a MIG instance's being its part. Time that belongs to
    nobody (free, unavailable, unknown) is left out and ends no stay if the same holder's goes on with the same job. The newest
    come first.
    """
    given = stretches.filter(pl.col("state").is_in(ALLOCATED)).sort("gpu", "time")
    names = ("gpu", "host", "holder", "job")
    spent = SPAN_MS * pl.col("gpu_share")
    sums = [spent.filter(pl.col("state") == state).sum().alias(state) for state in ALLOCATED]
    return (
        given.with_columns(stay=islands(names, None))
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max(), *sums)
        .drop("stay")
        .sort("time", "gpu", descending=(True, False))
    )


SEVERAL_HOLD = pl.col("holder").str.contains(JOINER, literal=True).fill_null(value=False)
"""Whether a row names several holders."""

HAS_OTHERS = SEVERAL_HOLD | pl.col("holder_shares").is_not_null()
"""Whether more than one had a part of the GPU, also where a row was narrowed to one of them."""

_NEXT_JOB = r"\+(slurm|pod|ray|claim):"
_SPLIT = "\x1f"
WORK_KEY = ("host", "gpu", "holder", "account", "job")
"""What tells the work of one row from that of another."""


def job_names(job: str = "job") -> pl.Expr:
    """The names of a row's jobs as a list; null where it has none."""
    return pl.col(job).str.replace_all(_NEXT_JOB, f"{_SPLIT}${{1}}:").str.split(_SPLIT)


def foreign_work(rows: pl.DataFrame, rollups: Rollups) -> pl.Series:
    """Row by row, whether a job or an account may be somebody's whose name nobody knows, though the row names holders.

    A process list can name users and show processes of unknown users as well: the row has the jobs and accounts of all of
    them. The holders' own are those of processes that were listed with their names.

    Args:
        rows: rows of the ledger; without `job` nothing of it can be told, and nothing is read.
        rollups: the tables of the same time.
    """
    if not {"job", "holder_source"} <= set(rows.columns):
        return pl.Series("foreign", [False] * rows.height, dtype=pl.Boolean)
    named = pl.col("holder").is_not_null()
    by_list = named & (pl.col("holder_source") == "process").fill_null(value=False)
    has_work = pl.col("job").is_not_null() | pl.col("account").is_not_null()
    asked = rows.filter(by_list & has_work).group_by(WORK_KEY).agg(pl.col("time").min())
    found = _not_listed(asked, rollups).with_columns(foreign=pl.lit(value=True))
    of_lists = rows.select(*WORK_KEY, "holder_source").join(
        found, on=WORK_KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    all_claims_named = not rollups.claims["user"].null_count()
    of_nobody = pl.lit(value=False) if all_claims_named else job_names().list.len() > 1
    foreign = pl.when(by_list).then("foreign").when(named).then(of_nobody).otherwise(job_names().list.len() > 1)
    return of_lists.select(foreign.fill_null(value=False).alias("foreign")).to_series()


def _not_listed(asked: pl.DataFrame, rollups: Rollups) -> pl.DataFrame:
    """Those of which a job or an account was never listed with the name of one of its holders on the GPU."""
    if asked.is_empty():
        return asked.select(WORK_KEY)
    since_ms = int(asked["time"].min())  # type: ignore[arg-type]  # of integers
    place = ("host", "gpu")
    listed = rollups.processes(since_ms).select(*place, "account", "job", who="user").with_columns(single_names("who"))
    known = listed.join(asked.select(place).unique(), on=place, how="semi")
    wanted = asked.with_row_index("row").with_columns(who=pl.col("holder").str.split(JOINER)).explode("who")
    lacking = []
    for name, names in (("job", job_names()), ("account", pl.col("account").str.split(JOINER))):
        each = wanted.with_columns(name=names).explode("name").drop_nulls("name")
        own = known.select(*place, "who", name=name).drop_nulls().unique()
        met = each.join(own, on=(*place, "who", "name"), how="semi").select("row", "name")
        lacking.append(each.join(met, on=("row", "name"), how="anti").select(WORK_KEY))
    return pl.concat(lacking).unique()
