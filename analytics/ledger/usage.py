"""Use in ledger rows: the share of time really used, users of a GPU with their jobs, and possible users of work."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from analytics.intervals import SPAN_MS, islands
from analytics.ledger.rollups import Rollups
from analytics.names import JOINER, single_names
from analytics.states import ALLOCATED, IDLE_ALLOCATED

LOW_ACTIVITY = ("sm_active_mean_pct", "gpu_util_mean_pct")
"""Weights of `low` time: SM activity where measured, else utilization, which calls a GPU with any kernel busy."""


def used_share(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """Return the used share of a ledger row's time, from 0 to 1, by those columns of LOW_ACTIVITY that the rows have.

    1 for `low` time whose activity is not known: unmeasured time is never called unused.
    """
    low = (pl.coalesce(*measured, pl.lit(None, pl.Float64)) / 100).clip(0.0, 1.0).fill_null(1.0)
    state = pl.col("state")
    return pl.when(state == "active").then(1.0).when(state == "low").then(low).otherwise(0.0)


def by_sm_activity(measured: Sequence[str] = LOW_ACTIVITY) -> pl.Expr:
    """Return whether SM activity weights a ledger row; false for all but `low` time."""
    sm = LOW_ACTIVITY[0]
    known = pl.col(sm).is_not_null() if sm in measured else pl.lit(value=False)
    return (pl.col("state") == "low") & known


def stays(segments: pl.DataFrame) -> pl.DataFrame:
    """Return time per GPU, user and job: `gpu`, `host`, `user`, `job`, `time`, `end` and a column per state.

    `{state}_unconfirmed` is the share of an idle state's time that rests on point samples alone.

    Times are in milliseconds; a state's column has its GPU time, for a MIG instance its share. Time without a user
    (free, unavailable, unknown) is left out; it does not end a stay if the same user continues with the same job. The
    newest come first.
    """
    given = segments.filter(pl.col("state").is_in(ALLOCATED)).sort("gpu", "time")
    names = ("gpu", "host", "user", "job")
    spent = SPAN_MS * pl.col("gpu_share")
    sums = [spent.filter(pl.col("state") == state).sum().alias(state) for state in ALLOCATED]
    for state in IDLE_ALLOCATED:
        own = pl.col("state") == state
        open_ms = (pl.col("unconfirmed_ms") * pl.col("gpu_share")).filter(own).sum()
        sums.append((open_ms / spent.filter(own).sum()).fill_nan(0).alias(f"{state}_unconfirmed"))
    return (
        given.with_columns(stay=islands(names, None))
        .group_by("stay", maintain_order=True)
        .agg(*(pl.col(name).first() for name in names), pl.col("time").min(), pl.col("end").max(), *sums)
        .drop("stay")
        .sort("time", "gpu", descending=(True, False))
    )


SEVERAL_HOLD = pl.col("user").str.contains(JOINER, literal=True).fill_null(value=False)
"""Return whether a row names several users."""

HAS_OTHERS = SEVERAL_HOLD | pl.col("user_shares").is_not_null()
"""Return whether several users shared the GPU, also where a row was narrowed to one of them."""

_NEXT_JOB = r"\+(slurm|pod|ray|allocation):"
_SPLIT = "\x1f"
WORK_KEY = ("host", "gpu", "user", "account", "job")
"""Columns that distinguish the work of one row from that of another."""


def job_names(job: str = "job") -> pl.Expr:
    """Return the names of a row's jobs as a list; null where it has none."""
    return pl.col(job).str.replace_all(_NEXT_JOB, f"{_SPLIT}${{1}}:").str.split(_SPLIT)


def has_several_jobs() -> pl.Expr:
    """Return whether a row has more than one of `job_names`; null where it has none."""
    return pl.col("job").str.contains(_NEXT_JOB)


def foreign_work(rows: pl.DataFrame, rollups: Rollups) -> pl.Series:
    """Return, row by row, whether a job or account may belong to an unnamed user, though the row names users.

    A process list can name users and show processes of unknown users as well: the row has the jobs and accounts of all
    of them. The users' own are those of processes that were listed with their names.

    Args:
        rows: rows of the ledger; without `job` the answer is unknown, and nothing is read.
        rollups: the tables of the same time.
    """
    if not {"job", "user_source"} <= set(rows.columns):
        return pl.Series("foreign", [False] * rows.height, dtype=pl.Boolean)
    named = pl.col("user").is_not_null()
    by_list = named & (pl.col("user_source") == "process").fill_null(value=False)
    has_work = pl.col("job").is_not_null() | pl.col("account").is_not_null()
    asked = rows.filter(by_list & has_work).group_by(WORK_KEY).agg(pl.col("time").min())
    found = _unlisted_rows(asked, rollups).with_columns(foreign=pl.lit(value=True))
    of_lists = rows.select(*WORK_KEY, "user_source").join(
        found, on=WORK_KEY, how="left", nulls_equal=True, maintain_order="left"
    )
    all_allocations_named = not rollups.allocations["user"].null_count()
    if_named = pl.lit(value=False) if all_allocations_named else has_several_jobs()
    foreign = pl.when(by_list).then("foreign").when(named).then(if_named).otherwise(has_several_jobs())
    return of_lists.select(foreign.fill_null(value=False).alias("foreign")).to_series()


def _unlisted_rows(asked: pl.DataFrame, rollups: Rollups) -> pl.DataFrame:
    """Return the rows of which a job or account was never listed with the name of one of its users on the GPU."""
    if asked.is_empty():
        return asked.select(WORK_KEY)
    since_ms = int(asked["time"].min())  # type: ignore[arg-type]  # of integers
    place = ("host", "gpu")
    listed = rollups.processes(since_ms).select(*place, "account", "job", who="user").with_columns(single_names("who"))
    known = listed.join(asked.select(place).unique(), on=place, how="semi")
    wanted = asked.with_row_index("row").with_columns(who=pl.col("user").str.split(JOINER)).explode("who")
    lacking = []
    for name, names in (("job", job_names()), ("account", pl.col("account").str.split(JOINER))):
        each = wanted.with_columns(name=names).explode("name").drop_nulls("name")
        own = known.select(*place, "who", name=name).drop_nulls().unique()
        met = each.join(own, on=(*place, "who", "name"), how="semi").select("row", "name")
        lacking.append(each.join(met, on=("row", "name"), how="anti").select(WORK_KEY))
    return pl.concat(lacking).unique()
