"""Somebody's work winds down, and GPUs are still theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl

from analytics.intervals import clip
from analytics.language.sentences import say
from analytics.ledger.day_owners import NOBODY_LOOKED
from analytics.states import ALLOCATED, IDLE_ALLOCATED
from analytics.workloads.ending_commands import ties
from analytics.workloads.faded_workloads import (
    FALL_MAX,
    GAP_MIN_MS,
    GAP_RATIO,
    GAPS_MIN,
    LULL_HOLDERS_MIN,
    LULL_MAX,
    NO_START_MS,
    PAUSE_MS,
    PRIOR_DAYS,
    PRIOR_MIN_DAYS,
    RECENT_DAYS,
    fading,
    split_holders,
)
from analytics.workloads.finding_parts import finding_of, joined
from analytics.workloads.live_processes import last_rows
from analytics.workloads.phrases import of_gpus
from analytics.workloads.process_holders import look_command, quote
from fallow.clock import DAY_MS, HOUR_MS, from_ms, parse_day_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from analytics.money.owners import Owner
    from analytics.workloads.model import Context, Finding, Number

PROJECT_END_DAYS = 14

_LITTLE = (*IDLE_ALLOCATED, "low")


class WindDown:
    """Holders whose work has faded or whose project ends while GPUs are theirs; one finding per holder or owner's line."""

    name = "wind_down"
    category = "demand"
    sentence = of_gpus("still with a holder whose work winds down")
    per_host = False
    thresholds: Mapping[str, str] = {
        "gap": f"time without activity over the 95th percentile of past gaps above {GAP_RATIO:g}, from {GAPS_MIN} gaps of at least "
        f"{PAUSE_MS // HOUR_MS} h (facts of the field), and at least {GAP_MIN_MS // DAY_MS} days (longer than a weekend; ours)",
        "fall": f"mean active GPU-hours of {RECENT_DAYS} days at most {FALL_MAX:.0%} of the median of the {PRIOR_DAYS} days before (at least "
        f"{PRIOR_MIN_DAYS}), and no process begun in {NO_START_MS // HOUR_MS} h; weekends are left out for who never works on them",
        "lull": f"neither where the others' activity fell to {LULL_MAX:.0%} or less too, of at least {LULL_HOLDERS_MIN} others (holidays; ours)",
        "project end": f"at most {PROJECT_END_DAYS} days ahead, or past, in the owners file",
    }

    def find(self, context: Context) -> Iterator[Finding]:
        """The findings, in no order."""
        now = last_rows(context).filter(pl.col("state").is_in(ALLOCATED))
        yield from self._faded(context, now)
        yield from self._projects(context, now)

    def _faded(self, context: Context, now: pl.DataFrame) -> Iterator[Finding]:
        theirs = split_holders(now).select("who", "gpu")
        for row in fading(context, theirs["who"].unique()).iter_rows(named=True):
            who = str(row["who"])
            gpus = theirs.filter(pl.col("who") == who)["gpu"]
            since_ms = int(row["since"])
            rows = split_holders(context.inside.stretches).filter(
                (pl.col("who") == who) & pl.col("gpu").is_in(gpus.implode()) & pl.col("state").is_in(_LITTLE)
            )
            late = rows.drop("who").filter(pl.col("end") > since_ms)
            if late.is_empty():
                continue
            numbers: dict[str, Number] = {
                "days_without_activity": _days(row["gap_ms"]),
                "past_gaps_p95_days": _days(row["gap_p95_ms"]),
                "past_gap_count": row["gap_count"],
                "active_gpu_hours_a_day_lately": _hours(row["recent_ms"]),
                "active_gpu_hours_a_day_before": _hours(row["prior_ms"]),
                "days_since_a_process_began": _days(row["no_start_ms"]),
            }
            unknown = row["no_start_ms"] is None and not row["by_gap"]
            failed = [say("when processes began is not known")] if unknown else []
            about = clip(late, since_ms)
            yield self._finding(context, who, who, about, numbers, failed=failed)

    def _projects(self, context: Context, now: pl.DataFrame) -> Iterator[Finding]:
        horizon = (from_ms(context.until_ms) + timedelta(days=PROJECT_END_DAYS)).date()
        ending = [
            each
            for each in context.owners.by_name.values()
            if each.project_end is not None and each.project_end <= horizon
        ]
        if not ending:
            return
        lines = _lines(context, now)
        owned = context.inside.stretches.filter(pl.col("state").is_in(ALLOCATED)).join(
            lines, on=("holder", "account"), nulls_equal=True
        )
        theirs = now.join(lines, on=("holder", "account"), nulls_equal=True)
        for owner in ending:
            line = f"{owner.kind} {owner.name}"
            gpus = theirs.filter(pl.col("line") == line)["gpu"]
            rows = owned.filter((pl.col("line") == line) & pl.col("gpu").is_in(gpus.implode())).drop("line")
            if not rows.is_empty():
                yield self._project(context, owner, rows)

    def _project(self, context: Context, owner: Owner, rows: pl.DataFrame) -> Finding:
        end_ms = parse_day_ms(str(owner.project_end)) + DAY_MS
        over = end_ms <= context.until_ms
        after = rows.filter(pl.col("end") > end_ms) if over else rows
        about = clip(after, end_ms) if over and not after.is_empty() else rows
        numbers: dict[str, Number] = {
            "project_end": str(owner.project_end),
            "days_until_project_end": (end_ms - context.until_ms) / DAY_MS,
        }
        subject = f"project end: {owner.kind} {owner.name}"
        return self._finding(context, subject, joined(about, "holder"), about, numbers, over=over)

    def _finding(
        self,
        context: Context,
        subject: str,
        holder: str | None,
        rows: pl.DataFrame,
        numbers: Mapping[str, Number],
        *,
        failed: Sequence[str] = (),
        over: bool = True,
    ) -> Finding:
        last = last_rows(context).filter(pl.col("gpu").is_in(rows["gpu"].unique().implode()))
        # whoever shares a GPU with them still needs it
        idle = last.filter(
            pl.col("state").is_in(IDLE_ALLOCATED)
            & pl.col("holder").is_in(rows["holder"].drop_nulls().unique().implode())
        )
        shared = idle.filter(pl.col("holder").str.contains("+", literal=True))
        unwatched = idle.filter(pl.col("holder_source").is_in(NOBODY_LOOKED))
        kept = {*shared["gpu"], *unwatched["gpu"]}
        free = {gpu for gpu in idle["gpu"] if over and gpu not in kept and not ties(context, [gpu])}
        return finding_of(
            context,
            self,
            rows,
            subject=subject,
            numbers={
                "holder_source": rows.sort("time")["holder_source"][-1],
                **numbers,
                "gpus_still_theirs": last.height,
                "gpus_idle_now": idle.height,
            },
            failed=[failed],
            next_command=_look(rows, holder),
            reclaimable_gpus=sorted(free),
            holder=holder,
        )


def _lines(context: Context, now: pl.DataFrame) -> pl.DataFrame:
    """The owners file's line about each holder and account that has GPUs at the end of the window: holder, account, line."""
    pairs = now.select("holder", "account").unique()
    owners = [context.owners.of(holder, account) for holder, account in pairs.iter_rows()]
    lines = [None if owner is None else f"{owner.kind} {owner.name}" for owner in owners]
    return pairs.with_columns(line=pl.Series(lines, dtype=pl.String)).filter(pl.col("line").is_not_null())


def _look(rows: pl.DataFrame, holder: str | None) -> str:
    """What shows the holder's work, wherever it is."""
    jobs = rows["job"].drop_nulls()
    if holder and jobs.str.contains("slurm:").any():
        return f"squeue --user={quote(holder.replace('+', ','))}"
    accounts = rows.filter(pl.col("job").str.contains("pod:"))["account"].drop_nulls()
    if not accounts.is_empty():
        return f"kubectl get pods -n {quote(str(accounts[0]))}"
    return look_command(str(rows["host"][0]))


def _days(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / DAY_MS


def _hours(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / HOUR_MS
