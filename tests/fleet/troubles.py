"""What goes wrong in a fleet's days, and when: by a seed, so that a run can be repeated."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random

PER_HOST_DAY = {
    **dict.fromkeys(("kill", "kill in tick", "kill worker", "kill worker in tick"), 0.15),
    **dict.fromkeys(("kill publisher", "stop", "clock"), 0.1),
}
"""How often each befalls a host."""

FOR_ALL_PER_DAY = {"compact": 1.0, "read": 12.0}
_AWAY_PER_DAY = 0.4
_AWAY_STEPS = (3, 80)
_DOWN_STEPS = (1, 30)
_CLOCK_STEPS = (2, 20)
_SLEEP_AT = 0.6
"""How far into the run the whole site is off: so long that the days before it are old enough to expire."""
_CALM_STEPS = 12
"""The last steps, in which all that is away has come back."""


@dataclass(frozen=True)
class Trouble:
    kind: str
    """One of these, or `vanish`, `come back`, `expire`, `sleep`."""
    host: int = -1
    """-1: the whole fleet, or its lake."""
    steps: int = 0
    """For how long an agent is down, or by how many intervals a clock is put forward (or, below 0, back)."""


def planned(seed: int, hosts: int, steps: int, steps_a_day: int) -> dict[int, list[Trouble]]:
    """Troubles by the step at which they happen; the lake comes back and clocks are put right before the end."""
    chance, plan = Random(seed), defaultdict[int, list[Trouble]](list)  # noqa: S311  # nothing secret
    last, days = steps - _CALM_STEPS, steps / steps_a_day
    for kind, rate in PER_HOST_DAY.items():
        for _ in range(max(1, round(rate * hosts * days))):
            at, host = chance.randrange(2, last), chance.randrange(hosts)
            if kind == "clock":
                _set_clock(plan, chance, at, last, host)
            else:
                plan[at].append(Trouble(kind, host, chance.randint(*_DOWN_STEPS)))
    for kind, rate in FOR_ALL_PER_DAY.items():
        for _ in range(max(1, round(rate * days))):
            plan[chance.randrange(2, last)].append(Trouble(kind))
    _set_clock(plan, chance, last // 2, last, -1)
    plan[round(_SLEEP_AT * last)].append(Trouble("sleep"))
    for day in range(1, int(days) + 1):
        if day * steps_a_day + 6 < last:
            plan[day * steps_a_day + 6].append(Trouble("expire"))
    at = 0
    for number in range(max(1, round(_AWAY_PER_DAY * days))):
        lasts = chance.randint(*_AWAY_STEPS) if number else min(_AWAY_STEPS[1], last // 6)
        at += chance.randint(last // 20, max(last // 20 + 1, round(last / max(1, _AWAY_PER_DAY * days))))
        if at + lasts < last:
            plan[at].append(Trouble("vanish"))
            plan[at + lasts].append(Trouble("come back"))
            at += lasts
    return plan


def _set_clock(plan: dict[int, list[Trouble]], chance: Random, at: int, last: int, host: int) -> None:
    """Forth and, a while later, back again, or the other way round."""
    by = chance.choice((-1, 1)) * chance.randint(*_CLOCK_STEPS)
    plan[at].append(Trouble("clock", host, by))
    plan[min(last, at + chance.randint(5, 100))].append(Trouble("clock", host, -by))
