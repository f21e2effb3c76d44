"""Rows of the ledger that several have a part in, whose job and account may be those of any of them."""

from __future__ import annotations

import polars as pl

from analytics.ledger.rollups import Rollups
from analytics.names import JOINER, single_names

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
