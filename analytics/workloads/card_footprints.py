"""What each work took of its card: peak memory beside the activity that it stayed within, for the picture of right-sizing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.workloads.runs import RUN, busy_percentiles
from analytics.workloads.workloads import BUSY_SHARE, work_of_runs
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from analytics.workloads.model import Context, Finding

SMALLER = ("memory_oversized", "compute_oversized")
"""Rules that name a smaller or older card."""

SPLIT = "mig_fit"
"""The rule that names a part of a card."""

RESERVED = "preallocated"
"""The rule about memory that was reserved in advance: its peak says nothing of what is needed."""


def sizes(context: Context, stretches: pl.DataFrame) -> pl.DataFrame:
    """One row per work (a job on cards of one model, or what bare processes do on one GPU), the most GPU time first.

    Columns: `holder`, `account`, `job`, `model` (null where unknown), `host` (of one of them), `gpus` (their names), `gpu_ms`,
    `peak_bytes` and `card_bytes` (of any GPU; null: unknown), `util_pct` and `sm_pct` (what utilization and SM activity stay
    within for 95 % of the time; null where any of its GPUs has none), `coverage` (measured share of its whole hours; null
    without any), `whole_card`. Works of display servers and daemons, and those that several hold or several jobs share, are
    left out: nobody can say whose memory it is.

    Args:
        context: the window.
        stretches: ledger rows; works without any of them are left out.
    """
    own = work_of_runs(context).filter(pl.col("single") & ~pl.col("service"))
    asked = own.join(stretches.select(RUN).unique(), on=RUN, how="semi", nulls_equal=True)
    own = own.join(asked.select("work").unique(), on="work", how="semi")
    measured = busy_percentiles(context, own, BUSY_SHARE)
    return (
        measured.group_by("work", maintain_order=True)
        .agg(
            pl.col("holder", "account", "job", "model", "host").first(),
            pl.col("gpu").unique().sort().alias("gpus"),
            pl.col("gpu_ms").sum(),
            *(_known(name) for name in ("peak_bytes", "util_pct", "sm_pct")),
            pl.col("card_bytes").min(),
            pl.col("whole_card").all(),
            coverage=pl.col("util_known_ms").sum() / (pl.col("whole_hours").sum() * HOUR_MS),
        )
        .with_columns(coverage=pl.when(pl.col("coverage").is_finite()).then(pl.col("coverage").clip(0.0, 1.0)))
        .sort(pl.col("gpu_ms"), "work", descending=[True, False])
        .drop("work")
    )


def _known(name: str) -> pl.Expr:
    """The largest over the work's GPUs; null where one of them has none."""
    return pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).max()).alias(name)


def findings_of(works: pl.DataFrame, findings: Iterable[Finding]) -> list[tuple[Finding, ...]]:
    """For each row of `sizes` the findings of SMALLER, SPLIT and RESERVED about it, in that order; mostly none."""
    order = {rule: place for place, rule in enumerate((*SMALLER, SPLIT, RESERVED))}
    by_model: dict[tuple[str | None, object], list[Finding]] = {}
    for each in sorted((each for each in findings if each.rule in order), key=lambda each: order[each.rule]):
        by_model.setdefault((each.holder, each.evidence.numbers.get("model")), []).append(each)
    return [
        tuple(each for each in by_model.get((row["holder"], row["model"]), ()) if _is_about(each, row))
        for row in works.iter_rows(named=True)
    ]


def _is_about(finding: Finding, row: Mapping[str, object]) -> bool:
    """Whether a finding is about a work: its GPUs are among the finding's, and its job, or that it has none."""
    gpus = row["gpus"]
    if not isinstance(gpus, list) or not set(gpus) <= set(finding.gpus):
        return False
    job = row["job"]
    return job is None or f"+{job}+" in f"+{finding.job}+"
