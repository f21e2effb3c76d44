"""The schema as data: every table of the lake, each column with its type, unit, resolution, meaning and source.

Imports nothing but this package, so that the agent and `fallow schema` pay nothing for it.
"""

from __future__ import annotations

from fallow.errors import UsageError
from fallow.schema.derived import (
    CLAIM_DAY,
    DEVICE_DAY,
    EVENT_DAY,
    GPU_LIFETIME,
    HOST_HOURLY,
    HOURLY,
    LEDGER,
    LEDGER_PART,
    PROCESS_DAY,
    QUALITY,
    SERVING_HOURLY,
    SPELL,
    SPELL_PART,
)
from fallow.schema.samples import (
    ACTION,
    AGENT,
    ANNOTATION,
    CLAIM,
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
)
from fallow.schema.types import LakeColumn, LakeTable, Type

SCHEMA_VERSION = 8
"""Raised when a column is added, goes, or changes its meaning."""

OLDEST_SCHEMA_VERSION = 8
"""The oldest version that readers accept; raised when they would misread what is older."""

TABLES: tuple[LakeTable, ...] = (
    GPU, PROCESS, HOST, DEVICE, SERVING, EVENT, AGENT, CLAIM, REQUEST, ACTION, ANNOTATION, SCENARIO, DELIVERY, JUDGEMENT, LEDGER, SPELL, HOURLY, PROCESS_DAY,
    HOST_HOURLY, SERVING_HOURLY, QUALITY, LEDGER_PART, SPELL_PART, DEVICE_DAY, CLAIM_DAY,
    EVENT_DAY, GPU_LIFETIME,
)  # fmt: skip

OF_AGENTS: tuple[LakeTable, ...] = (GPU, PROCESS, HOST, DEVICE, SERVING, EVENT, AGENT, CLAIM)
"""The tables that agents write, a file each at every publishing."""

COMPACTED: tuple[LakeTable, ...] = (*OF_AGENTS, REQUEST)
"""The tables that `fallow lake compact` merges: requests grow by a file at every import."""

UNUSED_STATES = ("free", "reserved", "held")
"""The ledger's states in which a GPU could be used and is not."""

STATES = ("unknown", "unavailable", *UNUSED_STATES, "low", "active")
"""The ledger's states; every millisecond of a GPU is in exactly one of them."""

UNAVAILABLE_HEALTH = ("lost", "missing", "reset_required", "wedged", "driver_down")
"""The values of `gpu.health` for which nobody could have used the GPU."""

HEALTH_STATES = ("ok", "degraded", *UNAVAILABLE_HEALTH, "released", "asleep", "unknown")
"""Every value of `gpu.health`."""

__all__ = [
    "ACTION",
    "AGENT",
    "ANNOTATION",
    "CLAIM",
    "CLAIM_DAY",
    "COMPACTED",
    "DELIVERY",
    "DEVICE",
    "DEVICE_DAY",
    "EVENT",
    "EVENT_DAY",
    "GPU",
    "GPU_LIFETIME",
    "HEALTH_STATES",
    "HOST",
    "HOST_HOURLY",
    "HOURLY",
    "JUDGEMENT",
    "LEDGER",
    "LEDGER_PART",
    "OF_AGENTS",
    "OLDEST_SCHEMA_VERSION",
    "PROCESS",
    "PROCESS_DAY",
    "QUALITY",
    "REQUEST",
    "SCENARIO",
    "SCHEMA_VERSION",
    "SERVING",
    "SERVING_HOURLY",
    "SPELL",
    "SPELL_PART",
    "STATES",
    "TABLES",
    "UNAVAILABLE_HEALTH",
    "UNUSED_STATES",
    "LakeColumn",
    "LakeTable",
    "Type",
    "table",
]


def table(name: str) -> LakeTable:
    """The table of that name; UsageError with the nearest name where there is none."""
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    from difflib import get_close_matches  # with the error, not before

    names = [candidate.name for candidate in TABLES]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the tables are {', '.join(names)}"
    raise UsageError(f"there is no table '{name}'", hint)
