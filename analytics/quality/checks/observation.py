"""Time without data (gaps, silent hosts, GPUs that vanished from their host), and figures whose source is weak."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.language.sentences import GpuHours, Share, tr, tr_many
from analytics.ledger.day_owners import UNWATCHED_SOURCES
from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.quality.model import MOST_NAMED, Data, Remark, Stamp, gpus_of, hosts_of
from fallow.gpu_names import STAND_IN

_LEFT_OUT = tr("later time is not in any sum")


def unobserved(data: Data) -> Iterator[Remark]:
    """Report hosts that were not observed for some of the time."""
    unknown = pl.col("state") == "unknown"
    hosts = (
        data.segments.group_by("host")
        .agg(unknown_ms=SPAN_MS.filter(unknown).sum(), total_ms=SPAN_MS.sum(), gpus=pl.col("gpu").n_unique())
        .filter(pl.col("unknown_ms") > 0)
        .sort("unknown_ms", "host", descending=[True, False])
    )
    for row in hosts.head(MOST_NAMED).iter_rows(named=True):
        sentence = tr(
            "{host}: {hours} GPU-hours not observed ({share} of its time)",
            host=row["host"],
            hours=GpuHours(row["unknown_ms"]),
            share=Share(row["unknown_ms"] / row["total_ms"]),
        )
        yield Remark("unobserved", sentence, row["gpus"], row["host"])
    if len(hosts) > MOST_NAMED:
        unnamed_ms, more = int(hosts["unknown_ms"][MOST_NAMED:].sum()), len(hosts) - MOST_NAMED
        sentence = tr_many(
            "{number} more {host|hosts}: {hours} GPU-hours not observed", more, hours=GpuHours(unnamed_ms)
        )
        yield Remark("unobserved", sentence, more)


def silent(data: Data) -> Iterator[Remark]:
    """Report hosts last observed more than an hour before the end, and GPUs that stopped before their host did."""
    until_ms = data.window.until_ms or 0
    gpus = data.segments.group_by("host", "gpu").agg(last=pl.col("end").max())
    gpus = gpus.filter(
        pl.col("last") == pl.col("last").max().over("gpu")
    )  # a GPU that moved is not silent on its earlier host
    hosts = gpus.group_by("host").agg(last=pl.col("last").max(), gpus=pl.len()).sort("last", "host")
    quiet = hosts.filter(pl.col("last") < until_ms - SILENT_AFTER_MS)
    for row in quiet.head(MOST_NAMED).iter_rows(named=True):
        since = Stamp(row["last"])
        sentence = tr("{host}: silent since {since}; {left_out}", host=row["host"], since=since, left_out=_LEFT_OUT)
        yield Remark("silent", sentence, row["gpus"], row["host"])
    if (more := len(quiet) - MOST_NAMED) > 0:
        sentence = tr_many(
            "{number} more {host|hosts} silent at the end of the window; {left_out}", more, left_out=_LEFT_OUT
        )
        yield Remark("silent", sentence, more)
    alone = gpus.join(hosts.select("host", host_last="last"), on="host")
    ended = pl.col("last") < pl.col("host_last") - SILENT_AFTER_MS
    gone = alone.filter(ended, ~pl.col("gpu").str.contains(STAND_IN)).sort("last", "gpu")
    if len(gone):
        sentence = tr(
            "{gpus} on {hosts} stopped reporting before the host did; {left_out}",
            gpus=gpus_of(len(gone)),
            hosts=hosts_of(gone["host"].n_unique()),
            left_out=_LEFT_OUT,
        )
        yield Remark("gone", sentence, len(gone), gone["gpu"][0])


_BY_MEMORY = "{hours} GPU-hours count as in use because memory was allocated; no process list names the user"
_UNWATCHED = (
    "{hours} GPU-hours count as free or only reserved because utilization was 0; neither processes nor memory were"
    " read, so the GPU may have had a user"
)
_POINT_SAMPLES = (
    "{hours} GPU-hours rest on point samples, which watched less than half of their time: the uncertain part is stated"
    " beside the figures"
)


def unmeasured(data: Data) -> Iterator[Remark]:
    """Report GPUs without any utilization."""
    whole = pl.col("gpu_share") == 1  # a split GPU is measured by its instances
    sums = data.segments.group_by("gpu").agg(pl.col("util_ms").sum(), whole=whole.all())
    never = sums.filter("whole", pl.col("util_ms") == 0).sort("gpu")
    if len(never):
        sentence = tr_many(
            "{number} {GPU|GPUs} never reported utilization: {its|their} use is unknown, not zero",
            len(never),
        )
        yield Remark("unmeasured", sentence, len(never), never["gpu"][0])


def user_by_memory(data: Data) -> Iterator[Remark]:
    """Report memory that counts as a user."""
    yield from _time_of(data, pl.col("user_source") == "memory", "memory_user", _BY_MEMORY)


def user_unwatched(data: Data) -> Iterator[Remark]:
    """Report GPUs that are called free, or reserved without a process, although a user could not have been observed."""
    split = pl.col("gpu_share") < 1
    yield from _time_of(data, pl.col("user_source").is_in(UNWATCHED_SOURCES) & ~split, "unwatched_user", _UNWATCHED)


def point_samples(data: Data) -> Iterator[Remark]:
    """Report utilization that does not state how much of its interval it watched."""
    yield from _time_of(data, pl.col("sampled_ms") > 0, "point_samples", _POINT_SAMPLES)


def _time_of(data: Data, which: pl.Expr, kind: str, meaning: str) -> Iterator[Remark]:
    """Report the GPU time of some segments, where there is any."""
    found = data.segments.filter(which.fill_null(value=False))
    if len(found):
        span_ms = int((found["end"] - found["time"]).sum())
        gpus = found["gpu"].unique().sort()
        yield Remark(kind, tr(meaning, hours=GpuHours(span_ms)), len(gpus), gpus[0])
