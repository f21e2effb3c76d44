"""All findings as a table to sort and filter: what, how surely, whose, where, how much, since when, and what to type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import dcc, html

from analytics.decide.lifecycle import action_sentence
from analytics.decide.totals import totals
from analytics.glossary import CONFIDENCE, STATUSES
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Number
from analytics.language.sentences import tr, tr_many
from analytics.names import JOINER
from analytics.tables.evidence_text import evidence
from analytics.tables.finding_heading import ENDED, at_most, cost_of, heading, label_of_wanted
from analytics.tables.findings import notified
from analytics.workloads.model import CATEGORIES, Finding
from dashboard.grid import MOMENT, NUMBER, RANK, Cell, GridColumn, Row, ranked
from dashboard.view import View
from fallow.clock import from_ms

_ORDER = tuple(STATUSES)

CATEGORY_NAMES = {
    "reclaim": tr("take back"),
    "right_size": tr("right-size"),
    "efficiency": tr("efficiency"),
    "demand": tr("demand"),
    "coverage": tr("not observed"),
}
"""What a category is for, in two words."""

_COLUMNS = (
    ("finding", tr("finding"), "text", 270),
    ("confidence", tr("confidence"), RANK, 165),
    ("holder", tr("user"), "text", 110),
    ("team", tr("team"), "text", 95),
    ("status", tr("status"), RANK, 120),
    ("host", tr("host"), "text", 115),
    ("gpus", tr("GPUs"), NUMBER, 75),
    ("gpu_hours", tr("GPU-hours"), NUMBER, 100),
    ("cost", tr("cost"), NUMBER, 120),
    ("since", tr("since"), MOMENT, 118),
    ("told", tr("user notified"), NUMBER, 170),
    ("command", tr("next command"), "text", 320),
    ("category", tr("category"), RANK, 130),
    ("rule", tr("rule"), "text", 160),
    ("finding_id", tr("id"), "text", 130),
)


_EXPLAINED = ("confidence", "status", "rule")
"""Columns whose words a tooltip explains."""


def columns(view: View) -> list[GridColumn]:
    """The columns with their headings."""
    return [
        GridColumn(field, view.translate(name), kind, width_px, f"{field}_means" if field in _EXPLAINED else "")
        for field, name, kind, width_px in _COLUMNS
    ]


def rows(view: View) -> list[Row]:
    """A row for each finding of the view in the report's order; `standing` is its status as the commands name it."""
    return [(each.finding_id, _cells(view, each)) for each in view.report.review.findings]


def _cells(view: View, finding: Finding) -> dict[str, Cell | str]:
    words = view.language
    holder = plain(finding.holder) if finding.holder else view.translate(finding.without_holder)
    count = sum(each.kind == "notify" for each in view.report.review.actions.get(finding.finding_id, ()))
    return {
        "finding": view.translate(heading(finding, view.report)),
        "holder": holder,
        "team": plain(finding.team or ""),
        "host": plain(finding.host),
        "gpus": Cell(len(finding.gpus), words.number(len(finding.gpus))),
        "gpu_hours": Cell(finding.gpu_hours, words.hours(finding.gpu_ms)),
        "cost": Cell(finding.cost, words.shown(at_most(finding.unconfirmed, Amount(finding.cost, finding.currency)))),
        "since": Cell(finding.since_ms, words.day(finding.since_ms), _day(view, finding.since_ms)),
        "told": Cell(count, view.translate(notified(view.report, finding))),
        "command": plain(finding.next_command, 4000) or view.translate(ENDED),
        "rule": finding.rule,
        "rule_means": view.translate(heading(finding, view.report)),
        "confidence_means": view.translate(CONFIDENCE[finding.confidence.grade].meaning),
        "status_means": view.translate(STATUSES[finding.status].meaning),
        "finding_id": finding.finding_id,
        "standing": finding.status,
        **ranked(len(finding.confidence.failed), view.translate(confidence(finding)), "confidence"),
        **ranked(_ORDER.index(finding.status), view.translate(finding.status), "status"),
        **ranked(CATEGORIES.index(finding.category), view.translate(CATEGORY_NAMES[finding.category]), "category"),
    }


def _day(view: View, time_ms: int) -> str:
    return from_ms(time_ms).astimezone(view.zone).date().isoformat()


def confidence(finding: Finding) -> str:
    """`medium, 1 failed`: how sure it is, and how many of its conditions do not hold."""
    grade, failed = tr(finding.confidence.grade), len(finding.confidence.failed)
    return tr_many("{grade}, {number} failed", "{grade}, {number} failed", failed, grade=grade) if failed else grade


_MOST_GPUS = 32
_ALL = 100_000
"""No text is cut: this is the place where it is read in full."""


def detail(view: View, ids: Sequence[str]) -> list[Any]:
    """The one finding of the view that is chosen, or what several come to; ids that the reader does not see are nothing."""
    chosen = [each for each in view.report.review.findings if each.finding_id in set(ids)]
    if not chosen:
        return [html.P(view.translate(tr("Choose a row for its evidence and its history.")), className="hint")]
    return _one(view, chosen[0]) if len(chosen) == 1 else _several(view, chosen)


def _several(view: View, chosen: Sequence[Finding]) -> list[Any]:
    """Sums only of what adds up: several findings may be about the same hours of the same GPUs."""
    sums = totals(chosen)
    said = tr(
        "{findings}: {gpus}, of which {part} can be taken back, {asked} to ask about",
        findings=tr_many("{number} finding chosen", "{number} findings chosen", sums.findings),
        gpus=tr_many("{number} GPU", "{number} GPUs", sums.gpus),
        part=Number(sums.gpus_to_take),
        asked=Number(sums.gpus_to_ask),
    )
    lines = [
        html.Li([html.Code(each.finding_id), " ", view.translate(heading(each, view.report))])
        for each in chosen[:_MOST_GPUS]
    ]
    rest = len(chosen) - len(lines)
    more = tr_many("and {number} more finding", "and {number} more findings", rest)
    return [
        html.H3(view.translate(said)),
        html.Ul([*lines, *([html.Li(view.translate(more))] if rest else [])]),
    ]


def _one(view: View, finding: Finding) -> list[Any]:
    actions = view.report.review.actions.get(finding.finding_id, ())
    notes = finding.notes[
        : len(finding.notes) - len(actions)
    ]  # what people did stands behind them, and has its own list
    failed = finding.confidence.failed
    return [
        html.H3([view.translate(heading(finding, view.report)), " ", html.Span(finding.finding_id, className="id")]),
        html.Dl(
            [html.Div([html.Dt(view.translate(label)), html.Dd(value)]) for label, value in _facts(view, finding)],
            className="facts",
        ),
        html.Div(
            [
                _list(view, tr("evidence"), evidence(finding).parts),
                _list(view, tr("conditions that failed"), failed, tr("every condition holds")),
                *([_list(view, tr("notes"), notes)] if notes else []),
                _list(view, tr("history"), [action_sentence(each) for each in actions], tr("nobody acted on it yet")),
            ],
            className="lists",
        ),
        *_command(view, finding),
    ]


def _list(view: View, label: str, lines: Sequence[str], none: str = "") -> html.Section:
    shown = [html.Li(_visible(view.translate(each))) for each in lines] or [
        html.Li(view.translate(none), className="none")
    ]
    return html.Section([html.H4(view.translate(label)), html.Ul(shown)])


def _visible(text: str) -> str:
    """Without marks that turn a line round; no-break spaces stay: they belong to the language."""
    return "".join(char if char.isprintable() or char.isspace() else "?" for char in text)


def _facts(view: View, finding: Finding) -> list[tuple[str, Any]]:
    words = view.language
    energy = words.number(finding.energy_kwh, 1)
    others = [each for each in finding.gpus if each not in finding.reclaimable_gpus]
    return [
        (tr("confidence"), view.translate(confidence(finding))),
        (tr("user"), _holders(view, finding)),
        *([(tr("team"), plain(finding.team))] if finding.team else []),
        *([(tr("job"), ", ".join(plain(each, _ALL) for each in finding.job.split(JOINER)))] if finding.job else []),
        *([(tr("host"), _hosts(view, finding))] if finding.host else []),
        (tr("GPU-hours"), words.hours(finding.gpu_ms)),
        (tr("cost"), words.shown(cost_of(finding) if finding.cost is not None else Amount(None, ""))),
        (tr("energy"), energy if finding.energy_kwh is None else view.translate(tr("{kwh} kWh", kwh=energy))),
        (tr("since"), words.moment(finding.since_ms)),
        (tr("status"), view.translate(finding.status)),
        (tr("user notified"), view.translate(notified(view.report, finding))),
        (tr("category"), view.translate(CATEGORY_NAMES[finding.category])),
        (tr("rule"), finding.rule),
        (label_of_wanted(finding), _gpus(view, finding.reclaimable_gpus) or view.translate(tr("none now"))),
        *([(tr("other GPUs"), _gpus(view, others))] if others else []),
    ]


def _holders(view: View, finding: Finding) -> Any:
    if not finding.holder:
        return view.translate(finding.without_holder)
    return _links(view, "/holders", "holder", finding.holder.split(JOINER))


def _hosts(view: View, finding: Finding) -> Any:
    return _links(view, "/host", "host", finding.host.split(JOINER))


def _gpus(view: View, gpus: Sequence[str]) -> Any:
    rest = len(gpus) - _MOST_GPUS
    more = [view.translate(tr("and {number} more", number=Number(rest)))] if rest > 0 else []
    return [*_links(view, "/gpu", "gpu", gpus[:_MOST_GPUS]), *more]


def _links(view: View, path: str, name: str, values: Sequence[str]) -> list[Any]:
    """A link to the page of each, with the window and the scope of this one."""
    return [
        html.Span([dcc.Link(plain(each), href=path + view.query.on_every_page.but(**{name: each}).search), " "])
        for each in values
    ]


def _command(view: View, finding: Finding) -> list[Any]:
    label = html.H4(view.translate(tr("next command")))
    if not finding.next_command:
        return [label, html.P(view.translate(ENDED), className="ended")]
    copied = view.translate(tr("copied"))
    return [
        label,
        html.Div(
            [
                html.Code(_visible(finding.next_command)),
                dcc.Clipboard(
                    view.translate(tr("copy")),
                    id="finding-copy",
                    content=finding.next_command,
                    copied_children=copied,
                    className="button copy",
                    title=view.translate(tr("copy the command")),
                ),
            ],
            className="command",
        ),
    ]
