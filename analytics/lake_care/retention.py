"""How long the rows of each table are kept: settings, and what each may be at least."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fallow import schema
from fallow.clock import DAY_MS, utc_day
from fallow.config import Config

HOURLY = frozenset(table.name for table in (schema.HOURLY, schema.HOST_HOURLY, schema.SERVING_HOURLY))
"""The tables of `retention.hourly`."""

EMPTIED = HOURLY | {schema.PROCESS_DAY.name}
"""Derived tables whose files stay, without rows: a day of the ledger is kept as a whole or not at all."""

_SETTINGS = {
    **{
        table.name: f"retention.{table.name}"
        for table in (
            schema.GPU,
            schema.PROCESS,
            schema.HOST,
            schema.SERVING,
            schema.EVENT,
            schema.AGENT,
            schema.PROCESS_DAY,
        )
    },
    **dict.fromkeys(sorted(HOURLY), "retention.hourly"),
}

LOST: Mapping[str, str] = {
    "gpu": "the ledger of these days cannot be built again with other settings or later allocations, and their readings are not drawn",
    "process": "the ledger of these days cannot be built again, and who ran what is known by the day only",
    "host": "the hosts' own load of these days is known by the hour only",
    "serving": "the inference servers' load of these days is known by the hour only",
    "event": "reports of these days name no events",
    "agent": "what the agents cost on these days is gone",
    "process_day": "reports of these days name no processes",
    "hourly": "percentiles, peaks and power of these days are gone; their hours by state stay",
    "host_hourly": "the hosts' load of these days is gone",
    "serving_hourly": "the inference servers' load of these days is gone",
}
"""What can no longer be said once a table's rows are gone."""


@dataclass(frozen=True)
class Retention:
    """By table how long its rows are kept, in ms; tables that are kept for ever are not in it."""

    kept_ms: Mapping[str, int]

    @classmethod
    def from_config(cls, config: Config) -> Retention:
        found = {table: config.integer(name) for table, name in _SETTINGS.items()}
        return cls({table: kept_ms for table, kept_ms in found.items() if kept_ms})

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self.kept_ms)

    def last_day(self, table: str, now_ms: int) -> str:
        """The newest day of which every moment is older than the table's rows are kept."""
        return utc_day(now_ms - self.kept_ms[table] - DAY_MS)
