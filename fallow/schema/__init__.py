"""The schema as data: the tables of the lake, and their columns with type, unit, resolution, meaning and source.

The package imports no other packages, so that the agent and `fallow schema` start fast.
"""

from __future__ import annotations

from fallow.errors import UsageError
from fallow.schema.derived import (
    ALLOCATION_DAY,
    DEVICE_DAY,
    EVENT_DAY,
    GPU_LIFETIME,
    GPU_STATE,
    HOST_HOURLY,
    HOURLY,
    IDLE_INTERVAL,
    IDLE_INTERVAL_PART,
    LEDGER,
    LEDGER_PART,
    PROCESS_DAY,
    QUALITY,
    REQUEST_DAY,
    SERVING_HOURLY,
)
from fallow.schema.samples import (
    ACTION,
    AGENT,
    ALLOCATION,
    ANNOTATION,
    DELIVERY,
    DEVICE,
    EVENT,
    GPU,
    HOST,
    JUDGEMENT,
    PROCESS,
    REQUEST,
    SCENARIO,
    SERVING,
    WITHHELD,
)
from fallow.schema.types import LakeColumn, LakeTable, Type

SCHEMA_VERSION = 11
"""Version of the schema; raised when a column is added or removed, or changes its meaning."""

OLDEST_SCHEMA_VERSION = 8
"""Oldest version that readers accept; raised when readers would misread older files."""

TABLES: tuple[LakeTable, ...] = (
    GPU, PROCESS, HOST, DEVICE, SERVING, EVENT, AGENT, ALLOCATION, REQUEST, WITHHELD, ACTION, ANNOTATION, SCENARIO,
    DELIVERY, JUDGEMENT, LEDGER, IDLE_INTERVAL, HOURLY, PROCESS_DAY, HOST_HOURLY, SERVING_HOURLY, QUALITY, LEDGER_PART,
    IDLE_INTERVAL_PART, DEVICE_DAY, ALLOCATION_DAY, REQUEST_DAY, EVENT_DAY, GPU_LIFETIME, GPU_STATE,
)  # fmt: skip

OF_AGENTS: tuple[LakeTable, ...] = (GPU, PROCESS, HOST, DEVICE, SERVING, EVENT, AGENT, ALLOCATION)
"""The tables that agents write, a file per table and publication."""

COMPACTED: tuple[LakeTable, ...] = (*OF_AGENTS, REQUEST, WITHHELD)
"""The tables that `fallow lake compact` merges; each import adds a file of requests."""

GAP_INTERVALS = 3
"""A row covers at most this many of its intervals, and so does a counter's rise; the time after that is `unknown`."""

UNUSED_STATES = ("free", "reserved", "held", "stalled")
"""States of the ledger in which a GPU is usable and unused."""

STATES = ("unknown", "unavailable", *UNUSED_STATES, "low", "active")
"""States of the ledger; each millisecond of a GPU has exactly one state."""

UNAVAILABLE_HEALTH = ("lost", "missing", "reset_required", "wedged", "driver_down")
"""Values of `gpu.health` with which a GPU cannot be used."""

HEALTH_STATES = ("ok", "degraded", *UNAVAILABLE_HEALTH, "released", "asleep", "unknown")
"""All values of `gpu.health`."""

__all__ = [
    "ACTION",
    "AGENT",
    "ALLOCATION",
    "ALLOCATION_DAY",
    "ANNOTATION",
    "COMPACTED",
    "DELIVERY",
    "DEVICE",
    "DEVICE_DAY",
    "EVENT",
    "EVENT_DAY",
    "GAP_INTERVALS",
    "GPU",
    "GPU_LIFETIME",
    "GPU_STATE",
    "HEALTH_STATES",
    "HOST",
    "HOST_HOURLY",
    "HOURLY",
    "IDLE_INTERVAL",
    "IDLE_INTERVAL_PART",
    "JUDGEMENT",
    "LEDGER",
    "LEDGER_PART",
    "OF_AGENTS",
    "OLDEST_SCHEMA_VERSION",
    "PROCESS",
    "PROCESS_DAY",
    "QUALITY",
    "REQUEST",
    "REQUEST_DAY",
    "SCENARIO",
    "SCHEMA_VERSION",
    "SERVING",
    "SERVING_HOURLY",
    "STATES",
    "TABLES",
    "UNAVAILABLE_HEALTH",
    "UNUSED_STATES",
    "WITHHELD",
    "LakeColumn",
    "LakeTable",
    "Type",
    "table",
]


def table(name: str) -> LakeTable:
    """Return the table with this name; raises UsageError with the nearest name for an unknown table."""
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    from difflib import get_close_matches  # with the error, not before

    names = [candidate.name for candidate in TABLES]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the tables are {', '.join(names)}"
    raise UsageError(f"there is no table '{name}'", hint)
