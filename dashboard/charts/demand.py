"""The demand duration curve: how many GPUs were wanted at once, and for how many hours; and what fewer GPUs would have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
from dash import html

from analytics.capacity.demand import demand, duration, what_if
from analytics.language.quantities import Number
from analytics.language.sentences import Listed, say, say_many
from dashboard.render.figures import separators
from dashboard.render.panel import capital, graph, layout, numbers, panel
from dashboard.render.tables import listed_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from analytics.capacity.demand import WhatIf
    from analytics.sections.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 420
_POINTS = 300
_LISTED = 120
_CURVES = {"allocated": ("held", "solid"), "working": ("active", "dash")}
_NAMES = {"allocated": say("held, reserved or used"), "working": say("really working")}


def hours_of(view: View) -> pl.DataFrame:
    """The view's GPUs by hour: `demand` over its window."""
    summary = view.report.summary
    return demand(view.part.inside.stretches, summary.since_ms, summary.until_ms)


def demand_curve(view: View, colours: Palette, hours: pl.DataFrame) -> html.Section:
    """The panel, from `hours_of`."""
    finding = view.say(_finding(hours))
    body: list[Any] = []
    if hours.height:
        body = [
            _legend(view, colours, hours),
            graph("demand-chart", _figure(view, hours, colours), finding, _HEIGHT_PX),
            html.P(view.say(_note(view, hours)), className="note"),
            numbers(view, _header(view), _rows(view, hours)),
        ]
    return panel(
        name="demand",
        title=view.say(say("Demand duration curve")),
        question=view.say(say("How many GPUs are needed at once, and for how long? The most in each whole hour, the busiest hour first.")),
        finding=finding,
        body=body,
    )  # fmt: skip


def _finding(hours: pl.DataFrame) -> str:
    if hours.is_empty():
        return say("The window has no whole hour that was seen.")
    levels = {name: duration(hours[name])["gpus"][0] for name in _CURVES}
    return say(
        "At most {allocated} of {there} GPUs were held, reserved or used at once, and at most {working} were really working.",
        allocated=Number(levels["allocated"]),
        there=Number(max(hours["there"].to_list())),
        working=Number(levels["working"]),
    )


def _note(view: View, hours: pl.DataFrame) -> Listed:
    """What the hours are, and what is not known of them."""
    unseen = hours.filter(hours["unknown"] > 0).height
    parts = [
        say_many("{number} whole hour of the window.", "{number} whole hours of the window.", hours.height),
        say_many(
            "In {number} of them some GPU was not seen: the band reaches up to where it would count as wanted.",
            "In {number} of them some GPUs were not seen: the band reaches up to where they would count as wanted.",
            unseen,
        ) if unseen else say("Every GPU was seen in all of them."),
        say("All pools are added up: choose a pool for one of them.")
        if view.report.scope.pool is None and _pools(view) > 1 else None,
    ]  # fmt: skip
    return Listed([each for each in parts if each is not None], " ")


def _pools(view: View) -> int:
    """How many pools the GPUs of the view are in."""
    pool = view.whole.inventory.pool
    return len({pool(gpu) for gpu in view.part.inside.stretches["gpu"].unique()})


def _steps(levels: pl.Series) -> tuple[list[float], list[float]]:
    """Shares of the hours in percent and the level up to there, for a line that goes down first and then right."""
    curve = duration(levels)
    total = curve["hours"][-1]
    thin = curve.gather_every(max(1, curve.height // _POINTS))
    if thin["hours"][-1] != total:
        thin = thin.vstack(curve.tail(1))
    gpus = thin["gpus"].to_list()
    return [0.0, *(round(100 * each / total, 2) for each in thin["hours"].to_list())], [gpus[0], *gpus]


def _figure(view: View, hours: pl.DataFrame, colours: Palette) -> go.Figure:
    figure = go.Figure()
    for name, (state, dash) in _CURVES.items():
        colour, words = colours.state[state], view.say(_NAMES[name])
        if (hours[f"{name}_or_unknown"] > hours[name]).any():
            x, y = _steps(hours[f"{name}_or_unknown"])
            figure.add_scatter(x=x, y=y, mode="lines", line={"shape": "vh", "width": 0}, hoverinfo="skip")
            fill = {"fill": "tonexty", "fillpattern": {"shape": "/", "fgcolor": colours.state["unknown"], "size": 6, "solidity": 0.3}}  # fmt: skip
        else:
            fill = {}
        x, y = _steps(hours[name])
        figure.add_scatter(
            x=x,
            y=y,
            mode="lines",
            line={"shape": "vh", "width": 2.5, "color": colour, "dash": dash},
            # the axis adds its own sign for percent
            hovertemplate=view.say(say("{label}: {value}", label="%{x}", value="%{y} GPU")) + f"<extra>{words}</extra>",
            **fill,
        )
    there = max(hours["there"].to_list())
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            separators=separators(view.language),
            margin={"r": 28},  # for the half of `100 %` that lies beyond the axis
            xaxis={"title": {"text": capital(view.say(say("share of the hours with at least so many")))}, "range": [0, 100], "ticksuffix": " %"},
            yaxis={"title": {"text": view.say(say("GPUs at once")), "standoff": 10}, "range": [0, there * 1.12]},
            shapes=[{"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": there, "y1": there, "line": {"color": colours.muted, "width": 1.5, "dash": "dot"}}],
            annotations=[{"xref": "paper", "x": 1, "xanchor": "right", "y": there, "yanchor": "bottom", "text": view.say(say("{number} GPUs there", number=Number(there))), "showarrow": False, "font": {"color": colours.muted}}],
        )
    )  # fmt: skip
    return figure


def _legend(view: View, colours: Palette, hours: pl.DataFrame) -> html.Ul:
    lines = {"allocated": "━━", "working": "╍╍"}
    items = [
        html.Li([html.Span(lines[name], style={"color": colours.state[state]}, **{"aria-hidden": "true"}), " ", capital(view.say(_NAMES[name]))])
        for name, (state, _) in _CURVES.items()
    ]  # fmt: skip
    if (hours["unknown"] > 0).any():
        sign = html.Span("▨", style={"color": colours.state["unknown"]}, **{"aria-hidden": "true"})
        items.append(html.Li([sign, " ", capital(view.say(say("not known")))]))
    return html.Ul(items, className="legend", **{"aria-label": view.say(say("Lines"))})


def _header(view: View) -> list[str]:
    names = (
        "GPUs at once",
        "hours with at least so many held, reserved or used",
        "hours with at least so many working",
    )
    return [view.say(say(each)) for each in names]


def _rows(view: View, hours: pl.DataFrame) -> list[list[str]]:
    """The curves at the same levels, the highest first."""
    levels = sorted({each for name in _CURVES for each in hours[name].to_list()}, reverse=True)
    width = max(1, -(-len(levels) // _LISTED))
    counts = [[hours.filter(hours[name] >= level).height for name in _CURVES] for level in levels[::width]]
    speaks = view.language
    return [
        [speaks.number(level, 0 if level == int(level) else 1), *(speaks.number(each) for each in own)]
        for level, own in zip(levels[::width], counts, strict=True)
    ]


def fewer(view: View, hours: pl.DataFrame) -> html.Section:
    """The panel on what fewer GPUs would have meant, from `hours_of`."""
    found = what_if(hours)
    header = ("GPUs removed", "GPUs remaining", "hours short of what was held, reserved or used", "hours short of what was working")  # fmt: skip
    rows = [_fewer_row(view, each) for each in found]
    return panel(
        name="fewer",
        title=view.say(say("With fewer GPUs")),
        question=view.say(say("If GPUs go, in how many hours of the window was more wanted at once than what stays?")),
        finding=view.say(_fewer_finding(found, hours.height)),
        body=[
            listed_table([view.say(say(each)) for each in header], rows, "fewer-title"),
            html.P(view.say(say("From the hours as they were, whole pools at once: it does not know on which host or model work could have run.")), className="note"),
        ] if rows else [],
    )  # fmt: skip


def _fewer_finding(found: Sequence[WhatIf], hours: int) -> str:
    if not found:
        return say("The window has no whole hour that was seen.")
    held = max((each.gone for each in found if not each.allocated_hours_most), default=0)
    working = max((each.gone for each in found if not each.working_hours_most), default=0)
    if not working:
        return say("Every GPU was needed at once in some of {hours} hours, or may have been.", hours=Number(hours))
    if not held:
        return say(
            "Every GPU was held, reserved or used at once in some of {hours} hours, or may have been; {working} were never needed by what was working.",
            hours=Number(hours), working=Number(working),
        )  # fmt: skip
    return say(
        "With {held} GPUs fewer, no hour of {hours} would have been short of what was held, reserved or used; with {working} fewer, none of what was working.",
        hours=Number(hours),
        held=Number(held),
        working=Number(working),
    )


def _fewer_row(view: View, each: WhatIf) -> tuple[str, ...]:
    speaks = view.language
    return (
        speaks.number(each.gone),
        speaks.number(each.left, 0 if each.left == int(each.left) else 1),
        _short(view, each.allocated_hours, each.allocated_hours_most),
        _short(view, each.working_hours, each.working_hours_most),
    )


def _short(view: View, least: int, most: int) -> str:
    """A number of hours, or from what is sure to what may be."""
    if least == most:
        return view.language.number(least)
    return view.say(say("{least} to {most}", least=Number(least), most=Number(most)))
