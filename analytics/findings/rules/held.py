"""A holder keeps GPUs and runs no kernel on them for an hour and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.confidence import alone, grade, known_holder, lasting, observe, watched_enough
from analytics.findings.holders import look_command, release_command
from analytics.findings.model import Context, Evidence, Finding, Number, energy_kwh
from analytics.ledger.summary import SILENT_AFTER_MS, ratio
from fallow.clock import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

THRESHOLDS_MIN = (30, 60, 120)
"""Printed beside the headline, because the choice of threshold moves it several times over."""


class Held:
    """Held stretches of at least `findings.held_min`, one finding per host and holder (per GPU where none is known)."""

    name = "held"
    sentence = "held without running a kernel"

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        held = context.inside.stretches.filter(pl.col("state") == "held").with_columns(
            spell_ms=pl.col("stretch_end") - pl.col("stretch_start"),
            # an unknown holder on one GPU need not be the unknown holder on the next
            whom=pl.coalesce("holder", "gpu"),
        )
        long = held.filter(pl.col("spell_ms") >= context.settings.held_min_ms)
        idle = frozenset(_current(context, long))
        for _, stretches in long.group_by("host", "whom", maintain_order=True):
            shorter = held.join(stretches.select("host", "whom").unique(), on=("host", "whom"), how="semi")
            yield self._finding(context, stretches, shorter, idle)

    def _finding(
        self, context: Context, stretches: pl.DataFrame, all_held: pl.DataFrame, idle: frozenset[str]
    ) -> Finding:
        first = stretches.row(0, named=True)
        gpus = tuple(sorted(stretches["gpu"].unique()))
        seen = observe(context, gpus, stretches)
        longest_ms = _integer(stretches, pl.col("spell_ms").max())
        current = _current(context, stretches)
        others = [gpu for gpu in context.holders.beyond(current) if gpu not in idle]
        source = _source(stretches)
        return Finding(
            rule=self.name,
            sentence=self.sentence,
            subject=first["whom"],
            gpus=gpus,
            host=first["host"],
            holder=first["holder"],
            since_ms=_integer(stretches, pl.col("stretch_start").min()),
            gpu_ms=_held_ms(stretches),
            energy_kwh=energy_kwh(stretches),
            confidence=grade(
                watched_enough(seen),
                known_holder(source, first["holder"]),
                lasting(longest_ms, _spell_so_far_ms(stretches, current)),
                alone(len(others)),
            ),
            reclaimable_gpus=() if others else current,
            evidence=_evidence(
                context,
                stretches,
                all_held=all_held,
                current=current,
                coverage=seen.coverage,
                longest_ms=longest_ms,
                source=source,
            ),
            next_command=_command(context, first["host"], source, current, others),
            simulated=all(context.inventory.simulated(gpu) for gpu in gpus),
        )


def _source(stretches: pl.DataFrame) -> str | None:
    """How the newest of the stretches knows its holder."""
    source = stretches.sort("time", "gpu")["holder_source"][-1]
    return None if source is None else str(source)


def _held_ms(stretches: pl.DataFrame) -> int:
    return _integer(stretches, (pl.col("end") - pl.col("time")).sum())


def _integer(frame: pl.DataFrame, value: pl.Expr) -> int:
    return int(frame.select(value).item() or 0)


def _current(context: Context, stretches: pl.DataFrame) -> tuple[str, ...]:
    """The GPUs whose held stretch still ran at the end of the window: only these can be taken back."""
    newest_ms = _integer(context.inside.stretches, pl.col("end").max())
    last_seen = context.inside.stretches.group_by("gpu").agg(last_seen=pl.col("end").max())
    alive = last_seen.filter(pl.col("last_seen") > newest_ms - SILENT_AFTER_MS)
    ongoing = stretches.join(alive, on="gpu").filter(pl.col("end") == pl.col("last_seen"))
    return tuple(sorted(ongoing["gpu"].unique()))


def _spell_so_far_ms(stretches: pl.DataFrame, current: tuple[str, ...]) -> int | None:
    """The shortest of the spells that still run; None where none does."""
    if not current:
        return None
    newest = stretches.filter(pl.col("gpu").is_in(current)).sort("time").group_by("gpu").agg(pl.col("spell_ms").last())
    return _integer(newest, pl.col("spell_ms").min())


def _evidence(
    context: Context,
    stretches: pl.DataFrame,
    *,
    all_held: pl.DataFrame,
    current: tuple[str, ...],
    coverage: float | None,
    longest_ms: int,
    source: str | None,
) -> Evidence:
    numbers: dict[str, Number] = {
        f"held_gpu_hours_in_stretches_of_{minutes}_min": _held_ms(
            all_held.filter(pl.col("spell_ms") >= minutes * MINUTE_MS)
        )
        / HOUR_MS
        for minutes in THRESHOLDS_MIN
    }
    duration = pl.col("end") - pl.col("time")
    powered = stretches.filter(pl.col("power_mean_w").is_not_null())
    power_ms = _integer(powered, duration.sum())
    power = powered.select((duration * pl.col("power_mean_w")).sum()).item()
    processes = context.holders.of(current) if current else ()
    numbers |= {
        "holder_source": source,
        "gpus_held_now": len(current),
        "stretch_count": stretches.select("gpu", "stretch_start").n_unique(),
        "longest_h": longest_ms / HOUR_MS,
        "mem_used_max_bytes": stretches["mem_used_max_bytes"].max(),  # type: ignore[dict-item]  # an integer column
        "power_mean_w": ratio(power, power_ms),
        "gpu_util_max_pct": stretches["gpu_util_max_pct"].max(),  # type: ignore[dict-item]  # a float column
        "sample_count": int(stretches["sample_count"].sum()),
        "coverage": coverage,
        "commands": "+".join(sorted({process.command for process in processes if process.command})) or None,
    }
    return Evidence(_integer(stretches, pl.col("time").min()), _integer(stretches, pl.col("end").max()), numbers)


def _command(context: Context, host: str, source: str | None, current: tuple[str, ...], others: Sequence[str]) -> str:
    if not current:
        return ""  # nothing to take back: the holder has gone or works again
    # what ran at the end of a past window may be somebody else's by now, and what also works elsewhere must not be ended
    if source != "process" or not context.latest or others:
        return look_command(host)
    return release_command(host, context.holders.of(current))
