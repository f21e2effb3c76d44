"""Kinds of stalled time: hung jobs, ranks that keep others waiting, kernels without a process, and keep-alives.

One frame for the rules about stalled GPUs, and the evidence that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from analytics.intervals import SPAN_MS, islands
from analytics.language.sentences import Number, tr
from analytics.ledger.day_stalls import POLLING_PCT
from analytics.states import IN_USE
from analytics.workloads.commands import Ties, ending_command, look_command, on_host, own_processes, ties
from analytics.workloads.finding_parts import counted, label
from analytics.workloads.ledger_rows import gpu_ms_of, newest_source, one_job
from analytics.workloads.model import Context, EvidenceValue, Witness, once_per_context
from analytics.workloads.processes import programs, serving_gpus, work_segments
from analytics.workloads.rule import UNASKED, Candidate
from analytics.workloads.stall_witnesses import mean_over_time, stall_witnesses
from analytics.workloads.window_end import still_going
from fallow.clock import HOUR_MS, MINUTE_MS

HUNG, WAITS_FOR_RANK, UNOWNED, KEPT = "hung", "waits for a rank", "without a process", "kept alive"

_ENDED = (HUNG, KEPT)
"""Kinds of which the next command ends the work."""
_OF_DRAW = {"power", "energy_counter", "other_stalled_gpus"}
"""Witnesses that power sensors alone make."""

MOSTLY = 0.9
"""A process list counts as empty for at least this share of a stalled segment."""
BEFORE_MS = 10 * MINUTE_MS
"""Stalls of a work with less time between them are one episode: a single reading out of line ends none."""
WORKS_MIN_MS = 3 * MINUTE_MS
"""The GPUs of a job do not fall at the same moment: others work for so long into a hang."""
WORKS_MIN_SHARE = 0.01
"""Single readings out of line add up to less of a long stall."""
BUSY_CPU_PCT = 150.0
"""A rank that waits spins on one CPU; one that evaluates, loads or saves on its host uses more."""
MUCH_MORE = 2.0
"""Kernels that only wait draw less than this multiple of the model's idle draw at the site (H200: 198 of 126 W)."""


@dataclass(frozen=True)
class StallEvidence:
    """What a rule says of its stalled rows beside the shared evidence."""

    numbers: Mapping[str, EvidenceValue] = field(default_factory=dict)
    failed: Sequence[str] = ()
    notes: Sequence[str] = ()
    next_command: str = ""
    ends_work: bool = True
    """False where no command may end the work, whatever the kind."""


@once_per_context
def stalled_rows(context: Context) -> pl.DataFrame:
    """Return the rows of `_episodes` with `kind`, of the four above."""
    kind = (
        pl.when(pl.col("no_process_ms") >= MOSTLY * SPAN_MS)
        .then(pl.lit(UNOWNED))
        .when(pl.col("gpu_util_mean_pct") < POLLING_PCT)
        .then(pl.lit(KEPT))
        .when(pl.col("episode").is_in(awaited(context)["episode"].implode()))
        .then(pl.lit(WAITS_FOR_RANK))
        .otherwise(pl.lit(HUNG))
    )
    return _episodes(context).with_columns(kind=kind)


@once_per_context
def _episodes(context: Context) -> pl.DataFrame:
    """Return the window's stalled ledger rows with `work`, `whose` (the work, else the GPU) and `episode`.

    `work` is null for a row of several jobs or of none.
    """
    rows = context.inside.segments.filter(pl.col("state") == "stalled")
    # a row of several programs is in `work_segments` once for each
    works = work_segments(context, rows).unique(("gpu", "host", "time"), keep="first", maintain_order=True)
    rows = rows.join(works.select("gpu", "host", "time", "work"), on=("gpu", "host", "time"), how="left")
    ordered = rows.with_columns(whose=pl.coalesce("work", "gpu")).sort("whose", "time", "gpu", "host")
    latest = ordered.with_columns(latest=pl.col("end").cum_max().over("whose"))
    return latest.with_columns(episode=islands(("whose",), BEFORE_MS, end="latest")).drop("latest")


@once_per_context
def working_rows(context: Context) -> pl.DataFrame:
    """Return the rows in use of works with stalled rows, from their first to the window's end, with `work`."""
    stalled = _episodes(context)
    rows = work_segments(context, context.whole.segments.filter(pl.col("state").is_in(IN_USE) & _near(stalled)))
    own = rows.filter(pl.col("work").is_in(stalled["work"].drop_nulls().implode()))
    return own.select("work", "gpu", "host", "time", "end", "power_mean_w")


@once_per_context
def awaited(context: Context) -> pl.DataFrame:
    """Return the GPUs with a working rank of stalled work: `episode`, `other` (GPU), `host` and `last_ms` of its work.

    Its kernels work, or its process does on the CPU.
    """
    stalled = _episodes(context).filter(pl.col("work").is_not_null())
    stalled = stalled.with_columns(stalled_ms=SPAN_MS.sum().over("episode", "gpu"))
    met = _met(stalled, working_rows(context)).filter(pl.col("gpu") != pl.col("other"))
    on_gpu = met.group_by("episode", "gpu", "other", "host").agg(
        pl.col("both_ms").sum(), pl.col("stalled_ms").first(), last_ms=pl.col("to_ms").max()
    )
    least_ms = pl.max_horizontal(WORKS_MIN_MS, WORKS_MIN_SHARE * pl.col("stalled_ms"))
    on_gpu = on_gpu.filter(pl.col("both_ms") >= least_ms)
    on_cpu = _busy_on_cpu(context, stalled)
    found = pl.concat([each.select("episode", "other", "host", "last_ms") for each in (on_gpu, on_cpu)])
    return found.sort("last_ms", "other")


def _busy_on_cpu(context: Context, stalled: pl.DataFrame) -> pl.DataFrame:
    """Return processes of the same work that use the CPU up to an episode's end and are on no GPU that mostly spins."""
    listed = context.rollups.processes(context.since_ms).filter(_near(stalled))
    works = pl.concat([listed.filter(one_job()).with_columns(work="job"), programs(listed)])
    span = {"time": pl.col("time").min().over("episode"), "end": pl.col("end").max().over("episode")}
    met = _met(stalled.with_columns(**span).unique(("episode", "gpu")), works)
    spins = (pl.col("gpu") == pl.col("other")) & (2 * pl.col("stalled_ms") >= SPAN_MS)
    # of a day's process its mean and its highest use are known: both must permit so much in the stall
    listed_ms = pl.col("to_ms") - pl.col("from_ms")
    is_busy = (pl.col("cpu_util_max_pct") >= BUSY_CPU_PCT) & (
        pl.col("cpu_util_mean_pct") * listed_ms >= BUSY_CPU_PCT * pl.col("both_ms")
    )
    is_there = (pl.col("both_ms") >= WORKS_MIN_MS) & (pl.col("to_ms") >= pl.col("end") - BEFORE_MS)
    return (
        met.filter(is_busy & is_there)
        .join(met.filter(spins), on=("episode", "host", "pid"), how="anti")
        .with_columns(last_ms="to_ms")
    )


def _near(stalled: pl.DataFrame) -> pl.Expr:
    """Return whether a row may be of the same work as a stalled one, to read no more than needed."""
    return pl.col("job").is_in(stalled["job"].drop_nulls().implode()) | pl.col("host").is_in(stalled["host"].implode())


def _met(stalled: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Return stalled rows with simultaneous rows of the same work: `other` (GPU), `from_ms`, `to_ms`, `both_ms`."""
    renamed = others.rename({"gpu": "other", "time": "from_ms", "end": "to_ms"})
    met = stalled.select("episode", "work", "gpu", "time", "end", "stalled_ms").join(renamed, on="work")
    both_ms = pl.min_horizontal("end", "to_ms") - pl.max_horizontal("time", "from_ms")
    return met.with_columns(both_ms=both_ms).filter(pl.col("both_ms") > 0)


def stalled_candidates(
    context: Context, kind: str, more: Callable[[pl.DataFrame], StallEvidence] = lambda _: StallEvidence()
) -> Iterator[Candidate]:
    """Yield a candidate per work and user with the stalled time of a kind; a job on several hosts is one candidate.

    `more` returns the rule's additions to a candidate's rows of `stalled_rows`.
    """
    rows = stalled_rows(context).filter(pl.col("kind") == kind).sort("gpu", "time", "host")
    if kind == UNOWNED:
        rows = rows.with_columns(whose="gpu")
    for (whose, user), own in rows.group_by("whose", "user", maintain_order=True):
        segments, evidence = own.drop("whose", "kind", "work", "episode"), more(own)
        now, host = still_going(context, segments), str(segments["host"].mode().sort()[0])
        witnesses = _witnesses(context, own, is_kept=kind == KEPT)
        bound, name = ties(context, now) if kind in _ENDED else Ties(), None if user is None else str(user)
        yield Candidate(
            segments,
            subject=str(whose),
            user=name,
            source=UNASKED if kind == UNOWNED else newest_source(segments),
            numbers={**_numbers(context, segments, now), **evidence.numbers},
            failed=[
                _draws_much(context, segments),
                _drawn_alone(witnesses),
                bound.failed if kind in _ENDED else [],
                evidence.failed,
            ],
            reclaimable_gpus=() if bound or kind == WAITS_FOR_RANK or not evidence.ends_work else now,
            next_command=evidence.next_command
            or _command(context, host, now, name, ends_work=kind in _ENDED and evidence.ends_work),
            notes=evidence.notes,
            witnesses=witnesses,
            is_promised=False,
        )


def _witnesses(context: Context, rows: pl.DataFrame, *, is_kept: bool) -> tuple[Witness, ...]:
    """Return the witnesses of rows of `stalled_rows`, with the other GPUs of their job."""
    episodes, has_job = rows["episode"].implode(), rows["work"].null_count() == 0
    stalled = stalled_rows(context).filter(pl.col("episode").is_in(episodes))["gpu"].n_unique()
    working = awaited(context).filter(pl.col("episode").is_in(episodes))["other"].n_unique()
    siblings = stalled - 1 if has_job else None
    return stall_witnesses(context, rows, is_kept=is_kept, siblings=siblings, working=working)


def _numbers(context: Context, segments: pl.DataFrame, now: Sequence[str]) -> dict[str, EvidenceValue]:
    commands = {process.command for process in context.users.on(now) if process.command}
    return {
        "gpus_stalled_now": len(now),
        "stalled_gpu_hours": gpu_ms_of(segments) / HOUR_MS,
        "gpu_util_mean_pct": mean_over_time(segments, "gpu_util_mean_pct"),
        "idle_draw_w": _idle_draw_w(context, segments),
        "commands": "+".join(sorted(commands)) or None,
    }


def _idle_draw_w(context: Context, segments: pl.DataFrame) -> float | None:
    """Return the draw of idle cards with a context, from the site's ledger; None for several models or if unknown."""
    models = {context.inventory.model(gpu) for gpu in segments["gpu"].unique()}
    floor = None if context.floors is None or len(models) != 1 else context.floors.held.get(models.pop())
    return None if floor is None else floor.watts


def _draws_much(context: Context, segments: pl.DataFrame) -> list[str]:
    idle_w, mean_w = _idle_draw_w(context, segments), mean_over_time(segments, "power_mean_w")
    if idle_w is None or mean_w is None or mean_w < MUCH_MORE * idle_w:
        return []
    mean, idle = Number(mean_w), Number(idle_w)
    return [tr("the GPUs draw {mean} W, where idle cards of this model draw {idle} W", mean=mean, idle=idle)]


def _drawn_alone(witnesses: Iterable[Witness]) -> list[str]:
    """Return a failure if nothing but the draw of the cards, of one or of all of a job, speaks against work."""
    if {each.name for each in witnesses if each.says == "stalled"} - _OF_DRAW:
        return []
    return [tr("only the draw of the cards speaks against work")]


def _command(context: Context, host: str, now: Sequence[str], user: str | None, *, ends_work: bool) -> str:
    """Return the next command: to end the work, or to see what is on the GPUs; empty where it is over."""
    if not now:
        return ""
    return ending_command(context, host, now, user) if ends_work else look_command(host)


def stack_command(context: Context, host: str, gpus: Sequence[str], user: str | None) -> str:
    """Return a command that shows where a process on these GPUs waits; without a recent list, the processes."""
    own = [process for process in own_processes(context, gpus, user) if process.host == host]
    return on_host(host, "py-spy", "dump", "--pid", str(own[0].pid)) if own else look_command(host)


def may_be_probed(context: Context, rows: pl.DataFrame) -> list[str]:
    """Return a failure if an inference server or a pod has these GPUs: requests and probes come as short bursts too."""
    in_pod = rows["job"].str.contains(r"(?:^|\+)pod:").any()
    if not in_pod and serving_gpus(context).isdisjoint(rows["gpu"]):
        return []
    return [tr("an inference server or a pod: a probe of its health looks the same")]


STALLED_LABELS = (
    counted("gpus_stalled_now", "{number} {GPU|GPUs} still stalled at the end of the window"),
    label("stalled_gpu_hours", "{value} GPU-hours stalled"),
    label("idle_draw_w", "idle cards of this model draw {value} W here"),
)
"""Labels of the evidence that all rules about stalled GPUs have."""

STALLED_THRESHOLDS = {
    "`ledger.stalled_after`": (
        "7 min, a setting: the time is `stalled` in the ledger, where at least two witnesses agree"
        " (docs/how-a-number-is-made.md)"
    ),
    "draw": (
        f"confidence is lower from {MUCH_MORE:g} times the draw of idle cards of the model (one spinning thread: 1.6"
        " times, measured on an H200)"
    ),
}
