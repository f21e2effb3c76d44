"""The page of findings: all as a table to sort and filter, the chosen ones in full, and the form to act on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import ClientsideFunction, Input, Output, State, dcc, html

from analytics.decide.lifecycle import action_sentence
from analytics.decide.totals import to_take, totals
from analytics.glossary import CONFIDENCE, STATUSES
from analytics.language.sentences import Amount, Number, SentenceList, plain, tr, tr_many
from analytics.names import JOINER
from analytics.tables.finding_heading import ENDED, cost_of, evidence, heading, label_of_wanted, more_of_low
from analytics.tables.findings import CATEGORY_NAMES, all_findings, confidence_words, notified
from analytics.tables.palette import Palette
from analytics.tables.table import Column
from analytics.tables.verdicts import release_sentence
from analytics.tables.wording import with_waiting
from analytics.workloads.model import Finding
from dashboard.error_panels import in_a_line, problem_hint
from dashboard.files import links
from dashboard.grid import GridOf, check_address, filter_button, grid
from dashboard.pages.chosen import (
    LONGEST,
    action_form,
    command_block,
    connect_action_form,
    gpu_links,
    listing,
    name_links,
)
from dashboard.pages.page import Page, in_words
from dashboard.render.panel import panel
from dashboard.render.tables import facts_list
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.errors import UsageError

_WIDTHS_PX = {
    "finding": 420,
    "confidence": 150,
    "notified": 170,
    "next_command": 320,
    "category": 130,
    "rule": 160,
    "finding_id": 130,
}


def _shown(view: View) -> GridOf:
    """Return a row for each finding of the view, in the report's order.

    `standing` is the status as the commands name it; `aside` is "" unless the finding is listed only on demand.
    """
    review = view.report.review
    return GridOf(
        all_findings(review),
        lambda finding: finding.finding_id,
        _WIDTHS_PX,
        {
            "confidence_means": lambda finding: CONFIDENCE[finding.confidence.grade].meaning,
            "status_means": lambda finding: STATUSES[finding.status].meaning,
            "rule_means": lambda finding: heading(finding, review),
            "standing": lambda finding: finding.status,
            "aside": lambda finding: "yes" if finding.status == "snoozed" or finding.confidence.is_low else "",
        },
    )


_MOST_NAMED = 32


def detail(view: View, ids: Sequence[str]) -> list[Any]:
    """Return the chosen finding in full, or the sums of several; ids that the reader does not see count as none."""
    chosen = [each for each in view.report.named_findings if each.finding_id in set(ids)]
    if not chosen:
        return []
    return _one(view, chosen[0]) if len(chosen) == 1 else _several(view, chosen)


def _several(view: View, chosen: Sequence[Finding]) -> list[Any]:
    """Return the chosen findings with counts of GPUs only: findings may share hours of the same GPUs."""
    title = tr(
        "{findings}: {gpus}, {part} of them reclaimable",
        findings=tr_many("{number} {finding|findings} chosen", len(chosen)),
        gpus=tr_many("{number} {GPU|GPUs}", len({gpu for each in chosen for gpu in each.gpus})),
        part=Number(len(to_take(chosen))),
    )
    lines = [
        html.Li([html.Code(each.finding_id), " ", heading(each, view.report.review)]) for each in chosen[:_MOST_NAMED]
    ]
    rest = len(chosen) - len(lines)
    more = tr_many("and {number} more {finding|findings}", rest)
    return [html.H3(title), html.Ul([*lines, *([html.Li(more)] if rest else [])])]


def _one(view: View, finding: Finding) -> list[Any]:
    actions = view.report.review.actions.get(finding.finding_id, ())
    history = [action_sentence(each) for each in actions]
    # what people did is among the notes, and has its own list
    notes = [note for note in finding.notes if note not in history]
    label = tr("next command")
    return [
        html.H3([heading(finding, view.report.review), " ", html.Span(finding.finding_id, className="id")]),
        facts_list(_facts(view, finding)),
        html.Div(
            [
                listing(tr("evidence"), evidence(finding).parts),
                listing(tr("conditions not met"), finding.confidence.failed, tr("every condition is met")),
                *([listing(tr("notes"), notes)] if notes else []),
                listing(tr("history"), history, tr("no action yet")),
            ],
            className="lists",
        ),
        *(
            command_block(label, finding.next_command, "finding-copy")
            or [html.H4(label), html.P(ENDED, className="ended")]
        ),
    ]


def _facts(view: View, finding: Finding) -> list[tuple[str, Any]]:
    words = view.language
    energy = words.number(finding.energy_kwh, 1)
    others = [each for each in finding.gpus if each not in finding.reclaimable_gpus]
    return [
        (tr("confidence"), confidence_words(finding)),
        (
            tr("user"),
            name_links(view, "user", finding.user.split(JOINER)) if finding.user else tr(finding.without_user),
        ),
        *([(tr("team"), plain(finding.team))] if finding.team else []),
        *([(tr("job"), ", ".join(plain(each, LONGEST) for each in finding.job.split(JOINER)))] if finding.job else []),
        *([(tr("host"), name_links(view, "host", finding.host.split(JOINER)))] if finding.host else []),
        (tr("GPU-hours"), words.hours(finding.gpu_ms)),
        (tr("cost"), words.shown(cost_of(finding) if finding.cost is not None else Amount(None, ""))),
        (tr("energy"), energy if finding.energy_kwh is None else tr("{kwh} kWh", kwh=energy)),
        (tr("since"), words.moment(finding.since_ms)),
        (tr("status"), view.translate(finding.status)),
        (tr("user nudged"), notified(view.report.review, finding)),
        (tr("category"), CATEGORY_NAMES[finding.category]),
        (tr("rule"), finding.rule),
        (label_of_wanted(finding), gpu_links(view, finding.reclaimable_gpus)),
        *([(tr("other GPUs"), gpu_links(view, others))] if others else []),
    ]


_GRID, _CHOSEN = "findings-grid", "findings-chosen"


def _words(view: View) -> str:
    found, report = totals(view.report.review.shown), view.report
    first = (
        tr_many(
            "{number} {finding|findings} about {gpus}", found.findings, gpus=tr_many("{number} {GPU|GPUs}", found.gpus)
        )
        if found.findings
        else tr("No findings: the rules with enough history found nothing in this window.")
    )
    given = view.report.recommendations.fleet
    hidden, low = len(report.review.snoozed), len(report.review.low)
    return SentenceList(
        [
            with_waiting(report, first),
            *([more_of_low(low)] if low else []),
            *([tr_many("{number} snoozed", hidden)] if hidden else []),
            *([release_sentence(given)] if given is not None else []),
        ]
    )


def _wrong(view: View, columns: Sequence[Column]) -> list[html.P]:
    """Return a sentence on an invalid sort or filter in the address, which the table then ignores; else nothing."""
    try:
        check_address(view.query, columns)
    except UsageError as error:
        sentence = in_a_line(view.language, error.message, error.hint)
        return [html.P(sentence, id="findings-wrong", className="simulated", role="alert", lang="en")]
    return []


def _tools(view: View) -> html.Div:
    """Return the switch for low-confidence and snoozed findings, kept in the address by the browser, and the files."""
    label = tr("Show low confidence and snoozed ones")
    # whether it is pressed says the browser, once the table follows its address
    switch = html.Button(label, id="findings-hidden", className="button switch", n_clicks=0)
    hint = html.Span(tr("Choose a row for its evidence and its history."), className="hint")
    files = html.Span([filter_button(_GRID), links(view, "findings")], className="files")
    return html.Div([switch, hint, files], className="tools")


def _ids(chosen: Any) -> tuple[str, ...]:
    """Return the ids that the browser reports as chosen; the server checks elsewhere whether the reader sees them."""
    return tuple(str(each) for each in chosen) if isinstance(chosen, list) else ()


def _content(view: View, _: Palette) -> html.Div:
    """Return the table, the form for actions on the chosen findings, and the chosen finding in full."""
    known = {each.finding_id for each in view.report.named_findings}
    chosen = [view.query.finding] if view.query.finding in known else []
    shown = _shown(view)
    table = shown.table
    return html.Div(
        panel(
            name=table.name,
            title=table.title,
            question=table.question,
            finding=html.Span(_words(view), id="findings-words"),
            body=[
                dcc.Store(id=_CHOSEN, data=chosen),  # their ids: ten thousand whole rows are too much to send
                *_wrong(view, table.columns),
                _tools(view),
                grid(view.language, _GRID, shown, chosen=chosen, hides=True, high_rows=True),
                *action_form(view, tr("With the chosen findings"), "", known, ready=bool(chosen)),
                html.Div(
                    detail(view, chosen),
                    id="finding-detail",
                    role="region",
                    **{"aria-live": "polite", "aria-label": tr("The chosen finding")},
                ),
            ],
            answers=True,
            wide=True,
        )
    )


def _connect(app: Any, source: LakeSource) -> None:
    """Connect the page: the table follows its address, a chosen row shows in full, and buttons record actions."""
    # it has nothing to put out; dash calls what has an output when the table comes
    app.clientside_callback(ClientsideFunction("findings", "ready"), Output(_GRID, "className"), Input(_GRID, "id"))
    app.clientside_callback(
        ClientsideFunction("findings", "show"), Input("findings-hidden", "n_clicks"), prevent_initial_call=True
    )
    # two callbacks: readers who may not act have no buttons
    for function, output in (("choose", Output(_CHOSEN, "data")), ("idle", Output("acts", "disabled"))):
        app.clientside_callback(
            ClientsideFunction("findings", function), output, Input(_GRID, "selectedRows"), prevent_initial_call=True
        )

    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output("finding-detail", "children"), Input(_CHOSEN, "data"), State("url", "search"), prevent_initial_call=True
    )
    def look(chosen: Any, search: str | None) -> Any:
        view = view_of(source, search, findings=True)
        if isinstance(view, Problem):
            return [problem_hint(source, search, view)]
        return in_words(detail(view, _ids(chosen)), view.language)

    connect_action_form(
        app,
        source,
        "",
        chosen=[State(_CHOSEN, "data")],
        ids=lambda _, chosen: _ids(chosen),
        outputs=[
            Output(_GRID, "rowData"),
            Output("finding-detail", "children", allow_duplicate=True),
            Output("findings-words", "children"),
        ],
        show=lambda view, _, chosen: [_shown(view).rows(view.language), detail(view, _ids(chosen)), _words(view)],
        findings=True,
    )


FINDINGS = Page(
    "/findings",
    tr("Findings"),
    _content,
    _connect,
    question=tr("What did the rules find, and on what evidence?"),
    has_findings=True,
)
