"""The replays of one window and scope: each is made once, by the threads that make views, and it is known how far it is."""

from __future__ import annotations

import time
from concurrent.futures import Future
from functools import partial
from typing import Any

from analytics.plan.replay.comparisons import ComparedScenario
from analytics.plan.replay.outcome import ReplayOutcome
from analytics.plan.replay.policy import policy_over
from analytics.plan.replay.replay_base import ReplayBase, scenario_outcome
from analytics.plan.scenarios import SavedScenario
from analytics.report.planning import Planning
from analytics.scope import Scope
from dashboard.cache import Cache
from dashboard.pages.what_if_choices import ONE_BY_ONE, WhatIfChoices
from dashboard.source import LakeSource
from dashboard.view import View

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
        found: Replays = view.made.of(
            ("replays", *view.key_of_figures), lambda: cls(view.whole.plan, view.report.scope, zone)
        )
        return found

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
        for choices in ONE_BY_ONE:
            self._made.of(choices, partial(self._outcome, choices))
