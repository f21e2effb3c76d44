"""What to do: what can be given back, the decisions ranked by what they save, and what another reserve would mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.decide.opportunities import Opportunities
from analytics.language.quantities import Share
from analytics.language.sentences import tr
from analytics.tables.give_back import give_back
from analytics.tables.opportunities import by_group, opportunities, put_off, to_look_at, waste
from analytics.tables.palette import Palette, palette
from analytics.tables.table import Table
from analytics.tables.what_if_reserve import reserve_by_pool, reserves_compared
from analytics.workloads.reclaimable import MARGINS, Reclaimable
from analytics.workloads.surplus import MARGIN
from dashboard.actions import KINDS, Wish, act
from dashboard.decisions import opportunities_of
from dashboard.error_panels import in_a_line, language_of
from dashboard.exports import links
from dashboard.grid import grid, rows_of
from dashboard.pages.action_form import action_form, fields, kind_of, presses, told
from dashboard.pages.opportunity_table import (
    BY_GPU,
    GROUPS,
    check_group,
    columns,
    detail,
    opportunity_of_row,
    rows,
)
from dashboard.pages.page import Page
from dashboard.render.panel import panel, section_panel
from dashboard.render.tables import section_tables
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.clock import SystemClock
from fallow.errors import FallowError, UsageError

_GRID, _DETAIL, _PREFIX, _WHAT_IF = "opportunities-grid", "opportunity-detail", "opportunity-", "what-if"
_WORDS = "what-if-words"
_CHOSEN, _ARRIVED, _TRIED = "opportunity-chosen", "opportunity-arrived", "reserve-tried"
"""The chosen decision, which may be none of the table's, the one that the page has gone to, and the place of the reserve that is tried out."""
_SUMS, _CARDS, _REST = "opportunities-sums", "opportunities-cards", "opportunities-rest"
_CARDS_AT_ONCE = 10


class OpportunitiesPage(Page):
    """`/opportunities`."""

    path = "/opportunities"
    name: str = tr("What to do")

    def connect(self, app: Any, source: LakeSource) -> None:
        """A chosen row is shown in full, the buttons act on its leading finding, and the slider tries out a reserve."""
        app.clientside_callback(
            ClientsideFunction("opportunities", "choose"),
            Output(_CHOSEN, "data"),
            Input(_GRID, "selectedRows"),
            State(_CHOSEN, "data"),
            prevent_initial_call=True,
        )
        # with an output, for without one dash does not call it when the page comes with a decision chosen
        app.clientside_callback(
            ClientsideFunction("opportunities", "arrive"), Output(_ARRIVED, "data"), Input(_DETAIL, "children")
        )
        app.clientside_callback(
            ClientsideFunction("opportunities", "reserve"),
            Output(_TRIED, "data"),
            Input("reserve", "value"),
            State("reserves", "data"),
            State(_TRIED, "data"),
            prevent_initial_call=True,
        )
        _connect_looking(app, source)
        _connect_acting(app, source)
        _connect_reserve(app, source)

    def content(self, view: View, colours: Palette) -> html.Div:
        found = opportunities_of(view)
        place = MARGINS.index(asked_margin(view.query.reserve))
        return html.Div(
            [
                dcc.Store(id=_CHOSEN, data=_known(found, view.query.opportunity)),
                dcc.Store(id=_ARRIVED),
                dcc.Store(id=_TRIED, data=place),
                html.Div(_decisions(view, colours, found), className="panels"),
                html.Div(_rest(view, colours, found, place), id=_REST, className="panels"),
            ]
        )


def _known(found: Opportunities, wanted: str) -> str:
    """The id of one that the reader sees, else none."""
    return wanted if any(each.opportunity_id == wanted for each in found.listed) else ""


def _leading(found: Opportunities, wanted: str) -> tuple[str, ...]:
    """The id of the finding that the chosen one stands on; nothing where it stands on none, so that there is nothing to act on."""
    return tuple(
        each.leading.finding_id for each in found.listed if each.opportunity_id == wanted and each.leading is not None
    )


def _rest(view: View, colours: Palette, found: Opportunities, place: int) -> list[html.Section]:
    """The sections below the decisions: what is put off, what can go, the slider at its `place`, what to look at and the sum."""
    given, left, later = found.reclaimable, to_look_at(found), put_off(found, view.report.review.actions)
    return [
        *([section_panel(view, colours, later, first=12, wide=True)] if later is not None else []),
        *([section_panel(view, colours, give_back(given), table="below", wide=True)] if given is not None else []),
        *([what_if_panel(view, colours, given, MARGINS[place])] if given is not None else []),
        *([section_panel(view, colours, left, first=12, wide=True)] if left is not None else []),
        section_panel(view, colours, waste(found), wide=True),
    ]


def _decisions(view: View, colours: Palette, found: Opportunities) -> html.Section:
    """The table with its groups, and beside it the chosen one with what can be done about it."""
    section, wrong, group = opportunities(found), [], ""
    try:
        group = check_group(view.query.group)
    except UsageError as error:
        wrong = [html.P(in_a_line(view.language, error.message, error.hint), className="simulated", role="alert")]
    listed = rows(view, found, group)
    wanted = view.query.opportunity
    chosen = [name for name, _ in listed if opportunity_of_row(name) == wanted][:1]
    title = view.translate(section.title)
    table = grid(view.language, _GRID, title, columns(view, group), listed, chosen=chosen, one=True, high_rows=True)
    beside = html.Aside(
        [
            html.Div(detail(view, found, wanted), id=_DETAIL, role="region",
                     **{"aria-live": "polite", "aria-label": view.translate(tr("The chosen decision"))}),
            *action_form(view, tr("With the finding that the chosen decision stands on"), _PREFIX, ready=bool(_leading(found, wanted))),
        ],
        className="side",
    )  # fmt: skip
    return panel(
        name=section.name,
        title=title,
        question=view.translate(section.question),
        finding=html.Span(view.translate(section.headline), id="opportunities-words"),
        body=[
            *wrong,
            html.Div([_grouping(view, group), links(view, "opportunities")], className="tools"),
            html.Div(_sums(view, colours, found, group), id=_SUMS),
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(table, className="as-table"),
                            html.Div(_cards(view, colours, found), id=_CARDS, className="as-cards"),
                            *_notes(view, section),
                            *([html.P(view.translate(tr("Each row has the figures of its whole decision.")), className="note")] if group == BY_GPU else []),
                        ]
                    ),
                    html.Div(beside, className="side-place"),
                ],
                className="with-side",
            ),
        ],
        wide=True,
    )  # fmt: skip


def _sums(view: View, colours: Palette, found: Opportunities, group: str) -> list[html.Section]:
    if group not in ("owner", "pool") or not found.ranked:
        return []
    return [section_panel(view, colours, by_group(found, "owner" if group == "owner" else "pool"))]


def _cards(view: View, colours: Palette, found: Opportunities) -> list[Any]:
    """What a telephone has instead of the table: each decision as a block that leads to its panel."""
    return section_tables(view, colours, opportunities(found, _CARDS_AT_ONCE, in_brief=True), first=_CARDS_AT_ONCE)


def _grouping(view: View, group: str) -> html.Span:
    """Links: what is grouped by stands in the address."""
    query = view.query.on_every_page.but(reserve=view.query.reserve)
    shown = [
        html.A(
            view.translate(label), href="/opportunities" + query.but(group=name).search,
            **({"aria-current": "true"} if name == group else {}),
        )
        for name, label in GROUPS.items()
    ]  # fmt: skip
    return html.Span([html.Span(view.translate(tr("Grouped by"))), *shown], className="grouping")


def percent(margin: float) -> str:
    """A reserve as the address has it."""
    return str(round(100 * margin))


def asked_margin(reserve: str) -> float:
    """The reserve of the address; whatever is none of those compared is the one that is kept."""
    return next((margin for margin in MARGINS if percent(margin) == reserve), MARGIN)


def what_if_panel(view: View, colours: Palette, given: Reclaimable, margin: float) -> html.Section:
    """The slider and what its reserve would mean."""
    section = reserve_by_pool(given, margin)
    label = view.translate(tr("Reserve: the share by which more is kept than was needed at once"))
    slider = html.Div(
        [
            html.Span(label, id="reserve-label", className="reserve-label"),
            # by places: the keyboard goes from one reserve that is compared to the next
            dcc.Slider(
                id="reserve", min=0, max=len(MARGINS) - 1, step=1, value=MARGINS.index(margin), allow_direct_input=False,
                marks={place: view.language.shown(Share(each, 0)) for place, each in enumerate(MARGINS)},
            ),
            dcc.Store(id="reserves", data=[percent(each) for each in MARGINS]),
        ],
        className="reserve", role="group", **{"aria-labelledby": "reserve-label"},
    )  # fmt: skip
    return panel(
        name=section.name,
        title=view.translate(section.title),
        question=view.translate(section.question),
        finding=html.Span(view.translate(section.headline), id=_WORDS, **{"aria-live": "polite"}),
        body=[slider, html.Div(_what_if(view, colours, given, section), id=_WHAT_IF), *_notes(view, section)],
        wide=True,
    )


def _what_if(view: View, colours: Palette, given: Reclaimable, section: Table) -> list[Any]:
    """One reserve by pool, and all of them beside one another."""
    compared = reserves_compared(given)
    return [
        *section_tables(view, colours, section),
        html.H3(view.translate(compared.title), id=f"{compared.name}-title"),
        *section_tables(view, colours, compared),
    ]


def _notes(view: View, section: Table) -> list[html.P]:
    return [html.P(view.translate(note), className="note") for note in section.notes]


def _connect_looking(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]  # dash is untyped
        Output(_DETAIL, "children"), Output(f"{_PREFIX}acts", "disabled"),
        Input(_CHOSEN, "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def look(chosen: Any, search: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            said = in_a_line(language_of(source, search), view.message, view.hint)
            return [[html.P(said, className="hint", role="alert")], True]
        found, wanted = opportunities_of(view), str(chosen or "")
        return [detail(view, found, wanted), not _leading(found, wanted)]


def _connect_reserve(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        Output(_WHAT_IF, "children"), Output(_WORDS, "children"),
        Input("reserve", "value"), State("url", "search"), State("scheme", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def slide(place: Any, search: str | None, scheme: str | None) -> Any:
        view = view_of(source, search)
        given = None if isinstance(view, Problem) else opportunities_of(view).reclaimable
        if isinstance(view, Problem) or given is None or place not in range(len(MARGINS)):
            return [no_update] * 2
        section, colours = (
            reserve_by_pool(given, MARGINS[place]),
            palette("dark" if scheme == "dark" else "light"),
        )
        return [_what_if(view, colours, given, section), view.translate(section.headline)]


def _connect_acting(app: Any, source: LakeSource) -> None:
    @app.callback(  # type: ignore[untyped-decorator]
        *told(_PREFIX),
        Output("version", "data", allow_duplicate=True),
        Output(_GRID, "rowData"), Output(_DETAIL, "children", allow_duplicate=True), Output("opportunities-words", "children"),
        Output(_SUMS, "children"), Output(_CARDS, "children"), Output(_REST, "children"),
        *presses(_PREFIX), State("url", "search"), State("scheme", "data"), State(_CHOSEN, "data"), State(_TRIED, "data"),
        *fields(_PREFIX),
        prevent_initial_call=True,
    )  # fmt: skip
    def press(*values: Any) -> Any:
        search, scheme, chosen, tried, text, until, seen = values[len(KINDS) :]
        kind = kind_of(callback_context.triggered_id, _PREFIX, values[: len(KINDS)])
        if kind is None:
            return [no_update] * _TOLD
        seen = seen if isinstance(seen, dict) else {}
        wish = Wish(kind, (), str(text or ""), str(until or ""), seen)
        colours = palette("dark" if scheme == "dark" else "light")
        place = tried if tried in range(len(MARGINS)) else MARGINS.index(MARGIN)
        return _acted(
            source, search, str(chosen or ""), wish, lambda now: _shown(now, colours, str(chosen or ""), place)
        )


_TOLD = 10
"""What a button changes: what is said, seen and written, the version, and the decisions wherever the page shows them."""


def _acted(
    source: LakeSource, search: str | None, wanted: str, wish: Wish, shown: Callable[[View], list[Any]]
) -> list[Any]:
    """What the page shows after a button: what was done or why it was not, and the decisions as they are now."""
    view = view_of(source, search)
    if isinstance(view, Problem):
        return [in_a_line(language_of(source, search), view.message, view.hint), *[no_update] * (_TOLD - 1)]
    leading = _leading(opportunities_of(view), wanted)
    try:
        outcome = act(view, Wish(wish.kind, leading, wish.text, wish.until, wish.seen), SystemClock().now_ms())
    except FallowError as error:
        told = problem_of(error, view.reader)
        return [in_a_line(view.language, told.message, told.hint), *[no_update] * (_TOLD - 1)]
    source.forget()
    now = view_of(source, search)
    said = view.translate(outcome.said)
    if isinstance(now, Problem):
        return [said, outcome.seen, *[no_update] * (_TOLD - 2)]
    return [said, outcome.seen, "" if outcome.done else no_update, now.version, *shown(now)]


def _shown(view: View, colours: Palette, wanted: str, place: int) -> list[Any]:
    """The decisions in all places of the page: after an action none of them may show what was before."""
    found = opportunities_of(view)
    group = view.query.group if view.query.group in GROUPS else ""
    return [
        rows_of(rows(view, found, group)),
        detail(view, found, wanted),
        view.translate(opportunities(found).headline),
        _sums(view, colours, found, group),
        _cards(view, colours, found),
        _rest(view, colours, found, place),
    ]
