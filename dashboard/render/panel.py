"""A section as a panel of a page: heading, question, headline, chart with its accessible name, table and notes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dash import dcc, html

from analytics.glossary import Term
from analytics.language.language import SentenceList
from analytics.language.sentences import tr
from analytics.tables.chart import signs
from analytics.tables.palette import Palette
from analytics.tables.table import Table
from dashboard.render.charts import chart_figure
from dashboard.render.states import legend, sign_legend
from dashboard.render.tables import section_tables
from dashboard.view import View

GRAPH_CONFIG = {
    # plotly's own menu would upload the chart to a cloud service
    "showSendToCloud": False,
    "plotlyServerURL": "",
    "displaylogo": False,
    "showTips": False,  # plotly says them in English only
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
) -> html.Section:
    """A section; its `table` stands `folded`, `below` or `beside` its chart, `after` at the end of the panel.

    Rows behind the `first` are folded away.
    """
    notes = [html.P(SentenceList(section.notes, " "), className="note")] if section.notes else []
    lines = [html.Ul([html.Li(line) for line in section.lines])] if section.lines else []
    if section.chart is None:
        tables = section_tables(view, colours, section, first=first)
        body = [*_legend(colours, section), *tables, *lines, *notes]
    else:
        figure, height_px = chart_figure(view, colours, section.chart)
        picture = graph(
            f"{section.name}-chart", figure, SentenceList([section.title, section.headline], ": "), height_px
        )
        said = [html.P(section.chart_note, className="note")] if section.chart_note else []
        found = signs(section.chart, section.states)
        drawn = [*_legend(colours, section), *([sign_legend(view, colours, found)] if found else [])]
        if table == "folded":
            folded = html.Details(
                [html.Summary(tr("The figures as a table")), *section_tables(view, colours, section, "numbers")]
            )
            body = [*drawn, picture, *said, *lines, *notes, folded]
        elif table == "beside":
            body = [
                *drawn,
                html.Div(
                    [html.Div(each) for each in (picture, *section_tables(view, colours, section))], className="beside"
                ),
                *said,
                *lines,
                *notes,
            ]
        else:
            body = [*drawn, picture, *said, *section_tables(view, colours, section, first=first), *lines, *notes]
    return panel(
        name=section.name,
        title=section.title,
        question=section.question,
        finding=section.headline,
        body=[*body, *after, *_explained(section.terms)],
        wide=wide or section.wide,
    )


def _legend(colours: Palette, section: Table) -> list[html.Ul]:
    return [legend(colours, section.states)] if section.states else []


def _explained(terms: Iterable[Term]) -> list[html.Details]:
    words = [html.Div([html.Dt(tr(each.name)), html.Dd(each.meaning)]) for each in terms]
    summary = html.Summary(tr("What the words mean"))
    return [html.Details([summary, html.Dl(words)], className="terms")] if words else []


def panel(
    *, name: str, title: str, question: str, finding: Any, body: Iterable[Any], wide: bool = False
) -> html.Section:
    """A card with a heading, the question and the answer in one line, and the body below."""
    return html.Section(
        [
            html.H2(title, id=f"{name}-title"),
            html.P(question, className="question"),
            html.P(finding, className="finding"),
            *body,
        ],
        className="panel wide" if wide else "panel",
        **{"aria-labelledby": f"{name}-title"},
    )


def graph(name: str, figure: Any, label: str, height_px: int) -> html.Div:
    """The chart with its accessible name; the height is reserved before it is drawn."""
    return html.Div(
        dcc.Graph(id=name, figure=figure, config=GRAPH_CONFIG, style={"height": f"{height_px}px"}, responsive=True),
        role="img",
        className="chart",
        style={"minHeight": f"{height_px}px"},
        **{"aria-label": label},
    )
