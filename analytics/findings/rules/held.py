"""A holder keeps GPUs and runs no kernel on them for an hour and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from analytics.findings.alive import held_by_work, serves_only
from analytics.findings.base import finding_of, whole_number
from analytics.findings.confidence import alone, known_holder
from analytics.findings.holders import look_command, release_command
from analytics.findings.persistence import HORIZON_MS, LIKELY_MIN, lasting
from analytics.findings.sensitivity import held_gpu_hours
from analytics.ledger.summary import SILENT_AFTER_MS, ratio
from fallow.clock import HOUR_MS, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.findings.model import Context, Finding, Number

_BY = ("host", "holder", "whom")
_NOBODYS = ("free", "reserved")


class Held:
    """Held stretches of at least `findings.held_min`, one finding per host and holder (per GPU where none is known)."""

    name = "held"
    category = "reclaim"
    sentence = "held without running a kernel"
    thresholds: Mapping[str, str] = {
        "findings.held_min": "60 min, a setting (after 60 idle minutes 42 % of spells last another hour, after 5 only 4.7 %: "
        "GenTD26 serving trace)",
        "persistence": f"{LIKELY_MIN:.1f} at the lower end of the 90 % interval of lasting {format_duration(HORIZON_MS)} more "
        "(Kaplan-Meier over 28 days)",
    }  # fmt: skip

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        held = held_by_work(context, context.inside.stretches.filter(pl.col("state") == "held")).with_columns(
            spell_ms=pl.col("stretch_end") - pl.col("stretch_start"),
            # an unknown holder on one GPU need not be the unknown holder on the next
            whom=pl.coalesce("holder", "gpu"),
        )
        long = held.filter(pl.col("spell_ms") >= context.settings.held_min_ms)
        every = held.join(long.select(_BY).unique(), on=_BY, how="semi", nulls_equal=True).partition_by(
            _BY, as_dict=True
        )
        now = _ongoing(context, long)
        ongoing = now.partition_by(_BY, as_dict=True)
        # a process list says nothing of a GPU that its processes have left since
        idle = frozenset(now["gpu"]) | _left(context)
        for by, stretches in long.partition_by(_BY, as_dict=True, maintain_order=True).items():
            yield self._finding(context, stretches, every[by], ongoing.get(by, now.clear()), idle)

    def _finding(
        self, context: Context, stretches: pl.DataFrame, all_held: pl.DataFrame, now: pl.DataFrame, idle: frozenset[str]
    ) -> Finding:
        first = stretches.row(0, named=True)
        current = tuple(sorted(now["gpu"].unique()))
        others = [gpu for gpu in context.holders.beyond(current) if gpu not in idle]
        source = stretches.sort("time", "gpu")["holder_source"][-1]
        # the spell that still runs and has lasted least, where one does, else the longest that there was
        judged = now.sort("spell_ms") if current else stretches.sort("spell_ms", descending=True)
        gpu, spell_ms = judged.select("gpu", "spell_ms").row(0)
        return finding_of(
            context,
            self,
            stretches,
            subject=first["whom"],
            holder=first["holder"],
            numbers=_numbers(context, stretches, all_held, current, source),
            failed=(
                known_holder(source, first["holder"]),
                lasting(context, first["holder"], gpu, spell_ms),
                alone(len(others)),
            ),
            reclaimable_gpus=() if others else current,
            next_command=_command(context, first["host"], source, current, others),
        )


def _ongoing(context: Context, long: pl.DataFrame) -> pl.DataFrame:
    """The rows of stretches that still ran at the end of the window: only their GPUs can be taken back."""
    last = context.inside.stretches.group_by("gpu").agg(last_seen=pl.col("end").max())
    alive = last.filter(pl.col("last_seen") > context.until_ms - SILENT_AFTER_MS)
    return long.join(alive, on="gpu").filter(pl.col("end") == pl.col("last_seen"))


def _left(context: Context) -> frozenset[str]:
    """The GPUs that nobody was on at the end of the window."""
    rows = context.inside.stretches
    last = rows.filter(pl.col("end") == pl.col("end").max().over("gpu"))
    return frozenset(last.filter(pl.col("state").is_in(_NOBODYS))["gpu"])


def _numbers(
    context: Context, stretches: pl.DataFrame, all_held: pl.DataFrame, current: tuple[str, ...], source: str | None
) -> dict[str, Number]:
    duration = pl.col("end") - pl.col("time")
    powered = stretches.filter(pl.col("power_mean_w").is_not_null())
    power = powered.select((duration * pl.col("power_mean_w")).sum()).item()
    sensitivity = held_gpu_hours(all_held)
    processes = context.holders.of(current)
    return {
        **{f"held_gpu_hours_in_stretches_of_{minutes}_min": hours for minutes, hours in sensitivity.items()},
        "holder_source": source,
        "gpus_held_now": len(current),
        "stretch_count": stretches.select("gpu", "stretch_start").n_unique(),
        "longest_h": whole_number(stretches, pl.col("spell_ms").max()) / HOUR_MS,
        "mem_used_max_bytes": stretches["mem_used_max_bytes"].max(),  # type: ignore[dict-item]  # an integer column
        "power_mean_w": ratio(power, whole_number(powered, duration.sum())),
        "gpu_util_max_pct": stretches["gpu_util_max_pct"].max(),  # type: ignore[dict-item]  # a float column
        "commands": "+".join(sorted({process.command for process in processes if process.command})) or None,
    }


def _command(context: Context, host: str, source: str | None, current: tuple[str, ...], others: Sequence[str]) -> str:
    if not current:
        return ""  # nothing to take back: the holder has gone or works again
    # what ran at the end of a past window may be somebody else's by now, and what also works elsewhere must not be ended
    if source != "process" or not context.latest or others:
        return look_command(host)
    work = [process for process in context.holders.of(current) if not serves_only(process.command)]
    return release_command(host, work)
