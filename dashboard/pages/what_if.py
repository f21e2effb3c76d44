"""What would have become of the jobs of the window with another fleet or another policy: sliders, replays, saved scenarios."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dash import ClientsideFunction, Input, Output, State, callback_context, dcc, html, no_update

from analytics.language.plain_text import plain
from analytics.language.quantities import Number
from analytics.language.sentences import tr
from analytics.plan.replay.comparisons import LONGEST_NAME, ComparedScenario, SavedScenario, as_toml, load_scenarios
from analytics.plan.replay.policy import policy_over
from analytics.plan.replay.replay_base import ReplayBase, ReplayOutcome, scenario_outcome
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.report.planning import Planning
from analytics.scope import Scope
from analytics.tables.palette import Palette, palette
from analytics.tables.plan_replay import replay_tables
from analytics.tables.plan_scenarios import scenario_table
from dashboard.actions import carry_out, may_save, record_scenario, withdraw_scenario
from dashboard.error_panels import error_line
from dashboard.makers import Cache
from dashboard.pages.page import Page, in_words, slider
from dashboard.render.panel import section_panel
from dashboard.source import LakeSource, view_of
from dashboard.view import Problem, View
from fallow.clock import SystemClock
from fallow.errors import FallowError
from fallow.outside_text import revealed

SIZES_PCT = (-50, -30, -20, -10, 0, 10, 20, 30, 50)
IDLE_TIMEOUTS_H = (0, 1, 2, 4, 8, 24, 48)
"""0 is none."""
OFF_PEAK_H = ((0, 0), (18, 8), (20, 8), (22, 6))
"""Hours of the day, from and until; the first is any hour."""
SHARES = (1, 2, 3, 4)

SLIDERS: Mapping[str, Sequence[Any]] = {"size": SIZES_PCT, "idle": IDLE_TIMEOUTS_H, "off": OFF_PEAK_H, "share": SHARES}
"""The values of each slider, by its place."""


@dataclass(frozen=True)
class WhatIfChoices:
    """One setting of all sliders; by default everything is as today.

    `size`, `idle`, `off` and `share` are values of SLIDERS, `merge` pools that become one, `small` the pool that small work goes to first.
    """

    size: int = 0
    idle: int = 0
    off: tuple[int, int] = OFF_PEAK_H[0]
    share: int = 1
    merge: tuple[str, ...] = ()
    small: str = ""

    @classmethod
    def at(cls, places: Mapping[str, object], merge: object, small: object, pools: Sequence[str]) -> WhatIfChoices:
        """Those of what a browser sent, which may be anything: what is no place of a slider, and no pool that is there, is as today."""
        values = {
            name: values[place]
            for name, values in SLIDERS.items()
            if isinstance(place := places.get(name), int) and 0 <= place < len(values)
        }
        asked = merge if isinstance(merge, list) else []
        merged = tuple(pool for pool in pools if pool in asked)
        into = next((pool for pool in pools if pool == small), "")
        return cls(**values, merge=merged if len(merged) > 1 else (), small=into)

    @classmethod
    def parse(cls, text: str, pools: Sequence[str]) -> WhatIfChoices:
        """Those of the address."""
        asked = dict(parse_qsl(text))
        places = {
            name: next((place for place, value in enumerate(values) if _shown(value) == asked.get(name)), None)
            for name, values in SLIDERS.items()
        }
        return cls.at(places, asked.get("merge", "").split("\n"), asked.get("small"), pools)

    @property
    def text(self) -> str:
        """As the address has them; empty where everything is as today."""
        today = WhatIfChoices()
        asked = {name: _shown(getattr(self, name)) for name in SLIDERS if getattr(self, name) != getattr(today, name)}
        names = {"merge": "\n".join(self.merge), "small": self.small}
        return urlencode(asked | {name: value for name, value in names.items() if value})

    def place(self, slider: str) -> int:
        """Where a slider stands."""
        return SLIDERS[slider].index(getattr(self, slider))

    def content(self, fleet: ReplayFleet) -> dict[str, Any]:
        """What was chosen with the keys of a policy file; a pool that is not there is left out."""
        pools = {group.pool for group in fleet.groups}
        merge, (since, until) = [pool for pool in self.merge if pool in pools], self.off
        chosen = {
            "gpus": resized(fleet, self.size) if self.size else None,
            "merge": [merge] if len(merge) > 1 else None,
            "off_peak": f"{since:02}:00-{until:02}:00" if since != until else None,
            "small_work_to": self.small if self.small in pools else None,
            "share": self.share if self.share > 1 else None,
            "idle_timeout_h": self.idle or None,
        }
        return {key: value for key, value in chosen.items() if value is not None}


def resized(fleet: ReplayFleet, by_pct: int) -> dict[str, int]:
    """The number of GPUs of each pool and model, by so many percent others, to the nearest GPU."""
    found: dict[str, int] = {}
    for group in fleet.groups:
        name = f"{group.pool}/{group.model}"
        found[name] = found.get(name, 0) + group.gpus
    return {name: round(gpus * (1 + by_pct / 100)) for name, gpus in found.items()}


def _shown(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


_ONE_BY_ONE = tuple(
    WhatIfChoices(**{name: value})
    for name, values in SLIDERS.items()
    for value in values
    if value != getattr(WhatIfChoices(), name)
)
"""Each slider alone, at each of its places."""


_KEPT = 128


class Replays:
    """What was replayed of a view's window and scope. Safe to ask from many threads."""

    def __init__(self, planning: Planning, scope: Scope, zone: str) -> None:
        self._planning, self._scope, self._zone = planning, scope, zone
        self._made: Cache[Any] = Cache(_KEPT)
        self._begun_s: dict[WhatIfChoices, float] = {}
        self._took_s: float | None = None

    @classmethod
    def of(cls, view: View) -> Replays:
        """Those of all who see the same."""
        zone = view.whole.inputs.settings.text("report.timezone")
        return view.kept("replays", lambda: cls(view.whole.plan, view.report.scope, zone))

    @property
    def base(self) -> ReplayBase:
        """What every replay starts from."""
        return self._planning.replay_base(self._scope)

    def begin(self, source: LakeSource, choices: WhatIfChoices, reader: str) -> Future[ReplayOutcome]:
        """What comes of the choices; raises TooManyError."""
        self._begun_s.setdefault(choices, time.monotonic())
        return source.begin(self._made, choices, partial(self._outcome, choices), reader)

    def prepare(self, source: LakeSource) -> None:
        """Replays each slider alone at each of its places, for whoever asks next."""
        source.begin(self._made, "prepared", self._one_by_one, None)

    def compare(
        self, source: LakeSource, saved: tuple[SavedScenario, ...], reader: str
    ) -> Future[tuple[ComparedScenario, ...]]:
        """Saved scenarios beside today; raises TooManyError."""
        return source.begin(self._made, saved, lambda: self._planning.scenarios_of(self._scope, saved), reader)

    def progress(self, choices: WhatIfChoices) -> tuple[float, float | None]:
        """For how many seconds it has been replayed, and the share that this is of what the last replay took; None where there was none yet."""
        spent_s = time.monotonic() - self._begun_s.get(choices, time.monotonic())
        return spent_s, None if self._took_s is None else min(spent_s / max(self._took_s, 0.1), 0.99)

    def _outcome(self, choices: WhatIfChoices) -> ReplayOutcome:
        base = self.base
        begun_s = time.monotonic()
        policy = policy_over(base.policy, choices.content(base.fleet), self._zone, "the page")
        outcome = scenario_outcome(base, policy)
        self._took_s = time.monotonic() - begun_s
        return outcome

    def _one_by_one(self) -> None:
        for choices in _ONE_BY_ONE:
            self._made.of(choices, partial(self._outcome, choices))


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


def _connect_saved(app: Any, source: LakeSource) -> None:
    """The table of saved scenarios, which asks again until it is there, and the buttons that save and remove one."""

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_SAVED, "children"),
        Output(_SAVED_TICK, "disabled"),
        Input(_SAVED_TICK, "n_intervals"),
        Input(_SAID, "children"),
        State("url", "search"),
        State("scheme", "data"),
    )
    def compare(_: Any, __: Any, search: str | None, scheme: str | None) -> Any:
        view = view_of(source, search)
        if isinstance(view, Problem) or view.report.scope.is_personal:
            return [no_update] * 2
        return in_words(compared(source, view, palette(str(scheme))), view.language)

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_SAID, "children"),
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
        said, _, _ = carry_out(
            source, search, lambda view: (_done(view, str(name or ""), str(chosen or ""), is_removed=is_removed), None)
        )
        return [said, False]


def _done(view: View, name: str, chosen: str, *, is_removed: bool) -> str:
    """Saves or removes a scenario, and says so."""
    now_ms = SystemClock().now_ms()
    if is_removed:
        return tr("{name} is removed.", name=plain(withdraw_scenario(view, name, now_ms).name))
    policy = as_toml(WhatIfChoices.parse(chosen, view.names["pool"]).content(Replays.of(view).base.fleet))
    return tr("{name} is saved.", name=plain(record_scenario(view, name, policy, now_ms).name))


def _saving(view: View) -> list[Any]:
    """The form of those who may save; for the others only the place in which nothing is said."""
    said = html.P("", id=_SAID, role="status")
    if not may_save(view):
        return [said]
    label = tr("Name of the scenario")
    return [
        html.Fieldset(
            [
                html.Legend(tr("Keep what is set above, for everybody and for the report")),
                html.Div(
                    [
                        html.Label(label, htmlFor="what-if-name"),
                        dcc.Input(id="what-if-name", type="text", value="", maxLength=LONGEST_NAME),
                    ],
                    className="field",
                ),
                html.Button(tr("Save"), id="what-if-save", className="button", n_clicks=0),
                html.Button(tr("Remove the one of this name"), id="what-if-remove", className="button", n_clicks=0),
            ],
            className="annotate",
        ),
        said,
    ]


def _form(view: View, choices: WhatIfChoices) -> html.Fieldset:
    pools = view.names["pool"]
    marks: dict[str, list[str]] = {
        "size": [f"{each:+d}" if each else "0" for each in SIZES_PCT],
        "idle": [view.translate(tr("never") if not each else str(each)) for each in IDLE_TIMEOUTS_H],
        "off": [f"{since}-{until}" if since != until else view.translate(tr("at once")) for since, until in OFF_PEAK_H],
        "share": [str(each) for each in SHARES],
    }
    return html.Fieldset(
        [
            html.Legend(tr("Try it on the jobs of this window"), id="what-if-title"),
            *(
                slider(f"what-if-{name}", _LABELS[name], marks[name], choices.place(name), "reserve named-slider")
                for name in SLIDERS
            ),
            _choice("merge", tr("Pools that become one"), list(pools), list(choices.merge), several=True),
            _choice("small", tr("Batch, test and small work goes first to"), list(pools), choices.small or None),
            html.Span("", id=_CHOSEN, hidden=True),
        ],
        className="what-if",
    )


def _choice(name: str, label: str, options: list[str], value: Any, *, several: bool = False) -> html.Div:
    shown = [{"label": revealed(each), "value": each} for each in options]
    return html.Div(
        [
            html.Label(label, htmlFor=f"what-if-{name}", className="reserve-label"),
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
        return [_progress(*replays.progress(choices))], False
    except FallowError as error:
        return [html.P(error_line(view, error), role="alert")], True
    replays.prepare(source)
    tables = replay_tables(replays.base, outcome, view.report.money)
    return [section_panel(view, colours, each, wide=True) for each in tables], True


def compared(source: LakeSource, view: View, colours: Palette) -> tuple[list[Any], bool]:
    """The table of saved scenarios, or that it is being made, and whether it is there."""
    try:
        saved = load_scenarios(view.whole.inputs.lake)
        found = Replays.of(view).compare(source, saved, view.reader.actor.log_words).result(_PATIENCE_S)
    except NotYetError:
        return [html.P(tr("Saved scenarios are replayed…"), className="waiting", role="status")], False
    except FallowError as error:
        return [html.P(error_line(view, error), role="alert")], True
    return [section_panel(view, colours, scenario_table(found, view.report.money), wide=True)] if found else [], True


def _progress(spent_s: float, share: float | None) -> html.Div:
    """How far a replay is; without a share only that it is under way."""
    said = tr("The jobs of the window are replayed: {seconds} s so far.", seconds=Number(round(spent_s)))
    value = {} if share is None else {"value": str(share), "max": "1"}
    bar = html.Progress(**value, **{"aria-labelledby": "what-if-progress"})
    return html.Div([html.P(said, id="what-if-progress"), bar], className="waiting", role="status")


def _content(view: View, _: Palette) -> html.Div:
    """A sentence for people, who have no fleet of their own."""
    if view.report.scope.is_personal:
        said = tr("What if is asked of GPUs, whoever has them: choose all teams, and a pool or a model.")
        return html.Div(html.P(said, className="headline"))
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


def _connect(app: Any, source: LakeSource) -> None:
    """A choice is replayed and stands in the address; while it takes long the page asks again."""
    app.clientside_callback(
        ClientsideFunction("whatif", "chosen"), Output(_CHOSEN, "className"), Input(_CHOSEN, "title")
    )

    @app.callback(  # type: ignore[untyped-decorator]
        Output(_OUTCOME, "children"),
        Output(_TICK, "disabled"),
        Output(_CHOSEN, "title"),
        *(Input(f"what-if-{name}", "value") for name in SLIDERS),
        Input("what-if-merge", "value"),
        Input("what-if-small", "value"),
        Input(_TICK, "n_intervals"),
        State("url", "search"),
        State("scheme", "data"),
    )
    def try_out(*values: Any) -> Any:
        *places, merge, small, _, search, scheme = values
        view = view_of(source, search)
        if isinstance(view, Problem) or view.report.scope.is_personal:
            return [no_update] * 3
        choices = WhatIfChoices.at(dict(zip(SLIDERS, places, strict=True)), merge, small, view.names["pool"])
        shown, is_done = answer(source, view, palette(str(scheme)), choices)
        return [in_words(shown, view.language), is_done, choices.text]

    _connect_saved(app, source)


WHAT_IF = Page("/what-if", tr("What if"), _content, _connect)
