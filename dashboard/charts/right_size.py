"""What each work takes of its card: peak memory beside activity, against what the cards have."""

from __future__ import annotations

import itertools
from html import escape
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import polars as pl
from dash import html

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number
from analytics.language.sentences import Listed, say, say_many
from analytics.workloads.cards import shelf
from analytics.workloads.workloads import RESERVED, SMALLER, SPLIT, findings_about, workload_footprints
from dashboard.charts.bars import NAME_MOST
from dashboard.charts.moves import target
from dashboard.charts.panel import capital, graph, layout, numbers, panel
from dashboard.charts.written import separators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dashboard.palette import Palette
    from dashboard.view import View

GIB = 2**30
_HEIGHT_PX = 480
_DRAWN, _LISTED = 400, 100
_NEAR = 0.04
"""Capacities that differ by less are one line: 79.6 and 80 GiB."""

KEEPS, SMALLER_DOES, PART_DOES, EITHER_DOES, PREALLOCATED = "keeps", "smaller", "mig", "either", "reserved"
LESS = (SMALLER_DOES, PART_DOES, EITHER_DOES)
"""Kinds that are larger than their work needs."""
_WORDS = {
    KEEPS: say("no smaller card is named"),
    SMALLER_DOES: say("a smaller or older card would do"),
    PART_DOES: say("a MIG instance would do"),
    EITHER_DOES: say("another card or a MIG instance would do"),
    PREALLOCATED: say("memory reserved in advance: its need is not known"),
}
_LOOKS = {
    KEEPS: ("circle", "active", "●"),
    SMALLER_DOES: ("diamond", "held", "◆"),
    PART_DOES: ("triangle-up", "held", "▲"),
    EITHER_DOES: ("star", "held", "★"),
    PREALLOCATED: ("square", "unknown", "■"),
}
"""Of each kind its mark, whose colour it has, and the mark as a character."""


def works_of(view: View) -> pl.DataFrame:
    """The works of the view with `kind` (one of those above) and `instead`: `sizes`, and what the findings say.

    `instead` has the cards and parts of cards that would do, in words; empty where none is named.
    """
    found = workload_footprints(view.whole.review.context, view.part.inside.stretches)
    about = findings_about(found, view.report.findings)
    instead = [", ".join(target(view, each) for each in own if each.rule != RESERVED) for own in about]
    return found.with_columns(
        kind=pl.Series([_kind({each.rule for each in own}) for own in about], dtype=pl.String),
        instead=pl.Series(instead, dtype=pl.String),
    )


def _kind(rules: set[str]) -> str:
    part, smaller = SPLIT in rules, not rules.isdisjoint(SMALLER)
    if part or smaller:
        return EITHER_DOES if part and smaller else PART_DOES if part else SMALLER_DOES
    return PREALLOCATED if RESERVED in rules else KEEPS


def right_size(view: View, colours: Palette) -> html.Section:
    """The panel."""
    found = works_of(view)
    # SM activity says how much of a card is busy; the time with any kernel is never less, and stands for it where it is missing
    found = found.with_columns(busy_pct=pl.coalesce("sm_pct", "util_pct"), by_sm=pl.col("sm_pct").is_not_null())
    known = found.filter(pl.col("peak_bytes").is_not_null() & pl.col("busy_pct").is_not_null())
    # those that the page is about are never left out for others
    ordered = known.sort(pl.col("kind").is_in(LESS), descending=True, maintain_order=True)
    drawn = ordered.head(_DRAWN)
    finding = view.say(_finding(known))
    return panel(
        name="sizes",
        title=view.say(say("Memory and activity against the cards")),
        question=view.say(say("Which work sits on a card that is larger than it needs? One mark per job (of bare processes: per GPU).")),
        finding=finding,
        body=[
            _legend(view, colours, drawn),
            graph("sizes-chart", _figure(view, drawn, colours), finding, _HEIGHT_PX),
            html.P(view.say(_left_out(found, known)), className="note"),
            numbers(view, _header(view), [_row(view, row) for row in ordered.head(_LISTED).iter_rows(named=True)]),
        ],
        wide=True,
    )  # fmt: skip


def _finding(known: pl.DataFrame) -> str:
    if known.is_empty():
        return say("No work is known by its memory and its activity.")
    candidates = known.filter(pl.col("kind").is_in(LESS))
    return say_many(
        "Another card or a part of one would do for {number} workload of {all}: {hours} of {total} GPU-hours.",
        "Another card or a part of one would do for {number} workloads of {all}: {hours} of {total} GPU-hours.",
        candidates.height,
        all=Number(known.height),
        hours=GpuHours(float(candidates["gpu_ms"].sum())),
        total=GpuHours(float(known["gpu_ms"].sum())),
    )


def _left_out(found: pl.DataFrame, known: pl.DataFrame) -> Listed:
    """What the chart does not show, and what its marks rest on."""
    no_memory = found.filter(pl.col("peak_bytes").is_null()).height
    idle = found.filter(pl.col("peak_bytes").is_not_null() & pl.col("busy_pct").is_null()).height
    parts = [
        say_many("{number} workload without a known memory is not drawn.", "{number} workloads without a known memory are not drawn.", no_memory)
        if no_memory else None,
        say_many(
            "{number} workload is not drawn since no whole hour of its activity is known.",
            "{number} workloads are not drawn since no whole hour of their activity is known.", idle,
        ) if idle else None,
        say("Drawn are {number}: those for which less would do, then those with the most GPU-hours.", number=Number(_DRAWN))
        if known.height > _DRAWN else None,
        say("The table has the first {number} of {all}.", number=Number(_LISTED), all=Number(known.height))
        if known.height > _LISTED else None,
        say("The activity is what 95 % of the time stays within. Hollow marks: SM activity was not measured, and the time with any kernel stands for it, which is never less."),
        say("The larger a mark, the more GPU-hours."),
    ]  # fmt: skip
    return Listed([each for each in parts if each is not None], " ")


def _figure(view: View, drawn: pl.DataFrame, colours: Palette) -> go.Figure:
    figure = go.Figure()
    largest = max(drawn["gpu_ms"].to_list(), default=1.0)
    for kind in _LOOKS:
        for by_sm in (True, False):
            rows = drawn.filter((pl.col("kind") == kind) & (pl.col("by_sm") == by_sm))
            if rows.height:
                figure.add_trace(_marks(view, rows, kind, colours, largest))
    lines = capacities(view)
    highest = max([each for each, _ in lines] + [each / GIB for each in drawn["peak_bytes"].to_list()], default=1.0)
    axes: dict[str, Any] = {
        "xaxis": {"title": {"text": capital(view.say(say("activity, 95th percentile")))}, "range": [-2, 104], "ticksuffix": " %"},
        "yaxis": {"title": {"text": capital(view.say(say("peak memory (GiB)")))}, "range": [0, highest * 1.08]},
    }  # fmt: skip
    figure.update_layout(
        layout(
            colours, _HEIGHT_PX, margin={"t": 16, "r": 16}, separators=separators(view.language), **axes,
            shapes=_regions(lines, colours), annotations=_labels(lines, colours),
        )
    )  # fmt: skip
    return figure


def _marks(view: View, rows: pl.DataFrame, kind: str, colours: Palette, largest: float) -> go.Scatter:
    symbol, state, _ = _LOOKS[kind]
    by_sm = bool(rows["by_sm"][0])
    figures = ((say("peak memory"), "%{y} GiB"), (say("activity, 95th percentile"), "%{x}"))  # its axis adds the sign
    told = [view.say(say("{label}: {value}", label=label, value=value)) for label, value in figures]
    return go.Scatter(
        x=rows["busy_pct"].to_list(),
        y=[round(each / GIB, 1) for each in rows["peak_bytes"].to_list()],
        mode="markers",
        marker={
            "symbol": symbol if by_sm else f"{symbol}-open",
            "size": [round(7 + 13 * (each / largest) ** 0.5, 1) for each in rows["gpu_ms"].to_list()],
            "color": colours.state[state],
            "opacity": 0.8,
            "line": {"width": 1 if by_sm else 2, "color": colours.card if by_sm else colours.state[state]},
        },
        text=[_hover(view, row) for row in rows.iter_rows(named=True)],
        hovertemplate="<br>".join(["%{text}", *told, view.say(_WORDS[kind])]) + "<extra></extra>",
    )


def _hover(view: View, row: dict[str, Any]) -> str:
    """Names are text: what plotly would take for markup is escaped."""
    parts = (_who(view, row), _job(view, row), row["model"] or view.say("unknown model"))
    hours = view.say(say("{hours} GPU-hours", hours=GpuHours(row["gpu_ms"])))
    instead = [f"→ {escape(plain(row['instead'], 80), quote=False)}"] if row["instead"] else []
    return "<br>".join([*(escape(plain(each, 60), quote=False) for each in parts), hours, *instead])


def _who(view: View, row: dict[str, Any]) -> str:
    return view.say("(holder not known)") if row["holder"] is None else str(row["holder"])


def _job(view: View, row: dict[str, Any]) -> str:
    return view.say(say("no job")) if row["job"] is None else str(row["job"])


def capacities(view: View) -> list[tuple[float, str]]:
    """The cards of the fleet by memory in GiB, with their names; those of about the same memory together."""
    found: list[tuple[float, str]] = []
    offers = shelf(view.whole.review.context).fleet.values()
    cards = sorted({(each.card.memory_bytes / GIB, each.card.name) for each in offers})
    for size, name in cards:
        if found and size <= found[-1][0] * (1 + _NEAR):
            found[-1] = (found[-1][0], f"{found[-1][1]}, {name}")
        else:
            found.append((size, name))
    return found


def _regions(lines: Sequence[tuple[float, str]], colours: Palette) -> list[dict[str, Any]]:
    """A line at each capacity, and every other region between them shaded."""
    edges = [0.0, *(size for size, _ in lines)]
    shaded = [
        {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "fillcolor": colours.grid, "opacity": 0.35, "line": {"width": 0}, "layer": "below"}
        for place, (low, high) in enumerate(itertools.pairwise(edges)) if place % 2 == 0
    ]  # fmt: skip
    drawn = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": size, "y1": size, "line": {"color": colours.muted, "width": 1, "dash": "dot"}, "layer": "below"}
        for size, _ in lines
    ]  # fmt: skip
    return [*shaded, *drawn]


def _labels(lines: Sequence[tuple[float, str]], colours: Palette) -> list[dict[str, Any]]:
    # without a ground of their own: on a narrow screen it would lie over marks
    return [
        {"xref": "paper", "x": 0.004, "xanchor": "left", "y": size, "yanchor": "bottom", "text": f"{name}: {size:.0f} GiB", "showarrow": False, "font": {"size": 11, "color": colours.muted}}
        for size, name in lines
    ]  # fmt: skip


def _legend(view: View, colours: Palette, drawn: pl.DataFrame) -> html.Ul:
    there = set(drawn["kind"])
    items = [
        html.Li([html.Span(sign, style={"color": colours.state[state]}, **{"aria-hidden": "true"}), " ", capital(view.say(_WORDS[kind]))])
        for kind, (_, state, sign) in _LOOKS.items() if kind in there
    ]  # fmt: skip
    return html.Ul(items, className="legend", **{"aria-label": view.say(say("Marks"))})


def _header(view: View) -> list[str]:
    names = ("holder", "job", "model", "GPUs", "GPU-hours", "peak memory", "utilization, 95th percentile", "SM activity, 95th percentile", "coverage", "verdict", "would do instead")  # fmt: skip
    return [view.say(say(each)) for each in names]


def _row(view: View, row: dict[str, Any]) -> list[str]:
    speaks = view.language
    return [
        plain(_who(view, row), NAME_MOST),
        plain(_job(view, row), NAME_MOST),
        plain(row["model"] or view.say("unknown model"), NAME_MOST),
        speaks.number(len(row["gpus"])),
        speaks.hours(row["gpu_ms"]),
        speaks.size(row["peak_bytes"]),
        *(speaks.percent(None if row[name] is None else row[name] / 100, 0) for name in ("util_pct", "sm_pct")),
        speaks.percent(row["coverage"]),
        view.say(_WORDS[row["kind"]]),
        plain(row["instead"], NAME_MOST) or "-",
    ]
