"""The settings on which the ledger's states depend."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.config import Config

DRIVER_WINDOW_MS = 1000 / 6
"""The window of a utilization reading that states none: the driver's own is a sixth of a second or longer."""

SAMPLED_BELOW = 0.5
"""A row that watched less than half of its time is a point sample of utilization."""

DRAW_SLACK = 0.05
"""Largest difference in draw at rest: among cards of a model, a card's warm and cold days, and its two sensors."""

QUIET_SLACK = 0.02
"""The largest difference in mean draw at rest between two half minutes; half a second of work a minute adds 2 %."""


@dataclass(frozen=True)
class LedgerSettings:
    """The thresholds in force; `fallow settings` says why each default is what it is."""

    idle_after_ms: int = 5 * 60_000
    stalled_after_ms: int = 7 * 60_000
    low_below_pct: float = 10.0
    held_min_bytes: int = 1_000_000_000

    @classmethod
    def from_config(cls, config: Config) -> LedgerSettings:
        """Return the thresholds of the configuration."""
        return cls(
            idle_after_ms=config.integer("ledger.idle_after"),
            stalled_after_ms=config.integer("ledger.stalled_after"),
            low_below_pct=config.number("ledger.low_below_pct"),
            held_min_bytes=config.integer("ledger.held_min_bytes"),
        )
