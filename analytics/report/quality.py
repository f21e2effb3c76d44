"""What is wrong or thin in the data behind a report: said aloud, never silently dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.ledger.text import count, hours, moment, percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.devices import Inventory
    from analytics.ledger.build import Ledger
    from fallow.clock import Window

_MOST = 5


@dataclass(frozen=True)
class Remark:
    """One thing to know about the data: a stable kind and a sentence."""

    kind: str
    sentence: str


def data_quality(inside: Ledger, window: Window, inventory: Inventory) -> tuple[Remark, ...]:
    """Remarks on the ledger inside a window, both of whose ends are known."""
    spans = inside.stretches
    return (
        *_unobserved(spans),
        *_silent(spans, window),
        *_unmeasured(spans),
        *_by_memory(spans),
        *_unwatched(spans),
        *_point_samples(spans),
        *_unlisted(spans, inventory),
    )


def _span() -> pl.Expr:
    return (pl.col("end") - pl.col("time")).sum()


def _unobserved(spans: pl.DataFrame) -> Iterator[Remark]:
    unknown = pl.col("state") == "unknown"
    hosts = (
        spans.group_by("host")
        .agg(unknown_ms=(pl.col("end") - pl.col("time")).filter(unknown).sum(), total_ms=_span())
        .filter(pl.col("unknown_ms") > 0)
        .sort("unknown_ms", "host", descending=[True, False])
    )
    for row in hosts.head(_MOST).iter_rows(named=True):
        share = percent(row["unknown_ms"] / row["total_ms"])
        yield Remark(
            "unobserved", f"{row['host']}: nobody looked for {hours(row['unknown_ms'])} GPU-hours ({share} of its time)"
        )
    if len(hosts) > _MOST:
        rest = int(hosts["unknown_ms"][_MOST:].sum())
        more = count(len(hosts) - _MOST, "more host")
        yield Remark("unobserved", f"{more}: nobody looked for {hours(rest)} GPU-hours")


def _silent(spans: pl.DataFrame, window: Window) -> Iterator[Remark]:
    until_ms = window.until_ms or 0
    gpus = spans.group_by("host", "gpu").agg(last=pl.col("end").max())
    hosts = gpus.group_by("host").agg(last=pl.col("last").max()).sort("last", "host")
    silent = hosts.filter(pl.col("last") < until_ms - SILENT_AFTER_MS)
    for row in silent.head(_MOST).iter_rows(named=True):
        yield Remark("silent", f"{row['host']}: silent since {moment(row['last'])}; time after that is not in any sum")
    if len(silent) > _MOST:
        more = count(len(silent) - _MOST, "more host")
        yield Remark("silent", f"{more} silent at the end of the window; time after that is not in any sum")
    alone = gpus.join(hosts.select("host", host_last="last"), on="host")
    gone = alone.filter(pl.col("last") < pl.col("host_last") - SILENT_AFTER_MS)
    if len(gone):
        where = count(gone["host"].n_unique(), "host")
        yield Remark(
            "gone",
            f"{count(len(gone), 'GPU')} on {where} stopped reporting before the host did; time after that is not in any sum",
        )


def _unmeasured(spans: pl.DataFrame) -> Iterator[Remark]:
    never = spans.group_by("gpu", "host").agg(pl.col("util_ms").sum()).filter(pl.col("util_ms") == 0)
    if len(never):
        use = "its use is" if len(never) == 1 else "their use is"
        yield Remark("unmeasured", f"{count(len(never), 'GPU')} never gave a utilization: {use} unknown, not zero")


def _by_memory(spans: pl.DataFrame) -> Iterator[Remark]:
    by_memory_ms = int(spans.filter(pl.col("holder_source") == "memory").select(_span()).item())
    if by_memory_ms:
        yield Remark("memory_holder", f"{hours(by_memory_ms)} GPU-hours count as in use because memory was allocated; "
                     "no process list says by whom")  # fmt: skip


def _unwatched(spans: pl.DataFrame) -> Iterator[Remark]:
    unwatched_ms = int(spans.filter(pl.col("holder_source") == "unwatched").select(_span()).item())
    if unwatched_ms:
        yield Remark("unwatched_holder", f"{hours(unwatched_ms)} GPU-hours count as free because utilization was 0; neither "
                     "processes nor memory were read, so that somebody may have held the GPU")  # fmt: skip


def _point_samples(spans: pl.DataFrame) -> Iterator[Remark]:
    measured = pl.col("util_ms") > 0
    point_ms = int(spans.filter(measured & pl.col("coverage_ratio").is_null()).select(_span()).item())
    if point_ms:
        yield Remark("point_samples", f"{hours(point_ms)} GPU-hours rest on point samples that do not say how much of their "
                     "interval they watched")  # fmt: skip


def _unlisted(spans: pl.DataFrame, inventory: Inventory) -> Iterator[Remark]:
    unlisted = [gpu for gpu in spans["gpu"].unique() if inventory.devices.get(gpu) is None]
    if unlisted:
        yield Remark(
            "no_inventory",
            f"{count(len(unlisted), 'GPU')} without an inventory entry: model, memory and pool are unknown",
        )
