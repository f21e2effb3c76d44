"""One source for the utilization of a row: the sample ring, GPM's averages or the driver's own short ones, never a mixture.

Mean, maximum, percentile and share at zero describe one quantity. Taken from two sources they contradict each other: a mean
above the maximum, work in time that counts as zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.rows import GpuRow

WHOLE = 0.98
"""From this coverage on a source has seen the whole interval."""

_SEEN_PCT = 0.5
"""The ring's whole percents show a mean from here on: below it, they may all be 0."""
_ROUNDING_PCT = 1.0

_UTILIZATION = (
    "util_source",
    "offset_ms",
    "gpu_util_pct",
    "gpu_util_max_pct",
    "gpu_util_p98_pct",
    "gpu_util_zero_ratio",
    "gpu_util_coverage_ratio",
    "gpu_util_unsampled_ratio",
)


def rounded_up(value: float, digits: int) -> float:
    """Rounded, and never to 0: that means that nothing ran at all."""
    return max(round(value, digits), 10.0**-digits) if value > 0 else 0.0


def with_gpm(row: GpuRow, gpm: GpuRow) -> GpuRow:
    """The row with GPM's columns, its utilization from one source.

    The ring counts where it saw the whole interval: only it knows a maximum and a percentile. GPM counts elsewhere, and where
    the ring took time for idle that GPM saw work in; a mean alone leaves the other columns unknown, unless it is 0.
    """
    if gpm.get("gpu_util_pct") is None:
        return row | gpm
    if row.get("util_source") == "samples":
        if _saw_all(row) and not _denies(row, gpm):
            beside = {name: value for name, value in gpm.items() if name not in _UTILIZATION}
            return row | beside  # type: ignore[return-value]  # columns of the same row
        return row | _alone(gpm)
    return row | {"mem_util_pct": None} | _alone(gpm)


def is_whole_gpm(row: GpuRow) -> bool:
    """Whether GPM alone tells the whole interval."""
    return row.get("util_source") == "gpm" and _saw_all(row)


def _alone(gpm: GpuRow) -> GpuRow:
    nothing: GpuRow = {
        "gpu_util_max_pct": None,
        "gpu_util_p98_pct": None,
        "gpu_util_zero_ratio": None,
        "gpu_util_unsampled_ratio": None,
    }
    if gpm.get("gpu_util_pct") == 0:  # an average of 0 leaves no room for anything else
        nothing = {
            "gpu_util_max_pct": 0,
            "gpu_util_p98_pct": 0,
            "gpu_util_zero_ratio": 1.0,
            "gpu_util_unsampled_ratio": None,
        }
    return nothing | gpm


def _saw_all(row: GpuRow) -> bool:
    return (row.get("gpu_util_coverage_ratio") or 0.0) >= WHOLE


def _denies(ring: GpuRow, gpm: GpuRow) -> bool:
    """Whether GPM saw work that the ring has no room for, beyond what the shift between the two spans may hide."""
    seen_pct, mean_pct = gpm.get("gpu_util_pct") or 0.0, ring.get("gpu_util_pct") or 0.0
    if not ring.get("gpu_util_max_pct"):
        return seen_pct >= _SEEN_PCT
    shifted = 2 * abs(gpm.get("offset_ms") or 0) / ring["interval_ms"]
    return seen_pct - mean_pct > 100 * shifted + _ROUNDING_PCT
