"""GPUs that nobody has ever used since they were first seen: the defensive purchase."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.confidence import grade, observe, watched_enough, watched_holders
from analytics.findings.holders import watch_command
from analytics.findings.model import Context, Evidence, Finding, energy_kwh
from analytics.ledger.summary import SILENT_AFTER_MS
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNUSED = ("free", "reserved")
_USED = ("held", "low", "active")


class NeverUsed:
    """GPUs without any process or kernel in all of the lake's history; one finding per host."""

    name = "never_used"
    sentence = "never used since first seen"

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        span = pl.col("end") - pl.col("time")
        # over all hosts: a card that moved has been used if it was used anywhere; it belongs to where it was seen last
        history = (
            context.whole.stretches.sort("end", "host")
            .group_by("gpu", maintain_order=True)
            .agg(
                pl.col("host").last(),
                used_ms=span.filter(pl.col("state").is_in(_USED)).sum(),
                unused_ms=span.filter(pl.col("state").is_in(_UNUSED)).sum(),
                measured_ms=pl.col("util_ms").sum(),
            )
        )
        never = history.filter(
            # a GPU whose utilization nobody could measure is unknown, not unused
            (pl.col("used_ms") == 0)
            & (pl.col("unused_ms") >= context.settings.never_used_min_ms)
            & (pl.col("measured_ms") >= context.settings.never_used_min_ms)
        )
        inside = context.inside.stretches.filter(pl.col("state").is_in(_UNUSED))
        for (host,), gpus in never.sort("host", "gpu").group_by("host", maintain_order=True):
            stretches = inside.filter(pl.col("gpu").is_in(gpus["gpu"].to_list()))
            if not stretches.is_empty():
                yield self._finding(context, str(host), tuple(gpus["gpu"]), stretches)

    def _finding(self, context: Context, host: str, gpus: tuple[str, ...], stretches: pl.DataFrame) -> Finding:
        span = pl.col("end") - pl.col("time")
        whole = context.whole.stretches.filter(pl.col("gpu").is_in(gpus))
        first_seen = int(whole.select(pl.col("time").min()).item())
        seen = observe(context, gpus, stretches)
        reserved_ms = int(stretches.filter(pl.col("state") == "reserved").select(span.sum()).item())
        unwatched = bool((whole["holder_source"] == "unwatched").any())
        holders = stretches["holder"].drop_nulls().unique().sort()
        return Finding(
            rule=self.name,
            sentence=self.sentence,
            subject="",
            gpus=gpus,
            host=host,
            holder="+".join(holders) or None,
            since_ms=first_seen,
            gpu_ms=int(stretches.select(span.sum()).item()),
            energy_kwh=energy_kwh(stretches),
            confidence=grade(watched_enough(seen), watched_holders(unwatched=unwatched)),
            reclaimable_gpus=() if unwatched else _still_there(context, gpus),
            evidence=Evidence(
                first_seen,
                int(whole.select(pl.col("end").max()).item()),
                {
                    **({"holder_source": None} if unwatched else {}),
                    "observed_gpu_hours": int(whole["util_ms"].sum()) / HOUR_MS,
                    "reserved_gpu_hours": reserved_ms / HOUR_MS,
                    "gpu_util_max_pct": whole["gpu_util_max_pct"].max(),  # type: ignore[dict-item]  # a float column
                    "mem_used_max_bytes": whole["mem_used_max_bytes"].max(),  # type: ignore[dict-item]  # an integer column
                    "sample_count": int(whole["sample_count"].sum()),
                    "coverage": seen.coverage,
                    "model": "+".join(sorted({context.inventory.model(gpu) for gpu in gpus})),
                },
            ),
            next_command=watch_command(host),
            simulated=all(context.inventory.simulated(gpu) for gpu in gpus),
        )


def _still_there(context: Context, gpus: tuple[str, ...]) -> tuple[str, ...]:
    """The GPUs that were in order at the end of the window: a lost or silent one is nothing to hand out."""
    spans = context.inside.stretches
    last = spans.filter(pl.col("gpu").is_in(gpus)).sort("end").group_by("gpu").agg(pl.col("end", "state").last())
    newest_ms = spans.select(pl.col("end").max()).item()
    there = last.filter(pl.col("state").is_in(_UNUSED) & (pl.col("end") > newest_ms - SILENT_AFTER_MS))
    return tuple(sorted(there["gpu"]))
