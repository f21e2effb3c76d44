"""What the ledger's states depend on."""

from __future__ import annotations

from dataclasses import dataclass

from fallow.config import Config

GAP_INTERVALS = 3
"""A sample stands for at most this many of its intervals; what lies beyond is `unknown` (design: the ledger)."""

DRIVER_WINDOW_MS = 1000 / 6
"""What a reading of utilization that says nothing of its window stands for: the driver's own is a sixth of a second or longer."""

SAMPLED_BELOW = 0.5
"""A row that watched less than half of its time is a point sample of utilization."""


@dataclass(frozen=True)
class LedgerSettings:
    """The thresholds in force; see docs/configuration.md for why each default is what it is."""

    idle_after_ms: int = 5 * 60_000
    low_below_pct: float = 10.0
    held_min_bytes: int = 1_000_000_000

    @classmethod
    def from_config(cls, config: Config) -> LedgerSettings:
        """The thresholds that the configuration names."""
        return cls(
            idle_after_ms=config.integer("ledger.idle_after"),
            low_below_pct=config.number("ledger.low_below_pct"),
            held_min_bytes=config.integer("ledger.held_min_bytes"),
        )
