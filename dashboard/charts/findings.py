"""The costliest findings in a few lines: what, whose, how much and since when; the page of findings has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import dcc, html

from analytics.language.plain_text import plain
from analytics.language.sentences import say, say_many
from analytics.names import JOINER
from analytics.render.listed_findings import costliest
from analytics.render.wording import reclaimable
from dashboard.charts.bars import finding_link
from dashboard.charts.finding_rows import heading
from dashboard.charts.panel import panel
from dashboard.charts.tables import scrolling

if TYPE_CHECKING:
    from analytics.workloads.model import Finding
    from dashboard.view import View

_FIRST = 6
_LONGEST = 200
"""Characters of a host that an address can name."""
_RIGHT = ("gpus", "gpu-hours", "cost")


def findings(view: View) -> html.Section:
    """The panel."""
    found = costliest(view.report)
    return panel(
        name="findings",
        title=view.say(say("The costliest findings")),
        question=view.say(say("What can be taken back or changed first, from whom, and what is it worth in this window?")),
        finding=view.say(reclaimable(view.report)) if found else view.say(say("No finding in this window.")),
        body=[*([_table(view, found[:_FIRST])] if found else []), *_overlap(view, found[:_FIRST]), _all(view)],
        wide=True,
    )  # fmt: skip


def _overlap(view: View, shown: list[Finding]) -> list[html.P]:
    """That costs do not add up, where two of these findings are about one GPU."""
    gpus = [gpu for finding in shown for gpu in finding.gpus]
    if len(gpus) == len(set(gpus)):
        return []
    note = say("Some of these findings are about the same GPUs: their hours and costs do not add up.")
    return [html.P(view.say(note), className="note")]


def _all(view: View) -> html.P:
    """The way to the page that has every finding with its evidence and its command."""
    words = say_many("{number} finding with its evidence and command", "All {number} findings with evidence and commands",
                     len(view.report.findings))  # fmt: skip
    return html.P(dcc.Link(view.say(words), href="/findings" + view.query.on_every_page.search), className="onward")


def _table(view: View, shown: list[Finding]) -> html.Div:
    labels = {
        "finding": say("finding"), "confidence": say("confidence"), "holder": say("holder"), "host": say("host"),
        "gpus": say("GPUs"), "gpu-hours": say("GPU-hours"), "cost": say("cost"), "since": say("since"),
    }  # fmt: skip
    heads = {name: view.say(label) for name, label in labels.items()}
    header = html.Tr(
        [html.Th(label, scope="col", className="right" if name in _RIGHT else "") for name, label in heads.items()],
        role="row",
    )
    table = html.Table(
        [html.Thead(header, role="rowgroup"), html.Tbody([_row(view, each, heads) for each in shown], role="rowgroup")],
        className="findings",
        role="table",  # narrow screens show the rows as blocks, which would take the roles away
        **{"aria-labelledby": "findings-title"},
    )
    return scrolling(table, "findings-title")


def _row(view: View, finding: Finding, heads: dict[str, str]) -> html.Tr:
    language = view.language
    grade = finding.confidence.grade
    cells = {
        "finding": [
            finding_link(view, finding, view.say(heading(finding, view.report))),
            html.Span(finding.finding_id, className="id"),
        ],
        "confidence": html.Span(view.say(grade), className=f"grade {grade}"),
        "holder": plain(finding.holder) if finding.holder else view.say(finding.without_holder),
        "host": _place(view, finding),
        "gpus": language.number(len(finding.gpus)),
        "gpu-hours": language.hours(finding.gpu_ms),
        "cost": language.money(finding.cost, view.report.money.currency),
        "since": language.moment(finding.since_ms),
    }
    return html.Tr(
        [
            html.Td(cell, role="cell", className=f"of-{name}{' right' if name in _RIGHT else ''}", **{"data-label": heads[name]})
            for name, cell in cells.items()
        ],
        role="row",
    )  # fmt: skip


def _place(view: View, finding: Finding) -> object:
    """The host, or the one GPU there, as the way to its own page."""
    around = view.query.on_every_page
    if len(finding.gpus) == 1:
        return dcc.Link(plain(finding.host or finding.gpus[0]), href="/gpu" + around.but(gpu=finding.gpus[0]).search)
    if finding.host and JOINER not in finding.host and len(finding.host) < _LONGEST:
        return dcc.Link(plain(finding.host), href="/host" + around.but(host=finding.host).search)
    return plain(finding.host)
