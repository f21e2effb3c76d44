"""The findings as a table: what, how surely, whose, where, how much, since when, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dash import html

from analytics.findings.evidence_text import evidence
from analytics.findings.text import ENDED
from analytics.findings.totals import to_take
from analytics.ledger.text import count, moment, plain
from dashboard.charts.panel import panel

if TYPE_CHECKING:
    from analytics.findings.model import Finding
    from dashboard.source import View

_FIRST = 10
_MOST = 200
_HEADER = ("Finding", "Confidence", "Holder", "Host", "GPUs", "GPU-hours", "Since", "Next command")
_RIGHT = ("GPUs", "GPU-hours")


def findings(view: View) -> html.Section:
    """The panel."""
    found = view.report.findings
    shown = found[:_MOST]
    return panel(
        name="findings",
        title="Findings",
        question="What can be taken back, from whom, and what to type? What can be taken back first, then by GPU-hours.",
        finding=_words(len(found), len(shown)),
        body=_tables(shown),
        wide=True,
    )


def _words(found: int, shown: int) -> str:
    if not found:
        return "No findings: no GPU was held for long without a kernel, and none went unused."
    listed = count(found, "finding")
    return (
        f"{listed}." if shown == found else f"{listed}; shown are the first {shown}, `fallow findings` lists them all."
    )


def _tables(shown: tuple[Finding, ...]) -> list[html.Div | html.Details]:
    """The first findings, and the rest folded away, so that a page on a phone has an end."""
    first, rest = shown[:_FIRST], shown[_FIRST:]
    tables = [_table(first)] if first else []
    if rest:
        further = len(to_take(shown) - to_take(first))
        summary = html.Summary(f"{len(rest):,} more, with {count(further, 'further GPU')} to take back")
        tables.append(html.Details([summary, _table(rest)], className="more"))
    return tables


def _table(shown: tuple[Finding, ...]) -> html.Div:
    header = html.Tr(
        [html.Th(name, scope="col", className="right" if name in _RIGHT else "") for name in _HEADER], role="row"
    )
    table = html.Table(
        [html.Thead(header, role="rowgroup"), html.Tbody([_row(each) for each in shown], role="rowgroup")],
        className="findings",
        role="table",  # narrow screens show the rows as blocks, which would take the roles away
        **{"aria-labelledby": "findings-title"},
    )
    return html.Div(table, className="scroll", tabIndex="0", role="region", **{"aria-labelledby": "findings-title"})


def _row(finding: Finding) -> html.Tr:
    cells = (
        [
            html.Span(finding.sentence, className="sentence"),
            html.Span([finding.finding_id, " · simulated" if finding.simulated else ""], className="id"),
        ],
        _confidence(finding),
        plain(finding.holder) if finding.holder else finding.without_holder,
        plain(finding.host),
        f"{len(finding.gpus):,}",
        f"{finding.gpu_hours:,.1f}",
        moment(finding.since_ms),
        html.Code(finding.next_command) if finding.next_command else html.Span(ENDED, className="ended"),
    )
    return html.Tr(
        [
            html.Td(
                cell,
                role="cell",
                className=" ".join([f"of-{name.lower().replace(' ', '-')}", *(["right"] if name in _RIGHT else [])]),
                **{"data-label": name},
            )
            for name, cell in zip(_HEADER, cells, strict=True)
        ],
        role="row",
    )


def _confidence(finding: Finding) -> html.Details:
    """The grade; opened, each condition that failed and the evidence."""
    grade, failed = finding.confidence.grade, finding.confidence.failed
    return html.Details(
        [
            html.Summary([html.Span(grade, className=f"grade {grade}"), f" {len(failed)} failed" if failed else ""]),
            html.Ul([html.Li(each) for each in failed] or [html.Li("every condition holds")]),
            html.P(evidence(finding), className="evidence"),
        ]
    )
