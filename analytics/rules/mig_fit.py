"""Work on one GPU that a MIG instance of the card would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.language.quantities import Number
from analytics.language.sentences import say
from analytics.workloads.confidence import known_holder
from analytics.workloads.finding_parts import finding_of
from analytics.workloads.memory_need import NEED_SHARE, NEED_THRESHOLDS
from analytics.workloads.mig_profiles import Fit, first_fit, fits, split_command, split_notes
from analytics.workloads.phrases import of_gpus
from analytics.workloads.runs import stretches_of
from analytics.workloads.workloads import (
    LINKED_BYTES_PER_S,
    TOLD_FROM_GPU_MS,
    WORK_THRESHOLDS,
    linked,
    runs_of,
    seen_long_enough,
    sm_activity_measured,
    with_demand,
    works,
    worth_telling,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from analytics.workloads.model import Context, Finding

_GROUP = ("host", "holder", "account", "model", "profile")


class MigFit:
    """Work that would fit into a part of its card; one finding per host, holder, account, model and profile."""

    name = "mig_fit"
    category = "right_size"
    sentence = of_gpus("would fit into a MIG instance of the card")
    per_host = True
    thresholds: Mapping[str, str] = {
        "profile": "the first with an SM share of at least the 98th percentile of SM activity and with the memory needed "
        "(1g: 1/7 and 1/8, 2g: 2/7 and 2/8, 3g: 3/7 and 4/8, 4g: 4/7 and 4/8; Kruize, NVIDIA MIG user guide)",
        "one GPU": f"jobs on several GPUs and GPUs with {LINKED_BYTES_PER_S / 1e6:g} MB/s over NVLink in any hour are left out "
        "(instances have neither NVLink nor peer access)",
        **NEED_THRESHOLDS,
        **WORK_THRESHOLDS,
    }

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        splitting = [model for model in works(context)["model"].unique() if fits(model)]
        alone = worth_telling(
            works(context).filter(
                pl.col("model").is_in(splitting) & (pl.col("gpu_count") == 1) & (pl.col("gpus") == 1),
                pl.col("need_bytes").is_not_null(),
            )
        )
        alone = alone.join(linked(context), on="work", how="anti")
        if alone.is_empty():
            return
        measured = with_demand(context, alone, NEED_SHARE).filter(pl.col("util_pct") > 0)
        chosen = [_fit(row) for row in measured.iter_rows(named=True)]
        names = pl.Series("profile", [None if fit is None else fit.profile.name for fit in chosen], pl.String)
        hosts = runs_of(context, measured).group_by("work").agg(pl.col("host").first())
        found = measured.with_columns(names).drop_nulls("profile").join(hosts, on="work").sort("work")
        by_name = {(model, fit.profile.name): fit for model, fit in zip(measured["model"], chosen, strict=True) if fit}
        for group in found.partition_by(_GROUP, maintain_order=True):
            if group["gpu_ms"].sum() > TOLD_FROM_GPU_MS:
                yield self._finding(context, group, by_name[group["model"][0], group["profile"][0]])

    def _finding(self, context: Context, group: pl.DataFrame, fit: Fit) -> Finding:
        rows = stretches_of(context, runs_of(context, group))
        holder, host, model = (group[name][0] for name in ("holder", "host", "model"))
        gpus = tuple(sorted(rows["gpu"].unique()))
        profile = fit.profile.name
        cost = context.costs.of(rows)
        highest = group.select(pl.col("peak_bytes", "need_bytes", "util_pct", "sm_pct", "dram_pct").max())
        peak, need, util_pct, sm_pct, dram_pct = highest.row(0)
        return finding_of(
            context,
            self,
            rows,
            subject="|".join((holder or gpus[0], group["account"][0] or "", model)),
            numbers={
                "holder_source": group["holder_source"][0],
                "works": group.height,
                "model": model,
                "mem_used_max_bytes": peak,
                "mem_need_bytes": need,
                "gpu_util_p98_pct": util_pct,
                "sm_active_p98_pct": None if group["sm_pct"].null_count() else sm_pct,
                "dram_active_p98_pct": None if group["dram_pct"].null_count() else dram_pct,
                "mig_profile": profile,
                "mig_sm_share": fit.sm_share,
                "mig_memory_bytes": fit.profile.memory_bytes,
                # what the rest of the card is worth, where somebody else can use it
                "saving": None if cost is None else cost * (1 - fit.sm_share),
            },
            failed=[known_holder(group["holder_source"][0], holder), seen_long_enough(group), _measured(group)],
            next_command=split_command(host, gpus, profile, certain=context.latest and host not in context.ahead),
            holder=holder,
            notes=[
                *split_notes(host, gpus, profile, group["job"]),
                say(
                    "it fits by what it took over time; a step that fills the card would take {factor} times as long",
                    factor=Number(1 / fit.sm_share, 1),
                ),
            ],
        )


def _fit(row: Mapping[str, Any]) -> Fit | None:
    """By SM activity; by the time with any kernel, which is never less, where that was not measured."""
    busy_pct = row["util_pct"] if row["sm_pct"] is None else row["sm_pct"]
    flow_pct = row["dram_pct"]
    return first_fit(
        row["model"],
        sm_share=busy_pct / 100,
        need_bytes=max(row["need_bytes"], row["peak_bytes"]),
        bandwidth_share=None if flow_pct is None else flow_pct / 100,
    )


def _measured(group: pl.DataFrame) -> list[str]:
    if not group["sm_pct"].null_count():
        return sm_activity_measured(group)
    return [say("SM activity was not measured, the time with any kernel stands for it: try it, then measure")]
