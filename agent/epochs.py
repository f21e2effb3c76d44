"""Epochs of the GPUs' counters: energy and throttled time climb from one zero until something puts them back.

Without epochs a driver reload would look like negative energy, and a counter put back and grown again like none. Rows of one
epoch carry the same `counters_since`; only they may be subtracted from one another.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fallow import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTERS = tuple(
    column.name for column in schema.GPU.columns if column.name == "energy_mj" or column.name.startswith("throttled_")
)

_BREAKS = ("lost", "reset_required", "driver_down", "released")
_MOST_W = 5_000  # three times the hungriest card: mJ per ms are watts
_SLACK = 10_000  # mJ or ms: the moments of reading differ from the grid

Row = dict[str, Any]


class Epochs:
    """Remembers each GPU's newest counters, also over restarts of the agent within one boot of the machine."""

    def __init__(self, remembered: str | None, boot_id: str) -> None:
        """`remembered` is what `as_text` gave, None for nothing."""
        known = json.loads(remembered) if remembered else {}
        same_boot = known.get("boot_id") == boot_id
        self._boot_id = boot_id
        self._known: dict[str, Row] = known.get("gpus", {})
        self._broken: dict[str, str] = {} if same_boot else dict.fromkeys(self._known, "the machine was started anew")

    def mark(self, rows: Sequence[Row]) -> list[Row]:
        """Sets `counters_since` of the rows that have a counter; returns the epochs that began, as events."""
        events = []
        for row in rows:
            if row["health"] in _BREAKS:
                self._broken.setdefault(row["gpu"], f"the GPU was {row['health'].replace('_', ' ')}")
            counters = {name: row[name] for name in COUNTERS if row.get(name) is not None}
            if counters:
                reason = self._mark_one(row, counters)
                if reason:
                    detail = f"energy and throttle counters count anew: {reason}"
                    events.append({"kind": "counters_restarted", "gpu": row["gpu"], "detail": detail})
        return events

    def as_text(self) -> str:
        """What has to be remembered over a restart."""
        return json.dumps({"boot_id": self._boot_id, "gpus": self._known})

    def _mark_one(self, row: Row, counters: dict[str, int]) -> str | None:
        gpu = row["gpu"]
        known = self._known.get(gpu)
        end_ms = row["time"] + row["interval_ms"]
        reason = self._broken.pop(gpu, None)
        if reason is None and known is not None:
            reason = _contradiction(known, counters, end_ms)
        since_ms = row["time"] if known is None or reason else known["since_ms"]
        self._known[gpu] = {"since_ms": since_ms, "end_ms": end_ms, "counters": counters}
        row["counters_since"] = since_ms
        return None if known is None else reason


def _contradiction(known: Row, counters: dict[str, int], end_ms: int) -> str | None:
    """Why the counters cannot have climbed from where they were; None where they can."""
    elapsed_ms = end_ms - known["end_ms"]
    for name, value in counters.items():
        before = known["counters"].get(name)
        if before is None:
            continue
        if value < before:
            return f"{name} went back"
        most = elapsed_ms * (_MOST_W if name == "energy_mj" else 1) + _SLACK
        if elapsed_ms >= 0 and value - before > most:
            return f"{name} grew by more than is possible"
    return None
