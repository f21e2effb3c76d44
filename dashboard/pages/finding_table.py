"""All findings as a table to sort and filter: what, how surely, whose, where, how much, since when, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import dcc, html

from analytics.decide.lifecycle import STATUSES, action_sentence
from analytics.decide.totals import totals
from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import say, say_many
from analytics.names import JOINER
from analytics.render.findings_text import ENDED
from analytics.sections.evidence_text import evidence
from analytics.sections.findings import notified
from analytics.workloads.model import CATEGORIES
from dashboard.grid import MOMENT, NUMBER, RANK, Cell, Column, ranked
from fallow.clock import from_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analytics.report.model import Report
    from analytics.workloads.model import Finding
    from dashboard.grid import Row
    from dashboard.view import View

_GRADES = ("high", "medium", "low")
_ORDER = tuple(STATUSES)

CATEGORY_NAMES = {
    "reclaim": say("take back"),
    "right_size": say("right-size"),
    "efficiency": say("efficiency"),
    "demand": say("demand"),
    "coverage": say("not observed"),
}
"""What a category is for, in two words."""

_COLUMNS = (
    ("finding", say("finding"), "text", 270),
    ("confidence", say("confidence"), RANK, 165),
    ("holder", say("holder"), "text", 110),
    ("team", say("team"), "text", 95),
    ("status", say("status"), RANK, 120),
    ("host", say("host"), "text", 115),
    ("gpus", say("GPUs"), NUMBER, 75),
    ("gpu_hours", say("GPU-hours"), NUMBER, 100),
    ("cost", say("cost"), NUMBER, 120),
    ("since", say("since"), MOMENT, 118),
    ("told", say("holder told"), NUMBER, 170),
    ("command", say("next command"), "text", 320),
    ("category", say("category"), RANK, 130),
    ("rule", say("rule"), "text", 160),
    ("finding_id", say("id"), "text", 130),
)


def columns(view: View) -> list[Column]:
    """The columns with their headings."""
    return [Column(field, view.say(name), kind, width_px) for field, name, kind, width_px in _COLUMNS]


def rows(view: View) -> list[Row]:
    """A row for each finding of the view in the report's order; `standing` is its status as the commands name it."""
    return [(each.finding_id, _cells(view, each)) for each in view.report.review.findings]


def _cells(view: View, finding: Finding) -> dict[str, Cell | str]:
    words = view.language
    holder = plain(finding.holder) if finding.holder else view.say(finding.without_holder)
    told = sum(each.kind == "notify" for each in view.report.review.actions.get(finding.finding_id, ()))
    return {
        "finding": view.say(heading(finding, view.report)),
        "holder": holder,
        "team": plain(finding.team or ""),
        "host": plain(finding.host),
        "gpus": Cell(len(finding.gpus), words.number(len(finding.gpus))),
        "gpu_hours": Cell(finding.gpu_hours, words.hours(finding.gpu_ms)),
        "cost": Cell(finding.cost, words.money(finding.cost, finding.currency)),
        "since": Cell(finding.since_ms, words.day(finding.since_ms), _day(view, finding.since_ms)),
        "told": Cell(told, view.say(notified(view.report, finding))),
        "command": plain(finding.next_command, 4000) or view.say(ENDED),
        "rule": finding.rule,
        "finding_id": finding.finding_id,
        "standing": finding.status,
        **ranked(len(finding.confidence.failed), view.say(confidence(finding)), "confidence"),
        **ranked(_ORDER.index(finding.status), view.say(finding.status), "status"),
        **ranked(CATEGORIES.index(finding.category), view.say(CATEGORY_NAMES[finding.category]), "category"),
    }


def _day(view: View, time_ms: int) -> str:
    return from_ms(time_ms).astimezone(view.zone).date().isoformat()


def heading(finding: Finding, report: Report) -> str:
    """`8 GPUs never used since first seen`; that they are simulated only where others are not: else it stands above."""
    apart = finding.simulated and report.simulated_gpus < report.summary.totals.gpus
    gpus = say_many("{number} GPU", "{number} GPUs", len(finding.gpus))
    what = say("{gpus} {sentence}", gpus=gpus, sentence=finding.sentence)
    return say("{sentence} (simulated)", sentence=what) if apart else what


def confidence(finding: Finding) -> str:
    """`medium, 1 failed`: how sure it is, and how many of its conditions do not hold."""
    grade, failed = say(finding.confidence.grade), len(finding.confidence.failed)
    return say_many("{grade}, {number} failed", "{grade}, {number} failed", failed, grade=grade) if failed else grade


_MOST_GPUS = 32
_ALL = 100_000
"""No text is cut: this is the place where it is read in full."""


def detail(view: View, ids: Sequence[str]) -> list[Any]:
    """The one finding of the view that is chosen, or what several come to; ids that the reader does not see are nothing."""
    chosen = [each for each in view.report.review.findings if each.finding_id in set(ids)]
    if not chosen:
        return [html.P(view.say(say("Choose a row for its evidence and its history.")), className="hint")]
    return _one(view, chosen[0]) if len(chosen) == 1 else _several(view, chosen)


def _several(view: View, chosen: Sequence[Finding]) -> list[Any]:
    """Sums only of what adds up: several findings may be about the same hours of the same GPUs."""
    sums = totals(chosen)
    said = say(
        "{findings}: {gpus}, of which {part} can be taken back",
        findings=say_many("{number} finding chosen", "{number} findings chosen", sums.findings),
        gpus=say_many("{number} GPU", "{number} GPUs", sums.gpus),
        part=Number(sums.gpus_to_take),
    )
    lines = [
        html.Li([html.Code(each.finding_id), " ", view.say(heading(each, view.report))]) for each in chosen[:_MOST_GPUS]
    ]
    rest = len(chosen) - len(lines)
    more = say_many("and {number} more finding", "and {number} more findings", rest)
    return [
        html.H3(view.say(said)),
        html.Ul([*lines, *([html.Li(view.say(more))] if rest else [])]),
    ]


def _one(view: View, finding: Finding) -> list[Any]:
    actions = view.report.review.actions.get(finding.finding_id, ())
    notes = finding.notes[
        : len(finding.notes) - len(actions)
    ]  # what people did stands behind them, and has its own list
    failed = finding.confidence.failed
    return [
        html.H3([view.say(heading(finding, view.report)), " ", html.Span(finding.finding_id, className="id")]),
        html.Dl(
            [html.Div([html.Dt(view.say(label)), html.Dd(value)]) for label, value in _facts(view, finding)],
            className="facts",
        ),
        html.Div(
            [
                _list(view, say("evidence"), evidence(finding).parts),
                _list(view, say("conditions that failed"), failed, say("every condition holds")),
                *([_list(view, say("notes"), notes)] if notes else []),
                _list(view, say("history"), [action_sentence(each) for each in actions], say("nobody acted on it yet")),
            ],
            className="lists",
        ),
        *_command(view, finding),
    ]


def _list(view: View, label: str, lines: Sequence[str], none: str = "") -> html.Section:
    shown = [html.Li(_visible(view.say(each))) for each in lines] or [html.Li(view.say(none), className="none")]
    return html.Section([html.H4(view.say(label)), html.Ul(shown)])


def _visible(text: str) -> str:
    """Without marks that turn a line round; no-break spaces stay: they belong to the language."""
    return "".join(char if char.isprintable() or char.isspace() else "?" for char in text)


def _facts(view: View, finding: Finding) -> list[tuple[str, Any]]:
    words = view.language
    energy = words.number(finding.energy_kwh, 1)
    others = [each for each in finding.gpus if each not in finding.reclaimable_gpus]
    return [
        (say("confidence"), view.say(confidence(finding))),
        (say("holder"), _holders(view, finding)),
        *([(say("team"), plain(finding.team))] if finding.team else []),
        *([(say("job"), ", ".join(plain(each, _ALL) for each in finding.job.split(JOINER)))] if finding.job else []),
        *([(say("host"), _hosts(view, finding))] if finding.host else []),
        (say("GPU-hours"), words.hours(finding.gpu_ms)),
        (say("cost"), words.money(finding.cost, finding.currency)),
        (say("energy"), energy if finding.energy_kwh is None else view.say(say("{kwh} kWh", kwh=energy))),
        (say("since"), words.moment(finding.since_ms)),
        (say("status"), view.say(finding.status)),
        (say("holder told"), view.say(notified(view.report, finding))),
        (say("category"), view.say(CATEGORY_NAMES[finding.category])),
        (say("rule"), finding.rule),
        (say("GPUs to take back"), _gpus(view, finding.reclaimable_gpus) or view.say(say("none now"))),
        *([(say("other GPUs"), _gpus(view, others))] if others else []),
    ]


def _holders(view: View, finding: Finding) -> Any:
    if not finding.holder:
        return view.say(finding.without_holder)
    return _links(view, "/holders", "holder", finding.holder.split(JOINER))


def _hosts(view: View, finding: Finding) -> Any:
    return _links(view, "/host", "host", finding.host.split(JOINER))


def _gpus(view: View, gpus: Sequence[str]) -> Any:
    rest = len(gpus) - _MOST_GPUS
    more = [view.say(say("and {number} more", number=Number(rest)))] if rest > 0 else []
    return [*_links(view, "/gpu", "gpu", gpus[:_MOST_GPUS]), *more]


def _links(view: View, path: str, name: str, values: Sequence[str]) -> list[Any]:
    """A link to the page of each, with the window and the scope of this one."""
    return [
        html.Span([dcc.Link(plain(each), href=path + view.query.on_every_page.but(**{name: each}).search), " "])
        for each in values
    ]


def _command(view: View, finding: Finding) -> list[Any]:
    label = html.H4(view.say(say("next command")))
    if not finding.next_command:
        return [label, html.P(view.say(ENDED), className="ended")]
    copied = view.say(say("copied"))
    return [
        label,
        html.Div(
            [
                html.Code(_visible(finding.next_command)),
                dcc.Clipboard(
                    view.say(say("copy")),
                    id="finding-copy",
                    content=finding.next_command,
                    copied_children=copied,
                    className="button copy",
                    title=view.say(say("copy the command")),
                ),
            ],
            className="command",
        ),
    ]
