"""The annotations of a chart in words, and for planners the form to add an annotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from analytics.decide.annotations import LONGEST, Annotation
from analytics.language.sentences import SentenceList, tr
from analytics.tables.annotations import about_words, annotation_lines
from dashboard.view import View

TEXT, WHEN, ABOUT, ADD = "annotation-text", "annotation-when", "annotation-about", "annotation-add"
OUT = "annotation-out"
"""The kind of the buttons that remove an annotation; the index is the annotation's id."""
LIST, STATUS = "annotations-list", "annotations-status"


def annotations_panel(
    view: View, shown: Sequence[Annotation], removable: Sequence[str], abouts: Sequence[tuple[str, str | None]]
) -> html.Section | None:
    """Return the panel below the timeline; None without annotations and without anything that the reader may annotate.

    The form is in the panel only where `abouts` has something that the reader may annotate.
    """
    if not shown and not abouts:
        return None
    return html.Section(
        [
            html.H2(tr("Annotations"), id="annotations-title"),
            html.P(
                tr(
                    "What happened in this window? The numbers are those of the marks above; annotations change no"
                    " figure."
                ),
                className="question",
            ),
            html.Div(annotation_items(shown, removable), id=LIST),
            *(_form(view, abouts) if abouts else []),
            html.P("", id=STATUS, role="status"),
        ],
        className="panel wide annotations",
        **{"aria-labelledby": "annotations-title"},
    )


def annotation_items(shown: Sequence[Annotation], removable: Sequence[str]) -> Any:
    """Return a line per annotation, with a button to remove the annotations of `removable`."""
    if not shown:
        return html.P(tr("This window has none."), className="hint")
    lines = zip(shown, annotation_lines(shown), strict=True)
    return html.Ul([html.Li([html.Span(line), *_out(each, line, removable)]) for each, line in lines])


def _out(annotation: Annotation, line: str, removable: Sequence[str]) -> list[html.Button]:
    if annotation.annotation_id not in removable:
        return []
    remove = tr("Remove")
    return [
        html.Button(
            remove,
            id={"type": OUT, "index": annotation.annotation_id},
            className="button",
            n_clicks=0,
            **{"aria-label": SentenceList([remove, line], " ")},
        )
    ]


def _form(view: View, abouts: Sequence[tuple[str, str | None]]) -> list[Any]:
    options = [
        {"label": view.translate(about_words(scope, name)), "value": f"{scope}:{name or ''}"} for scope, name in abouts
    ]
    when = tr("when ({zone}), such as 2026-11-20 09:00", zone=str(view.zone))
    about = dcc.Dropdown(id=ABOUT, options=options, value=options[0]["value"], clearable=False)
    fields = [
        (WHEN, when, dcc.Input(id=WHEN, type="text", value="", maxLength=32)),
        (ABOUT, tr("about"), about),
        (TEXT, tr("what happened"), dcc.Input(id=TEXT, type="text", value="", maxLength=LONGEST)),
    ]
    return [
        html.Fieldset(
            [
                html.Legend(tr("Annotate a moment")),
                *(
                    html.Div([html.Label(label, htmlFor=name), field], className=f"field of-{name}")
                    for name, label, field in fields
                ),
                html.Button(tr("Annotate"), id=ADD, className="button", n_clicks=0),
            ],
            className="annotate",
        )
    ]
