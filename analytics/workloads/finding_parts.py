"""What every rule does alike: putting a finding together from the stretches that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.summary import SILENT_AFTER_MS
from analytics.workloads.confidence import grade, observe, right_clocks, watched_enough
from analytics.workloads.memo import once
from analytics.workloads.mig_energy import ESTIMATED, has_instances, with_estimates
from analytics.workloads.model import Context, Evidence, Finding, Number, Rule, energy_kwh
from analytics.workloads.phrases import agreeing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPAN = pl.col("end") - pl.col("time")
"""Milliseconds of a ledger row."""

GPU_MS = SPAN * pl.col("gpu_share")
"""GPU milliseconds of a ledger row: a MIG instance counts its share."""


def finding_of(
    context: Context,
    rule: Rule,
    stretches: pl.DataFrame,
    *,
    subject: str,
    numbers: Mapping[str, Number],
    failed: Sequence[Sequence[str]] = (),
    next_command: str = "",
    reclaimable_gpus: Sequence[str] = (),
    holder: str | None = None,
    since_ms: int | None = None,
    gpus: Sequence[str] | None = None,
    host: str | None = None,
    notes: Sequence[str] = (),
) -> Finding:
    """A finding about some rows of `context.inside.stretches`, which must not be empty.

    Hosts, GPUs, GPU time, energy, cost, team, job and the conditions that any rule can fail (coverage, history, gap-free
    utilization) come from the rows; `failed` are the rule's own failed conditions.
    """
    # single columns, for a thousand findings are put together: a frame's own expressions take ten times as long
    uuids = tuple(sorted(set(stretches["gpu"].to_list()))) if gpus is None else tuple(gpus)
    seen = observe(context, uuids, stretches)
    where = joined(stretches, "host") or "" if host is None else host
    accounts, jobs = (joined(stretches, name) for name in ("account", "job"))
    cost = context.costs.of(stretches)
    energy, said = _energy(context, stretches)
    return Finding(
        rule=rule.name,
        category=rule.category,
        sentence=agreeing(rule.sentence, len(uuids)),
        subject=subject,
        gpus=uuids,
        host=where,
        id_host=where if rule.per_host else "",
        holder=holder,
        since_ms=min(stretches["stretch_start"].to_list()) if since_ms is None else since_ms,
        gpu_ms=gpu_ms_of(stretches),
        energy_kwh=energy,
        confidence=grade(watched_enough(seen), right_clocks(context, stretches), *map(list, failed)),
        reclaimable_gpus=tuple(reclaimable_gpus),
        evidence=Evidence(
            min(stretches["time"].to_list()),
            max(stretches["end"].to_list()),
            {
                **numbers,
                "sample_count": int(stretches["sample_count"].sum()),
                "coverage": seen.coverage,
            },
        ),
        next_command=next_command,
        simulated=all(context.inventory.simulated(gpu) for gpu in uuids),
        team=context.owners.team(holder, accounts),
        job=jobs,
        cost=cost,
        currency=context.costs.currency if cost is not None else None,
        notes=(*notes, *said),
    )


def _energy(context: Context, stretches: pl.DataFrame) -> tuple[float | None, tuple[str, ...]]:
    """What was drawn, and a word on it where MIG instances make it an estimate."""
    measured = energy_kwh(stretches)
    if measured is not None or not has_instances(stretches):
        return measured, ()
    estimated = energy_kwh(with_estimates(context, stretches))
    return estimated, () if estimated is None else (ESTIMATED,)


def joined(stretches: pl.DataFrame, column: str) -> str | None:
    """The distinct values of a column, sorted and joined by `+`; None where there are none."""
    return "+".join(sorted(set(stretches[column].to_list()) - {None})) or None


def whole_number(frame: pl.DataFrame, value: pl.Expr) -> int:
    """One integer out of a frame; 0 for the sum or extreme of nothing."""
    return int(frame.select(value).item() or 0)


def still_going(context: Context, stretches: pl.DataFrame) -> tuple[str, ...]:
    """The GPUs that were seen lately and whose last row of the window is among these: what is the case at its end."""
    last_seen = _last_seen(context)
    rows = zip(stretches["gpu"].to_list(), stretches["end"].to_list(), strict=True)
    return tuple(sorted({gpu for gpu, end in rows if last_seen.get(gpu) == end}))


@once
def _last_seen(context: Context) -> dict[str, int]:
    """The end of the last row of each GPU that was seen lately."""
    last = context.inside.stretches.group_by("gpu").agg(pl.col("end").max(), pl.col("host").sort_by("end").last())
    return dict(last.filter(seen_lately(context)).select("gpu", "end").iter_rows())


def seen_lately(context: Context) -> pl.Expr:
    """Whether what a GPU's last row (`host`, `end`) says was the case at the end of the window."""
    return (pl.col("end") > context.until_ms - SILENT_AFTER_MS) & ~on_host_ahead(context)


def on_host_ahead(context: Context) -> pl.Expr:
    """Whether a row is of a host whose clock is ahead."""
    return pl.col("host").is_in(pl.Series(sorted(context.ahead), dtype=pl.String).implode())


def gpu_ms_of(stretches: pl.DataFrame) -> float:
    """GPU milliseconds of the rows."""
    return float(((stretches["end"] - stretches["time"]) * stretches["gpu_share"]).sum())
