"""Stalled time told apart: a hung job, a rank that keeps the others waiting, a kernel without a process, a keep-alive.

One frame for the rules about stalled GPUs, and the evidence that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.states import IN_USE
from analytics.workloads.commands import Ties, ending_command, look_command, on_host, own_processes, ties
from analytics.workloads.finding_parts import counted, label
from analytics.workloads.ledger_rows import gpu_ms_of, highest, newest_source
from analytics.workloads.model import Context, EvidenceValue, once_per_context
from analytics.workloads.processes import work_segments
from analytics.workloads.rule import UNASKED, Candidate
from analytics.workloads.window_end import still_going
from fallow.clock import HOUR_MS
from fallow.stall_evidence import RESIDENT_PCT

HUNG, WAITS_FOR_RANK, UNOWNED, KEPT = "hung", "waits for a rank", "without a process", "kept alive"

_ENDED = (HUNG, KEPT)
"""Kinds of which the next command ends the work."""

MOSTLY = 0.9
"""A sibling counts as working, and a process list as empty, for at least this share of a stalled segment."""
MUCH_MORE = 2.0
"""Kernels that only wait draw less than this many times what idle cards of the model draw at the site (H200: 198 of 126 W)."""


@dataclass(frozen=True)
class StallEvidence:
    """What a rule says of its stalled rows beside the shared evidence."""

    numbers: Mapping[str, EvidenceValue] = field(default_factory=dict)
    failed: Sequence[str] = ()
    notes: Sequence[str] = ()
    next_command: str = ""


@once_per_context
def stalled_rows(context: Context) -> pl.DataFrame:
    """Return the stalled ledger rows of the window with `kind` (of the four above), `work` (null: of several jobs, or of none) and `number`."""
    rows = context.inside.segments.filter(pl.col("state") == "stalled")
    # a row of several programs is in `work_segments` once for each
    works = work_segments(context, rows).unique(("gpu", "host", "time"), keep="first", maintain_order=True)
    rows = rows.join(works.select("gpu", "host", "time", "work"), on=("gpu", "host", "time"), how="left")
    numbered = rows.sort("gpu", "time", "host").with_row_index("number")
    kind = (
        pl.when(pl.col("no_process_ms") >= MOSTLY * SPAN_MS)
        .then(pl.lit(UNOWNED))
        .when(pl.col("gpu_util_mean_pct") < RESIDENT_PCT)
        .then(pl.lit(KEPT))
        .when(pl.col("number").is_in(_beside_work(context, numbered).implode()))
        .then(pl.lit(WAITS_FOR_RANK))
        .otherwise(pl.lit(HUNG))
    )
    return numbered.with_columns(kind=kind)


@once_per_context
def working_rows(context: Context) -> pl.DataFrame:
    """Return the rows in use of jobs and programs, with `work`."""
    rows = work_segments(context, context.inside.segments.filter(pl.col("state").is_in(IN_USE)))
    return rows.select("work", "gpu", "host", "time", "end", "power_mean_w")


def _beside_work(context: Context, stalled: pl.DataFrame) -> pl.Series:
    """Return the numbers of the rows during which another GPU of the same work worked nearly all the time."""
    working = (
        working_rows(context).rename({"gpu": "other", "time": "from_ms", "end": "to_ms"}).drop("host", "power_mean_w")
    )
    met = (
        stalled.filter(pl.col("work").is_not_null())
        .select("number", "work", "gpu", "time", "end")
        .join(working, on="work")
    )
    both_ms = pl.min_horizontal("end", "to_ms") - pl.max_horizontal("time", "from_ms")
    by_gpu = (
        met.filter((pl.col("gpu") != pl.col("other")) & (both_ms > 0))
        .group_by("number", "other")
        .agg(share=both_ms.sum() / SPAN_MS.first())
    )
    return by_gpu.filter(pl.col("share") >= MOSTLY)["number"].unique()


def stalled_candidates(
    context: Context, kind: str, more: Callable[[pl.DataFrame], StallEvidence] = lambda _: StallEvidence()
) -> Iterator[Candidate]:
    """Yield a candidate per work and user with the stalled time of a kind; GPUs of a job on several hosts are one candidate.

    `more` returns what the rule says of a candidate's rows of `stalled_rows`.
    """
    rows = stalled_rows(context).filter(pl.col("kind") == kind)
    subject = pl.lit(None) if kind == UNOWNED else pl.col("work")
    for (whose, user), own in rows.with_columns(whose=pl.coalesce(subject, "gpu")).group_by(
        "whose", "user", maintain_order=True
    ):
        segments, said = own.drop("whose", "kind", "work", "number"), more(own)
        now, host = still_going(context, segments), str(segments["host"].mode().sort()[0])
        bound, name = ties(context, now) if kind in _ENDED else Ties(), None if user is None else str(user)
        yield Candidate(
            segments,
            subject=str(whose),
            user=name,
            source=UNASKED if kind == UNOWNED else newest_source(segments),
            numbers={**_numbers(context, segments, now), **said.numbers},
            failed=[_draws_much(context, segments), bound.failed if kind in _ENDED else [], said.failed],
            reclaimable_gpus=() if bound or kind == WAITS_FOR_RANK else now,
            next_command=said.next_command or _command(context, host, now, name, kind=kind),
            notes=said.notes,
            is_promised=False,
        )


def _numbers(context: Context, segments: pl.DataFrame, now: Sequence[str]) -> dict[str, EvidenceValue]:
    commands = {process.command for process in context.users.on(now) if process.command}
    return {
        "gpus_stalled_now": len(now),
        "stalled_gpu_hours": gpu_ms_of(segments) / HOUR_MS,
        **{
            name: mean_over_time(segments, name) for name in ("gpu_util_mean_pct", "power_mean_w", "sm_active_mean_pct")
        },
        "idle_draw_w": _idle_draw_w(context, segments),
        "mem_used_max_bytes": highest(segments, "mem_used_max_bytes"),
        "commands": "+".join(sorted(commands)) or None,
    }


def mean_over_time(segments: pl.DataFrame, name: str) -> float | None:
    """Return the mean of a column over the time in which it is known; None without any."""
    known = segments.filter(pl.col(name).is_not_null())
    return None if known.is_empty() else float(known.select((SPAN_MS * pl.col(name)).sum() / SPAN_MS.sum()).item())


def _idle_draw_w(context: Context, segments: pl.DataFrame) -> float | None:
    """Return what idle cards with a context draw here, learnt from the site's own ledger; None for several models or too little data."""
    models = {context.inventory.model(gpu) for gpu in segments["gpu"].unique()}
    floor = None if context.floors is None or len(models) != 1 else context.floors.held.get(models.pop())
    return None if floor is None else floor.watts


def _draws_much(context: Context, segments: pl.DataFrame) -> list[str]:
    idle_w, mean_w = _idle_draw_w(context, segments), mean_over_time(segments, "power_mean_w")
    if idle_w is None or mean_w is None or mean_w < MUCH_MORE * idle_w:
        return []
    mean, idle = Number(mean_w), Number(idle_w)
    return [tr("the GPUs draw {mean} W, where idle cards of this model draw {idle} W", mean=mean, idle=idle)]


def _command(context: Context, host: str, now: Sequence[str], user: str | None, *, kind: str) -> str:
    """Return the next command: to end the work, or to see what is on the GPUs; empty where it is over."""
    if not now:
        return ""
    return ending_command(context, host, now, user) if kind in _ENDED else look_command(host)


def stack_command(context: Context, host: str, gpus: Sequence[str], user: str | None) -> str:
    """Return a command that shows where a process on these GPUs waits; without a recent list, one that shows the processes."""
    own = [process for process in own_processes(context, gpus, user) if process.host == host]
    return on_host(host, "py-spy", "dump", "--pid", str(own[0].pid)) if own else look_command(host)


STALLED_LABELS = (
    counted(
        "gpus_stalled_now",
        "{number} GPU still stalled at the end of the window",
        "{number} GPUs still stalled at the end of the window",
    ),
    label("stalled_gpu_hours", "{value} GPU-hours stalled"),
    label("idle_draw_w", "idle cards of this model draw {value} W here"),
)
"""Labels of the evidence that all rules about stalled GPUs have."""

STALLED_THRESHOLDS = {
    "`ledger.stalled_after`": "7 min, a setting: the time is `stalled` in the ledger, where at least two witnesses agree (docs/how-a-number-is-made.md)",
    "draw": f"confidence is lower from {MUCH_MORE:g} times the draw of idle cards of the model (one spinning thread: 1.6 times, measured on an H200)",
}
