"""The reserve as a question: with more or less of it, how many GPUs can go, and how short the pools would have been."""

from __future__ import annotations

from analytics.glossary import term
from analytics.language.language import SentenceList
from analytics.language.quantities import Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.tables.names import place_name
from analytics.tables.table import Column, Table, column, fact
from analytics.workloads.reclaimable import Reclaimable, Reserve, WhatIfReserve, reserve_steps, what_if_reserve


def reserve_by_pool(found: Reclaimable, margin: float) -> Table:
    """One reserve, by pool and model."""
    asked = what_if_reserve(found, margin)
    return Table(
        name="what_if",
        title=tr("What if the reserve were another?"),
        question=tr(
            "How many GPUs could go with more or less in reserve, and for how long would a pool have been short last week?"
        ),
        headline=reserve_sentence(asked),
        columns=(
            column("pool", tr("pool"), "pool", lambda each: place_name(each.pool.pool), "pool.pool"),
            column("model", tr("model"), "name", lambda each: place_name(each.pool.model), "pool.model"),
            column("idle_now", tr("idle now"), "count", "pool.idle_now"),
            column("kept", tr("pool keeps"), "count", "reserve.kept"),
            column("safe", tr("safe to give back"), "count", "reserve.safe"),
            column("short", tr("short"), "words", lambda each: _short(each.reserve), audience="people"),
            *_shortage("reserve"),
        ),
        rows=asked.pools,
        notes=(
            tr(
                "Short: in how many hours of the last week more GPUs were needed than the estimate of a week earlier would have kept."
            ),
            tr("Pools whose need is not known, and those without an idle GPU, are left out."),
        ),
        terms=(term("reserve"),),
    )


def reserves_compared(found: Reclaimable) -> Table:
    """All reserves that are compared, over all pools."""
    return Table(
        name="reserves",
        title=tr("All reserves beside one another"),
        question=tr("What does each reserve leave, and what would it have risked?"),
        headline="",
        columns=(
            column("reserve", tr("reserve"), "share", lambda step: Share(step.margin, 0)),
            column("safe", tr("safe to give back"), "count"),
            column(
                "short", tr("short"), "words", lambda step: _short(step.worst and step.worst.reserve), audience="people"
            ),
            *_shortage("worst.reserve"),
            column(
                "worst_pool",
                tr("pool that was short longest"),
                "words",
                lambda step: (
                    place_name(step.worst.pool.pool)
                    if step.worst is not None and step.worst.reserve.short_hours
                    else ""
                ),
            ),
        ),
        rows=reserve_steps(found),
    )


def _shortage(path: str) -> tuple[Column, ...]:
    """Return by how many GPUs the reserve at a path of the row would have been short, and for programs for how long."""
    return (
        column("short_gpus", tr("GPUs short at most"), "count", f"{path}.short_gpus"),
        fact("short_hours", "count", f"{path}.short_hours"),
        fact("observed_hours", "count", f"{path}.hours"),
    )


def reserve_sentence(asked: WhatIfReserve) -> str:
    """`With 15 % in reserve 17 GPUs can go. Last week train would have been short in 3 of 168 h, by 2 GPUs at most`."""
    if asked.safe is None:
        return tr("How many GPUs are safe to give back is not known.")
    first = tr_many(
        "With {share} in reserve {number} GPU is safe to give back.",
        "With {share} in reserve {number} GPUs are safe to give back.",
        asked.safe,
        share=Share(asked.margin, 0),
    )
    worst = asked.worst
    if worst is None:
        return SentenceList([first, tr("What it would have been worth last week is not known.")], " ")
    pool, reserve = worst
    hours = {"short": Number(reserve.short_hours), "hours": Number(reserve.hours)}
    if not reserve.short_hours:
        return SentenceList([first, tr("Last week no pool would have been short in any of {hours} h.", **hours)], " ")
    second = tr_many(
        "Last week {pool} would have been short in {short} of {hours} h, by {number} GPU at most.",
        "Last week {pool} would have been short in {short} of {hours} h, by {number} GPUs at most.",
        reserve.short_gpus or 0,
        pool=place_name(pool.pool),
        **hours,
    )
    return SentenceList([first, second], " ")


def _short(reserve: Reserve | None) -> str:
    if reserve is None or reserve.hours is None:
        return tr("not known")
    return tr("{short} of {hours} h", short=Number(reserve.short_hours), hours=reserve.hours)
