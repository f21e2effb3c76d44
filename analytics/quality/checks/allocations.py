"""Allocations that contradict each other, and allocations and telemetry that do not match."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.allocations.measured import unplaced_allocations
from analytics.allocations.spans import FOREVER_MS, SHARE, flatten, known_allocations, overlapping_allocations
from analytics.intervals import SPAN_MS, clip
from analytics.language.sentences import GpuHours, tr, tr_many
from analytics.quality.model import Data, Remark, allocations_of, gpus_of, named
from analytics.states import OCCUPIED


def overlapping(data: Data) -> Iterator[Remark]:
    """Report GPUs that several allocations name at once."""
    found = _inside_window(overlapping_allocations(data.allocations), data, "time")
    if len(found):
        worst = found.sort(SPAN_MS, "gpu", "time", descending=[True, False, False]).row(0, named=True)
        example = tr(
            "{gpu}: {allocations}", gpu=worst["gpu"], allocations=named(worst["allocations"].split("+"), "allocation")
        )
        sentence = tr_many(
            "{number} {GPU|GPUs} named by several allocations at once, for {hours} GPU-hours (such as {example}): the"
            " time counts once, and every user with an allocation counts as its user",
            found["gpu"].n_unique(),
            hours=GpuHours(int(found.select(SPAN_MS.sum()).item())),
            example=example,
        )
        yield Remark("overlapping_allocations", sentence, len(found), example)


def contradicting(data: Data) -> Iterator[Remark]:
    """Report allocations that end before they start."""
    backward = data.allocations.filter(pl.col("end") < pl.col("time")).sort("time", "allocation_id")
    if len(backward):
        example = _name(backward.row(0, named=True))
        sentence = tr_many(
            "{number} {allocation|allocations} with an end before the start (such as {example}): left out",
            len(backward),
            example=example,
        )
        yield Remark("backward_allocations", sentence, len(backward), example)


def without_telemetry(data: Data) -> Iterator[Remark]:
    """Report allocations of GPUs, or hosts, of which nothing was recorded."""
    spans = _inside_window(known_allocations(data.allocations), data, "start")
    gpus, hosts = (data.segments[name].unique().implode() for name in ("gpu", "host"))
    silent = spans.filter(
        pl.when(pl.col("gpu").is_not_null()).then(~pl.col("gpu").is_in(gpus)).otherwise(~pl.col("host").is_in(hosts))
    ).with_columns(allocated=pl.when(pl.col("gpu").is_null()).then(pl.col("host_gpu_count").fill_null(1)).otherwise(1))
    if len(silent):
        gpu_ms = round(silent.select(((pl.col("end") - pl.col("start")) * pl.col("allocated") * SHARE).sum()).item())
        worst = silent.sort(pl.col("end") - pl.col("start"), "job", descending=[True, False]).row(0, named=True)
        example = tr("{name} on {place}", name=_name(worst), place=worst["gpu"] or worst["host"])
        sentence = tr(
            "{allocations} with {hours} GPU-hours on GPUs without any recorded data (such as {example}): in no sum; run"
            " the agent there, or check the allocations' GPU and host names",
            allocations=allocations_of(silent["job"].n_unique()),
            hours=GpuHours(gpu_ms),
            example=example,
        )
        yield Remark("allocations_without_telemetry", sentence, silent["job"].n_unique(), example)


def by_count(data: Data) -> Iterator[Remark]:
    """Report allocations of which only a number of GPUs is known, on hosts where the GPUs were not observed."""
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or FOREVER_MS
    # allocations where nothing was recorded have a remark of their own
    counted = unplaced_allocations(data.allocations, data.segments, since_ms=since_ms, until_ms=until_ms)
    if len(counted):
        worst = counted.sort("gpu_ms", "allocation_id", descending=[True, False], nulls_last=True).row(0, named=True)
        example = tr("{name} on {place}", name=worst["allocation_id"], place=worst["host"])
        sentence = tr(
            "{allocations} with {hours} GPU-hours known only by a number of GPUs (such as {example}): the GPUs"
            " themselves are unknown, and the time counts as free where no process shows",
            allocations=allocations_of(counted["allocation_id"].n_unique()),
            hours=GpuHours(int(counted["gpu_ms"].sum())),
            example=example,
        )
        yield Remark("allocations_by_count", sentence, counted["allocation_id"].n_unique(), example)


def without_allocations(data: Data) -> Iterator[Remark]:
    """Report GPUs in use that no allocation covers, on hosts that have allocations."""
    allocated = data.segments.filter(pl.col("gpu").is_in(data.allocations["gpu"].drop_nulls().unique().implode()))
    hosts = pl.concat([data.allocations["host"], allocated["host"]]).unique().implode()
    used = data.segments.filter(pl.col("state").is_in(OCCUPIED), pl.col("host").is_in(hosts))
    counted = data.allocations.filter(pl.col("gpu").is_null())["host"].unique().implode()
    used = used.filter(~pl.col("host").is_in(counted))  # it is unknown which of its GPUs are allocated there
    spans = _inside_window(flatten(data.allocations), data, "start").select("gpu", "start", "end").sort("gpu", "start")
    outside = used.with_columns(
        outside_ms=pl.col("end")
        - pl.col("time")
        - (_allocated_before(used, spans, "end") - _allocated_before(used, spans, "time"))
    ).filter(pl.col("outside_ms") > 0)
    if len(outside):
        by_gpu = outside.group_by("gpu", "host").agg(pl.col("outside_ms").sum(), pl.col("user").drop_nulls().first())
        worst = by_gpu.sort("outside_ms", "gpu", descending=[True, False]).row(0, named=True)
        example = tr(
            "{gpu} on {host}, {hours} hours", gpu=worst["gpu"], host=worst["host"], hours=GpuHours(worst["outside_ms"])
        )
        if worst["user"]:
            example = tr("{example} by {user}", example=example, user=worst["user"])
        sentence = tr(
            "{hours} GPU-hours with a workload on {gpus} that no allocation covers, on hosts that have allocations"
            " (such as {example}): they still count as allocated time",
            hours=GpuHours(int(outside["outside_ms"].sum())),
            gpus=gpus_of(len(by_gpu)),
            example=example,
        )
        yield Remark("telemetry_without_allocations", sentence, len(by_gpu), example)


def _inside_window(spans: pl.DataFrame, data: Data, start: str) -> pl.DataFrame:
    """Return the intervals cut to the window; an allocation that runs on ends with it."""
    since_ms, until_ms = data.window.since_ms or 0, data.window.until_ms or FOREVER_MS
    return clip(spans, since_ms, until_ms, start=start)


def _allocated_before(rows: pl.DataFrame, spans: pl.DataFrame, at: str) -> pl.Series:
    """Return, in the rows' order, the allocated milliseconds of each row's GPU before the moment in the column."""
    length = pl.col("end") - pl.col("start")
    sums = spans.with_columns(before=(length.cum_sum() - length).over("gpu"), span_end="end").drop("end")
    asked = rows.select("gpu", moment=at).with_row_index("row").sort("gpu", "moment")
    joined = asked.join_asof(sums, left_on="moment", right_on="start", by="gpu", check_sortedness=False)
    inside = pl.min_horizontal("moment", "span_end") - pl.col("start")
    return joined.with_columns(allocated=(pl.col("before") + inside).fill_null(0)).sort("row")["allocated"]


def _name(allocation: dict[str, object]) -> str:
    return str(allocation.get("job") or allocation["allocation_id"])
