"""Energy: by the counter it is never more than the counter rose, and what is from power is not called counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.ledger.rows import T0, fill, samples
from tests.ledger.test_states import load

if TYPE_CHECKING:
    from fallow.lake import Lake

DAY = 86_400


@pytest.mark.parametrize("every_s", [10, 60])
def test_the_energy_of_a_counter_is_never_more_than_it_rose(lake: Lake, every_s: int) -> None:
    """Rows whose true starts jitter and that sometimes are missing, over midnight, at a power that swings."""
    rng = np.random.default_rng(7)
    rows = samples("a", DAY - 6 * 3600, DAY + 6 * 3600, every_s=every_s, gpu_util_pct=80.0, process_count=1)
    counter = 10**9 + np.cumsum(rng.integers(100, 700, len(rows)) * every_s * 1000)
    for row, read in zip(rows, counter, strict=True):
        row |= {"energy_mj": int(read), "power_w": 700.0, "counters_since": T0, "offset_ms": int(rng.integers(0, 900))}
    kept = [row for row, lost in zip(rows, rng.random(len(rows)) < 0.05, strict=True) if not lost]
    ledger = load(fill(lake, kept)).stretches
    rise = kept[-1]["energy_mj"] - kept[0]["energy_mj"]
    assert 0.99 * rise < ledger["energy_mj"].sum() <= rise * (1 + 1e-9)
    assert ledger["counter_ms"].sum() == ledger["energy_ms"].sum() > 0


def test_energy_from_power_is_not_by_counter(lake: Lake) -> None:
    ledger = load(fill(lake, samples("a", 0, 600, gpu_util_pct=80.0, power_w=500.0))).stretches
    assert (ledger["energy_mj"].sum(), ledger["energy_ms"].sum(), ledger["counter_ms"].sum()) == (3e8, 600_000, 0)
