"""What other GPUs or rules would change for the jobs of the window: fields, the answer, a curve, saved scenarios."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import replace
from typing import Any, TypeVar

from dash import ALL, ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.language.sentences import Number, plain, tr, tr_many
from analytics.plan.replay.comparisons import LONGEST_NAME, ComparedScenario, as_toml, load_scenarios
from analytics.plan.replay.replay_base import ReplayOutcome
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.tables.names import place_name
from analytics.tables.palette import Palette, palette
from analytics.tables.plan_replay import replay_tables
from analytics.tables.plan_scenarios import pool_curve, scenario_table
from dashboard.actions import carry_out, may_save, record_scenario, withdraw_scenario
from dashboard.error_panels import error_line
from dashboard.pages.page import Page, in_words
from dashboard.pages.what_if_replays import GPUS_OF, OFF_PEAK_H, SHARES, Replays, WhatIfChoices, resizable
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.clock import SystemClock, format_ms
from fallow.errors import FallowError
from fallow.outside_text import revealed

_OUTCOME, _TICK, _CHOSEN = "what-if-outcome", "what-if-tick", "what-if-chosen"
"""The answer, the timer that asks for it, and the choices as the address has them."""

_SAVED, _SAVED_TICK, _DONE = "what-if-saved", "what-if-saved-tick", "what-if-done"
"""The saved scenarios side by side, the timer that asks for them, and the result of a button."""

_FIELD, _CHOICES = "what-if", ("off", "share", "merge", "small", "curve")
"""The type in the ids of number fields, and the lists, with ids that begin with it; see `WhatIfChoices.of_values`."""

_PATIENCE_S = 0.25
"""A replay that takes longer shows its progress."""
_ASKED_AGAIN_MS = 1000

V = TypeVar("V")


def _fields(view: View, fleet: ReplayFleet, choices: WhatIfChoices) -> html.Fieldset:
    """Return the fields: GPUs of each pool and the time-out in sight, other changes behind a title."""
    pools = sorted({group.pool for group in fleet.groups})
    more, has_others = dict(choices.gpus), replace(choices, gpus=(), idle=0.0, curve="") != WhatIfChoices()
    hours = [view.translate(tr("any hour")), *(f"{since:02}:00-{until:02}:00" for since, until in OFF_PEAK_H[1:])]
    others = [
        _choice("off", tr("Hours in which deferrable jobs start"), dict(enumerate(hours)), choices.place("off")),
        _choice(
            "share",
            tr("Jobs that take turns on one GPU, at most"),
            dict(enumerate(map(str, SHARES))),
            choices.place("share"),
        ),
        _choice("merge", tr("Pools that become one"), {each: revealed(each) for each in pools}, [*choices.merge]),
        _choice(
            "small",
            tr("Pool where batch, test and small jobs go first"),
            {"": view.translate(tr("their own pool"))} | {each: revealed(each) for each in pools},
            choices.small,
        ),
    ]
    return html.Fieldset(
        [
            html.Legend(tr("Change something: the jobs of this window are replayed. A negative number removes GPUs.")),
            html.Div(
                [
                    *(
                        _number_field(
                            f"{GPUS_OF}{name}",
                            tr("GPUs to add in {pool}", pool=place_name(name)),
                            more.get(name),
                            tr_many("{number} {GPU|GPUs} today", there),
                        )
                        for name, there in resizable(fleet).items()
                    ),
                    _number_field(
                        "idle",
                        tr("Idle time-out in hours"),
                        choices.idle or None,
                        tr("without work on any GPU"),
                        least=0,
                    ),
                    _choice(
                        "curve",
                        tr("Curve of queue waits"),
                        {"": view.translate(tr("changed pool"))}
                        | {name: view.language.shown(place_name(name)) for name in resizable(fleet)},
                        choices.curve,
                    ),
                ],
                className="fields",
            ),
            html.Details(
                [html.Summary(tr("Other changes")), html.Div(others, className="fields")], open=has_others or None
            ),
        ],
        className="what-if",
    )


def _number_field(name: str, label: str, value: float | None, note: str, *, least: int | None = None) -> html.Div:
    field_id = {"type": _FIELD, "name": name}
    field = dcc.Input(
        id=field_id,
        type="number",
        value=value,
        debounce=0.5,
        step=1 if least is None else "any",
        **({} if least is None else {"min": least}),
    )
    label_for = json.dumps(field_id, sort_keys=True, separators=(",", ":"))  # the id of the element
    return html.Div([html.Label(label, htmlFor=label_for), field, html.Small(note)], className="field")


def _choice(name: str, label: str, options: Mapping[Any, str], value: Any) -> html.Div:
    """Return a list to choose from; several where the value is a list."""
    field = dcc.Dropdown(
        id=f"{_FIELD}-{name}",
        options=[{"label": words, "value": each} for each, words in options.items()],
        value=value,
        multi=isinstance(value, list),
        clearable=isinstance(value, list),
        searchable=False,
        placeholder=tr("none"),
    )
    return html.Div([html.Label(label, htmlFor=f"{_FIELD}-{name}"), field, html.Small("")], className="field")


def answer(source: LakeSource, view: View, colours: Palette, choices: WhatIfChoices) -> tuple[list[Any], bool]:
    """Return the panels of the choices, or the progress of their replay, and whether all of them are there."""
    replays, reader = Replays.of(view), view.reader.actor.log_words
    try:
        outcome = _awaited(replays.begin(source, choices, reader))
    except FallowError as error:
        return [html.P(error_line(view, error), role="alert")], True
    if outcome is None:
        return [_progress(*replays.progress(choices))], False
    first, check, *others = replay_tables(replays.base, outcome, view.report.money)
    link = [html.P(_link(view, choices, tr("Link to this answer over the same days")), className="onward")]
    curve, is_whole = _curve(source, view, colours, choices, outcome)
    panels = [
        section_panel(view, colours, first, after=link if choices.but_curve.text else (), wide=True),
        *curve,
        *(section_panel(view, colours, each, wide=True) for each in (*others, check)),
    ]
    return panels, is_whole


def _awaited(future: Future[V]) -> V | None:
    """Return a result that comes at once, else None; raise its FallowError."""
    try:
        return future.result(_PATIENCE_S)
    except NotYetError:
        return None


def _curve(
    source: LakeSource, view: View, colours: Palette, choices: WhatIfChoices, outcome: ReplayOutcome
) -> tuple[list[Any], bool]:
    """Return the panel with the queue waits of a pool by its GPUs, and whether it is there."""
    replays = Replays.of(view)
    name = replays.curve_name(choices)
    if not name or not replays.base.check.has_use:
        return [], True
    found = None
    if replays.has_curve(name):
        try:
            begun = replays.begin_curve(source, name, replays.sizes(choices, name), view.reader.actor.log_words)
            found = _awaited(begun)
        except FallowError as error:
            return [html.P(error_line(view, error), role="alert")], True
        if found is None:
            return [html.P(tr("The curve of queue waits is computed…"), className="waiting", role="status")], False
    point = replays.scenario_point(choices, outcome, name)
    table = pool_curve(replays.base.check, replays.pool_of(name), found, point, view.report.money.currency)
    return [section_panel(view, colours, table, wide=True)], True


def _link(view: View, choices: WhatIfChoices, words: str) -> dcc.Link:
    """Return a link to the page with these choices, over the same window on any later day."""
    summary = view.report.ledger.summary
    window = {"since": format_ms(summary.since_ms), "until": format_ms(summary.until_ms)}
    asked = view.query.on_every_page.but(span="", first="", last="", scenario=choices.text, **window)
    return dcc.Link(words, href=f"{WHAT_IF.path}{asked.search}")


def _progress(spent_s: float, share: float | None) -> html.Div:
    """Return how long the replay has run, with a bar; without a share the bar has no end."""
    words = tr("The jobs of the window are replayed: {seconds} s so far.", seconds=Number(round(spent_s)))
    value = {} if share is None else {"value": str(share), "max": "1"}
    bar = html.Progress(**value, **{"aria-labelledby": "what-if-progress"})
    return html.Div([html.P(words, id="what-if-progress"), bar], className="waiting", role="status")


def compared(source: LakeSource, view: View, colours: Palette) -> tuple[list[Any], bool]:
    """Return the table of saved scenarios, or its progress, and whether it is there."""
    try:
        saved = load_scenarios(view.whole.inputs.lake)
        found = _awaited(Replays.of(view).compare(source, saved, view.reader.actor.log_words))
    except FallowError as error:
        return [html.P(error_line(view, error), role="alert")], True
    if found is None:
        return [html.P(tr("Saved scenarios are replayed…"), className="waiting", role="status")], False
    if not found:
        return [], True
    table = scenario_table(found, view.report.money)
    return [section_panel(view, colours, table, after=_openers(view, found), wide=True)], True


def _openers(view: View, found: Sequence[ComparedScenario]) -> list[html.P]:
    """Return links that fill the fields with a saved scenario; a scenario with changes beyond the fields has none."""
    fleet = Replays.of(view).base.fleet
    read = ((each.saved.name, WhatIfChoices.of_policy(each.saved.policy, fleet)) for each in found)
    links = [_link(view, choices, html.Bdi(plain(name))) for name, choices in read if choices is not None]
    return [html.P([tr("Open:"), *(part for link in links for part in (" ", link))], className="onward")] * bool(links)


def _saving(view: View) -> list[Any]:
    """Return the form that saves and removes; for readers who may not save an empty status."""
    done = html.P("", id=_DONE, role="status")
    if not may_save(view):
        return [done]
    name = dcc.Input(id="what-if-name", type="text", value="", maxLength=LONGEST_NAME)
    label = html.Label(tr("Name of the scenario"), htmlFor="what-if-name")
    buttons = [
        html.Button(tr("Save"), id="what-if-save", className="button", n_clicks=0),
        html.Button(tr("Remove the scenario with this name"), id="what-if-remove", className="button", n_clicks=0),
    ]
    legend = html.Legend(tr("Save this change for all readers and for the report"))
    return [html.Fieldset([legend, html.Div([label, name], className="field"), *buttons], className="annotate"), done]


def _done(view: View, name: str, chosen: str, *, is_removed: bool) -> str:
    now_ms = SystemClock().now_ms()
    if is_removed:
        return tr("{name} is removed.", name=plain(withdraw_scenario(view, name, now_ms).name))
    policy = as_toml(WhatIfChoices.parse(chosen, Replays.of(view).base.fleet).content)
    return tr("{name} is saved.", name=plain(record_scenario(view, name, policy, now_ms).name))


def _content(view: View, _: Palette) -> html.Div:
    """Return the fields and the places of the answer; for a team or user a sentence."""
    if view.report.scope.is_personal:
        return html.Div(html.P(tr("A replay takes the jobs of all teams: choose all teams."), className="headline"))
    fleet = Replays.of(view).base.fleet
    return html.Div(
        [
            _fields(view, fleet, WhatIfChoices.parse(view.query.scenario, fleet)),
            html.Span("", id=_CHOSEN, hidden=True),
            dcc.Interval(id=_TICK, interval=_ASKED_AGAIN_MS, disabled=True),
            html.Div([], id=_OUTCOME, className="panels", **{"aria-live": "polite"}),
            *_saving(view),
            html.Div([], id=_SAVED, className="panels"),
            dcc.Interval(id=_SAVED_TICK, interval=_ASKED_AGAIN_MS, disabled=False),
        ]
    )


def shown(
    source: LakeSource, view: View, colours: Palette, fields: Mapping[str, object]
) -> tuple[list[Any], bool, str]:
    """Return the answer to the values of the fields, whether it is whole, and the choices for the address."""
    try:
        choices = WhatIfChoices.of_values(fields, Replays.of(view).base.fleet)
    except FallowError as error:
        return [html.P(error_line(view, error), role="alert")], True, ""
    return *answer(source, view, colours, choices), choices.text


def _numbers(sent: Any) -> dict[str, object]:
    """Return the values of the number fields that a browser sent, by name."""
    known = [each for each in sent if isinstance(each, dict)] if isinstance(sent, list) else []
    return {str(each["id"].get("name")): each.get("value") for each in known if isinstance(each.get("id"), dict)}


def _connect(app: Any, source: LakeSource) -> None:
    """Replay each choice and write it into the address; ask again until the answer is whole."""
    app.clientside_callback(
        ClientsideFunction("whatif", "chosen"), Output(_CHOSEN, "className"), Input(_CHOSEN, "title")
    )

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_OUTCOME, "children"),
        Output(_TICK, "disabled"),
        Output(_CHOSEN, "title"),
        Input({"type": _FIELD, "name": ALL}, "value"),
        *(Input(f"{_FIELD}-{name}", "value") for name in _CHOICES),
        Input(_TICK, "n_intervals"),
        State("url", "search"),
        State("scheme", "data"),
    )
    def try_out(_: Any, *values: Any) -> Any:
        *chosen, _, search, scheme = values
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [no_update, not view.is_passing, no_update]
        if view.report.scope.is_personal:
            return [no_update] * 3
        fields = _numbers(callback_context.inputs_list[0]) | dict(zip(_CHOICES, chosen, strict=True))
        panels, is_whole, text = shown(source, view, palette(str(scheme)), fields)
        return [in_words(panels, view.language), is_whole, text]

    _connect_saved(app, source)


def _connect_saved(app: Any, source: LakeSource) -> None:
    """Fill the table of saved scenarios, and connect the buttons that save and remove one."""

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_SAVED, "children"),
        Output(_SAVED_TICK, "disabled"),
        Input(_SAVED_TICK, "n_intervals"),
        Input(_DONE, "children"),
        State("url", "search"),
        State("scheme", "data"),
    )
    def compare(_: Any, __: Any, search: str | None, scheme: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem):
            return [no_update, not view.is_passing]
        if view.report.scope.is_personal:
            return [no_update] * 2
        return in_words(compared(source, view, palette(str(scheme))), view.language)

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_DONE, "children"),
        Output(_SAVED_TICK, "disabled", allow_duplicate=True),
        Input("what-if-save", "n_clicks"),
        Input("what-if-remove", "n_clicks"),
        State("what-if-name", "value"),
        State(_CHOSEN, "title"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def press(saves: Any, removes: Any, name: Any, chosen: Any, search: str | None) -> Any:
        if not (saves or removes):
            return [no_update] * 2
        is_removed = callback_context.triggered_id == "what-if-remove"
        done, _, _ = carry_out(
            source, search, lambda view: (_done(view, str(name or ""), str(chosen or ""), is_removed=is_removed), None)
        )
        return [done, False]


WHAT_IF = Page(
    "/what-if",
    tr("What if"),
    _content,
    _connect,
    question=tr("What would have changed with other GPUs or other rules?"),
)
