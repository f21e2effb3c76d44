"""Who waited for GPUs, and whether more of them would have helped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Share
from analytics.language.sentences import tr
from analytics.plan.queue_waits import END_STATES, WaitGroup, Waits, goodput, halves, in_all, wait_groups
from analytics.plan.wait_causes import CAUSES, SHORTAGE
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import NAME_MOST, least_to_most, place_name
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Kind, Table, column, fact, for_programs, single
from fallow.clock import HOUR_MS

_CAUSES = {
    "order": (
        tr("the queue's order or a hold"),
        tr("enough were free on hosts of its partition, for as long as its time limit"),
    ),
    "limits": (
        tr("time limits far above need"),
        tr("enough were free there for as long as it really ran, not for its time limit"),
    ),
    "block": (tr("wrong block"), tr("enough were free on hosts of its pool that its partition never used")),
    "pool": (tr("wrong pool"), tr("enough were free in another pool, on cards with at least as much memory")),
    "unused": (tr("held without use"), tr("enough with those that somebody had and did not use")),
    "scattered": (tr("scattered"), tr("enough were free, but not together on hosts")),
    "unknown": (tr("not known"), tr("enough with those that nobody observed, or nobody knows its pool")),
    SHORTAGE: (tr("shortage"), tr("none of these: only more GPUs would have let it start")),
}
"""By cause its name, and what was there while the job waited."""

_GROUPS: dict[str, tuple[str, str, Kind]] = {
    "pool": (tr("Waits by pool"), tr("pool"), "pool"),
    "size": (tr("Waits by size of the job"), tr("GPUs per job"), "words"),
    "team": (tr("Waits by team"), tr("team"), "team"),
    "partition": (tr("Waits by partition"), tr("partition"), "name"),
    "rank": (tr("Waits by priority"), tr("QoS or priority"), "name"),
}
_ENDS = {
    "completed": tr("completed"),
    "failed": tr("failed"),
    "timed out": tr("timed out"),
    "cancelled": tr("cancelled"),
    "preempted": tr("preempted or queued again"),
    "host failed": tr("host failed"),
    "running": tr("still running"),
    "unknown": tr("end not known"),
}


def waits_in_report(waits: Waits | None) -> Table | None:
    """The causes in a few lines; None where no job is known to have asked for GPUs in the window."""
    return None if waits is None or waits.rows.is_empty() else wait_causes(waits, in_brief=True)


def wait_causes(waits: Waits, *, in_brief: bool = False) -> Table:
    """Hours waited by cause, and what they rest on."""
    whole = in_all(waits)
    means = () if in_brief else (column("means", tr("while it waited"), "sentence", lambda cause: _CAUSES[cause][1]),)
    return Table(
        name="queue",
        title=tr("Who waited, and would more GPUs have helped?"),
        question=tr("Did jobs wait because GPUs were short, or while enough of them stood idle?"),
        headline=_headline(waits, whole),
        columns=(
            column("cause", tr("cause"), "words", lambda cause: _CAUSES[cause][0], str),
            *means,
            column("hours", tr("hours waited"), "gpu_hours", whole.cause_ms.get),
            column("share", tr("share"), "share", whole.share),
            column("gpu_hours", tr("GPU-hours waited"), "gpu_hours", whole.cause_gpu_ms.get),
        ),
        rows=CAUSES if whole.wait_ms else (),
        chart=_chart(whole) if whole.wait_ms and not in_brief else None,
        notes=(*_method(waits, in_brief=in_brief), _counted(waits), tr("Demand that nobody submitted cannot be seen.")),
        wide=not in_brief,
    )


def _headline(waits: Waits, whole: WaitGroup) -> str:
    if waits.rows.is_empty():
        return tr(
            "Nobody can say who waited: no job of this window is known with the time at which it asked for GPUs. "
            "`fallow allocations import slurm`, `kubernetes` or `csv` brings them in."
        )
    if not whole.wait_ms:
        return tr("No job waited; jobs that were looked at: {number}.", number=whole.jobs)
    least, unknown = whole.share(SHORTAGE), whole.share("unknown")
    if unknown:
        return tr(
            "Jobs waited {hours} hours: {share} of that for want of GPUs, {unknown} for reasons that are not known, what is left while enough of them could have been had.",
            hours=GpuHours(whole.wait_ms),
            share=Share(least),
            unknown=Share(unknown),
        )
    return tr(
        "Jobs waited {hours} hours: {share} of that for want of GPUs, the rest while enough of them could have been had.",
        hours=GpuHours(whole.wait_ms),
        share=Share(least),
    )


def _chart(whole: WaitGroup) -> Chart:
    """The hours of each cause, on one scale."""
    groups = (
        (
            tr("hours waited while enough could have been had"),
            "held",
            [each for each in CAUSES if each not in (SHORTAGE, "unknown")],
        ),
        (tr("hours waited for which it is not known"), "unknown", ["unknown"]),
        (tr("hours waited for want of GPUs"), "active", [SHORTAGE]),
    )
    longest = max(whole.cause_ms.values()) / HOUR_MS

    def panel(title: str, state: str, causes: Sequence[str]) -> Panel:
        spent_ms = [whole.cause_ms[each] for each in causes]
        places = (
            ChartPlace(_CAUSES[each][0], figure=GpuHours(spent)) for each, spent in zip(causes, spent_ms, strict=True)
        )
        bars = Bars("", state, tuple(each / HOUR_MS for each in spent_ms))
        return Panel(title, (bars,), tuple(places), lying=True, ceiling=longest)

    return Chart(tuple(panel(*each) for each in groups))


def _method(waits: Waits, *, in_brief: bool) -> tuple[str, ...]:
    """The assumptions, and the back-test: what the first half of the window would have said of the second."""
    if in_brief or waits.rows.is_empty():
        return ()
    first, second = (each.share(SHORTAGE) for each in halves(waits))
    return (
        tr(
            "Everybody keeps the GPUs and times that they really had. In the order in which their waits ended, jobs are moved to the first moment at which idle GPUs would "
            "have carried them to their end; what they really ran on is free for the next ones. This is done for one cause after the other from the top, so that each "
            "moment has one cause, and no idle GPU serves two jobs at once. Nobody starts later than really: shortage is rather said too high than too low."
        ),
        tr(
            "Back-test: shortage was {first} of the hours in the first half of the window and {second} in the second.",
            first=Share(first),
            second=Share(second),
        ),
    )


def _counted(waits: Waits) -> str:
    rows, unasked = waits.rows, int(waits.left_out["is_unasked"].sum())
    return tr(
        "Jobs counted: {jobs}, of which {open} are not known to have begun and count up to when they were last seen. Left out: {unasked} that could not begin yet or for which no time is known at which they asked, "
        "{uncounted} without a number of GPUs. Pool taken from the partition, which has several: {ambiguous}; pool not known: {elsewhere}.",
        jobs=rows.height,
        open=int(rows["is_open"].sum()),
        unasked=unasked,
        uncounted=waits.left_out.height - unasked,
        ambiguous=int(rows["is_ambiguous"].sum()),
        elsewhere=rows["pool"].null_count(),
    )


def _hours(spent: Mapping[str, int]) -> dict[str, float]:
    return {cause: milliseconds / HOUR_MS for cause, milliseconds in spent.items()}


_GROUP_COLUMNS = (
    column("jobs", tr("jobs"), "count"),
    fact("jobs_still_waiting", "count", "open_jobs"),
    column("median_s", tr("median wait"), "duration", "median_ms"),
    column("p90_s", tr("9 of 10 within"), "duration", "p90_ms"),
    column("hours", tr("hours waited"), "gpu_hours", "wait_ms"),
    column("gpu_hours", tr("GPU-hours waited"), "gpu_hours", "gpu_ms"),
    column(
        "shortage_share",
        tr("of it shortage"),
        "share",
        lambda group: least_to_most(*map(Share, group.shortage)) if group.wait_ms else "",
        "shortage",
        json_type="array",
    ),
    fact("hours_by_cause", "words", lambda group: _hours(group.cause_ms), "object"),
    fact("gpu_hours_by_cause", "words", lambda group: _hours(group.cause_gpu_ms), "object"),
)


def wait_table(waits: Waits, by: str) -> Table | None:
    """Waits by a column of GROUPS; None where nobody is known to have asked."""
    found = wait_groups(waits, by)
    if not found:
        return None
    title, word, kind = _GROUPS[by]
    return Table(
        name=f"queue_{by}",
        title=title,
        question=tr("Whose jobs wait, and for what?"),
        headline=_longest(found, kind),
        columns=(
            column(by, word, kind, lambda each: _name(None, kind) if each.name is None else each.name, "name"),
            *_GROUP_COLUMNS,
        ),
        rows=tuple(found),
        shown=12,
        rest=tr("{number} more are on the page Waits.", number=len(found) - 12),
    )


def _longest(found: list[WaitGroup], kind: Kind) -> str:
    first = found[0]
    if not first.wait_ms:
        return tr("No job waited.")
    total = sum(each.wait_ms for each in found)
    return tr(
        "Most was waited in {name}: {share} of the hours.",
        name=_name(first.name, kind),
        share=Share(first.wait_ms / total),
    )


def _name(name: str | None, kind: Kind) -> str:
    if name is None:
        return tr("(not known)")
    return place_name(name) if kind == "pool" else plain(name, NAME_MOST)


def idle_while_waiting(waits: Waits, open_ms: float) -> Table:
    """What stood idle in each pool, in all and while any job waited: also where no job is known. `open_ms` of it point samples alone call idle."""
    sums = waits.idle.group_by("pool", "kind").agg(pl.col("gpu_ms", "waited_ms").sum())
    idle = {(pool, kind): (spent, waited) for pool, kind, spent, waited in sums.iter_rows()}
    pools = sorted({pool for pool, _ in idle})

    def spent_in(kind: str) -> Callable[[str], int]:
        return lambda pool: idle.get((pool, kind), (0, 0))[0]

    def while_waiting(pool: str) -> int | None:
        return None if waits.rows.is_empty() else sum(idle.get((pool, kind), (0, 0))[1] for kind in ("free", "unused"))

    free, unused = (sum(map(spent_in(kind), pools)) for kind in ("free", "unused"))
    return Table(
        name="idle_while_waiting",
        title=tr("What stood idle meanwhile"),
        question=tr("How much GPU time was free or held without use, and how much of it while jobs waited?"),
        headline=tr(
            "{free} GPU-hours were free, {unused} held or reserved without use.",
            free=GpuHours(free),
            unused=GpuHours(unused),
        ),
        columns=(
            column("pool", tr("pool"), "pool", str),
            column("free_gpu_hours", tr("free"), "gpu_hours", spent_in("free")),
            column("unused_gpu_hours", tr("held without use"), "gpu_hours", spent_in("unused")),
            column("unknown_gpu_hours", tr("not observed"), "gpu_hours", spent_in("unknown")),
            column("waited_gpu_hours", tr("free or unused while a job waited"), "gpu_hours", while_waiting),
        ),
        rows=tuple(pools),
        notes=counted_note(open_ms),
    )


def goodput_table(waits: Waits, used: float | None, open_ms: float) -> Table | None:
    """How the GPU time of jobs ended, beside the part of all given GPU time that was used; None without jobs that had any."""
    found = goodput(waits.ran, waits.since_ms, waits.until_ms)
    total = sum(found.gpu_ms.values())
    if not total:
        return None
    share = found.completed_share
    return Table(
        name="goodput",
        title=tr("What the GPU time led to"),
        question=tr("How much of the jobs' GPU time led to a completed job?"),
        headline=tr("No job of this window has an end that is known.")
        if share is None
        else tr("{share} of the GPU time of jobs whose end is known led to completed jobs.", share=Share(share)),
        columns=(
            column("end", tr("the job"), "words", _ENDS.get, str),
            column("jobs", tr("jobs"), "count", found.jobs.get),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", found.gpu_ms.get),
            column("share", tr("share"), "share", lambda end: found.gpu_ms[end] / total),
        ),
        rows=END_STATES,
        notes=(
            tr("GPU time is that of the window, of all jobs that had any."),
            *(
                ()
                if used is None
                else (
                    tr(
                        "Of the GPU time that was given out, {used} was used: that says that GPUs worked, not that the work came to anything.",
                        used=Share(used),
                    ),
                    *counted_note(open_ms),
                )
            ),
        ),
    )


def counted_jobs(waits: Waits, used: float | None) -> Table:
    """Return for programs how many jobs are counted, how many are left out and why, and what share of GPU time was used."""
    rows, unasked = waits.rows, int(waits.left_out["is_unasked"].sum())
    return single(
        "queue_counted",
        (
            fact("jobs", "count", lambda _: rows.height),
            fact("jobs_without_time_of_asking", "count", lambda _: unasked),
            fact("jobs_without_gpus", "count", lambda _: waits.left_out.height - unasked),
            fact("jobs_with_ambiguous_pool", "count", lambda _: int(rows["is_ambiguous"].sum())),
            fact("jobs_with_unknown_pool", "count", lambda _: rows["pool"].null_count()),
            fact("used_share", "share", lambda _: used),
        ),
        waits,
    )


def back_test(waits: Waits) -> Table:
    """Return for programs all waits, and those of each half of the window."""
    named = zip(("all", "first_half", "second_half"), (in_all(waits), *halves(waits)), strict=True)
    rows = (replace(group, name=name) for name, group in named)
    return for_programs("queue_halves", (fact("part", "words", "name"), *_GROUP_COLUMNS), rows)
