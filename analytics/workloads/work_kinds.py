"""The kind of a workload, by its processes and its starter: server, notebook, batch job, pod or bare process."""

from __future__ import annotations

import polars as pl

from analytics.ledger.day_processes import SERVER
from analytics.workloads.model import Context, once_per_context
from analytics.workloads.process_lists import COMMAND_LINE, IS_NOTEBOOK
from analytics.workloads.workloads import runs_with_workload

SERVES, INTERACTIVE, BATCH, POD, PROCESS = "server", "notebook", "batch job", "pod", "process"


@once_per_context
def work_kinds(context: Context) -> pl.DataFrame:
    """Return `work` and `kind` of every workload.

    The kind is that of any of its user's processes on its GPUs, else of its starter: a queue, Kubernetes, or a person.
    """
    listed = context.rollups.processes(context.since_ms).filter(pl.col("end") > context.since_ms)
    kinds = listed.group_by("host", "gpu", "user").agg(
        serves=COMMAND_LINE.str.contains(SERVER).any(), interactive=IS_NOTEBOOK.any()
    )
    own = runs_with_workload(context).join(kinds, on=("host", "gpu", "user"), how="left")
    return own.group_by("work").agg(
        kind=pl.when(pl.col("serves").any())
        .then(pl.lit(SERVES))
        .when(pl.col("interactive").any())
        .then(pl.lit(INTERACTIVE))
        .when(pl.col("job").first().str.contains("^(?:slurm|ray):"))
        .then(pl.lit(BATCH))
        .when(pl.col("job").first().str.starts_with("pod:"))
        .then(pl.lit(POD))
        .otherwise(pl.lit(PROCESS))
    )
