"""GPUs that are there and whose name nobody knows: the driver blocks on them, or cannot open them, from the start.

The agent's rows need a UUID and leave them to events; a person who looks at the host wants to see that they are there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_HEALTH = {"gpu_wedged": "wedged", "gpu_lost": "lost"}
_POSITION = re.compile(r"GPU (\d+)\b")  # how the events of a GPU without a UUID begin


class UnnamedGpus:
    """Their positions and states, as the incidents of a Fleet tell them."""

    def __init__(self) -> None:
        self._health: dict[int, str] = {}

    def hear(self, incidents: Iterable[Mapping[str, Any]]) -> None:
        """Takes up incidents, oldest first."""
        for incident in incidents:
            position = _POSITION.match(incident["detail"] or "")
            if incident["gpu"] is None and incident["kind"] in _HEALTH and position is not None:
                self._health[int(position[1])] = _HEALTH[incident["kind"]]

    def rows(self, named: Iterable[int | None], start_ms: int, interval_ms: int) -> list[dict[str, Any]]:
        """One gpu row each, `#position` in place of the UUID; a position that has its name by now is left out."""
        for position in named:
            if position is not None:
                self._health.pop(position, None)
        return [
            {
                "gpu": f"#{position}", "time": start_ms, "interval_ms": interval_ms, "offset_ms": 0, "health": health,
                "util_source": "none",
            }
            for position, health in sorted(self._health.items())
        ]  # fmt: skip


def position_of(gpu: str) -> int | None:
    """The position that `#position` names; None for a UUID."""
    return int(gpu[1:]) if gpu.startswith("#") else None
