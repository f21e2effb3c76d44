"""The opportunities as a table to sort and filter, and the chosen one in full."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from dash import dcc, html

from analytics.decide.lifecycle import action_sentence
from analytics.decide.opportunities import Opportunities, Opportunity
from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Moment, Number, Share, Span, from_cents
from analytics.language.sentences import tr
from analytics.names import JOINER
from analytics.tables.finding_heading import heading
from analytics.tables.names import place_name
from analytics.tables.opportunities import (
    ACTION_WORDS,
    cost_cell,
    deadline_day,
    decision,
    saving_words,
    who_acts,
)
from analytics.workloads.model import Confidence, Finding
from dashboard.access.people import PLANNER
from dashboard.grid import MOMENT, NUMBER, RANK, Cell, GridColumn, Row, ranked
from dashboard.render.tables import address
from dashboard.view import View
from fallow.clock import from_ms
from fallow.errors import UsageError

BY_GPU = "gpu"
GROUPS = {"": tr("nothing"), BY_GPU: tr("GPU"), "owner": tr("who acts"), "pool": tr("pool")}
"""What the table can be grouped by, as the address names it."""

_COLUMNS = (
    ("decision", tr("decision"), "text", 230),
    ("action", tr("action"), "text", 120),
    ("owner", tr("who acts"), "text", 100),
    ("saving", tr("worth a year"), NUMBER, 145),
    ("deadline", tr("deadline"), MOMENT, 108),
    ("confidence", tr("confidence"), RANK, 98),
    ("gpus", tr("GPUs"), NUMBER, 70),
    ("pool", tr("pool"), "text", 85),
    ("cost", tr("wasted in this window"), NUMBER, 125),
    ("command", tr("next command"), "text", 300),
    ("host", tr("host"), "text", 130),
    ("opportunity_id", tr("id"), "text", 125),
)
"""Those by which one chooses come first; the chosen one's panel has all of them."""
_FIRST_OF = {BY_GPU: "gpu", "owner": "owner", "pool": "pool"}
_GRADES = ("high", "medium", "low")
_MOST_GPUS = 32
HEADING = "opportunity-heading"
"""Of the chosen one: on narrow screens the page goes there."""
_BETWEEN = "/"
"""In the id of a row of one GPU, between the opportunity and the GPU."""


def check_group(group: str) -> str:
    """The same; raises UsageError for what there is no group of."""
    if group not in GROUPS:
        raise UsageError(
            f"there is no group by '{plain(group)}'", f"take one of {', '.join(filter(None, GROUPS))}, or none"
        )
    return group


def columns(view: View, group: str) -> list[GridColumn]:
    """The columns with their headings, that of the group first."""
    first = _FIRST_OF.get(group, "")
    listed = [*((("gpu", tr("GPU"), "text", 150),) if group == BY_GPU else ()), *_COLUMNS]
    listed.sort(key=lambda column: column[0] != first)
    return [GridColumn(field, view.translate(name), kind, width_px) for field, name, kind, width_px in listed]


def rows(view: View, found: Opportunities, group: str) -> list[Row]:
    """A row for each ranked one, or for each GPU to act on; those of a group beside one another."""
    own = [(each, _cells(view, each)) for each in found.ranked]
    if group == BY_GPU:
        return [
            (f"{each.opportunity_id}{_BETWEEN}{gpu}", {**cells, "gpu": plain(gpu)})
            for each, cells in own
            for gpu in each.gpus_now
        ]
    if group:
        order = list(dict.fromkeys(getattr(each, group) for each, _ in own))
        own.sort(key=lambda row: order.index(getattr(row[0], group)))
    return [(each.opportunity_id, cells) for each, cells in own]


def opportunity_of_row(row_id: str) -> str:
    """The id of the opportunity that a row is about."""
    return row_id.partition(_BETWEEN)[0]


def _cells(view: View, each: Opportunity) -> dict[str, Cell | str]:
    words, grade, saving, cents = view.language, each.confidence.grade, each.saving, each.cents
    cost = from_cents(cents)
    return {
        "decision": view.translate(decision(each)),
        "action": view.translate(ACTION_WORDS[each.action]),
        "owner": view.translate(who_acts(each)),
        "saving": Cell(
            None if saving is None else saving.point,
            "" if saving is None else _range_below(view.translate(saving_words(saving, each.currency))),
        ),
        **ranked(_GRADES.index(grade), view.translate(tr(grade)), "confidence"),
        "gpus": Cell(len(each.gpus_now), words.number(len(each.gpus_now))),
        "pool": words.shown(place_name(each.pool)),
        "cost": Cell(None if cost is None else float(cost), words.shown(cost_cell(each))),
        "deadline": Cell(
            each.deadline_ms,
            words.shown(deadline_day(each.deadline_ms)),
            from_ms(each.deadline_ms - 1).astimezone(view.zone).date().isoformat(),
        ),
        "host": plain(JOINER.join(_hosts(view, each))),
        "command": plain(each.next_command, 4000),
        "opportunity_id": each.opportunity_id,
    }


def _range_below(saving: str) -> str:
    """The same, with one place where a narrow cell can break it: before its range."""
    return saving.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}(", " (")


def detail(view: View, found: Opportunities, opportunity_id: str) -> list[Any]:
    """The chosen one in full; an id that the reader does not see is nothing."""
    each = next((each for each in found.listed if each.opportunity_id == opportunity_id), None)
    if each is None:
        said = tr("Choose a row for its evidence, its history and what to do next.")
        return [html.P(view.translate(said), className="hint")]
    return [
        html.H3([view.translate(decision(each)), " ", html.Span(each.opportunity_id, className="id")], id=HEADING, tabIndex="-1"),
        html.Dl(
            [html.Div([html.Dt(view.translate(label)), html.Dd(value)]) for label, value in _facts(view, each)],
            className="facts",
        ),
        *_command(view, tr("next command"), each.next_command, "next"),
        *_nudge(view, each),
        html.Div(
            [
                _list(view, tr("evidence"), _evidence(view, each), tr("no finding: the ledger alone")),
                _list(view, tr("conditions that failed"), [view.translate(line) for line in each.confidence.failed], tr("every condition holds")),
                _list(view, tr("what if this is wrong?"), [view.translate(line) for line in _risk(each)]),
                _list(view, tr("history"), [view.translate(line) for line in _history(view, each)], tr("nobody acted on it yet")),
            ],
            className="lists",
        ),
    ]  # fmt: skip


def _facts(view: View, each: Opportunity) -> Iterator[tuple[str, Any]]:
    words = view.language
    yield tr("action"), view.translate(ACTION_WORDS[each.action])
    yield tr("who acts"), view.translate(who_acts(each))
    if each.team:
        yield tr("team"), plain(each.team)
    yield tr("pool"), words.shown(place_name(each.pool))
    if hosts := _hosts(view, each):
        yield tr("host"), [_link(view, "host", host) for host in hosts]
    saved = tr("not known") if each.saving is None else saving_words(each.saving, each.currency)
    yield tr("worth a year"), view.translate(saved)
    yield tr("confidence"), view.translate(tr(each.confidence.grade))
    yield tr("wasted in this window"), words.shown(cost_cell(each))
    yield tr("GPU-hours"), words.shown(GpuHours(each.gpu_ms))
    yield tr("deadline"), words.shown(deadline_day(each.deadline_ms))
    yield tr("GPUs to act on"), _gpus(view, each.gpus_now)
    if each.simulated:
        yield tr("data"), view.translate(tr("simulated"))


def _hosts(view: View, each: Opportunity) -> list[str]:
    """Where the GPUs to act on are; of a decision without any, where its wasted time was."""
    devices = view.whole.inventory.devices
    now = sorted({devices[gpu].host for gpu in each.gpus_now if gpu in devices})
    return now or [host for host in each.host.split(JOINER) if host]


def _gpus(view: View, gpus: Sequence[str]) -> Any:
    rest = len(gpus) - _MOST_GPUS
    more = [view.translate(tr("and {number} more", number=Number(rest)))] if rest > 0 else []
    return [*(_link(view, "gpu", gpu) for gpu in gpus[:_MOST_GPUS]), *more] or view.translate(tr("none now"))


def _link(view: View, kind: str, name: str) -> html.Span:
    return html.Span([dcc.Link(html.Bdi(plain(name)), href=address(view, kind, name)), " "])


def _evidence(view: View, each: Opportunity) -> list[Any]:
    return [_finding(view, finding, each.confidence) for finding in each.evidence]


def _finding(view: View, finding: Finding, told: Confidence) -> list[Any]:
    """The finding, how sure it is, and which of its conditions do not hold, where these are not those of the decision, which are `told`."""
    name = dcc.Link(view.translate(heading(finding, view.report)), href=address(view, "finding", finding.finding_id))
    grade = view.translate(tr(finding.confidence.grade))
    failed = [
        html.Li(view.translate(condition)) for condition in finding.confidence.failed if finding.confidence != told
    ]
    return [
        name,
        " ",
        html.Span(finding.finding_id, className="id"),
        f" ({grade})",
        *([html.Ul(failed)] if failed else []),
    ]


def _risk(each: Opportunity) -> Iterator[str]:
    risk = each.risk
    if risk.probability is not None and risk.within_ms is not None:
        share, span = Share(risk.probability, 0), Span(risk.within_ms)
        yield tr("used again within {span} in {share} of such cases so far", share=share, span=span)
    if risk.hours is not None:
        yield tr(
            "last week the pool would have been short in {short} of {hours} h, by {gpus} GPUs at most",
            short=Number(risk.short_hours), hours=Number(risk.hours), gpus=Number(risk.short_gpus),
        )  # fmt: skip
    if risk.waits:
        yield tr("{name} would wait", name=plain(risk.waits))
    else:
        yield tr("jobs of the pool would wait")
    if risk.probability is None and risk.hours is None:
        yield tr("how probable that is, is not known")


def _history(view: View, each: Opportunity) -> list[str]:
    actions = view.report.review.actions
    first = min((finding.since_ms for finding in each.evidence), default=None)
    began = [] if first is None else [tr("first seen {moment}", moment=Moment(first))]
    return [
        *began,
        *(action_sentence(action) for finding in each.evidence for action in actions.get(finding.finding_id, ())),
    ]


def _list(view: View, label: str, lines: Sequence[Any], none: str = "") -> html.Section:
    shown = [html.Li(line) for line in lines] or [html.Li(view.translate(none), className="none")]
    return html.Section([html.H4(view.translate(label)), html.Ul(shown)])


def _nudge(view: View, each: Opportunity) -> list[Any]:
    """How to look at the message that its holder would get; planners alone send any."""
    if each.holder is None or JOINER in each.holder or not view.reader.may(PLANNER):
        return []
    report = dcc.Link(view.translate(tr("Report")), href="/report" + view.query.on_every_page.search)
    command = f"fallow report nudge --user {shlex.quote(each.holder)}"
    return [*_command(view, tr("nudge"), command, "nudge"), html.P(report, className="onward")]


def _command(view: View, label: str, command: str, name: str) -> list[Any]:
    if not command:
        return []
    shown = plain(command, 4000)
    copy = dcc.Clipboard(
        view.translate(tr("copy")),
        id=f"opportunity-copy-{name}",
        content=command,
        copied_children=view.translate(tr("copied")),
        className="button copy",
        title=view.translate(tr("copy the command")),
    )
    return [html.H4(view.translate(label)), html.Div([html.Code(shown), copy], className="command")]
