"""Hosts: clocks that were set, overlapping rows, GPUs that several hosts report, and machines that share one name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from analytics.language.sentences import GpuHours, Sentence, tr, tr_many
from analytics.quality.model import MOST_NAMED, Data, Remark, Stamp, gpus_of, named, rows_of
from fallow.clock import HOUR_MS


def ahead(data: Data) -> Iterator[Remark]:
    """Report hosts with rows in the future, or hours after the last rows of all other hosts."""
    seen = data.seen
    ordered = sorted(seen.ahead, key=lambda host: (-seen.ahead[host], host))
    for host in ordered[:MOST_NAMED]:
        sentence = tr(
            "the clock of {host} is ahead: its rows go up to {last}, beyond {ahead_of}; findings end with the other"
            " hosts, at {until}, and no GPU of {host} is reclaimable until its clock is set (chronyc tracking,"
            " timedatectl)",
            host=host,
            last=Stamp(seen.ahead[host]),
            ahead_of=tr(seen.ahead_of),
            until=Stamp(seen.until_ms),
        )
        yield Remark("clock_ahead", sentence, 1, host)
    if (more := len(ordered) - MOST_NAMED) > 0:
        sentence = tr_many("the clocks of {number} more {host|hosts} are ahead too", more)
        yield Remark("clock_ahead", sentence, more)


def stepped(data: Data) -> Iterator[Remark]:
    """Report hosts whose clock jumped."""
    if len(data.steps):
        hosts = (
            data.steps.group_by("host")
            .agg(pl.len(), pl.col("time").max())
            .sort("len", "host", descending=[True, False])
        )
        last = data.steps.sort("time").row(-1, named=True)
        sentence = tr_many(
            "the clock of {hosts} jumped, {number} {time|times} in all, last at {last}: repeated time counts once,"
            " skipped time is unknown",
            len(data.steps),
            hosts=named(list(hosts["host"]), "host"),
            last=Stamp(last["time"]),
        )
        yield Remark("clock_stepped", sentence, len(data.steps), f"{last['host']}: {last['detail'] or 'no detail'}")


def overlapping(data: Data) -> Iterator[Remark]:
    """Report rows of one GPU that cover the same time."""
    rows = data.values.filter(pl.col("kind") == "overlapping_rows").sort("count", "gpu", descending=[True, False])
    if len(rows):
        total, worst = int(rows["count"].sum()), rows.row(0, named=True)
        where = worst["gpu"] or worst["host"]
        example = f"{where}: {worst['example']}" if worst["example"] else where
        sentence = tr(
            "{rows} of {gpus} on {hosts} begin before the row before them has ended: each moment counts once, by the"
            " later row (such as {example})",
            rows=rows_of(total),
            gpus=gpus_of(rows["gpu"].n_unique()),
            hosts=named(list(rows["host"].unique(maintain_order=True)), "host"),
            example=example,
        )
        yield Remark("overlapping_rows", sentence, total, example)


_OVERLAP_MIN_MS = HOUR_MS
"""A swapped card has gone before the next one is observed; two machines continue beside each other."""


_AT_ONCE = (
    "{number} {GPU|GPUs} reported by several hosts at once: {gpus}; that time counts once, for the host that observed"
    " it last"
)
_MOVED = "{number} {GPU|GPUs} moved between hosts: {gpus}; each host has the time that it observed"

_SPILL_MS = HOUR_MS // 4
"""An hour's last row may reach over its end: by three intervals, five minutes each at most."""


def several_hosts(data: Data) -> Iterator[Remark]:
    """Report GPUs that more than one host observed: moved, or written twice at once."""
    seen = pl.concat(
        [
            data.segments.filter(pl.col("state") != "unknown").select("gpu", "host", "time"),
            data.hours.select("gpu", "host", "time"),
        ]
    )
    order = seen.group_by("gpu", "host").agg(pl.col("time").min()).sort("gpu", "time", "host")
    moved = order.group_by("gpu", maintain_order=True).agg("host").filter(pl.col("host").list.len() > 1)
    by_hour = data.hours.group_by("gpu", "time").agg(pl.col("observed_ms").cast(pl.Int64).sum())
    twice = (
        by_hour.filter(pl.col("observed_ms") > HOUR_MS + _SPILL_MS)
        .group_by("gpu")
        .agg(twice_ms=(pl.col("observed_ms") - HOUR_MS).sum())
    )
    at_once = moved.join(twice, on="gpu").sort("twice_ms", "gpu", descending=[True, False])
    yield from _remark(at_once, "gpu_on_two_hosts", _AT_ONCE)
    yield from _remark(moved.join(twice, on="gpu", how="anti"), "gpu_moved", _MOVED)


def _remark(gpus: pl.DataFrame, kind: str, template: str) -> Iterator[Remark]:
    if len(gpus):
        each = [_gpu_with_hosts(gpu, hosts) for gpu, hosts in gpus.select("gpu", "host").head(MOST_NAMED).rows()]
        yield Remark(kind, tr_many(template, len(gpus), gpus=named(each, "GPU", len(gpus))), len(gpus), each[0])


def _gpu_with_hosts(gpu: str, hosts: Sequence[str]) -> Sentence:
    where: str = hosts[0]
    for host in hosts[1:]:
        where = tr("{name} and {other}", name=where, other=host)
    return tr("{gpu} ({hosts})", gpu=gpu, hosts=where)


def shared_names(data: Data) -> Iterator[Remark]:
    """Report hosts on which two GPUs occupy one slot for hours: two machines that write under one host name."""
    seen = (
        data.segments.filter(pl.col("state") != "unknown")
        .group_by("host", "gpu")
        .agg(first=pl.col("time").min(), last=pl.col("end").max())
    )
    slots = data.cards.select("host", "gpu", "pci_bus_id").drop_nulls().unique().join(seen, on=["host", "gpu"])
    slots = slots.sort("host", "pci_bus_id", "first", "gpu").with_columns(
        before=pl.col("gpu").shift(1).over("host", "pci_bus_id"),
        until=pl.col("last").cum_max().shift(1).over("host", "pci_bus_id"),
    )
    both = slots.drop_nulls("before").filter(pl.min_horizontal("until", "last") - pl.col("first") >= _OVERLAP_MIN_MS)
    for (host,), rows in both.group_by("host", maintain_order=True):
        first = rows.row(0, named=True)
        overlap_ms = min(first["until"], first["last"]) - first["first"]
        example = tr("{gpu} and {other} at {slot}", gpu=first["before"], other=first["gpu"], slot=first["pci_bus_id"])
        sentence = tr_many(
            "{host}: two machines seem to write under this name, because {number} {slot|slots} held two GPUs at once"
            " ({example}, {hours} hours); every GPU is counted, but users and host figures are mixed: give each machine"
            " its own name in agent.host",
            rows["pci_bus_id"].n_unique(),
            host=str(host),
            example=example,
            hours=GpuHours(overlap_ms),
        )
        yield Remark("shared_host_name", sentence, len(rows), example)
