"""Every metric family of the dashboard as data; docs/metrics.md is written from this file.

All of them are gauges of a window that moves with the data, so that none is a counter, and sums over time mean nothing.
"""

from __future__ import annotations

from fallow.exposition import Family

_HOURS, _MONEY, _MONEY_A_YEAR = "GPU-hours", "`currency`", "`currency` a year"

VERSION = Family("fallow_dashboard_info", "1", "Version of fallow that answers", "fallow")
DATA_END = Family("fallow_data_end_timestamp_seconds", "s", "End of the newest row of the lake", "`gpu.time`")
DATA_AGE = Family("fallow_data_age_seconds", "s", "Age of that row at the scrape", "dashboard's clock")
STALE = Family(
    "fallow_data_stale",
    "0 or 1",
    "Whether the lake could not be read again: the figures are of the last version that could",
    "lake",
)
WINDOW_START = Family(
    "fallow_window_start_timestamp_seconds", "s", "Begin of the window that all figures are of", "address"
)
WINDOW_END = Family("fallow_window_end_timestamp_seconds", "s", "End of that window", "address")

GPUS = Family("fallow_ledger_gpus", "1", "GPUs of the window", "ledger")
SIMULATED = Family("fallow_ledger_simulated_gpus", "1", "Of these GPUs, those that a simulation made", "ledger")
GPU_HOURS = Family(
    "fallow_ledger_gpu_hours", _HOURS, "GPU time of the window by state; the states add up to what was there", "ledger"
)
UNCONFIRMED = Family(
    "fallow_ledger_unconfirmed_gpu_hours", _HOURS, "What of an idle state point samples alone call idle", "ledger"
)
COVERAGE = Family("fallow_ledger_coverage_ratio", "ratio", "Observed share of the window's GPU time", "ledger")
SAMPLED = Family(
    "fallow_ledger_sampled_ratio", "ratio", "Share of the observed time that point samples alone have seen", "ledger"
)
COST = Family(
    "fallow_ledger_cost",
    _MONEY,
    "What the GPU time cost, by part: used, held, reserved, free, unavailable, unknown",
    "ledger and prices",
)
UNPRICED = Family(
    "fallow_ledger_unpriced_gpu_hours", _HOURS, "GPU time without a price, which is in no cost", "ledger and prices"
)

OPPORTUNITIES = Family(
    "fallow_opportunities",
    "1",
    "Decisions; `ranked` is true where they are known to save something and nobody has put them off",
    "opportunities",
)
OPPORTUNITY_GPUS = Family(
    "fallow_opportunity_gpus", "1", "GPUs to act on now; each is in one decision", "opportunities"
)
OPPORTUNITY_HOURS = Family(
    "fallow_opportunity_gpu_hours",
    _HOURS,
    "Wasted time of the window that decisions are about; each piece is in one",
    "opportunities",
)
OPPORTUNITY_UNCONFIRMED = Family(
    "fallow_opportunity_unconfirmed_gpu_hours",
    _HOURS,
    "What of that time point samples alone call idle",
    "opportunities",
)
OPPORTUNITY_COST = Family(
    "fallow_opportunity_cost", _MONEY, "What the wasted time cost, as far as it has a price", "opportunities"
)
SAVING = Family(
    "fallow_opportunity_saving_per_year",
    _MONEY_A_YEAR,
    "What decisions that save something would save: `bound` is low, point or high",
    "opportunities",
)
WASTE = Family(
    "fallow_waste_gpu_hours",
    _HOURS,
    "All wasted time of the window; `actionable` is true for what the decisions are about",
    "opportunities",
)

RECLAIMABLE = Family(
    "fallow_reclaimable_gpus",
    "1",
    "GPUs that are safe to give back now; absent where the need is not known",
    "opportunities",
)
IDLE_NOW = Family(
    "fallow_reclaimable_idle_gpus",
    "1",
    "Idle GPUs at the end of the window, before reserve and blocks",
    "opportunities",
)
RESERVE = Family(
    "fallow_reclaimable_reserve_gpus",
    "1",
    "Of the idle GPUs, those that are kept for what the pool needs at once",
    "opportunities",
)

FAMILIES = tuple(each for each in globals().values() if isinstance(each, Family))
"""In the order of an answer."""
