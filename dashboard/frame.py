"""What surrounds every page: the navigation, the choices and the heading."""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Input, Output, State, dcc, html, no_update

from analytics.decide.actions import actor_words
from analytics.language.sentences import Moment, plain, tr
from analytics.report.weeks import SPANS
from analytics.tables.facts import facts
from analytics.tables.wording import scope_parts
from dashboard.access.people import ADMIN
from dashboard.pages import PAGES, PLACES
from dashboard.pages.page import Page, PagePlace
from dashboard.query import DEFAULT_SPAN, Query
from dashboard.render.tables import facts_list
from dashboard.times import day_fields, shown_days
from dashboard.view import View
from fallow import __version__
from fallow.clock import DAY_MS
from fallow.outside_text import revealed

_FILTERS = ("span", "pool", "model", "team")
_READING = ("zone", "lang")
CONTROLS = (*_FILTERS, *_READING)
"""The choices, each in the element `ask-NAME`; its value is the query's, empty for the default."""

_LABELS = {
    "span": tr("window"),
    "pool": tr("pool"),
    "model": tr("model"),
    "team": tr("team"),
    "zone": tr("time zone"),
    "lang": tr("language"),
}
_EVERYTHING = {"pool": tr("all pools"), "model": tr("all models"), "team": tr("all teams")}
_SPAN_NAMES = {
    "24h": tr("last 24 hours"),
    "3d": tr("last 3 days"),
    "7d": tr("last 7 days"),
    "28d": tr("last 28 days"),
    "all": tr("all data"),
}
_LANGUAGES = {"en": "English", "fr": "Français"}
_ZONES = (
    "UTC",
    "America/Los_Angeles",
    "America/New_York",
    "Europe/London",
    "Europe/Paris",
    "Asia/Kolkata",
    "Asia/Shanghai",
    "Asia/Tokyo",
    "Australia/Sydney",
)


def _control(name: str) -> html.Div:
    """The list of one choice, without options: these come with the page, as the label does in its reader's language."""
    return html.Div(
        [
            html.Label(str(_LABELS[name]), id=f"label-{name}", htmlFor=f"ask-{name}"),
            dcc.Dropdown(id=f"ask-{name}", options=[], value="", clearable=False, searchable=name != "span"),
            *([_any_days()] if name == "span" else []),
        ],
        className=f"ask of-{name}",
        id=f"box-{name}",
    )


def _any_days() -> html.Details:
    """Beside the lengths of time, a form for any days."""
    return html.Details(
        [html.Summary(_days_name(), id="days-summary", className="button"), html.Form([], id="days-form")],
        id="days",
        className="any-days",
    )


def _days_name(view: View | None = None) -> html.Span:
    """What a screen reader says of the calendar; without a view as the labels come with the page."""
    name = tr("Choose days")
    return html.Span(str(name) if view is None else view.translate(name), className="for-readers")


OUTPUTS = [
    *(Output(f"label-{name}", "children") for name in CONTROLS),
    *(Output(f"ask-{name}", "options") for name in CONTROLS),
    *(Output(f"ask-{name}", "value") for name in CONTROLS),
    *(Output(f"box-{name}", "hidden") for name in CONTROLS),
    Output("days-summary", "children"),
    Output("days-form", "children"),
    Output("pages", "children"),
    Output("menu", "children"),
    Output("filters", "children"),
    Output("again", "children"),
    Output("skip", "children"),
    Output("copy", "children"),
    Output("shown", "data"),
    Output("spoken", "data"),
    Output("titled", "data"),
    Output("views-words", "data"),
]
"""What `choices` is for, in its order."""


def choices(view: View, path: str, query: Query | None = None) -> list[Any]:
    """Labels, options, values and what is hidden, for OUTPUTS: a choice of one is none.

    `query` is what was asked for, where the view is of something else.
    """
    query = view.query if query is None else query
    options = _options(view, query)
    values = {name: _value(view, query, name) for name in CONTROLS}
    return [
        *(view.translate(_LABELS[name]) for name in CONTROLS),
        *(options[name] for name in CONTROLS),
        *values.values(),
        *(name in _EVERYTHING and len(options[name]) <= 2 and not values[name] for name in CONTROLS),
        _days_name(view),
        _days(view, query),
        page_links(view, path),
        _menu_name(view, path),
        _filters_name(view, options, values),
        view.translate(tr("New data: show it")),
        view.translate(tr("Skip to the page")),
        view.translate(tr("Copy link")),
        values,
        view.language.code,
        _title(view, path, query, options["span"]),
        _saved_views_words(view),
    ]


def _days(view: View, query: Query) -> list[Any]:
    """The days that are asked for, else those that are shown."""
    first, last = (str(day) for day in shown_days(view))
    if query.first or query.last:
        first, last = query.first, query.last
    return day_fields(view, "window", first, last)


def _menu_name(view: View, path: str) -> str:
    """On a phone, on the button that opens the navigation: the page."""
    page = page_at(path)
    return view.translate(tr("Pages") if page is None else page.name)


def _filters_name(view: View, options: dict[str, list[dict[str, str]]], values: dict[str, str]) -> str:
    """On a phone, on the button that opens the choices: the window, and what is narrowed."""
    chosen = ("span", *(name for name in _EVERYTHING if values[name]))
    labels = [each["label"] for name in chosen for each in options[name] if each["value"] == values[name]]
    return ", ".join(labels) or view.translate(tr("Filters"))


def no_choices() -> list[Any]:
    """Leaves the bar as it is: there is a problem, and the way out of it is in the bar."""
    return [no_update] * len(OUTPUTS)


_SAVED_VIEWS = {
    "label": tr("Views"),
    "name": tr("Name of this view"),
    "save": tr("Save this view"),
    "none": tr("No view is saved yet."),
    "remove": tr("Delete"),
    "saved": tr("Saved in this browser."),
    "removed": tr("Deleted."),
    "nameless": tr("Give it a name first."),
    "full": tr("There are as many views as can be kept: delete one first."),
    "failed": tr("This browser keeps nothing: its storage is switched off or full."),
}


def _saved_views_words(view: View) -> dict[str, str]:
    """What the list of saved views says, and whose it is: one browser may have several readers."""
    words = {name: view.translate(text) for name, text in _SAVED_VIEWS.items()}
    return {**words, "person": view.reader.actor.log_words, "lang": view.language.code}


def _saved_views() -> html.Details:
    """The list, which the browser fills (assets/views.js)."""
    return html.Details(
        [
            html.Summary("Views", id="views-label", className="button"),
            html.Div(
                [
                    html.Ul([], id="views-list"),
                    html.Div(
                        [
                            dcc.Input(
                                id="views-name", type="text", maxLength=60, autoComplete="off", persistence=False
                            ),
                            html.Button("Save this view", id="views-save", type="button", className="button"),
                        ],
                        className="views-new",
                    ),
                    html.P("", id="views-status", role="status"),
                ],
                className="views-box",
            ),
        ],
        id="views",
    )


def _title(view: View, path: str, query: Query, spans: list[dict[str, str]]) -> str:
    """Return the browser window's title: page, subject, scope, window: `Findings, pool train, last 7 days - fallow`."""
    chosen = _value(view, query, "span")
    window = next((each["label"] for each in spans if each["value"] == chosen), "")
    page = page_at(path)
    name = [view.translate(page.name)] if page is not None else []
    about = [plain(getattr(query, path[1:]))] if path in ("/gpu", "/host") else []
    scope = [view.translate(part) for part in scope_parts(view.report.scope)]
    return f"{', '.join([*name, *about, *scope, window])} - fallow"


def _value(view: View, query: Query, name: str) -> str:
    if name == "span":
        is_named = query.names_window or view.has_own_window
        return query.span if query.span and not query.names_window else "" if is_named else DEFAULT_SPAN
    return str(getattr(query, name))


def _options(view: View, query: Query) -> dict[str, list[dict[str, str]]]:
    spans = {name: view.translate(_SPAN_NAMES[name]) for name in SPANS}
    if view.has_own_window:
        spans = {"": view.translate(tr("as the pages were started"))} | spans
    if query.names_window:
        first, last = (query.first, query.last) if query.first or query.last else (query.since, query.until)
        spans = {"": f"{first or '…'} - {last or '…'}"} | spans
    names = {
        name: {"": view.translate(everything)}
        | {each: each for each in (*view.names[name], getattr(query, name)) if each}
        for name, everything in _EVERYTHING.items()
    }
    if view.reader.team is not None:
        names["team"] = {view.reader.team: view.reader.team}
    settings = view.whole.inputs.settings
    own_zone, own_language = settings.text("report.timezone"), settings.text("report.language")
    found = {
        "span": spans,
        **names,
        "zone": {"": own_zone} | {each: each for each in (*_ZONES, query.zone) if each and each != own_zone},
        "lang": {"": _LANGUAGES[own_language]}
        | {code: name for code, name in _LANGUAGES.items() if code != own_language},
    }
    return {
        name: [{"label": revealed(label), "value": value} for value, label in each.items()]
        for name, each in found.items()
    }


def connect_bar(app: Any) -> None:
    """Turn a choice into an address, without a request to the server.

    A choice is a value other than those that the server last put into the lists: a late answer, whose reader has gone
    back already, is no choice.
    """
    for space, function, changed in (
        ("fallow", "copy", Input("copy", "n_clicks")),
        ("fallow", "speak", Input("spoken", "data")),
        ("fallow", "title", Input("titled", "data")),
        ("views", "words", Input("views-words", "data")),
    ):
        app.clientside_callback(ClientsideFunction(space, function), changed)
    app.clientside_callback(
        ClientsideFunction("fallow", "ask"),
        Output("url", "search"),
        *(Input(f"ask-{name}", "value") for name in CONTROLS),
        State("shown", "data"),
        prevent_initial_call=True,
    )


FAILED_ACTION = "failed-action"
"""The element that says why an action on the page failed."""

_NEWS_EVERY_MS = 60_000
_FACTS = ("window", "observed", "prices")
"""The report's facts that are above every page."""


def frame() -> html.Div:
    """Return the frame, which is the same for all readers and contains nothing from the lake."""
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="version", data=""),
            *(dcc.Store(id=name) for name in ("scheme", "shown", "spoken", "titled", "views-words")),
            dcc.Interval(id="news", interval=_NEWS_EVERY_MS),
            html.A("Skip to the page", href="#main", id="skip", className="skip"),
            html.Header(
                [
                    html.Span([html.B("fallow"), html.Span(" GPU waste")], className="brand"),
                    _fold("menu", "nav pages tools"),
                    html.Nav([], id="nav", **{"aria-label": "Places"}),
                    html.Button("New data: show it", id="again", hidden=True, className="again"),
                    html.Div(
                        [_saved_views(), html.Button("Copy link", id="copy", className="button")],
                        id="tools",
                        className="bar-tools",
                    ),
                    html.Div([_control(name) for name in _READING], id="reading", className="asks"),
                    html.Button(
                        "◐", id="theme", className="theme", title="light or dark", **{"aria-label": "Light or dark"}
                    ),
                    _fold("filters", "asks reading"),
                    html.Nav([], id="pages", **{"aria-label": "Pages of this place"}),
                    html.Div([_control(name) for name in _FILTERS], id="asks", className="asks", role="search"),
                ],
                id="bar",
                className="bar",
            ),
            html.Main(
                [
                    html.P("", id=FAILED_ACTION, className="stale", role="alert"),
                    html.Div(_skeleton(), id="page"),
                ],
                id="main",
                tabIndex="-1",
            ),
            html.Footer(f"fallow {__version__}"),
        ]
    )


def _fold(name: str, opens: str) -> html.Button:
    """On a phone, the button that opens what the ids in `opens` name (assets/fallow.js)."""
    return html.Button(
        name.capitalize(), id=name, className="button fold", **{"aria-expanded": "false", "aria-controls": opens}
    )


def _skeleton() -> list[Any]:
    """Return the outline that is shown until the page is ready."""
    outline = [html.Div(className=f"skeleton of-{part}") for part in ("heading", "answer", "picture", "rows")]
    return [html.P("Reading the ledger…", className="waiting for-readers", role="status"), *outline]


def page_at(path: str) -> Page | None:
    """Return the page of an address; None if there is none."""
    return next((page for page in PAGES if page.path == path), None)


def place_of(path: str) -> PagePlace | None:
    """Return the place to which the page of an address belongs; None if there is none."""
    return next((place for place in PLACES if any(page.path == path for page in place.pages)), None)


def links(view: View, path: str, way_out: str) -> list[html.Span]:
    """Return links to the places that the reader may open, with window and scope; then the name and the sign-out."""
    here = place_of(path)
    firsts = [(place, next(iter(_open_pages(view, place)), None)) for place in PLACES]
    shown = [
        _link(view, place.name, first.path, "true" if place == here else "")
        for place, first in firsts
        if first is not None
    ]
    return [*shown, *_who(view, way_out)]


def page_links(view: View, path: str) -> list[html.Span]:
    """Return links to the pages of the address's place; empty for an address without a place."""
    here = place_of(path)
    if here is None:
        return []
    return [_link(view, page.name, page.path, "page" if page.path == path else "") for page in _open_pages(view, here)]


def _open_pages(view: View, place: PagePlace) -> list[Page]:
    return [page for page in place.pages if page.listed and view.reader.may(page.role)]


def _link(view: View, name: str, path: str, current: str) -> html.Span:
    """A link to a page with the same window and scope, marked where it is `current`."""
    link = dcc.Link(view.translate(name), href=path + view.query.on_every_page.search)
    return html.Span(link, className="here", **{"aria-current": current}) if current else html.Span(link)


def _who(view: View, way_out: str) -> list[html.Span]:
    """Who reads, where that decides what they see, and the way out where they have signed in."""
    reader = view.reader
    if not way_out and reader.role == ADMIN:
        return []
    out = [html.A(view.translate(tr("Sign out")), href=way_out)] if way_out else []
    name = view.translate(actor_words(reader.actor))
    return [html.Span([html.Span(f"{name}, {reader.described}"), *out], className="who")]


def heading(view: View, page: Page) -> list[Any]:
    """The page's question, what its numbers are of, and whether the GPUs are simulated."""
    wanted = {view.translate(label) for label in _FACTS}
    shown = {
        label: fact for label, fact in facts(view.report.heading, view.report.ledger, view.language) if label in wanted
    }
    shown[view.translate("data as of")] = view.translate(tr("{moment}", moment=Moment(view.as_of_ms)))
    title = html.Div(
        [html.H1(view.translate(page.question or page.name)), facts_list(shown.items())], className="heading"
    )
    simulated = view.report.heading.simulated
    return [
        title,
        *([html.P(view.translate(simulated), className="simulated", role="note")] if simulated else []),
        *_beyond(view),
    ]


def _beyond(view: View) -> list[html.P]:
    """Where days are asked for that the lake does not reach to, from when to when it does."""
    query, known = view.query, view.report.heading.known
    if not query.names_window:
        return []
    asked = query.window(view.as_of_ms, view.zone)
    is_before = asked.since_ms is not None and asked.since_ms < (known.since_ms or 0) - DAY_MS
    is_after = asked.until_ms is not None and asked.until_ms > (known.until_ms or 0) + DAY_MS
    if not (is_before or is_after):
        return []
    note = tr(
        "There are data from {since} to {until} only: the rest of these days counts as not observed.",
        since=Moment(known.since_ms or 0),
        until=Moment(known.until_ms or 0),
    )
    return [html.P(view.translate(note), className="stale", role="note")]
