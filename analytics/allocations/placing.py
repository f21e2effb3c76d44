"""Puts claims of which only a count of GPUs is known onto GPUs, where the evidence leaves no choice.

Slurm's accounting says how many GPUs of a node a job had, never which. A job that had all of them had each of them; else
processes of that very job show some. What neither tells stays unplaced and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROCESS_JOBS_SCHEMA = {"gpu": pl.String, "host": pl.String, "time": pl.Int64, "end": pl.Int64, "job": pl.String}

_WORDS = {"slurm": "slurm:", "kubernetes": "pod:"}


@dataclass(frozen=True)
class Placed:
    """`placed`: the claims once per GPU that they were put on, with `gpu`; `unplaced`: what is left, with its own count."""

    placed: pl.DataFrame
    unplaced: pl.DataFrame

    @property
    def unplaced_gpus(self) -> int:
        """GPUs that are claimed and could not be told, over all claims; a claim of unknown size counts as one."""
        return int(self.unplaced["gpu_count_on_host"].fill_null(1).sum())


def place(
    unplaced: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]], process_jobs: pl.DataFrame | None = None
) -> Placed:
    """Places claims on all GPUs of their host, or on those that their processes were seen on.

    Args:
        unplaced: claims with the columns of `spans.UNPLACED_SCHEMA`.
        gpus_of_host: what a scheduler can give away of each host: whole GPUs that are not split, and MIG instances.
        process_jobs: times at which processes of a job were on a GPU, with PROCESS_JOBS_SCHEMA; `job` as in the ledger
            (`slurm:ID`, several joined by `+`). A claim is never put on more GPUs than it counts: those with the most
            process time come first.
    """
    claims = unplaced.with_row_index("row")
    found = pl.concat([_whole_hosts(claims, gpus_of_host), _seen(claims, process_jobs)]).unique(("row", "gpu"))
    counts = found.group_by("row").agg(_placed=pl.len().cast(pl.Int64))
    rest = claims.join(counts, on="row", how="left").with_columns(
        gpu_count_on_host=pl.col("gpu_count_on_host") - pl.col("_placed").fill_null(0)
    )
    # of a claim of unknown size that was seen somewhere, nobody knows whether there is a rest
    left = pl.col("_placed").is_null() | (pl.col("gpu_count_on_host") > 0).fill_null(value=False)
    placed = claims.join(found, on="row").sort("row", "gpu")
    return Placed(placed.drop("row", "gpu_count_on_host"), rest.filter(left).sort("row").select(unplaced.columns))


def _whole_hosts(claims: pl.DataFrame, gpus_of_host: Mapping[str, Sequence[str]]) -> pl.DataFrame:
    """(row, gpu) of claims that have every GPU of their host."""
    known = pl.DataFrame(
        {"host": list(gpus_of_host), "gpu": [sorted(set(gpus)) for gpus in gpus_of_host.values()]},
        schema={"host": pl.String, "gpu": pl.List(pl.String)},
    )
    fitting = claims.join(known, on="host").filter(pl.col("gpu").list.len() == pl.col("gpu_count_on_host"))
    return fitting.select("row", "gpu").explode("gpu")


def _seen(claims: pl.DataFrame, process_jobs: pl.DataFrame | None) -> pl.DataFrame:
    """(row, gpu) of claims whose processes were seen, at most as many as they count."""
    if process_jobs is None or process_jobs.is_empty():
        return pl.DataFrame(schema={"row": claims["row"].dtype, "gpu": pl.String})
    word = pl.col("scheduler").replace_strict(_WORDS, default="claim:", return_dtype=pl.String).fill_null("claim:")
    work = process_jobs.drop_nulls("job").with_columns(pl.col("job").str.split("+")).explode("job")
    work = work.select("host", "gpu", "job", work_start="time", work_end="end")
    met = claims.with_columns(job=word + pl.col("claim_id")).join(work, on=["host", "job"])
    shared = pl.min_horizontal("end", "work_end") - pl.max_horizontal("start", "work_start")
    by_gpu = (
        met.with_columns(shared=shared)
        .filter(pl.col("shared") > 0)
        .group_by("row", "gpu")
        .agg(pl.col("shared").sum(), count=pl.col("gpu_count_on_host").first())
    )
    ranked = by_gpu.sort("row", "shared", "gpu", descending=[False, True, False]).with_columns(
        rank=pl.int_range(pl.len()).over("row")
    )
    return ranked.filter((pl.col("rank") < pl.col("count")).fill_null(value=True)).select("row", "gpu")
