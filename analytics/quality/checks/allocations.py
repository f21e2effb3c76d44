"""Allocations that contradict each other, and allocations and telemetry that know nothing of one another."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.allocations.spans import (
    FOREVER_MS,
    allocation_spans,
    flatten,
    known_allocations,
    overlapping_allocations,
)
from analytics.intervals import SPAN_MS, clip
from analytics.language.quantities import GpuHours
from analytics.language.sentences import tr, tr_many
from analytics.quality.model import Data, Remark, allocations_of, gpus_of, named
from analytics.states import OCCUPIED


def overlapping(data: Data) -> Iterator[Remark]:
    """GPUs that several allocations name at once."""
    found = _inside(overlapping_allocations(data.claims), data, "time")
    if len(found):
        worst = found.sort(SPAN_MS, "gpu", "time", descending=[True, False, False]).row(0, named=True)
        example = tr("{gpu}: {claims}", gpu=worst["gpu"], claims=named(worst["claims"].split("+"), "claim"))
        sentence = tr_many(
            "{number} GPU named by several allocations at once, for {hours} GPU-hours (such as {example}): the time counts once, "
            "and everybody with an allocation is its user",
            "{number} GPUs named by several allocations at once, for {hours} GPU-hours (such as {example}): the time counts once, "
            "and everybody with an allocation is its user",
            found["gpu"].n_unique(),
            hours=GpuHours(int(found.select(SPAN_MS.sum()).item())),
            example=example,
        )
        yield Remark("overlapping_claims", sentence, len(found), example)


def contradicting(data: Data) -> Iterator[Remark]:
    """Allocations that end before they begin."""
    backward = data.claims.filter(pl.col("end") < pl.col("time")).sort("time", "claim_id")
    if len(backward):
        example = _name(backward.row(0, named=True))
        sentence = tr_many(
            "{number} allocation with an end before the start (such as {example}): left out",
            "{number} allocations with an end before the start (such as {example}): left out",
            len(backward),
            example=example,
        )
        yield Remark("backward_claims", sentence, len(backward), example)


def without_telemetry(data: Data) -> Iterator[Remark]:
    """Allocations of GPUs, or hosts, of which nothing was recorded."""
    spans = _inside(known_allocations(data.claims), data, "start")
    gpus, hosts = (data.stretches[name].unique().implode() for name in ("gpu", "host"))
    silent = spans.filter(
        pl.when(pl.col("gpu").is_not_null()).then(~pl.col("gpu").is_in(gpus)).otherwise(~pl.col("host").is_in(hosts))
    ).with_columns(claimed=pl.when(pl.col("gpu").is_null()).then(pl.col("host_gpu_count").fill_null(1)).otherwise(1))
    if len(silent):
        gpu_ms = int(((silent["end"] - silent["start"]) * silent["claimed"]).sum())
        worst = silent.sort(pl.col("end") - pl.col("start"), "job", descending=[True, False]).row(0, named=True)
        example = tr("{name} on {place}", name=_name(worst), place=worst["gpu"] or worst["host"])
        sentence = tr(
            "{claims} with {hours} GPU-hours on GPUs that nothing was recorded of (such as {example}): in no sum; run the agent "
            "there, or check the allocations' GPU and host names",
            claims=allocations_of(silent["job"].n_unique()),
            hours=GpuHours(gpu_ms),
            example=example,
        )
        yield Remark("claims_without_telemetry", sentence, silent["job"].n_unique(), example)


def by_count(data: Data) -> Iterator[Remark]:
    """Allocations of which only a number of GPUs is known, on hosts where nobody saw which."""
    gpus = data.stretches.filter(pl.col("gpu_share") > 0).group_by("host").agg(pl.col("gpu").unique())
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or FOREVER_MS
    shown = data.stretches.select("gpu", "host", "time", "end", "job").drop_nulls("job")
    found = allocation_spans(data.claims, dict(gpus.iter_rows()), shown, since_ms=since_ms, until_ms=until_ms).unplaced
    # what is claimed where nothing was recorded is a remark of its own
    counted = found.filter(pl.col("host").is_in(gpus["host"].implode())).with_columns(
        gpu_ms=(pl.col("end") - pl.col("start")) * pl.col("gpu_count_on_host").fill_null(1)
    )
    if len(counted):
        worst = counted.sort("gpu_ms", "claim_id", descending=[True, False]).row(0, named=True)
        example = tr("{name} on {place}", name=worst["claim_id"], place=worst["host"])
        sentence = tr(
            "{claims} with {hours} GPU-hours known by a number of GPUs alone (such as {example}): which GPUs they had nobody can "
            "say, and the time counts as free where no process shows",
            claims=allocations_of(counted["claim_id"].n_unique()),
            hours=GpuHours(int(counted["gpu_ms"].sum())),
            example=example,
        )
        yield Remark("claims_by_count", sentence, counted["claim_id"].n_unique(), example)


def without_allocations(data: Data) -> Iterator[Remark]:
    """GPUs in use that no allocation covers, on hosts that have allocations."""
    claimed = data.stretches.filter(pl.col("gpu").is_in(data.claims["gpu"].drop_nulls().unique().implode()))
    hosts = pl.concat([data.claims["host"], claimed["host"]]).unique().implode()
    used = data.stretches.filter(pl.col("state").is_in(OCCUPIED), pl.col("host").is_in(hosts))
    counted = data.claims.filter(pl.col("gpu").is_null())["host"].unique().implode()
    used = used.filter(~pl.col("host").is_in(counted))  # which of its GPUs are claimed there is not told
    spans = _inside(flatten(data.claims), data, "start").select("gpu", "start", "end").sort("gpu", "start")
    outside = used.with_columns(
        outside_ms=pl.col("end")
        - pl.col("time")
        - (_claimed_before(used, spans, "end") - _claimed_before(used, spans, "time"))
    ).filter(pl.col("outside_ms") > 0)
    if len(outside):
        by_gpu = outside.group_by("gpu", "host").agg(pl.col("outside_ms").sum(), pl.col("holder").drop_nulls().first())
        worst = by_gpu.sort("outside_ms", "gpu", descending=[True, False]).row(0, named=True)
        example = tr(
            "{gpu} on {host}, {hours} hours",
            gpu=worst["gpu"],
            host=worst["host"],
            hours=GpuHours(worst["outside_ms"]),
        )
        if worst["holder"]:
            example = tr("{example} by {holder}", example=example, holder=worst["holder"])
        sentence = tr(
            "{hours} GPU-hours of use on {gpus} that no allocation covers, on hosts that have allocations (such as {example}): counted as "
            "use all the same",
            hours=GpuHours(int(outside["outside_ms"].sum())),
            gpus=gpus_of(len(by_gpu)),
            example=example,
        )
        yield Remark("telemetry_without_claims", sentence, len(by_gpu), example)


def _inside(spans: pl.DataFrame, data: Data, start: str) -> pl.DataFrame:
    """The spans cut to the window; a claim that runs on ends with it."""
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or FOREVER_MS
    return clip(spans, since_ms, until_ms, start=start)


def _claimed_before(rows: pl.DataFrame, spans: pl.DataFrame, at: str) -> pl.Series:
    """Milliseconds of each row's GPU that claims cover before the moment in the column, in the rows' order."""
    length = pl.col("end") - pl.col("start")
    sums = spans.with_columns(before=(length.cum_sum() - length).over("gpu"), span_end="end").drop("end")
    asked = rows.select("gpu", moment=at).with_row_index("row").sort("gpu", "moment")
    joined = asked.join_asof(sums, left_on="moment", right_on="start", by="gpu", check_sortedness=False)
    inside = pl.min_horizontal("moment", "span_end") - pl.col("start")
    return joined.with_columns(claimed=(pl.col("before") + inside).fill_null(0)).sort("row")["claimed"]


def _name(claim: dict[str, object]) -> str:
    return str(claim.get("job") or claim["claim_id"])
