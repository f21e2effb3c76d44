"""Rows as an agent makes them, each told by its time, and what of them is in a lake."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent.settings import AgentSettings
from fallow import parquet, schema
from tests.lakes import LAKE_ID

if TYPE_CHECKING:
    from pathlib import Path

    from agent.spool.spool import Spool
    from fallow.lake import Lake

MIDNIGHT_MS = 20_000 * 86_400_000


def ticks(first: int, count: int) -> list[dict[str, Any]]:
    """Rows of one GPU, numbered through their times."""
    return [
        {"gpu": "GPU-a", "time": MIDNIGHT_MS + number * 10_000, "interval_ms": 10_000, "gpu_util_pct": number % 100}
        for number in range(first, first + count)
    ]


def numbers(lake: Lake) -> list[int]:
    """The numbers of the visible rows, sorted: one that is there twice is named twice."""
    data = parquet.read(lake.files("gpu"), schema.GPU, ["time"])
    return sorted((time_ms - MIDNIGHT_MS) // 10_000 for time_ms in data.column("time").cast("int64").to_pylist())


def settings(folder: Path, lake: str, publish_every_ms: int = 1) -> AgentSettings:
    """An agent's settings with its spool in the folder."""
    intervals = dict.fromkeys(("interval_ms", "process_interval_ms", "slow_interval_ms"), 1000)
    own = {"lake": lake, "spool": str(folder / "spool"), "host": "h", "pool": "", "call_timeout_s": 1}
    return AgentSettings(**own, **intervals, publish_every_ms=publish_every_ms)  # type: ignore[arg-type]


class Hands:
    """A clock that a test sets."""

    def __init__(self, s: float = 1_000_000.0, since_ms: int = 0) -> None:
        self.s, self._since_ms = s, since_ms

    def now_ms(self) -> int:
        return self._since_ms + int(self.s * 1000)

    def monotonic_s(self) -> float:
        return self.s


def adopted(spool: Spool, lake: Lake) -> Spool:
    """The spool of an agent that has published into the lake before: it says nothing of that."""
    spool.note("lake_ids", json.dumps({lake.root: LAKE_ID}))
    return spool
