"""What can be tried out on the page What if: the places of its sliders, as the address has them and as a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

from analytics.plan.replay.replay_fleet import ReplayFleet

SIZES_PCT = (-50, -30, -20, -10, 0, 10, 20, 30, 50)
IDLE_TIMEOUTS_H = (0, 1, 2, 4, 8, 24, 48)
"""0 is none."""
OFF_PEAK_H = ((0, 0), (18, 8), (20, 8), (22, 6))
"""Hours of the day, from and until; the first is any hour."""
SHARES = (1, 2, 3, 4)

SLIDERS: Mapping[str, Sequence[Any]] = {
    "size": SIZES_PCT, "idle": IDLE_TIMEOUTS_H, "off": OFF_PEAK_H, "share": SHARES,
}  # fmt: skip
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


ONE_BY_ONE = tuple(
    WhatIfChoices(**{name: value})
    for name, values in SLIDERS.items()
    for value in values
    if value != getattr(WhatIfChoices(), name)
)
"""Each slider alone, at each of its places."""
