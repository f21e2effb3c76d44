"""Peak memory and activity of each workload, beside the memory of the fleet's cards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from analytics.language.sentences import Bytes, GpuHours, Number, Share, plain, tr, tr_many
from analytics.report.report import Report
from analytics.tables.chart import Chart, Dots, Level, Panel, Shape
from analytics.tables.moves import target_card
from analytics.tables.table import Column, Table, column, column_of, fact
from analytics.workloads.cards import shelf
from analytics.workloads.model import Context
from analytics.workloads.workloads import RESERVED, SMALLER, SPLIT, findings_about

_GIB = 2**30
_DRAWN, _LISTED = 400, 25
_NEAR = 0.04
"""Cards whose capacity differs by less share a line: 79.6 and 80 GiB."""

KEEPS, SMALLER_DOES, PART_DOES, EITHER_DOES, PREALLOCATED = "keeps", "smaller", "mig", "either", "reserved"
LESS = (SMALLER_DOES, PART_DOES, EITHER_DOES)
"""Kinds of workloads that need less than their card."""
_WORDS = {
    KEEPS: tr("no smaller card is suggested"),
    SMALLER_DOES: tr("a smaller or older card is enough"),
    PART_DOES: tr("a MIG instance is enough"),
    EITHER_DOES: tr("another card or a MIG instance is enough"),
    PREALLOCATED: tr("memory preallocated: the need is not known"),
}


def workload_sizes(report: Report) -> pl.DataFrame:
    """Return the workloads of the scope: `workload_footprints` with two more columns.

    `kind`: one of the kinds above. `instead`: the cards and MIG instances that are enough.
    `busy_pct` is SM activity. Where SM activity is missing (`by_sm` is false), `busy_pct` is the time with any kernel,
    which is never less.
    """
    found = report.whole.footprints(report.scope, report.part)
    # what a workload needs was measured, whatever the confidence that it stays so
    about = findings_about(found, (*report.review.shown, *report.review.low))
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
    """Return a row per workload of `workload_sizes`: user, size, activity, kind, and sufficient cards."""
    return Table(
        name="sizes",
        title=tr("Memory and activity against the cards"),
        question=tr(
            "Which workloads use a card that is larger than they need? One mark per job; for processes without a job,"
            " one mark per GPU."
        ),
        headline="",
        columns=(
            column("user", tr("user"), "name", lambda row: _names(row, 80)[0], "user"),
            fact("account", "name"),
            column("job", tr("job"), "name", lambda row: _names(row, 80)[1], "job"),
            column("model", tr("model"), "name", lambda row: _names(row, 80)[2], "model"),
            fact("host", "host"),
            fact("gpus", "gpu", json_type="array"),
            column("gpu_count", tr("GPUs"), "count", lambda row: len(row["gpus"]), audience="people"),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms"),
            column_of("peak_bytes", column("peak_bytes", tr("peak memory"), "number", Bytes, json_type="integer")),
            fact("card_bytes", "number", json_type="integer"),
            _percentile("util", tr("utilization, 95th percentile")),
            _percentile("sm", tr("SM activity, 95th percentile")),
            column("coverage", tr("coverage"), "share"),
            column("kind", tr("verdict"), "words", lambda row: _WORDS[row["kind"]], "kind"),
            column(
                "instead",
                tr("sufficient instead"),
                "words",
                lambda row: plain(row["instead"]) or "-",
                lambda row: row["instead"] or None,
            ),
        ),
        rows=tuple(found.iter_rows(named=True)),
    )


def card_fit(report: Report) -> Table:
    """Return a mark per workload: first those that need less, then those with the most GPU-hours."""
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
        return tr("No workload has both a known memory and a known activity.")
    candidates = known.filter(pl.col("kind").is_in(LESS))
    return tr_many(
        "{number} of {all} workloads {needs|need} less than {its card|their cards}: {hours} of {total} GPU-hours.",
        candidates.height,
        all=known.height,
        hours=GpuHours(float(candidates["gpu_ms"].sum())),
        total=GpuHours(float(known["gpu_ms"].sum())),
    )


def _notes(found: pl.DataFrame, known: pl.DataFrame) -> Iterator[str]:
    """Yield notes: workloads that the chart leaves out, and the source of its marks."""
    no_memory = found.filter(pl.col("peak_bytes").is_null()).height
    idle = found.filter(pl.col("peak_bytes").is_not_null() & pl.col("busy_pct").is_null()).height
    if no_memory:
        yield tr_many("The chart leaves out {number} {workload|workloads} whose memory is not known.", no_memory)
    if idle:
        yield tr_many(
            "The chart leaves out {number} {workload|workloads}: no full hour has more than mean values of {its|their}"
            " activity.",
            idle,
        )
    if known.height > _DRAWN:
        yield tr(
            "The chart shows {number} workloads: first those that need less, then those with the most GPU-hours.",
            number=_DRAWN,
        )
    if known.height > _LISTED:
        yield tr("The table lists the first {number} of {all}.", number=_LISTED, all=known.height)
    yield tr(
        "Activity is the level not exceeded for 95 % of the time. Hollow marks: SM activity was not measured, so the"
        " chart uses the time with any kernel, which is never less."
    )
    yield tr("A larger mark means more GPU-hours.")


_SIGNS: Mapping[str, tuple[Shape, str]] = {
    KEEPS: ("circle", "active"),
    SMALLER_DOES: ("diamond", "held"),
    PART_DOES: ("triangle", "held"),
    EITHER_DOES: ("star", "held"),
    PREALLOCATED: ("square", "unknown"),
}
"""Shape and colour of the marks, by kind."""


def _chart(rows: Sequence[dict[str, Any]], cards: Sequence[tuple[float, str]]) -> Chart:
    """Return the chart of activity and peak memory, with a line at the memory of each card.

    Hollow marks have an upper bound of the activity.
    """
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


def _percentile(part: str, title: str) -> Column:
    figure = column(f"{part}_p95_pct", title, "share", lambda percent: Share(percent / 100, 0), "")
    return column_of(f"{part}_pct", figure)


def _names(row: dict[str, Any], most: int) -> tuple[str, str, str]:
    return (
        tr("(unknown user)") if row["user"] is None else plain(row["user"], most),
        tr("no job") if row["job"] is None else plain(row["job"], most),
        plain(row["model"], most) if row["model"] else tr("unknown model"),
    )


def card_sizes(context: Context) -> tuple[tuple[float, str], ...]:
    """Return the fleet's card names by memory in GiB. Cards of about the same memory share an entry."""
    found: list[tuple[float, str]] = []
    offers = shelf(context).fleet.values()
    for size, name in sorted({(each.card.memory_bytes / _GIB, each.card.name) for each in offers}):
        if found and size <= found[-1][0] * (1 + _NEAR):
            found[-1] = (found[-1][0], f"{found[-1][1]}, {name}")
        else:
            found.append((size, name))
    return tuple(found)
