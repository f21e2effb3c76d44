"""The choices of readers on the page What if, and their replays, which run in the background and are kept."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from analytics.plan.replay.comparisons import (
    ComparedScenario,
    SavedScenario,
    Sweep,
    curve_sizes,
    pool_part,
    sweep_of,
    sweep_point,
)
from analytics.plan.replay.policy import GPUS_MAX, ReplayPolicy, gpus_of, named_groups, policy_from, policy_over
from analytics.plan.replay.replay_base import ReplayBase, ReplayOutcome, scenario_outcome
from analytics.plan.replay.replay_fleet import ReplayFleet
from analytics.plan.replay.replayed_waits import WaitFigures
from analytics.report.planning import Planning
from analytics.scope import Scope
from dashboard.makers import Cache
from dashboard.source import LakeSource
from dashboard.view import View
from fallow.errors import UsageError

OFF_PEAK_H = ((0, 0), (18, 8), (20, 8), (22, 6))
"""Hours of the day, from and until; the first is any hour."""
SHARES = (1, 2, 3, 4)
SLIDERS: Mapping[str, Sequence[Any]] = {"off": OFF_PEAK_H, "share": SHARES}
"""The values of each slider, by position."""
GPUS_OF = "gpus."
"""In an address, and in the name of a field: before the name of a pool."""


def resizable(fleet: ReplayFleet) -> dict[str, int]:
    """Return today's GPUs of each pool, by pool, or by `pool/model` where a pool has several models."""
    models: dict[str, set[str]] = {}
    for group in fleet.groups:
        models.setdefault(group.pool, set()).add(group.model)
    names = (
        name
        for pool, own in models.items()
        for name in ((pool,) if len(own) == 1 else tuple(f"{pool}/{model}" for model in sorted(own)))
    )
    return {name: gpus_of(fleet.groups, name) for name in names}


@dataclass(frozen=True)
class WhatIfChoices:
    """One setting of the page; by default all is as today.

    Attributes:
        gpus: names of `resizable` with the GPUs to add; negative numbers remove GPUs.
        idle: the idle time-out in hours; 0 is none.
        off: a value of OFF_PEAK_H.
        share: a value of SHARES.
        merge: pools that become one.
        small: the pool where small work goes first.
        curve: the name of `resizable` whose curve is drawn; empty: chosen by the page.
    """

    gpus: tuple[tuple[str, int], ...] = ()
    idle: float = 0.0
    off: tuple[int, int] = OFF_PEAK_H[0]
    share: int = 1
    merge: tuple[str, ...] = ()
    small: str = ""
    curve: str = ""

    @classmethod
    def of_values(cls, values: Mapping[str, object], fleet: ReplayFleet) -> WhatIfChoices:
        """Return the choices of a browser's fields, by name; raise UsageError for a number that is none.

        Unknown names and positions are left out.
        """
        names, pools = resizable(fleet), sorted({group.pool for group in fleet.groups})
        more = {name: _whole_number(values.get(f"{GPUS_OF}{name}"), name) for name in names}
        slid = {
            name: options[place]
            for name, options in SLIDERS.items()
            if isinstance(place := values.get(name), int) and 0 <= place < len(options)
        }
        asked = values.get("merge")
        merged = tuple(pool for pool in pools if isinstance(asked, list) and pool in asked)
        return cls(
            gpus=tuple((name, number) for name, number in more.items() if number),
            idle=_hours(values.get("idle")),
            **slid,
            merge=merged if len(merged) > 1 else (),
            small=next((pool for pool in pools if pool == values.get("small")), ""),
            curve=next((name for name in names if name == values.get("curve")), ""),
        )

    @classmethod
    def parse(cls, text: str, fleet: ReplayFleet) -> WhatIfChoices:
        """Return the choices of an address; what cannot be read is as today."""
        asked = dict(parse_qsl(text))
        gpus = {name: _number(value) for name, value in asked.items() if name.startswith(GPUS_OF)}
        places = {
            name: next((place for place, value in enumerate(options) if _text(value) == asked.get(name)), None)
            for name, options in SLIDERS.items()
        }
        others = {"idle": _number(asked.get("idle", "")), "merge": asked.get("merge", "").split("\n")}
        try:
            return cls.of_values({**asked, **places, **others, **gpus}, fleet)
        except UsageError:
            return cls()

    @classmethod
    def of_policy(cls, policy: str, fleet: ReplayFleet) -> WhatIfChoices | None:
        """Return the choices of a saved policy; None if it is invalid or has changes without a field on the page."""
        try:
            content = tomllib.loads(policy)
            policy_from(content, "UTC", "")
        except (tomllib.TOMLDecodeError, UsageError):
            return None
        gpus, names = content.pop("gpus", {}), resizable(fleet)
        if not isinstance(gpus, dict) or not names.keys() >= gpus.keys():
            return None
        more = {name: int(value) - (0 if isinstance(value, str) else names[name]) for name, value in gpus.items()}
        hours = str(content.pop("off_peak", ""))
        off = {f"{since:02}:00-{until:02}:00": (since, until) for since, until in OFF_PEAK_H[1:]} | {"": OFF_PEAK_H[0]}
        merges = content.pop("merge", [[]])
        found = cls(
            gpus=tuple((name, more[name]) for name in names if more.get(name)),
            idle=float(content.pop("idle_timeout_h", 0)),
            off=off.get(hours, OFF_PEAK_H[0]),
            share=content.pop("share", 1),
            merge=tuple(merges[0]),
            small=content.pop("small_work_to", ""),
        )
        is_whole = not content and hours in off and len(merges) == 1 and found.share in SHARES
        return found if is_whole and found == cls.parse(found.text, fleet) else None

    @property
    def text(self) -> str:
        """Return the choices for an address; empty if all is as today."""
        today = WhatIfChoices()
        asked = {f"{GPUS_OF}{name}": f"{number:+d}" for name, number in self.gpus}
        asked |= {name: _text(getattr(self, name)) for name in SLIDERS if getattr(self, name) != getattr(today, name)}
        names = {"idle": f"{self.idle:g}" if self.idle else "", "merge": "\n".join(self.merge)}
        names |= {"small": self.small, "curve": self.curve}
        return urlencode(asked | {name: value for name, value in names.items() if value})

    @property
    def but_curve(self) -> WhatIfChoices:
        """Return the choices that a replay depends on."""
        return replace(self, curve="")

    def place(self, slider: str) -> int:
        return SLIDERS[slider].index(getattr(self, slider))

    @property
    def content(self) -> dict[str, Any]:
        """Return the choices with the keys of a policy file."""
        since, until = self.off
        chosen = {
            "gpus": {name: f"{number:+d}" for name, number in self.gpus} or None,
            "merge": [list(self.merge)] if self.merge else None,
            "off_peak": f"{since:02}:00-{until:02}:00" if since != until else None,
            "small_work_to": self.small or None,
            "share": self.share if self.share > 1 else None,
            "idle_timeout_h": self.idle or None,
        }
        return {key: value for key, value in chosen.items() if value is not None}


def _text(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _number(text: str) -> float | None:
    """Return a number of an address; None where it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def _whole_number(value: object, name: str) -> int:
    """Return the GPUs to add in a pool, 0 for an empty field; raise UsageError for what is not a whole number."""
    if value is None or value == "":
        return 0
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) <= GPUS_MAX
        and value == int(value)
    ):
        return int(value)
    raise UsageError(f"the change in {name} is not a whole number of GPUs", "write 16 for 16 more, -8 for 8 fewer")


_HOURS_MAX = 10_000


def _hours(value: object) -> float:
    """Return the idle time-out in hours, 0 for an empty field; raise UsageError for what is not a length of time."""
    if value is None or value == "":
        return 0.0
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _HOURS_MAX:
        raise UsageError("the time-out is not a number of hours", "write 2 or 0.5; an empty field is no time-out")
    return float(value)


_KEPT = 256
_CURVE_S = 60.0
"""No further size is begun after this time. A curve has today's size and the scenario's at least."""


class Replays:
    """The replays of a view's window and scope, kept for all readers who see the same figures. Thread-safe."""

    def __init__(self, planning: Planning, scope: Scope, zone: str) -> None:
        self._planning, self._scope, self._zone = planning, scope, zone
        self._cache: Cache[Any] = Cache(_KEPT)
        self._begun_s: dict[WhatIfChoices, float] = {}
        self._took_s: float | None = None

    @classmethod
    def of(cls, view: View) -> Replays:
        zone = view.whole.inputs.settings.text("report.timezone")
        return view.kept("replays", lambda: cls(view.whole.plan, view.report.scope, zone))

    @property
    def base(self) -> ReplayBase:
        """Return the start of every replay; a missing one is computed in this thread."""
        return self._planning.replay_base(self._scope)

    def begin(self, source: LakeSource, choices: WhatIfChoices, reader: str) -> Future[ReplayOutcome]:
        """Return the outcome to come; raise TooManyError."""
        key = choices.but_curve
        self._begun_s.setdefault(key, time.monotonic())
        return source.begin(self._cache, key, partial(self._outcome, key), reader)

    def begin_curve(self, source: LakeSource, name: str, sizes: Sequence[int], reader: str) -> Future[Sweep]:
        """Return the curve to come of a name of `resizable`, under today's policy; raise TooManyError."""
        return source.begin(self._cache, ("curve", name, *sizes), partial(self._curve, name, sizes), reader)

    def compare(
        self, source: LakeSource, saved: tuple[SavedScenario, ...], reader: str
    ) -> Future[tuple[ComparedScenario, ...]]:
        """Return saved scenarios beside today, to come; raise TooManyError."""
        return source.begin(self._cache, saved, lambda: self._planning.scenarios_of(self._scope, saved), reader)

    def progress(self, choices: WhatIfChoices) -> tuple[float, float | None]:
        """Return the seconds since the replay began, and their share of the last replay's time; None without one."""
        spent_s = time.monotonic() - self._begun_s.get(choices.but_curve, time.monotonic())
        return spent_s, None if self._took_s is None else min(spent_s / max(self._took_s, 0.1), 0.99)

    def policy(self, choices: WhatIfChoices) -> ReplayPolicy:
        """Return today's policy with the choices; raise UsageError where they cannot be combined."""
        return policy_over(self.base.policy, choices.content, self._zone, "the page")

    def _outcome(self, choices: WhatIfChoices) -> ReplayOutcome:
        base = self.base
        begun_s = time.monotonic()
        outcome = scenario_outcome(base, self.policy(choices))
        self._took_s = time.monotonic() - begun_s
        return outcome

    def _curve(self, name: str, sizes: Sequence[int]) -> Sweep:
        """Replay sizes in their order until the time is spent; a size that another curve had is kept."""
        base, begun_s, points = self.base, time.monotonic(), []
        part = pool_part(base, base.policy, name)
        for number, size in enumerate(sizes):
            if number > 1 and time.monotonic() - begun_s > _CURVE_S:
                break
            points.append(self._cache.of(("point", name, size), partial(sweep_point, part, base.policy, name, size)))
        return sweep_of(part, name, points)

    def has_curve(self, name: str) -> bool:
        """Return whether the replay of today explains the queue waits of the pool of a name of `resizable`."""
        return self.pool_of(name) in self.base.check.pools_with_waits

    def curve_name(self, choices: WhatIfChoices) -> str:
        """Return whose curve is drawn: the chosen name, the first changed one, or that whose jobs wait most."""
        names = resizable(self.base.fleet)
        wanted = [choices.curve, *(name for name, _ in choices.gpus)]
        waited = {each.pool: each.waits.replayed.gpu_ms for each in self.base.check.pools}

        def weight(name: str) -> tuple[bool, float, int]:
            return self.has_curve(name), waited.get(self.pool_of(name), 0.0), names[name]

        return next((name for name in wanted if name in names), max(names, key=weight, default=""))

    def pool_of(self, name: str) -> str:
        return next((group.pool for group in named_groups(self.base.fleet.groups, name)), "")

    def sizes(self, choices: WhatIfChoices, name: str) -> tuple[int, ...]:
        """Return the numbers of GPUs of a curve: today's, the scenario's, then the others."""
        first, *others = curve_sizes(self.base.fleet, name) or (0,)
        return tuple(dict.fromkeys((first, self._scenario_gpus(choices, name), *others)))

    def scenario_point(
        self, choices: WhatIfChoices, outcome: ReplayOutcome, name: str
    ) -> tuple[int, WaitFigures] | None:
        """Return a pool's GPUs and queue waits with the choices; None without changes or with unknown waits."""
        pool = next((each for each in outcome.pools if each.name == self.pool_of(name)), None)
        if not choices.but_curve.text or pool is None or pool.waits is None:
            return None
        return self._scenario_gpus(choices, name), pool.waits.then

    def _scenario_gpus(self, choices: WhatIfChoices, name: str) -> int:
        return gpus_of(self.base.fleet.groups, name) + dict(choices.gpus).get(name, 0)
