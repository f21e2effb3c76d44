"""Panels of a page, made from sections: heading, question, headline, chart with name, table, and method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dash import dcc, html

from analytics.glossary import Term
from analytics.language.sentences import tr
from analytics.tables.chart import signs
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.render.charts import chart_drawings
from dashboard.render.states import legend, sign_legend
from dashboard.render.tables import section_tables
from dashboard.view import View

GRAPH_CONFIG = {
    # plotly's own menu would upload the chart to a cloud service
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "showTips": False,  # plotly has them in English only
    "displayModeBar": False,
    "responsive": True,
    "scrollZoom": False,
}


def section_panel(
    view: View,
    colours: Palette,
    section: Table,
    *,
    table: str = "folded",
    first: int | None = None,
    after: Iterable[Any] = (),
    wide: bool = False,
    answers: bool = False,
) -> html.Section:
    """Return a section as a panel.

    Args:
        view: the reader's view.
        colours: the colours of the reader's scheme.
        section: the table with its chart.
        table: the place of the table: `folded`, `below` or `beside` the chart.
        first: the number of rows that are not folded away; None for all rows.
        after: components at the end of the panel.
        wide: true for a panel of the whole width.
        answers: true for the section that answers the question of its page; it begins with its headline.
    """
    lines = [html.Ul([html.Li(line) for line in section.lines])] if section.lines else []
    if section.chart is None:
        tables = section_tables(view, colours, section, first=first)
        body = [*_legend(colours, section), *tables, *lines]
    else:
        is_wide = (wide or section.wide) and table != "beside"
        picture = chart_drawings(view, section, section.chart, wide=is_wide)
        note = [html.P(section.chart_note, className="note")] if section.chart_note else []
        found = signs(section.chart, section.states)
        drawn = [*_legend(colours, section), *([sign_legend(view, colours, found)] if found else [])]
        if table == "folded":
            folded = html.Details(
                [html.Summary(tr("The figures as a table")), *section_tables(view, colours, section, "numbers")]
            )
            body = [*drawn, picture, *note, *lines, folded]
        elif table == "beside":
            body = [
                *drawn,
                html.Div(
                    [html.Div(each) for each in (picture, *section_tables(view, colours, section))], className="beside"
                ),
                *note,
                *lines,
            ]
        else:
            body = [*drawn, picture, *note, *section_tables(view, colours, section, first=first), *lines]
    return panel(
        name=section.name,
        title=section.title,
        question=section.question,
        finding=section.headline,
        body=[*body, *after, *method(section.title, section.notes, section.terms)],
        wide=wide or section.wide or answers,
        answers=answers,
    )


def _legend(colours: Palette, section: Table) -> list[html.Ul]:
    return [legend(colours, section.states)] if section.states else []


METHOD = "method"
"""The class of the explanations of figures; a page gathers them at its end (`dashboard.pages.page`)."""


def method(title: str, notes: Iterable[str], terms: Iterable[Term] = ()) -> list[html.Details]:
    """Return how the figures under a title are counted and what their words mean; empty without notes and terms."""
    words = [html.Div([html.Dt(each.title), html.Dd(each.meaning)]) for each in terms]
    paragraphs = [html.P(note, className="note") for note in notes]
    if not paragraphs and not words:
        return []
    shown = [
        html.Summary(HOW_COUNTED),
        html.H3(title),
        *paragraphs,
        *([html.Dl(words, className="terms")] if words else []),
    ]
    return [html.Details(shown, className=METHOD)]


HOW_COUNTED = tr("How this is counted")


def panel(
    *,
    name: str,
    title: str,
    question: str,
    finding: Any,
    body: Iterable[Any],
    wide: bool = False,
    answers: bool = False,
) -> html.Section:
    """Return a card with a heading, the question, the answer in one line, and the body below.

    With `answers`, the card answers its page's question: the answer comes first and large, without its own question.
    """
    heading, answer = html.H2(title, id=f"{name}-title"), html.P(finding, className="finding")
    first = [answer, heading] if answers else [heading, html.P(question, className="question"), answer]
    return html.Section(
        [*first, *body],
        className=" ".join(["panel", *(["wide"] if wide else []), *(["answers"] if answers else [])]),
        **{"aria-labelledby": f"{name}-title"},
    )


def graph(name: str, figure: Any, label: str, height_px: int) -> html.Div:
    """Return the chart with its accessible name; its height is reserved before it is drawn."""
    return html.Div(
        dcc.Graph(id=name, figure=figure, config=GRAPH_CONFIG, style={"height": f"{height_px}px"}, responsive=True),
        role="img",
        className="chart",
        style={"minHeight": f"{height_px}px"},
        **{"aria-label": label},
    )
