"""What each workload takes of its card: peak memory beside activity, against what the cards have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import polars as pl

from analytics.language.plain_text import plain
from analytics.language.quantities import Bytes, GpuHours, Number, Share
from analytics.language.sentences import tr, tr_many
from analytics.report.report import Report
from analytics.tables.chart import Chart, Dots, Level, Panel, Shape
from analytics.tables.moves import target_card
from analytics.tables.table import Table, column, fact
from analytics.workloads.cards import shelf
from analytics.workloads.model import Context
from analytics.workloads.workloads import RESERVED, SMALLER, SPLIT, findings_about, workload_footprints

_GIB = 2**30
_DRAWN, _LISTED = 400, 25
_NEAR = 0.04
"""Capacities that differ by less are one line: 79.6 and 80 GiB."""

KEEPS, SMALLER_DOES, PART_DOES, EITHER_DOES, PREALLOCATED = "keeps", "smaller", "mig", "either", "reserved"
LESS = (SMALLER_DOES, PART_DOES, EITHER_DOES)
"""Kinds that are larger than their work needs."""
_WORDS = {
    KEEPS: tr("no smaller card is named"),
    SMALLER_DOES: tr("a smaller or older card would do"),
    PART_DOES: tr("a MIG instance would do"),
    EITHER_DOES: tr("another card or a MIG instance would do"),
    PREALLOCATED: tr("memory reserved in advance: its need is not known"),
}


def workload_sizes(report: Report) -> pl.DataFrame:
    """The workloads of the scope: `workload_footprints` with `kind` (one of those above) and `instead`, the cards and parts of cards that would do.

    `busy_pct` is SM activity, which says how much of a card is busy; where it is missing (`by_sm` is false) the time with any
    kernel, which is never less.
    """
    found = workload_footprints(report.whole.context, report.part.inside.stretches)
    about = findings_about(found, report.review.shown)
    instead = [", ".join(target_card(each) for each in own if each.rule != RESERVED) for own in about]
    return found.with_columns(
        kind=pl.Series([_kind({each.rule for each in own}) for own in about], dtype=pl.String),
        instead=pl.Series(instead, dtype=pl.String),
        busy_pct=pl.coalesce("sm_pct", "util_pct"),
        by_sm=pl.col("sm_pct").is_not_null(),
    )


def _kind(rules: set[str]) -> str:
    part, smaller = SPLIT in rules, not rules.isdisjoint(SMALLER)
    if part or smaller:
        return EITHER_DOES if part and smaller else PART_DOES if part else SMALLER_DOES
    return PREALLOCATED if RESERVED in rules else KEEPS


def workload_table(found: pl.DataFrame) -> Table:
    """Every workload of `workload_sizes`: whose it is, its size and activity, its kind, and which cards would do instead."""
    return Table(
        name="sizes",
        title=tr("Memory and activity against the cards"),
        question=tr(
            "Which work sits on a card that is larger than it needs? One mark per job (of bare processes: per GPU)."
        ),
        headline="",
        columns=(
            column("holder", tr("user"), "name", lambda row: _names(row, 80)[0], itemgetter("holder")),
            fact("account", "name", itemgetter("account")),
            column("job", tr("job"), "name", lambda row: _names(row, 80)[1], itemgetter("job")),
            column("model", tr("model"), "name", lambda row: _names(row, 80)[2], itemgetter("model")),
            fact("host", "host", itemgetter("host")),
            fact("gpus", "gpu", itemgetter("gpus"), "array"),
            column("gpu_count", tr("GPUs"), "count", lambda row: len(row["gpus"]), audience="people"),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", itemgetter("gpu_ms")),
            column("peak_bytes", tr("peak memory"), "number", _peak, json_type="integer"),
            fact("card_bytes", "number", itemgetter("card_bytes"), "integer"),
            *(
                column(
                    f"{part}_p95_pct", title, "share", partial(_share, part=f"{part}_pct"), itemgetter(f"{part}_pct")
                )
                for part, title in (
                    ("util", tr("utilization, 95th percentile")),
                    ("sm", tr("SM activity, 95th percentile")),
                )
            ),
            column("coverage", tr("coverage"), "share", itemgetter("coverage")),
            column("kind", tr("verdict"), "words", lambda row: _WORDS[row["kind"]], itemgetter("kind")),
            column(
                "instead",
                tr("would do instead"),
                "words",
                lambda row: plain(row["instead"]) or "-",
                lambda row: row["instead"] or None,
            ),
        ),
        rows=tuple(found.iter_rows(named=True)),
    )


def card_fit(report: Report) -> Table:
    """A mark per workload: those for which less would do, then those with the most GPU-hours."""
    found = workload_sizes(report)
    known = found.filter(pl.col("peak_bytes").is_not_null() & pl.col("busy_pct").is_not_null())
    # those that the page is about are never left out for others
    ordered = known.sort(pl.col("kind").is_in(LESS), descending=True, maintain_order=True)
    return replace(
        workload_table(ordered.head(_LISTED)),
        headline=_headline(known),
        chart=_chart(list(ordered.head(_DRAWN).iter_rows(named=True)), card_sizes(report.whole.context)),
        notes=tuple(_notes(found, known)),
        wide=True,
    )


def _headline(known: pl.DataFrame) -> str:
    if known.is_empty():
        return tr("No work is known by its memory and its activity.")
    candidates = known.filter(pl.col("kind").is_in(LESS))
    return tr_many(
        "Another card or a part of one would do for {number} workload of {all}: {hours} of {total} GPU-hours.",
        "Another card or a part of one would do for {number} workloads of {all}: {hours} of {total} GPU-hours.",
        candidates.height,
        all=known.height,
        hours=GpuHours(float(candidates["gpu_ms"].sum())),
        total=GpuHours(float(known["gpu_ms"].sum())),
    )


def _notes(found: pl.DataFrame, known: pl.DataFrame) -> Iterator[str]:
    """What the chart does not show, and what its marks rest on."""
    no_memory = found.filter(pl.col("peak_bytes").is_null()).height
    idle = found.filter(pl.col("peak_bytes").is_not_null() & pl.col("busy_pct").is_null()).height
    if no_memory:
        yield tr_many(
            "{number} workload without a known memory is not drawn.",
            "{number} workloads without a known memory are not drawn.",
            no_memory,
        )
    if idle:
        yield tr_many(
            "{number} workload is not drawn since no whole hour of its activity is known by more than means.",
            "{number} workloads are not drawn since no whole hour of their activity is known by more than means.",
            idle,
        )
    if known.height > _DRAWN:
        yield tr(
            "Drawn are {number}: those for which less would do, then those with the most GPU-hours.",
            number=_DRAWN,
        )
    if known.height > _LISTED:
        yield tr("The table has the first {number} of {all}.", number=_LISTED, all=known.height)
    yield tr(
        "The activity is what 95 % of the time stays within. Hollow marks: SM activity was not measured, and the time with any kernel stands for it, which is never less."
    )
    yield tr("The larger a mark, the more GPU-hours.")


_SIGNS: Mapping[str, tuple[Shape, str]] = {
    KEEPS: ("circle", "active"),
    SMALLER_DOES: ("diamond", "held"),
    PART_DOES: ("triangle", "held"),
    EITHER_DOES: ("star", "held"),
    PREALLOCATED: ("square", "unknown"),
}
"""Of each kind the shape and the colour of its marks."""


def _chart(rows: Sequence[dict[str, Any]], cards: Sequence[tuple[float, str]]) -> Chart:
    """Activity and peak memory, with a line at the memory of each card; hollow where the activity is an upper bound."""
    cards_there = (Level(tr("{name}: {gib} GiB", name=name, gib=Number(size)), "muted", size) for size, name in cards)
    dots = (
        _dots(kind, own, is_hollow=is_hollow)
        for kind, is_hollow in itertools.product(_SIGNS, (False, True))
        if (own := [row for row in rows if (row["kind"], not row["by_sm"]) == (kind, is_hollow)])
    )
    panel = Panel(tr("peak memory (GiB)"), (*cards_there, *dots), unit="GiB")
    return Chart((panel,), across=tr("activity, 95th percentile"))


def _dots(kind: str, rows: Sequence[dict[str, Any]], *, is_hollow: bool) -> Dots:
    return Dots(
        _WORDS[kind],
        _SIGNS[kind][1],
        _SIGNS[kind][0],
        at=tuple(row["busy_pct"] for row in rows),
        values=tuple(round(row["peak_bytes"] / _GIB, 1) for row in rows),
        weights=tuple(row["gpu_ms"] for row in rows),
        details=tuple(_details(row) for row in rows),
        is_hollow=is_hollow,
    )


def _details(row: dict[str, Any]) -> tuple[str, ...]:
    instead = (f"→ {plain(row['instead'])}",) if row["instead"] else ()
    return (*_names(row, 60), tr("{hours} GPU-hours", hours=GpuHours(row["gpu_ms"])), *instead)


def _peak(row: dict[str, Any]) -> Bytes | None:
    return None if row["peak_bytes"] is None else Bytes(row["peak_bytes"])


def _share(row: dict[str, Any], part: str) -> Share | None:
    return None if row[part] is None else Share(row[part] / 100, 0)


def _names(row: dict[str, Any], most: int) -> tuple[str, str, str]:
    """Whose it is, its job and its model."""
    return (
        tr("(user not known)") if row["holder"] is None else plain(row["holder"], most),
        tr("no job") if row["job"] is None else plain(row["job"], most),
        plain(row["model"], most) if row["model"] else tr("unknown model"),
    )


def card_sizes(context: Context) -> tuple[tuple[float, str], ...]:
    """The cards of the fleet by memory in GiB, with their names; those of about the same memory together."""
    found: list[tuple[float, str]] = []
    offers = shelf(context).fleet.values()
    for size, name in sorted({(each.card.memory_bytes / _GIB, each.card.name) for each in offers}):
        if found and size <= found[-1][0] * (1 + _NEAR):
            found[-1] = (found[-1][0], f"{found[-1][1]}, {name}")
        else:
            found.append((size, name))
    return tuple(found)
