"""Who waited for GPUs, and whether more of them would have helped."""

from __future__ import annotations

import polars as pl

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share, Span
from analytics.language.sentences import tr
from analytics.plan.goodput import END_STATES, goodput
from analytics.plan.wait_causes import CAUSES, SHORTAGE
from analytics.plan.wait_groups import WaitGroup, halves, in_all, wait_groups
from analytics.plan.waits import Waits
from analytics.report.model import Report
from analytics.tables.names import NAME_MOST, least_to_most, place_name
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Bar, Cell, Column, Kind, RankedBars, Table
from fallow.clock import HOUR_MS, MINUTE_MS, SECOND_MS

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
    "completed": tr("completed"), "failed": tr("failed"), "timed out": tr("timed out"), "cancelled": tr("cancelled"),
    "preempted": tr("preempted or queued again"), "host failed": tr("host failed"), "running": tr("still running"),
    "unknown": tr("end not known"),
}  # fmt: skip


def waits_in_report(report: Report) -> Table | None:
    """The causes in a few lines; None where no job is known to have asked for GPUs in the window."""
    return None if report.waits is None or report.waits.rows.is_empty() else wait_causes(report.waits, in_brief=True)


def wait_causes(waits: Waits, *, in_brief: bool = False) -> Table:
    """Hours waited by cause, and what they rest on."""
    whole = in_all(waits)
    means = () if in_brief else (Column("means", tr("while it waited"), "sentence"),)
    return Table(
        name="waits",
        title=tr("Who waited, and would more GPUs have helped?"),
        question=tr("Did jobs wait because GPUs were short, or while enough of them stood idle?"),
        headline=_headline(waits, whole),
        columns=(
            Column("cause", tr("cause"), "words"),
            *means,
            Column("hours", tr("hours waited"), "gpu_hours"),
            Column("share", tr("share"), "share"),
            Column("gpu_hours", tr("GPU-hours waited"), "gpu_hours"),
        ),
        rows=tuple(_cause_row(each, whole, in_brief=in_brief) for each in CAUSES if whole.wait_ms),
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
        return tr("No job waited; jobs that were looked at: {number}.", number=Number(whole.jobs))
    least, unknown = whole.share(SHORTAGE), whole.share("unknown")
    if unknown:
        return tr(
            "Jobs waited {hours} hours: {share} of that for want of GPUs, {unknown} for reasons that are not known, what is left while enough of them could have been had.",
            hours=GpuHours(whole.wait_ms), share=Share(least), unknown=Share(unknown),
        )  # fmt: skip
    return tr(
        "Jobs waited {hours} hours: {share} of that for want of GPUs, the rest while enough of them could have been had.",
        hours=GpuHours(whole.wait_ms), share=Share(least),
    )  # fmt: skip


def _cause_row(cause: str, whole: WaitGroup, *, in_brief: bool) -> tuple[Cell, ...]:
    name, means = _CAUSES[cause]
    figures = (GpuHours(whole.cause_ms[cause]), Share(whole.share(cause)), GpuHours(whole.cause_gpu_ms[cause]))
    return (name, *(() if in_brief else (means,)), *figures)


def _chart(whole: WaitGroup) -> RankedBars:
    longest = max(whole.cause_ms.values())
    groups = (
        (tr("hours waited while enough could have been had"), "held", [each for each in CAUSES if each not in (SHORTAGE, "unknown")]),
        (tr("hours waited for which it is not known"), "unknown", ["unknown"]),
        (tr("hours waited for want of GPUs"), "active", [SHORTAGE]),
    )  # fmt: skip
    return RankedBars(
        tuple((title, state, tuple(_bar(each, whole, longest) for each in causes)) for title, state, causes in groups)
    )


def _bar(cause: str, whole: WaitGroup, longest: int) -> Bar:
    return Bar(_CAUSES[cause][0], whole.cause_ms[cause] / longest, GpuHours(whole.cause_ms[cause]))


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
        tr("Back-test: shortage was {first} of the hours in the first half of the window and {second} in the second.", first=Share(first), second=Share(second)),
    )  # fmt: skip


def _counted(waits: Waits) -> str:
    rows, unasked = waits.rows, int(waits.left_out["is_unasked"].sum())
    return tr(
        "Jobs counted: {jobs}, of which {open} are not known to have begun and count up to when they were last seen. Left out: {unasked} that could not begin yet or for which no time is known at which they asked, "
        "{uncounted} without a number of GPUs. Pool taken from the partition, which has several: {ambiguous}; pool not known: {elsewhere}.",
        jobs=Number(rows.height), open=Number(int(rows["is_open"].sum())), unasked=Number(unasked),
        uncounted=Number(waits.left_out.height - unasked), ambiguous=Number(int(rows["is_ambiguous"].sum())),
        elsewhere=Number(rows["pool"].null_count()),
    )  # fmt: skip


def wait_table(waits: Waits, by: str) -> Table | None:
    """Waits by a column of GROUPS; None where nobody is known to have asked."""
    found = wait_groups(waits, by)
    if not found:
        return None
    title, word, kind = _GROUPS[by]
    return Table(
        name=f"waits-{by}",
        title=title,
        question=tr("Whose jobs wait, and for what?"),
        headline=_longest(found, kind),
        columns=(
            Column(by, word, kind),
            Column("jobs", tr("jobs"), "count"),
            Column("median", tr("median wait"), "number"),
            Column("p90", tr("9 of 10 within"), "number"),
            Column("hours", tr("hours waited"), "gpu_hours"),
            Column("gpu_hours", tr("GPU-hours waited"), "gpu_hours"),
            Column("shortage", tr("of it shortage"), "share"),
        ),
        rows=tuple(_group_row(each, kind) for each in found),
        shown=12,
        rest=tr("{number} more are on the page Waits.", number=Number(len(found) - 12)),
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


def _group_row(each: WaitGroup, kind: Kind) -> tuple[Cell, ...]:
    spans = (None if value is None else wait_span(value) for value in (each.median_ms, each.p90_ms))
    return (
        _name(each.name, kind) if each.name is None else each.name,
        Number(each.jobs),
        *spans,
        GpuHours(each.wait_ms),
        GpuHours(each.gpu_ms),
        least_to_most(*map(Share, each.shortage)) if each.wait_ms else "",
    )


def wait_span(wait_ms: float) -> Span:
    """To the second, and from an hour on to the minute."""
    unit_ms = MINUTE_MS if wait_ms >= HOUR_MS else SECOND_MS
    return Span(round(wait_ms / unit_ms) * unit_ms)


def idle_while_waiting(waits: Waits, open_ms: float) -> Table:
    """What stood idle in each pool, in all and while any job waited: also where no job is known. `open_ms` of it point samples alone call idle."""
    sums = waits.idle.group_by("pool", "kind").agg(pl.col("gpu_ms", "waited_ms").sum())
    idle = {(pool, kind): (spent, waited) for pool, kind, spent, waited in sums.iter_rows()}
    pools = sorted({pool for pool, _ in idle})
    free, unused = (sum(idle.get((pool, kind), (0, 0))[0] for pool in pools) for kind in ("free", "unused"))
    kinds = ("free", "unused", "unknown")
    return Table(
        name="idle-while-waiting",
        title=tr("What stood idle meanwhile"),
        question=tr("How much GPU time was free or held without use, and how much of it while jobs waited?"),
        headline=tr("{free} GPU-hours were free, {unused} held or reserved without use.", free=GpuHours(free), unused=GpuHours(unused)),
        columns=(
            Column("pool", tr("pool"), "pool"),
            Column("free", tr("free"), "gpu_hours"),
            Column("unused", tr("held without use"), "gpu_hours"),
            Column("unknown", tr("not observed"), "gpu_hours"),
            Column("waited", tr("free or unused while a job waited"), "gpu_hours"),
        ),
        rows=tuple(
            (
                pool,
                *(GpuHours(idle.get((pool, kind), (0, 0))[0]) for kind in kinds),
                None if waits.rows.is_empty() else GpuHours(sum(idle.get((pool, kind), (0, 0))[1] for kind in kinds[:2])),
            )
            for pool in pools
        ),
        notes=counted_note(open_ms),
    )  # fmt: skip


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
        headline=tr("No job of this window has an end that is known.") if share is None
        else tr("{share} of the GPU time of jobs whose end is known led to completed jobs.", share=Share(share)),
        columns=(
            Column("end", tr("the job"), "words"),
            Column("jobs", tr("jobs"), "count"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("share", tr("share"), "share"),
        ),
        rows=tuple((_ENDS[each], Number(found.jobs[each]), GpuHours(found.gpu_ms[each]), Share(found.gpu_ms[each] / total)) for each in END_STATES),
        notes=(
            tr("GPU time is that of the window, of all jobs that had any."),
            *(() if used is None else (tr("Of the GPU time that was given out, {used} was used: that says that GPUs worked, not that the work came to anything.", used=Share(used)), *counted_note(open_ms))),
        ),
    )  # fmt: skip
