"""Queue waits and their causes: who waited for GPUs, and whether more GPUs would have helped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from analytics.capacity.causes import CAUSES, KEPT_BACK, SHORTAGE, UNKNOWN, WaitCause
from analytics.language.sentences import GpuHours, SentenceList, Share, plain, tr
from analytics.plan.idle_pool import WITHHELD
from analytics.plan.queue_waits import END_STATES, QueueWaits, WaitGroup, all_waits, goodput, halves, wait_groups
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import NAME_MOST, least_to_most, place_name
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Kind, Table, column, fact, for_programs, single
from fallow.clock import HOUR_MS

_GROUPS: dict[str, tuple[str, str, Kind]] = {
    "pool": (tr("Queue wait by pool"), tr("pool"), "pool"),
    "size": (tr("Queue wait by job size"), tr("GPUs per job"), "words"),
    "team": (tr("Queue wait by team"), tr("team"), "team"),
    "partition": (tr("Queue wait by partition"), tr("partition"), "name"),
    "rank": (tr("Queue wait by priority"), tr("QoS or priority"), "name"),
}
_GROUPS_SHOWN = 12
_ENDS = {
    "completed": tr("completed"),
    "failed": tr("failed"),
    "timed out": tr("timed out"),
    "cancelled": tr("cancelled"),
    "preempted": tr("preempted or requeued"),
    "host failed": tr("host failed"),
    "running": tr("still running"),
    "unknown": tr("end unknown"),
}


def waits_in_report(waits: QueueWaits | None) -> Table | None:
    """Return the causes in a few lines; None if no job of the window has a submission time."""
    return None if waits is None or waits.rows.is_empty() else wait_causes(waits, in_brief=True)


def wait_causes(waits: QueueWaits, *, in_brief: bool = False) -> Table:
    """Return the queue wait by cause, without the causes that have none, with the method and its back-test."""
    whole = all_waits(waits)
    means = () if in_brief else (column("means", tr("meaning"), "sentence"),)
    return Table(
        name="queue",
        title=tr("Why jobs waited for GPUs"),
        question=tr("Did jobs wait because GPUs were short, or while enough GPUs were idle?"),
        headline=_headline(waits, whole),
        columns=(
            column("cause", tr("cause"), "words", "title", "name"),
            *means,
            column("hours", tr("queue wait, hours"), "gpu_hours", lambda cause: whole.cause_ms[cause.name]),
            column("share", tr("share"), "share", lambda cause: whole.share(cause.name)),
            column("gpu_hours", tr("queue wait, GPU-hours"), "gpu_hours", lambda cause: whole.cause_gpu_ms[cause.name]),
        ),
        rows=_listed_causes(whole) if whole.wait_ms else (),
        chart=_chart(whole) if whole.wait_ms and not in_brief else None,
        notes=(*_method(waits, in_brief=in_brief), *_counts_notes(waits)),
        wide=not in_brief,
    )


def no_waits() -> str:
    """Return the sentence for a window without a job whose wait can be counted."""
    return tr(
        "No job with a known submission time and number of GPUs waited or started in this window, so queue waits are"
        " unknown. Import jobs with `fallow allocations import slurm`, `kubernetes` or `csv`."
    )


def _listed_causes(whole: WaitGroup) -> tuple[WaitCause, ...]:
    """Return the causes of any wait, and shortage in any case: no wait for it is an answer too."""
    return tuple(cause for cause in CAUSES if whole.cause_ms[cause.name] or cause.name == SHORTAGE)


def _headline(waits: QueueWaits, whole: WaitGroup) -> str | SentenceList:
    if waits.rows.is_empty():
        return no_waits()
    if not whole.wait_ms:
        return tr("No job waited. Jobs counted: {number}.", number=whole.jobs)
    shares = {name: Share(whole.share_of(causes)) for name, causes in _cause_groups().items()}
    short = tr(
        "Jobs waited {hours} hours in the queue: {share} because GPUs were short",
        hours=GpuHours(whole.wait_ms),
        share=shares[SHORTAGE],
    )
    parts = [short]
    if any(whole.cause_ms[cause] for cause in KEPT_BACK):
        kept_back = shares["kept_back"]
        parts.append(tr("{share} because of a limit, a hold, a reservation or a drained host", share=kept_back))
    if whole.cause_ms[UNKNOWN]:
        parts.append(tr("{share} for unknown reasons", share=shares[UNKNOWN]))
    parts.append(tr("{share} while idle GPUs could have served them.", share=shares["idle"]))
    return SentenceList(parts, ", ")


def _cause_groups() -> dict[str, tuple[str, ...]]:
    """Return the causes by group: GPUs were idle, the scheduler kept jobs back, unknown, GPUs were short."""
    single = (*KEPT_BACK, UNKNOWN, SHORTAGE)
    idle = tuple(cause.name for cause in CAUSES if cause.name not in single)
    return {"idle": idle, "kept_back": KEPT_BACK, UNKNOWN: (UNKNOWN,), SHORTAGE: (SHORTAGE,)}


def _chart(whole: WaitGroup) -> Chart:
    looks = {
        "idle": (tr("queue wait (hours) while idle GPUs could have served the jobs"), "held"),
        "kept_back": (tr("queue wait (hours) because of a limit, a hold, a reservation or a drained host"), "reserved"),
        UNKNOWN: (tr("queue wait (hours) for unknown reasons"), "unknown"),
        SHORTAGE: (tr("queue wait (hours) because GPUs were short"), "active"),
    }
    shown, longest = _listed_causes(whole), max(whole.cause_ms.values()) / HOUR_MS

    def panel(part: str, causes: Sequence[WaitCause]) -> Panel:
        title, state = looks[part]
        places = (ChartPlace(cause.title, figure=GpuHours(whole.cause_ms[cause.name])) for cause in causes)
        bars = Bars("", state, tuple(whole.cause_ms[cause.name] / HOUR_MS for cause in causes))
        return Panel(title, (bars,), tuple(places), lying=True, ceiling=longest)

    parts = {part: [cause for cause in shown if cause.name in names] for part, names in _cause_groups().items()}
    return Chart(tuple(panel(part, causes) for part, causes in parts.items() if causes))


def _method(waits: QueueWaits, *, in_brief: bool) -> tuple[str, ...]:
    """Return the method, and the back-test: the share of shortage in both halves of the window."""
    if in_brief or waits.rows.is_empty():
        return ()
    first, second = (half.share(SHORTAGE) for half in halves(waits))
    return (
        *_scheduler_notes(waits),
        tr(
            "Jobs keep their real GPUs and run times. In the order in which their waits ended, jobs move to the first"
            " moment at which idle GPUs could have served them to their end. The GPUs on which they really ran then"
            " become free for later jobs. This is repeated cause by cause, from the top row down. Every moment of a"
            " wait has one cause, and no idle GPU serves two jobs at once. The estimate is conservative: it may"
            " overstate a shortage."
        ),
        tr(
            "Back-test: shortage caused {first} of the queue wait in the first half of the window and {second} in the"
            " second half.",
            first=Share(first),
            second=Share(second),
        ),
    )


def _scheduler_notes(waits: QueueWaits) -> tuple[str, ...]:
    """Return how the scheduler orders jobs according to the replay, and how its own reasons count."""
    order = (
        tr(
            "According to the replay, this scheduler starts jobs strictly in order and ignores time limits, so time"
            " limits cause no wait."
        )
        if waits.order.in_order
        else tr(
            "According to the replay, this scheduler starts later jobs first where time limits allow it (backfill)."
        )
    )
    if waits.spans.filter(pl.col("cause").is_in(KEPT_BACK)).is_empty():
        return (order,)
    return (
        order,
        tr(
            "A reason that the scheduler reports takes precedence, back to the previous reported reason. A reason from"
            " accounting alone counts for the whole wait, because its duration is unknown."
        ),
    )


def _counts_notes(waits: QueueWaits) -> tuple[str, ...]:
    """Return how many jobs are counted and left out; nothing if no job is known, as zeros would deny jobs."""
    if not waits.knows_jobs:
        return ()
    rows, unasked = waits.rows, int(waits.left_out["lacks_submission_time"].sum())
    counts = tr(
        "Jobs counted: {jobs}. Of these, {open} have no known start and count until they were last observed. Left out:"
        " {unasked} that were not yet eligible or have no submission time, and {uncounted} without a GPU count. Pool"
        " taken from a partition that has several pools: {ambiguous}. Pool unknown: {elsewhere}.",
        jobs=rows.height,
        open=int(rows["is_open"].sum()),
        unasked=unasked,
        uncounted=waits.left_out.height - unasked,
        ambiguous=int(rows["is_ambiguous"].sum()),
        elsewhere=rows["pool"].null_count(),
    )
    return counts, tr("Demand that was never submitted as a job is not included.")


def _hours_by_cause(spent: Mapping[str, int]) -> dict[str, float]:
    return {cause: milliseconds / HOUR_MS for cause, milliseconds in spent.items()}


_GROUP_COLUMNS = (
    column("jobs", tr("jobs"), "count"),
    fact("jobs_still_waiting", "count", "open_jobs"),
    column("median_s", tr("median queue wait"), "duration", "median_ms"),
    column("p90_s", tr("90 % of jobs waited at most"), "duration", "p90_ms"),
    column("hours", tr("queue wait, hours"), "gpu_hours", "wait_ms"),
    column("gpu_hours", tr("queue wait, GPU-hours"), "gpu_hours", "gpu_ms"),
    column(
        "shortage_share",
        tr("caused by shortage"),
        "share",
        lambda group: least_to_most(*map(Share, group.shortage)) if group.wait_ms else "",
        "shortage",
        json_type="array",
    ),
    fact("hours_by_cause", "words", lambda group: _hours_by_cause(group.cause_ms), "object"),
    fact("gpu_hours_by_cause", "words", lambda group: _hours_by_cause(group.cause_gpu_ms), "object"),
)


def wait_table(waits: QueueWaits, by: str) -> Table | None:
    """Return the queue wait by a column of GROUPS, the longest first; None without a job that has a submission time."""
    groups = wait_groups(waits, by)
    if not groups:
        return None
    title, word, kind = _GROUPS[by]
    return Table(
        name=f"queue_{by}",
        title=title,
        question=tr("Whose jobs wait in the queue, and why?"),
        headline=_longest_wait(groups, kind),
        columns=(column(by, word, kind, "name", missing=_name(None, kind)), *_GROUP_COLUMNS),
        rows=tuple(groups),
        shown=_GROUPS_SHOWN,
        rest=tr("The page Queue lists {number} more.", number=len(groups) - _GROUPS_SHOWN),
    )


def _longest_wait(groups: list[WaitGroup], kind: Kind) -> str:
    first = groups[0]
    if not first.wait_ms:
        return tr("No job waited.")
    total = sum(group.wait_ms for group in groups)
    return tr(
        "Size {name} accounts for {share} of all queue time."
        if kind == "words"
        else "{name} accounts for {share} of all queue time.",
        name=_name(first.name, kind),
        share=Share(first.wait_ms / total),
    )


def _name(name: str | None, kind: Kind) -> str:
    if name is None:
        return tr("(not known)")
    return place_name(name) if kind == "pool" else plain(name, NAME_MOST)


def idle_while_waiting(waits: QueueWaits, open_ms: float) -> Table:
    """Return the idle GPU time of each pool, in total and while any job waited; also without any known job.

    `open_ms` is the idle time that rests on point samples alone.
    """
    by_kind = waits.idle.group_by("pool", "kind").agg(pl.col("gpu_ms", "waited_ms").sum())
    sums = {(pool, kind): (spent, waited) for pool, kind, spent, waited in by_kind.iter_rows()}
    pools = sorted({pool for pool, _ in sums})

    def spent_in(kind: str) -> Callable[[str], int]:
        return lambda pool: sums.get((pool, kind), (0, 0))[0]

    def while_waiting(pool: str) -> int:
        return sum(sums.get((pool, kind), (0, 0))[1] for kind in ("free", "unused"))

    def withheld(pool: str) -> int:
        return sum(spent_in(kind)(pool) for kind in WITHHELD)

    idle = sum(sum(map(spent_in(kind), pools)) for kind in ("free", "unused"))
    return Table(
        name="idle_while_waiting",
        title=tr("Idle GPU time while jobs waited"),
        question=tr("How much GPU time was unallocated or unused, and how much of it while jobs waited?"),
        headline=(
            tr(
                "{idle} GPU-hours were unallocated, held idle, stalled or allocated but unused, without short pauses.",
                idle=GpuHours(idle),
            )
            if waits.rows.is_empty()
            else tr(
                "{waited} of {idle} GPU-hours that were unallocated, held idle, stalled or allocated but unused,"
                " without short pauses, passed while a job waited.",
                waited=GpuHours(sum(map(while_waiting, pools))),
                idle=GpuHours(idle),
            )
        ),
        columns=(
            column("pool", tr("pool"), "pool", str),
            column("free_gpu_hours", tr("unallocated"), "gpu_hours", spent_in("free")),
            *(
                (column("withheld_gpu_hours", tr("unallocated, drained or reserved"), "gpu_hours", withheld),)
                if any(map(withheld, pools))
                else ()
            ),
            column("unused_gpu_hours", tr("idle while allocated"), "gpu_hours", spent_in("unused")),
            column("unknown_gpu_hours", tr("not observed"), "gpu_hours", spent_in("unknown")),
            column(
                "waited_gpu_hours",
                tr("unallocated or unused while a job of any pool waited"),
                "gpu_hours",
                lambda pool: None if waits.rows.is_empty() else while_waiting(pool),
            ),
        ),
        rows=tuple(pools),
        notes=counted_note(open_ms),
    )


def goodput_table(waits: QueueWaits, used: float | None, open_ms: float) -> Table | None:
    """Return the GPU time of jobs by how the jobs ended; None if no job had any GPU time.

    Args:
        waits: the jobs.
        used: the share of all allocated GPU time that was used; None is unknown.
        open_ms: the idle time that rests on point samples alone.
    """
    found = goodput(waits.ran, waits.since_ms, waits.until_ms)
    total = sum(found.gpu_ms.values())
    if not total:
        return None
    share = found.completed_share
    return Table(
        name="goodput",
        title=tr("How jobs ended, by GPU time"),
        question=tr("What share of the jobs' GPU time went to jobs that completed?"),
        headline=tr("No job in this window has a known end.")
        if share is None
        else tr("{share} of the GPU time of jobs with a known end went to completed jobs.", share=Share(share)),
        columns=(
            column("end", tr("end of the job"), "words", _ENDS.get, str),
            column("jobs", tr("jobs"), "count", found.jobs.get),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", found.gpu_ms.get),
            column("share", tr("share"), "share", lambda end: found.gpu_ms[end] / total),
        ),
        rows=END_STATES,
        notes=(
            tr("GPU time: in the window, over all jobs that ran in it."),
            *(
                ()
                if used is None
                else (
                    tr(
                        "{used} of the allocated GPU time was effective. The GPUs worked, but their work may have"
                        " failed.",
                        used=Share(used),
                    ),
                    *counted_note(open_ms),
                )
            ),
        ),
    )


def counted_jobs(waits: QueueWaits, used: float | None) -> Table:
    """Return for programs how many jobs are counted, how many are left out and why, and the used share of GPU time.

    The numbers of jobs are null if no job is known.
    """
    rows, unasked = waits.rows, int(waits.left_out["lacks_submission_time"].sum())
    counts = {
        "jobs": rows.height,
        "jobs_without_submission_time": unasked,
        "jobs_without_gpus": waits.left_out.height - unasked,
        "jobs_with_ambiguous_pool": int(rows["is_ambiguous"].sum()),
        "jobs_with_unknown_pool": rows["pool"].null_count(),
    }
    known = counts if waits.knows_jobs else dict.fromkeys(counts)
    columns = (*(fact(name, "count") for name in counts), fact("used_share", "share"))
    return single("queue_counted", columns, {**known, "used_share": used})


def back_test(waits: QueueWaits) -> Table:
    """Return for programs the waits of the window and of its two halves; none without a job with a submission time."""
    named = zip(("all", "first_half", "second_half"), (all_waits(waits), *halves(waits)), strict=True)
    rows = () if waits.rows.is_empty() else tuple(replace(group, name=name) for name, group in named)
    return for_programs("queue_halves", (fact("part", "words", "name"), *_GROUP_COLUMNS), rows)
