"""What is wrong or thin in the data behind a report: said aloud, never silently dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.ledger.text import hours, moment, percent

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
        yield Remark("unobserved", f"{len(hosts) - _MOST} more hosts: nobody looked for {hours(rest)} GPU-hours")


def _silent(spans: pl.DataFrame, window: Window) -> Iterator[Remark]:
    last = spans.group_by("host").agg(last=pl.col("end").max()).sort("last", "host")
    for row in last.iter_rows(named=True):
        if window.until_ms is not None and window.until_ms - row["last"] > SILENT_AFTER_MS:
            yield Remark(
                "silent", f"{row['host']}: silent since {moment(row['last'])}; time after that is not in any sum"
            )


def _unmeasured(spans: pl.DataFrame) -> Iterator[Remark]:
    never = spans.group_by("gpu", "host").agg(pl.col("util_ms").sum()).filter(pl.col("util_ms") == 0)
    if len(never):
        yield Remark("unmeasured", f"{len(never)} GPUs never gave a utilization: their use is unknown, not zero")


def _by_memory(spans: pl.DataFrame) -> Iterator[Remark]:
    by_memory_ms = int(spans.filter(pl.col("holder_source") == "memory").select(_span()).item())
    if by_memory_ms:
        yield Remark("memory_holder", f"{hours(by_memory_ms)} GPU-hours count as in use because memory was allocated; "
                     "no process list says by whom")  # fmt: skip


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
            "no_inventory", f"{len(unlisted)} GPUs have no inventory entry: model, memory and pool are unknown"
        )
