"""Recommendations: all in a table to sort and filter, the chosen one in full, releasable GPUs, and other reserves."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update

from analytics.capacity.peak_demand import MARGIN
from analytics.decide.lifecycle import action_sentence
from analytics.decide.recommendations import Recommendation, Recommendations
from analytics.language.sentences import Date, GpuHours, Moment, Share, Span, plain, tr
from analytics.names import JOINER
from analytics.tables.finding_heading import heading
from analytics.tables.names import place_name
from analytics.tables.palette import Palette, palette
from analytics.tables.recommendations import (
    ACTION_WORDS,
    by_gpu,
    by_group,
    cost_cell,
    decision,
    decisions_to_choose,
    put_off,
    recommendations,
    to_look_at,
    waste,
    who_acts,
)
from analytics.tables.table import Table
from analytics.tables.value import CASH, FREED, cash_words, freed_words
from analytics.tables.verdicts import pool_verdicts, shortfall_words
from analytics.tables.what_if_reserve import reserve_by_pool, reserves_compared
from analytics.workloads.model import Confidence, Finding
from analytics.workloads.pool_demand import MARGINS, FleetDemand
from dashboard.access.people import PLANNER
from dashboard.error_panels import in_a_line, problem_hint
from dashboard.files import links
from dashboard.grid import GridOf, filter_button, grid
from dashboard.pages.chosen import action_form, command_block, connect_action_form, gpu_links, listing, name_links
from dashboard.pages.page import Page, folded, in_words, slider
from dashboard.render.panel import method, panel, section_panel
from dashboard.render.tables import address, facts_list, section_tables
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View

BY_GPU = "gpu"
GROUPS = {"": tr("nothing"), BY_GPU: tr("GPU"), "owner": tr("who acts"), "pool": tr("pool")}
"""What the table can be grouped by, as the address names it."""

_WIDTHS_PX = {
    "recommendation": 300,
    "freed": 150,
    "cash": 130,
    "deadline": 108,
    "pool": 85,
    "next": 300,
    "recommendation_id": 125,
}
HEADING = "recommendation-heading"
"""The id of the chosen recommendation's heading, to which the page scrolls on narrow screens."""
_BETWEEN = "/"
"""In the id of a row of one GPU, between the recommendation and the GPU."""


def _shown(view: View, found: Recommendations, group: str) -> GridOf:
    """Return the ranked recommendations or their GPUs as rows; with a group, its column first and its rows together."""
    table = decisions_to_choose(found, lambda each: _hosts(view, each))
    if group == BY_GPU:
        return GridOf(by_gpu(table), lambda row: f"{row[0].recommendation_id}{_BETWEEN}{row[1]}", _WIDTHS_PX)
    if group:
        order = list(dict.fromkeys(getattr(each, group) for each in table.rows))
        table = replace(
            table,
            columns=tuple(sorted(table.columns, key=lambda column: column.key != group)),
            rows=tuple(sorted(table.rows, key=lambda each: order.index(getattr(each, group)))),
        )
    return GridOf(table, lambda each: each.recommendation_id, _WIDTHS_PX)


def detail(view: View, found: Recommendations, recommendation_id: str) -> list[Any]:
    """Return the recommendation in full; empty for an id that the reader does not see."""
    each = next((each for each in found.listed if each.recommendation_id == recommendation_id), None)
    if each is None:
        return []
    title = [decision(each), " ", html.Span(each.recommendation_id, className="id")]
    evidence = [_finding(view, finding, each.confidence) for finding in each.evidence]
    return [
        html.H3(title, id=HEADING, tabIndex="-1"),
        facts_list(_facts(view, each)),
        *command_block(tr("next command"), each.next_command, "recommendation-copy-next"),
        *_nudge(view, each),
        html.Div(
            [
                listing(tr("evidence"), evidence, tr("no finding: the ledger shows it")),
                listing(tr("conditions not met"), each.confidence.failed, tr("every condition is met")),
                listing(tr("what if this is wrong?"), list(_risk(each))),
                listing(tr("history"), _history(view, each), tr("no action yet")),
            ],
            className="lists",
        ),
    ]


def _facts(view: View, each: Recommendation) -> Iterator[tuple[str, Any]]:
    words = view.language
    yield tr("action"), ACTION_WORDS[each.action]
    yield tr("who acts"), who_acts(each)
    if each.team:
        yield tr("team"), plain(each.team)
    yield tr("pool"), words.shown(place_name(each.pool))
    if hosts := _hosts(view, each):
        yield tr("host"), name_links(view, "host", hosts)
    yield FREED, words.shown(freed_words(each.value, each.currency))
    yield CASH, words.shown(cash_words(each.value, each.currency))
    if each.value is not None and each.value.cash_unknown:
        yield tr("why cash is not known"), each.value.cash_unknown
    if each.value is not None and each.value.list_price_share:
        yield tr("at public list prices"), words.shown(Share(each.value.list_price_share))
    yield tr("confidence"), tr(each.confidence.grade)
    yield tr("wasted in this window"), words.shown(cost_cell(each))
    yield tr("GPU-hours"), words.shown(GpuHours(each.gpu_ms))
    yield tr("deadline"), words.shown(Date(each.deadline))
    yield tr("GPUs to act on"), gpu_links(view, each.gpus_now)
    if each.simulated:
        yield tr("data"), tr("simulated")


def _hosts(view: View, each: Recommendation) -> list[str]:
    """Return the hosts of the GPUs to act on; without such GPUs, the hosts of the wasted time."""
    devices = view.whole.inventory.devices
    now = sorted({devices[gpu].host for gpu in each.gpus_now if gpu in devices})
    return now or [host for host in each.host.split(JOINER) if host]


def _finding(view: View, finding: Finding, shown: Confidence) -> list[Any]:
    """Return the finding, its grade, and its unmet conditions unless its confidence is `shown` already."""
    name = dcc.Link(heading(finding, view.report.decision_review), href=address(view, "finding", finding.finding_id))
    grade = view.translate(tr(finding.confidence.grade))
    failed = [html.Li(condition) for condition in finding.confidence.failed if finding.confidence != shown]
    return [
        name,
        " ",
        html.Span(finding.finding_id, className="id"),
        f" ({grade})",
        *([html.Ul(failed)] if failed else []),
    ]


def _risk(each: Recommendation) -> Iterator[str]:
    risk = each.risk
    if risk.probability is not None and risk.within_ms is not None:
        share, span = Share(risk.probability, 0), Span(risk.within_ms)
        yield tr("used again within {span} in {share} of such cases", share=share, span=span)
    if risk.tested is not None:
        yield tr("shortfall of earlier estimates: {hours}", hours=shortfall_words(risk.tested))
    if risk.waits:
        yield tr("{name} would wait", name=plain(risk.waits))
    else:
        yield tr("jobs of the pool would wait")
    if risk.probability is None and risk.tested is None:
        yield tr("the probability is not known")


def _history(view: View, each: Recommendation) -> list[str]:
    actions = view.report.decision_review.actions
    first = min((finding.since_ms for finding in each.evidence), default=None)
    began = [] if first is None else [tr("first observed {moment}", moment=Moment(first))]
    return [
        *began,
        *(action_sentence(action) for finding in each.evidence for action in actions.get(finding.finding_id, ())),
    ]


def _nudge(view: View, each: Recommendation) -> list[Any]:
    """Return the command and the link to preview the user's nudge; empty for readers who are not planners."""
    if each.user is None or JOINER in each.user or not view.reader.may(PLANNER):
        return []
    report = dcc.Link(tr("Report"), href="/report" + view.query.on_every_page.search)
    command = f"fallow report nudge --user {shlex.quote(each.user)}"
    return [*command_block(tr("nudge"), command, "recommendation-copy-nudge"), html.P(report, className="onward")]


_GRID, _DETAIL, _PREFIX, _WHAT_IF = "recommendations-grid", "recommendation-detail", "recommendation-", "what-if"
_WORDS = "what-if-words"
_CHOSEN, _ARRIVED, _TRIED = "recommendation-chosen", "recommendation-arrived", "reserve-tried"
"""The chosen recommendation, which may not be in the table; the one that the page has gone to; the place of the
reserve that is tried out."""
_SUMS, _CARDS, _REST = "recommendations-sums", "recommendations-cards", "recommendations-rest"
_CARDS_AT_ONCE = 10


def _leading(found: Recommendations, wanted: str) -> tuple[str, ...]:
    """Return the id of the finding that the chosen recommendation rests on; without one there is nothing to act on."""
    return tuple(
        each.finding.finding_id
        for each in found.listed
        if each.recommendation_id == wanted and each.finding is not None
    )


def _rest(view: View, colours: Palette, found: Recommendations, place: int) -> list[html.Section]:
    """Return the sections below the table.

    These are the recommendations without a known value and the slider at its `place`; then, folded, the verdicts, the
    snoozed recommendations and the sum.
    """
    given, left, later = found.fleet, to_look_at(found), put_off(found, view.report.decision_review.actions)
    free = pool_verdicts(given)
    return [
        *([folded(section_panel(view, colours, left, first=left.shown, wide=True), on_phones=True)] if left else []),
        *([folded(what_if_panel(view, colours, given, MARGINS[place]), on_phones=True)] if given is not None else []),
        *([folded(section_panel(view, colours, free, table="below"))] if free is not None else []),
        *([folded(section_panel(view, colours, later, first=12))] if later is not None else []),
        folded(section_panel(view, colours, waste(found))),
    ]


def _decisions(view: View, colours: Palette, found: Recommendations) -> html.Section:
    """Return the table with its groups; beside it, once a row is chosen, the recommendation and the action form."""
    section, group, wrong = recommendations(found), _group(view), []
    if view.query.group != group:
        groups = f"take one of {', '.join(filter(None, GROUPS))}, or none"
        sentence = in_a_line(view.language, f"there is no group by '{plain(view.query.group)}'", groups)
        wrong = [html.P(sentence, className="simulated", role="alert")]
    shown, wanted = _shown(view, found, group), view.query.recommendation
    chosen = [name for name in map(shown.row_id, shown.table.rows) if name.partition(_BETWEEN)[0] == wanted][:1]
    table = grid(view.language, _GRID, shown, chosen=chosen, one=True, high_rows=True)
    beside = html.Aside(
        [
            html.Div(
                detail(view, found, wanted),
                id=_DETAIL,
                role="region",
                **{"aria-live": "polite", "aria-label": tr("The chosen recommendation")},
            ),
            *action_form(
                view,
                tr("With the first finding of the chosen recommendation"),
                _PREFIX,
                view.report.evidence,
                ready=bool(_leading(found, wanted)),
            ),
        ],
        className="side",
    )
    return panel(
        name=section.name,
        title=section.title,
        question=section.question,
        finding=html.Span(section.headline, id="recommendations-words"),
        body=[
            *wrong,
            html.Div(
                [
                    _grouping(view, group),
                    html.Span(tr("Choose a row for its evidence, its history and the next step."), className="hint"),
                    html.Span([filter_button(_GRID), links(view, "recommendations")], className="files"),
                ],
                className="tools",
            ),
            html.Div(_sums(view, colours, found, group), id=_SUMS),
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(table, className="as-table"),
                            html.Div(_cards(view, colours, found), id=_CARDS, className="as-cards"),
                        ]
                    ),
                    html.Div(beside, className="side-place"),
                ],
                className="with-side",
            ),
        ],
        answers=True,
        wide=True,
    )


def _group(view: View) -> str:
    """Return the group in the address; empty if it is none of GROUPS."""
    return view.query.group if view.query.group in GROUPS else ""


def _sums(view: View, colours: Palette, found: Recommendations, group: str) -> list[html.Section]:
    if group not in ("owner", "pool") or not found.ranked:
        return []
    return [section_panel(view, colours, by_group(found, "owner" if group == "owner" else "pool"))]


def _cards(view: View, colours: Palette, found: Recommendations) -> list[Any]:
    """Return the recommendations as blocks that lead to their panels: a telephone shows them instead of the table."""
    return section_tables(view, colours, recommendations(found, _CARDS_AT_ONCE, in_brief=True), first=_CARDS_AT_ONCE)


def _grouping(view: View, group: str) -> html.Span:
    """Return the groupings as links, since the address holds the grouping."""
    query = view.query.on_every_page.but(reserve=view.query.reserve)
    shown = [
        html.A(
            label,
            href="/recommendations" + query.but(group=name).search,
            **({"aria-current": "true"} if name == group else {}),
        )
        for name, label in GROUPS.items()
    ]
    return html.Span([html.Span(tr("Grouped by")), *shown], className="grouping")


def percent(margin: float) -> str:
    """Return a reserve in the form of the address, in whole percent."""
    return str(round(100 * margin))


def asked_margin(reserve: str) -> float:
    """Return the reserve in the address; the default reserve if it is not one of MARGINS."""
    return next((margin for margin in MARGINS if percent(margin) == reserve), MARGIN)


def what_if_panel(view: View, colours: Palette, given: FleetDemand, margin: float) -> html.Section:
    section = reserve_by_pool(given, margin)
    label = tr("Reserve: the share that is kept beyond peak demand")
    # by places: the keyboard goes from one reserve that is compared to the next
    marks = [view.language.shown(Share(each, 0)) for each in MARGINS]
    reserves = dcc.Store(id="reserves", data=[percent(each) for each in MARGINS])
    return panel(
        name=section.name,
        title=section.title,
        question=section.question,
        finding=html.Span(section.headline, id=_WORDS, **{"aria-live": "polite"}),
        body=[
            slider("reserve", label, marks, MARGINS.index(margin)),
            reserves,
            html.Div(_what_if(view, colours, given, section), id=_WHAT_IF),
            *method(section.title, section.notes),
        ],
        wide=True,
    )


def _what_if(view: View, colours: Palette, given: FleetDemand, section: Table) -> list[Any]:
    compared = reserves_compared(given)
    return [
        *section_tables(view, colours, section),
        html.Details(
            [
                html.Summary(html.Span(compared.title, id=f"{compared.name}-title")),
                *section_tables(view, colours, compared),
            ],
            className="more",
        ),
    ]


def _connect_looking(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output(_DETAIL, "children"),
        Output(f"{_PREFIX}acts", "disabled"),
        Input(_CHOSEN, "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def look(chosen: Any, search: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [[problem_hint(source, search, view)], True]
        found, wanted = view.report.recommendations, str(chosen or "")
        return [in_words(detail(view, found, wanted), view.language), not _leading(found, wanted)]


def _connect_reserve(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        Output(_WHAT_IF, "children"),
        Output(_WORDS, "children"),
        Input("reserve", "value"),
        State("url", "search"),
        State("scheme", "data"),
        prevent_initial_call=True,
    )
    def slide(place: Any, search: str | None, scheme: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [[problem_hint(source, search, view)], no_update]
        given = view.report.recommendations.fleet
        if given is None or place not in range(len(MARGINS)):
            return [no_update] * 2
        section = reserve_by_pool(given, MARGINS[place])
        return in_words([_what_if(view, palette(str(scheme)), given, section), section.headline], view.language)


def _after_action(view: View, colours: Palette, chosen: Any, tried: Any) -> list[Any]:
    """Return all components that show recommendations: after an action, all of them change."""
    found = view.report.recommendations
    group = _group(view)
    place = tried if tried in range(len(MARGINS)) else MARGINS.index(MARGIN)
    return [
        _shown(view, found, group).rows(view.language),
        detail(view, found, str(chosen or "")),
        recommendations(found).headline,
        _sums(view, colours, found, group),
        _cards(view, colours, found),
        _rest(view, colours, found, place),
    ]


def _content(view: View, colours: Palette) -> html.Div:
    found = view.report.recommendations
    place, wanted = MARGINS.index(asked_margin(view.query.reserve)), view.query.recommendation
    is_known = any(each.recommendation_id == wanted for each in found.listed)
    return html.Div(
        [
            dcc.Store(id=_CHOSEN, data=wanted if is_known else ""),
            dcc.Store(id=_ARRIVED),
            dcc.Store(id=_TRIED, data=place),
            html.Div(_decisions(view, colours, found), className="panels"),
            html.Div(_rest(view, colours, found, place), id=_REST, className="panels"),
        ]
    )


def _connect(app: Any, source: LakeSource) -> None:
    """Connect the table to the chosen row in full, the buttons to its first finding, and the slider to the reserve."""
    app.clientside_callback(
        ClientsideFunction("recommendations", "choose"),
        Output(_CHOSEN, "data"),
        Input(_GRID, "selectedRows"),
        State(_CHOSEN, "data"),
        prevent_initial_call=True,
    )
    # with an output, for without one dash does not call it when the page comes with a decision chosen
    app.clientside_callback(
        ClientsideFunction("recommendations", "arrive"), Output(_ARRIVED, "data"), Input(_DETAIL, "children")
    )
    app.clientside_callback(
        ClientsideFunction("recommendations", "reserve"),
        Output(_TRIED, "data"),
        Input("reserve", "value"),
        State("reserves", "data"),
        State(_TRIED, "data"),
        prevent_initial_call=True,
    )
    _connect_looking(app, source)
    _connect_reserve(app, source)
    connect_action_form(
        app,
        source,
        _PREFIX,
        chosen=[State(_CHOSEN, "data"), State(_TRIED, "data")],
        ids=lambda view, chosen: _leading(view.report.recommendations, str(chosen or "")),
        outputs=[
            Output(_GRID, "rowData"),
            Output(_DETAIL, "children", allow_duplicate=True),
            Output("recommendations-words", "children"),
            Output(_SUMS, "children"),
            Output(_CARDS, "children"),
            Output(_REST, "children"),
        ],
        show=_after_action,
    )


RECOMMENDATIONS = Page(
    "/recommendations",
    tr("Recommendations"),
    _content,
    _connect,
    question=tr("What should be released, reclaimed or changed, and who acts?"),
)
