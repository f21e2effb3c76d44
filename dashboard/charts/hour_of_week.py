"""When in the week GPUs go unused: the hours of the week as seven rows of twenty-four."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go
from dash import html

from analytics.capacity.hour_of_week import HOURS, HoursOfWeek, hours_of_week
from analytics.capacity.off_peak import WEEKS_MIN
from analytics.language.quantities import Number, Share
from analytics.language.sentences import say
from dashboard.render.panel import graph, layout, panel
from dashboard.render.tables import table

if TYPE_CHECKING:
    from analytics.sections.palette import Palette
    from dashboard.view import View

_HEIGHT_PX = 290


def hour_of_week(view: View, colours: Palette) -> html.Section:
    """The panel; of the weeks up to the window's end, whatever the window's length."""
    key = ("hours of the week", view.query.on_every_page, view.reader.role, view.reader.team)
    found = view.made.of(key, lambda: _hours(view))
    known = found is not None and any(share is not None for share in found.shares)
    return panel(
        name="hours",
        title=view.say(say("The hours of the week")),
        question=view.say(
            say(
                "When could other work run? Share of the observed GPU time that was free, reserved or held, by hour of the "
                "week; local time, {zone}.",
                zone=str(view.zone),
            )
        ),
        finding=_finding(view, found) if found and known else view.say(say("Nothing was observed.")),
        body=_body(view, colours, found) if found and known else [],
        wide=True,
    )


def _hours(view: View) -> HoursOfWeek | None:
    spans = view.whole.narrowed(view.whole.ledger.whole, view.report.scope).stretches
    return hours_of_week(spans, view.report.summary.until_ms, view.zone)


def _finding(view: View, found: HoursOfWeek) -> str:
    ranked = sorted((share, hour) for hour, share in enumerate(found.shares) if share is not None)
    (least, used), (most, unused) = ranked[0], ranked[-1]
    sentences = [
        view.say(
            say(
                "Most goes unused on {unused}: {most}; least on {used}: {least}.",
                unused=_named(view, unused), most=Share(most), used=_named(view, used), least=Share(least),
            )
        ),
        view.say(
            say(
                "Over {weeks} weeks, {share} of the time observed.",
                weeks=Number(found.weeks, 0 if found.weeks >= 1 else 1), share=Share(found.coverage),
            )
        ),
    ]  # fmt: skip
    if found.weeks < WEEKS_MIN:
        least_weeks = Number(WEEKS_MIN)
        sentences.append(
            view.say(say("Fewer than {weeks} weeks are known: one odd week shows.", weeks=least_weeks))
        )  # fmt: skip
    return " ".join(sentences)


def _named(view: View, hour: int) -> str:
    return f"{view.language.weekday(hour // 24)} {hour % 24:02}:00"


def _body(view: View, colours: Palette, found: HoursOfWeek) -> list[html.Div | html.Details]:
    days = [view.language.weekday(day) for day in range(7)]
    rows = [
        [day, *("-" if share is None else view.language.percent(share, 0) for share in _of_day(found, number))]
        for number, day in enumerate(days)
    ]
    name = view.say(say("Unused share by hour of the week."))
    return [
        html.Div(
            graph("hours-chart", _figure(found, colours, days), f"{name} {_finding(view, found)}", _HEIGHT_PX),
            className="hours-scroll",
            tabIndex="0",
        ),
        html.Details(
            [
                html.Summary(view.say(say("The figures as a table"))),
                table([view.say(say("day")), *(f"{hour:02}" for hour in range(24))], rows, right=24),
            ]
        ),
    ]


def _of_day(found: HoursOfWeek, day: int) -> tuple[float | None, ...]:
    return found.shares[day * 24 : day * 24 + 24]


def _figure(found: HoursOfWeek, colours: Palette, days: list[str]) -> go.Figure:
    shares = [_of_day(found, day) for day in range(HOURS // 24)]
    text = [["" if share is None else f"{100 * share:.0f}" for share in row] for row in shares]
    figure = go.Figure(
        go.Heatmap(
            z=[[None if share is None else round(share, 4) for share in row] for row in shares],
            x=[f"{hour:02}" for hour in range(24)],
            y=days,
            zmin=0,
            zmax=1,
            colorscale=[[0, colours.card], [1, colours.state["held"]]],
            showscale=False,
            text=text,
            texttemplate="%{text}",
            textfont={"size": 11},
            xgap=1,
            ygap=1,
            hovertemplate="%{y} %{x}:00: %{text} %<extra></extra>",
        )
    )
    figure.update_layout(
        layout(
            colours,
            _HEIGHT_PX,
            xaxis={"type": "category", "showgrid": False, "side": "top"},
            yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
            hovermode="closest",
        )
    )
    return figure
