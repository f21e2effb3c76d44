"""What off-peak hours or prices would have moved."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.quantities import GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.plan.replay.replay_base import ReplayBase
from analytics.plan.replay.shifted_work import ShiftedWork
from analytics.tables.plan_replay_check import refusal, span
from analytics.tables.table import Column, Table
from fallow.clock import HOUR_MS


def shifted_work_table(base: ReplayBase, found: ShiftedWork, currency: str) -> Table:
    """The GPU-hours of deferrable work in each hour of the day, today and with these hours."""
    return Table(
        name="shifted-work",
        title=tr("What off-peak prices would have moved"),
        question=tr("When would work that can wait have run, had it begun in the cheap hours only?"),
        headline=_headline(found),
        columns=(
            Column("hour", tr("hour"), "words"),
            Column("today", tr("replay of today"), "gpu_hours"),
            Column("then", tr("with the change"), "gpu_hours"),
        ),
        rows=tuple(
            (f"{hour:02}:00", GpuHours(today), GpuHours(then)) for hour, (today, then) in enumerate(found.by_hour)
        ),
        lines=tuple(_lines(base, found, currency)),
        notes=(
            tr(
                "GPU-hours of jobs that can wait, by the hour of the day in which they had GPUs. Each of them begins in these hours and runs on into the day if it takes longer; everybody who can wait does, which is the most that prices could move. "
                "Which jobs can wait is a rule (docs/planning.md), not what their owners said."
            ),
        ),
    )  # fmt: skip


def _headline(found: ShiftedWork) -> str:
    if not found.jobs:
        return tr("No job of this window is known to be one that can wait.")
    today, then = found.peak_ms()
    return tr(
        "Outside {since} to {until}, jobs that can wait would have had {then} GPU-hours instead of {today}: {share} less.",
        since=_clock(found.off_peak.since_min), until=_clock(found.off_peak.until_min), then=GpuHours(then), today=GpuHours(today),
        share=Share(1 - then / today if today else None),
    )  # fmt: skip


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _lines(base: ReplayBase, found: ShiftedWork, currency: str) -> Iterator[str]:
    yield tr_many(
        "{number} job of {jobs} that can wait would have begun later.",
        "{number} jobs of {jobs} that can wait would have begun later.",
        found.postponed, jobs=Number(found.jobs),
    )  # fmt: skip
    late = sum(today - then for today, then in found.by_hour)
    if late >= HOUR_MS:
        yield tr("{hours} GPU-hours of them would have run after the end of the window.", hours=GpuHours(late))
    if found.paid is not None:
        today, then = (Number(each, 3) for each in found.paid)
        yield tr(
            "At the internal prices a GPU-hour of theirs would have cost {then} {currency} instead of {today}.",
            then=then, today=today, currency=currency,
        )  # fmt: skip
    refused = refusal(base.check)
    if found.waits is None:
        yield refused or tr("How long they would have waited is not answered.")
        return
    waits = [span(each.p95_ms) for each in found.waits]
    if waits[0] is not None and waits[1] is not None:
        yield tr("19 of 20 of them would have begun within {then} instead of {today}.", then=waits[1], today=waits[0])
