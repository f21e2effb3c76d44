"""`fallow allocations list --check`: where allocations and measurements disagree, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.allocations.measured import (
    allocations_without_telemetry,
    oversized_allocations,
    resembling_hosts,
    since_and_until,
    telemetry_without_allocations,
)
from analytics.allocations.spans import allocation_spans, overlapping_allocations
from analytics.allocations.write import AS_OF
from analytics.importers.times import LATEST_MS
from analytics.language.plain_text import count, hours, moment, plain
from analytics.states import OCCUPIED
from fallow import parquet
from fallow.clock import HOUR_MS, format_ms
from fallow.errors import UnusableFileError
from fallow.lake import LakeFile

_SHOWN = 5


@dataclass(frozen=True)
class Checked:
    """What the comparison found; frames as the functions of `telemetry` and `spans` return them."""

    unseen: pl.DataFrame
    unallocated: pl.DataFrame
    overlapping: pl.DataFrame
    unplaced_gpu_ms: int
    oversized: pl.DataFrame
    """Allocations of more GPUs than their host has: claim_id, user, account, host, allocated, present."""
    resembling: Mapping[str, str]
    """Hosts that never reported, and the host that each may stand for."""
    as_of_ms: int | None
    """When the newest import knew which allocations ran; None where none says so."""
    running: int
    """Imported allocations that ran then."""
    until_ms: int
    """End of the ledger's window."""


def check(
    allocations: pl.DataFrame,
    stretches: pl.DataFrame,
    known: pl.DataFrame,
    lifetimes: pl.DataFrame,
    files: Sequence[LakeFile],
) -> Checked:
    """Compares allocations with the ledger.

    Args:
        allocations: rows of the `claim` table and `host`.
        stretches: rows of the ledger inside the window.
        known: rows of the ledger with its history.
        lifetimes: one row per GPU and host that was ever observed.
        files: where the allocations were read from.
    """
    since_ms, until_ms = since_and_until(stretches)
    unseen = allocations_without_telemetry(
        allocations, set(lifetimes["gpu"]), set(lifetimes["host"]), since_ms=since_ms, until_ms=until_ms
    )
    gpus = {str(host): rows["gpu"].unique().to_list() for (host,), rows in stretches.group_by("host")}
    measured = allocations.filter(pl.col("host").is_in(list(gpus)))
    unplaced = allocation_spans(measured, gpus, _work(stretches), since_ms=since_ms, until_ms=until_ms).unplaced
    overlapping = overlapping_allocations(allocations).filter((pl.col("time") < until_ms) & (pl.col("end") > since_ms))
    running = allocations.filter(pl.col("end").is_null() & (pl.col("scheduler") != "kubernetes"))
    return Checked(
        unseen,
        telemetry_without_allocations(allocations, stretches),
        overlapping,
        int((unplaced["gpu_count_on_host"].fill_null(1) * (unplaced["end"] - unplaced["start"])).sum()),
        oversized_allocations(allocations, known, since_ms=since_ms, until_ms=until_ms),
        resembling_hosts(unseen["host"].unique(), known["host"].unique()),
        _as_of_ms(files),
        running.select("claim_id", "time").unique().height,
        until_ms,
    )


def _work(stretches: pl.DataFrame) -> pl.DataFrame:
    seen = (pl.col("holder_source") == "process").fill_null(value=False) & pl.col("job").is_not_null()
    return stretches.filter(seen).select("gpu", "host", "time", "end", "job")


def _as_of_ms(files: Sequence[LakeFile]) -> int | None:
    facts = (_stated_as_of(file) for file in files if file.first_seq < LATEST_MS)
    return max((int(fact) for fact in facts if fact is not None and fact.isdecimal()), default=None)


def _stated_as_of(file: LakeFile) -> str | None:
    try:
        return parquet.metadata(file).get(AS_OF)
    except UnusableFileError:
        return None  # its rows are not there either, and data quality says so


def as_json(checked: Checked) -> dict[str, Any]:
    return {
        "claims_without_telemetry": {
            "gpu_hours": int(checked.unseen["gpu_ms"].sum()) / HOUR_MS,
            "claims": [_json_row(row, "time", "end") for row in checked.unseen.iter_rows(named=True)],
        },
        "telemetry_without_claims": {
            "gpu_hours": {state: _unallocated_ms(checked, state) / HOUR_MS for state in OCCUPIED},
            "holders": [
                {"host": host, "holder": holder, "gpu_hours": spent / HOUR_MS}
                for host, holder, spent in _holders(checked)
            ],
        },
        "overlapping_claims": [_json_row(row, "time", "end") for row in checked.overlapping.iter_rows(named=True)],
        "claims_of_more_gpus_than_their_host_has": checked.oversized.to_dicts(),
        "hosts_that_may_be_others": dict(checked.resembling),
        "unplaced_gpu_hours": checked.unplaced_gpu_ms / HOUR_MS,
        "running": checked.running,
        "as_of": None if checked.as_of_ms is None else format_ms(checked.as_of_ms),
    }


def as_text(checked: Checked) -> str:
    unseen = checked.unseen
    lines = [f"allocated, and never measured: {hours(int(unseen['gpu_ms'].sum()))} GPU-hours in {_distinct(unseen)}"]
    for row in _largest_allocations(unseen):
        hours_text = "unknown" if row["gpu_ms"] is None else hours(row["gpu_ms"])
        who = plain(row["user"] or row["account"] or "nobody known", 30)
        lines.append(
            f"  {hours_text:>10} GPU-hours  {plain(row['claim_id'], 30)} of {who} on {row['host']}: {row['why']}"
            + (f" (did you mean {checked.resembling[row['host']]}?)" if row["host"] in checked.resembling else "")
        )
    parts = ", ".join(f"{hours(_unallocated_ms(checked, state))} {state}" for state in OCCUPIED)
    total = sum(_unallocated_ms(checked, state) for state in OCCUPIED)
    lines.append(f"used without an allocation, on hosts that have allocations: {hours(total)} GPU-hours ({parts})")
    for host, holder, spent in _holders(checked)[:_SHOWN]:
        lines.append(f"  {hours(spent):>10} GPU-hours  {plain(holder or 'nobody known', 30)} on {host}")
    lines.append(
        f"allocated by the count alone, on GPUs that nobody can name: {hours(checked.unplaced_gpu_ms)} GPU-hours"
    )
    lines += [
        f"more GPUs than its host has: {plain(row['claim_id'], 30)} of {plain(row['user'] or row['account'] or 'nobody known', 30)} "
        f"allocates {row['claimed']:,} on {row['host']}, which has {row['present']:,}"
        for row in checked.oversized.head(_SHOWN).iter_rows(named=True)
    ]
    if checked.oversized.height > _SHOWN:
        lines.append(f"  and {checked.oversized.height - _SHOWN} more allocate more GPUs than their host has")
    if checked.overlapping.height:
        gpus = checked.overlapping["gpu"].n_unique()
        lines.append(f"allocated to several at once: {count(gpus, 'GPU')} (shared, or a record is wrong)")
        lines += [
            f"  from {format_ms(row['time'])}  {plain(row['claims'], 60)} on {row['gpu']}"
            for row in checked.overlapping.head(_SHOWN).iter_rows(named=True)
        ]
    if checked.running and checked.as_of_ms is not None and checked.as_of_ms < checked.until_ms:
        verb = "is" if checked.running == 1 else "are"
        lines.append(
            f"{count(checked.running, 'imported allocation')} still ran at the last import ({moment(checked.as_of_ms)}) "
            f"and {verb} taken to run on; import again to know better"
        )
    return "\n".join(lines)


def _largest_allocations(unseen: pl.DataFrame) -> list[dict[str, Any]]:
    by_allocation = unseen.group_by("claim_id", "host", "user", "account", "why").agg(
        pl.when(pl.col("gpu_ms").is_not_null().any()).then(pl.col("gpu_ms").sum())
    )
    ordered = by_allocation.sort("gpu_ms", "claim_id", "host", descending=[True, False, False], nulls_last=True)
    return ordered.head(_SHOWN).to_dicts()


def _distinct(unseen: pl.DataFrame) -> str:
    return count(unseen.select("scheduler", "claim_id").unique().height, "allocation")


def _unallocated_ms(checked: Checked, state: str) -> int:
    return int(checked.unallocated.filter(pl.col("state") == state)["unclaimed_ms"].sum())


def _holders(checked: Checked) -> list[tuple[str, str | None, int]]:
    """Host, holder and GPU time, the largest first."""
    by_holder = checked.unallocated.group_by("host", "holder").agg(pl.col("unclaimed_ms").sum())
    return by_holder.sort("unclaimed_ms", "host", "holder", descending=[True, False, False], nulls_last=True).rows()


def _json_row(row: dict[str, Any], *times: str) -> dict[str, Any]:
    return {name: format_ms(value) if name in times else value for name, value in row.items()}
