"""`fallow claims list --check`: where claims and measurements do not meet, in words and GPU-hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from analytics.allocations.implausible import oversized_claims, resembling_hosts
from analytics.allocations.spans import claim_spans, overlapping_claims
from analytics.allocations.telemetry import (
    claims_without_telemetry,
    since_and_until,
    telemetry_without_claims,
)
from analytics.allocations.write import AS_OF
from analytics.importers.times import LATEST_MS
from analytics.language.plain_text import count, hours, moment, plain
from analytics.states import OCCUPIED
from fallow import parquet
from fallow.clock import HOUR_MS, format_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analytics.window import WindowLedger
    from fallow.lake import LakeFile

_SHOWN = 5


@dataclass(frozen=True)
class Checked:
    """What the comparison found; frames as the functions of `telemetry` and `spans` return them."""

    unseen: pl.DataFrame
    unclaimed: pl.DataFrame
    overlapping: pl.DataFrame
    unplaced_gpu_ms: int
    oversized: pl.DataFrame
    """Claims of more GPUs than their host has: claim_id, user, account, host, claimed, present."""
    resembling: Mapping[str, str]
    """Hosts that never reported, and the host that each may stand for."""
    as_of_ms: int | None
    """When the newest import knew which claims ran; None where none says so."""
    running: int
    """Imported claims that ran then."""
    until_ms: int
    """End of the ledger's window."""


def check(claims: pl.DataFrame, ledger: WindowLedger, files: Sequence[LakeFile]) -> Checked:
    """Compares the claims (rows of the `claim` table and `host`, read from these files) with the ledger of a window."""
    stretches, known = ledger.inside.stretches, ledger.whole.stretches
    since_ms, until_ms = since_and_until(stretches)
    unseen = claims_without_telemetry(
        claims, set(known["gpu"].unique()), set(known["host"].unique()), since_ms=since_ms, until_ms=until_ms
    )
    gpus = {str(host): rows["gpu"].unique().to_list() for (host,), rows in stretches.group_by("host")}
    measured = claims.filter(pl.col("host").is_in(list(gpus)))
    unplaced = claim_spans(measured, gpus, _work(stretches), since_ms=since_ms, until_ms=until_ms).unplaced
    overlapping = overlapping_claims(claims).filter((pl.col("time") < until_ms) & (pl.col("end") > since_ms))
    running = claims.filter(pl.col("end").is_null() & (pl.col("scheduler") != "kubernetes"))
    return Checked(
        unseen,
        telemetry_without_claims(claims, stretches),
        overlapping,
        int((unplaced["gpu_count_on_host"].fill_null(1) * (unplaced["end"] - unplaced["start"])).sum()),
        oversized_claims(claims, known, since_ms=since_ms, until_ms=until_ms),
        resembling_hosts(unseen["host"].unique(), known["host"].unique()),
        _as_of_ms(files),
        running.select("claim_id", "time").unique().height,
        until_ms,
    )


def _work(stretches: pl.DataFrame) -> pl.DataFrame:
    """Where processes of named jobs were seen."""
    seen = (pl.col("holder_source") == "process").fill_null(value=False) & pl.col("job").is_not_null()
    return stretches.filter(seen).select("gpu", "host", "time", "end", "job")


def _as_of_ms(files: Sequence[LakeFile]) -> int | None:
    facts = (parquet.metadata(file).get(AS_OF) for file in files if file.first_seq < LATEST_MS)
    return max((int(fact) for fact in facts if fact is not None), default=None)


def as_json(checked: Checked) -> dict[str, Any]:
    """What was found as JSON values."""
    return {
        "claims_without_telemetry": {
            "gpu_hours": int(checked.unseen["gpu_ms"].sum()) / HOUR_MS,
            "claims": [_json_row(row, "time", "end") for row in checked.unseen.iter_rows(named=True)],
        },
        "telemetry_without_claims": {
            "gpu_hours": {state: _unclaimed(checked, state) / HOUR_MS for state in OCCUPIED},
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
    """What was found in words."""
    unseen = checked.unseen
    lines = [f"claimed, and never measured: {hours(int(unseen['gpu_ms'].sum()))} GPU-hours in {_distinct(unseen)}"]
    for row in _largest_claims(unseen):
        hours_text = "unknown" if row["gpu_ms"] is None else hours(row["gpu_ms"])
        who = plain(row["user"] or row["account"] or "nobody known", 30)
        lines.append(
            f"  {hours_text:>10} GPU-hours  {plain(row['claim_id'], 30)} of {who} on {row['host']}: {row['why']}"
            + (f" (did you mean {checked.resembling[row['host']]}?)" if row["host"] in checked.resembling else "")
        )
    parts = ", ".join(f"{hours(_unclaimed(checked, state))} {state}" for state in OCCUPIED)
    total = sum(_unclaimed(checked, state) for state in OCCUPIED)
    lines.append(f"used without a claim, on hosts that have claims: {hours(total)} GPU-hours ({parts})")
    for host, holder, spent in _holders(checked)[:_SHOWN]:
        lines.append(f"  {hours(spent):>10} GPU-hours  {plain(holder or 'nobody known', 30)} on {host}")
    lines.append(
        f"claimed by the count alone, on GPUs that nobody can name: {hours(checked.unplaced_gpu_ms)} GPU-hours"
    )
    lines += [
        f"claims more GPUs than its host has: {plain(row['claim_id'], 30)} of {plain(row['user'] or row['account'] or 'nobody known', 30)} "
        f"claims {row['claimed']:,} on {row['host']}, which has {row['present']:,}"
        for row in checked.oversized.head(_SHOWN).iter_rows(named=True)
    ]
    if checked.oversized.height > _SHOWN:
        lines.append(f"  and {checked.oversized.height - _SHOWN} more claim more GPUs than their host has")
    if checked.overlapping.height:
        gpus = checked.overlapping["gpu"].n_unique()
        lines.append(f"claimed by several at once: {count(gpus, 'GPU')} (shared, or a record is wrong)")
        lines += [
            f"  from {format_ms(row['time'])}  {plain(row['claims'], 60)} on {row['gpu']}"
            for row in checked.overlapping.head(_SHOWN).iter_rows(named=True)
        ]
    if checked.running and checked.as_of_ms is not None and checked.as_of_ms < checked.until_ms:
        verb = "is" if checked.running == 1 else "are"
        lines.append(
            f"{count(checked.running, 'imported claim')} still ran at the last import ({moment(checked.as_of_ms)}) "
            f"and {verb} taken to run on; import again to know better"
        )
    return "\n".join(lines)


def _largest_claims(unseen: pl.DataFrame) -> list[dict[str, Any]]:
    by_claim = unseen.group_by("claim_id", "host", "user", "account", "why").agg(
        pl.when(pl.col("gpu_ms").is_not_null().any()).then(pl.col("gpu_ms").sum())
    )
    ordered = by_claim.sort("gpu_ms", "claim_id", "host", descending=[True, False, False], nulls_last=True)
    return ordered.head(_SHOWN).to_dicts()


def _distinct(unseen: pl.DataFrame) -> str:
    return count(unseen.select("scheduler", "claim_id").unique().height, "claim")


def _unclaimed(checked: Checked, state: str) -> int:
    return int(checked.unclaimed.filter(pl.col("state") == state)["unclaimed_ms"].sum())


def _holders(checked: Checked) -> list[tuple[str, str | None, int]]:
    """Host, holder and GPU time, the largest first."""
    by_holder = checked.unclaimed.group_by("host", "holder").agg(pl.col("unclaimed_ms").sum())
    return by_holder.sort("unclaimed_ms", "host", "holder", descending=[True, False, False], nulls_last=True).rows()


def _json_row(row: dict[str, Any], *times: str) -> dict[str, Any]:
    return {name: format_ms(value) if name in times else value for name, value in row.items()}
