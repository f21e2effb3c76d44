"""What would have become of the jobs of the window with another fleet or another policy."""

from __future__ import annotations

from concurrent.futures import TimeoutError as NotYetError
from typing import Any

from dash import ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.plan.scenarios import LONGEST_NAME, as_toml, load_scenarios
from analytics.tables.palette import Palette, palette
from analytics.tables.plan_replay import replay_tables
from analytics.tables.plan_scenarios import scenario_table
from dashboard.error_panels import in_a_line
from dashboard.pages.page import Page
from dashboard.pages.what_if_choices import IDLE_TIMEOUTS_H, OFF_PEAK_H, SHARES, SIZES_PCT, SLIDERS, WhatIfChoices
from dashboard.pages.what_if_replays import Replays
from dashboard.render.panel import section_panel
from dashboard.scenarios import may_save, remove, save
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View, problem_of
from fallow.clock import SystemClock
from fallow.errors import FallowError
from fallow.outside_text import revealed

_OUTCOME, _TICK, _CHOSEN = "what-if-outcome", "what-if-tick", "what-if-chosen"
"""What comes of the choices, what asks again while it is being made, and the choices as the address has them."""

_SAVED, _SAVED_TICK, _SAID = "what-if-saved", "what-if-saved-tick", "what-if-said"
"""The saved scenarios side by side, what asks again for them, and what is said after a button."""

_PATIENCE_S = 0.25
"""So long an answer is waited for before the progress is shown instead."""
_ASKED_AGAIN_MS = 1000

_LABELS = {
    "size": tr("GPUs of every pool, in percent more or fewer"),
    "idle": tr("A job ends when its GPUs have idled for so many hours"),
    "off": tr("Work that can wait begins, hours of the day"),
    "share": tr("Jobs that take turns on one GPU, at most"),
}


class WhatIfPage(Page):
    path = "/what-if"
    name: str = tr("What if")

    def connect(self, app: Any, source: LakeSource) -> None:
        """A choice is replayed and stands in the address; while it takes long the page asks again."""
        app.clientside_callback(
            ClientsideFunction("whatif", "chosen"), Output(_CHOSEN, "className"), Input(_CHOSEN, "title"),
        )  # fmt: skip

        @app.callback(  # type: ignore[untyped-decorator]
            Output(_OUTCOME, "children"), Output(_TICK, "disabled"), Output(_CHOSEN, "title"),
            *(Input(f"what-if-{name}", "value") for name in SLIDERS),
            Input("what-if-merge", "value"), Input("what-if-small", "value"), Input(_TICK, "n_intervals"),
            State("url", "search"), State("scheme", "data"),
        )  # fmt: skip
        def try_out(*values: Any) -> Any:
            *places, merge, small, _, search, scheme = values
            view = view_of(source, search)
            if isinstance(view, Problem) or view.report.scope.is_personal:
                return [no_update] * 3
            choices = WhatIfChoices.at(dict(zip(SLIDERS, places, strict=True)), merge, small, view.names["pool"])
            colours = palette("dark" if scheme == "dark" else "light")
            shown, is_done = answer(source, view, colours, choices)
            return [shown, is_done, choices.text]

        _connect_saved(app, source)

    def content(self, view: View, _: Palette) -> html.Div:
        """A sentence for people, who have no fleet of their own."""
        if view.report.scope.is_personal:
            said = tr("What if is asked of GPUs, whoever has them: choose all teams, and a pool or a model.")
            return html.Div(html.P(view.translate(said), className="headline"))
        return html.Div(
            [
                _form(view, WhatIfChoices.parse(view.query.scenario, view.names["pool"])),
                dcc.Interval(id=_TICK, interval=_ASKED_AGAIN_MS, disabled=True),
                html.Div([], id=_OUTCOME, className="panels", **{"aria-live": "polite"}),
                *_saving(view),
                html.Div([], id=_SAVED, className="panels"),
                dcc.Interval(id=_SAVED_TICK, interval=_ASKED_AGAIN_MS, disabled=False),
            ]
        )


def _connect_saved(app: Any, source: LakeSource) -> None:
    """The table of saved scenarios, which asks again until it is there, and the buttons that save and remove one."""

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_SAVED, "children"), Output(_SAVED_TICK, "disabled"),
        Input(_SAVED_TICK, "n_intervals"), Input(_SAID, "children"), State("url", "search"), State("scheme", "data"),
    )  # fmt: skip
    def compare(_: Any, __: Any, search: str | None, scheme: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem) or view.report.scope.is_personal:
            return [no_update] * 2
        return compared(source, view, palette("dark" if scheme == "dark" else "light"))

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_SAID, "children"), Output(_SAVED_TICK, "disabled", allow_duplicate=True),
        Input("what-if-save", "n_clicks"), Input("what-if-remove", "n_clicks"),
        State("what-if-name", "value"), State(_CHOSEN, "title"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def press(saves: Any, removes: Any, name: Any, chosen: Any, search: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem) or not (saves or removes):
            return [no_update] * 2
        is_removed = callback_context.triggered_id == "what-if-remove"
        return [_done(source, view, str(name or ""), str(chosen or ""), is_removed=is_removed), False]


def _done(source: LakeSource, view: View, name: str, chosen: str, *, is_removed: bool) -> str:
    """What is said after a button."""
    now_ms = SystemClock().now_ms()
    try:
        if is_removed:
            said = tr("{name} is removed.", name=plain(remove(view, name, now_ms).name))
        else:
            policy = as_toml(WhatIfChoices.parse(chosen, view.names["pool"]).content(Replays.of(view).base.fleet))
            said = tr("{name} is saved.", name=plain(save(view, name, policy, now_ms).name))
    except FallowError as error:
        told = problem_of(error, view.reader)
        return in_a_line(view.language, told.message, told.hint)
    source.forget()
    return view.translate(said)


def _saving(view: View) -> list[Any]:
    """The form of those who may save; for the others only the place in which nothing is said."""
    said = html.P("", id=_SAID, role="status")
    if not may_save(view):
        return [said]
    label = view.translate(tr("Name of the scenario"))
    return [
        html.Fieldset(
            [
                html.Legend(view.translate(tr("Keep what is set above, for everybody and for the report"))),
                html.Div([html.Label(label, htmlFor="what-if-name"), dcc.Input(id="what-if-name", type="text", value="", maxLength=LONGEST_NAME)], className="field"),
                html.Button(view.translate(tr("Save")), id="what-if-save", className="button", n_clicks=0),
                html.Button(view.translate(tr("Remove the one of this name")), id="what-if-remove", className="button", n_clicks=0),
            ],
            className="annotate",
        ),
        said,
    ]  # fmt: skip


def _form(view: View, choices: WhatIfChoices) -> html.Fieldset:
    pools = view.names["pool"]
    marks: dict[str, list[str]] = {
        "size": [f"{each:+d}" if each else "0" for each in SIZES_PCT],
        "idle": [view.translate(tr("never") if not each else str(each)) for each in IDLE_TIMEOUTS_H],
        "off": [f"{since}-{until}" if since != until else view.translate(tr("at once")) for since, until in OFF_PEAK_H],
        "share": [str(each) for each in SHARES],
    }  # fmt: skip
    return html.Fieldset(
        [
            html.Legend(view.translate(tr("Try it on the jobs of this window")), id="what-if-title"),
            *(_slider(view, name, marks[name], choices.place(name)) for name in SLIDERS),
            _choice(view, "merge", tr("Pools that become one"), list(pools), list(choices.merge), several=True),
            _choice(view, "small", tr("Batch, test and small work goes first to"), list(pools), choices.small or None),
            html.Span("", id=_CHOSEN, hidden=True),
        ],
        className="what-if",
    )


def _slider(view: View, name: str, marks: list[str], place: int) -> html.Div:
    slider_id, label_id = f"what-if-{name}", f"what-if-{name}-label"
    return html.Div(
        [
            html.Span(view.translate(_LABELS[name]), id=label_id, className="reserve-label"),
            dcc.Slider(
                id=slider_id, min=0, max=len(marks) - 1, step=1, value=place, allow_direct_input=False,
                marks=dict(enumerate(marks)),
            ),
        ],
        className="reserve named-slider", role="group", **{"aria-labelledby": label_id},
    )  # fmt: skip


def _choice(view: View, name: str, label: str, options: list[str], value: Any, *, several: bool = False) -> html.Div:
    shown = [{"label": revealed(each), "value": each} for each in options]
    return html.Div(
        [
            html.Label(view.translate(label), htmlFor=f"what-if-{name}", className="reserve-label"),
            dcc.Dropdown(id=f"what-if-{name}", options=shown, value=value, multi=several),
        ],
        className="reserve",
    )


def answer(source: LakeSource, view: View, colours: Palette, choices: WhatIfChoices) -> tuple[list[Any], bool]:
    """What came of the choices, or how far their replay is, and whether it is there."""
    replays = Replays.of(view)
    try:
        outcome = replays.begin(source, choices, view.reader.actor.log_words).result(_PATIENCE_S)
    except NotYetError:
        return [_progress(view, *replays.progress(choices))], False
    except FallowError as error:
        return [_told(view, error)], True
    replays.prepare(source)
    tables = replay_tables(replays.base, outcome, view.report.money)
    return [section_panel(view, colours, each, wide=True) for each in tables], True


def compared(source: LakeSource, view: View, colours: Palette) -> tuple[list[Any], bool]:
    """The table of saved scenarios, or that it is being made, and whether it is there."""
    try:
        saved = load_scenarios(view.whole.inputs.lake)
        found = Replays.of(view).compare(source, saved, view.reader.actor.log_words).result(_PATIENCE_S)
    except NotYetError:
        return [html.P(view.translate(tr("Saved scenarios are replayed…")), className="waiting", role="status")], False
    except FallowError as error:
        return [_told(view, error)], True
    section = scenario_table(found, view.report.money)
    return ([] if section is None else [section_panel(view, colours, section, wide=True)]), True


def _told(view: View, error: FallowError) -> html.P:
    told = problem_of(error, view.reader)
    return html.P(in_a_line(view.language, told.message, told.hint), role="alert")


def _progress(view: View, spent_s: float, share: float | None) -> html.Div:
    """How far a replay is; without a share only that it is under way."""
    said = tr("The jobs of the window are replayed: {seconds} s so far.", seconds=Number(round(spent_s)))
    value = {} if share is None else {"value": str(share), "max": "1"}
    bar = html.Progress(**value, **{"aria-labelledby": "what-if-progress"})
    return html.Div([html.P(view.translate(said), id="what-if-progress"), bar], className="waiting", role="status")
