"""Whether two ledgers say the same: structure exactly, sums of floats within rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from fallow.clock import DAY_MS

if TYPE_CHECKING:
    from analytics.ledger.build import Ledger
    from tests.ledger.duckdb_ledger import Found

EXACT = (
    "host", "gpu", "time", "end", "state", "stretch_start", "stretch_end", "gpu_share", "holder", "holder_source", "account",
    "job", "zero_ms", "util_ms", "energy_ms", "sample_count", "mem_used_max_bytes", "gpu_util_max_pct",
)  # fmt: skip
"""The columns of the ledger that are no sums of floats, whose last digits depend on the order of adding."""


def exactly(ledger: Ledger) -> list[tuple[Any, ...]]:
    """All of the ledger that is exact, by GPU and time."""
    return ledger.stretches.select(EXACT).sort("gpu", "time").rows()


def whole_stretches(ledger: Ledger) -> list[dict[str, Any]]:
    """The ledger's stretches with their pieces of several days put together, as `duckdb_ledger` has them."""
    span = pl.col("end") - pl.col("time")
    util = (pl.col("gpu_util_mean_pct") * pl.col("util_ms")).sum() / pl.col("util_ms").sum()
    return (
        ledger.stretches.group_by(
            "host", "gpu", "stretch_start", "stretch_end", "state", "gpu_share", maintain_order=True
        )
        .agg(
            pl.col("holder", "account", "job", "holder_shares").first(),
            pl.col("zero_ms", "util_ms", "sample_count", "energy_ms").sum(),
            pl.col("gpu_util_max_pct", "mem_used_max_bytes").max(),
            pl.col("sm_active_mean_pct", "power_mean_w", "coverage_ratio").mean(),
            source=pl.col("holder_source").first(),
            util_mean_pct=pl.when(pl.col("util_ms").sum() > 0).then(util),
            energy_mj=pl.when(pl.col("energy_mj").is_not_null().any()).then(pl.col("energy_mj").sum()),
            pieces=pl.len(),
            covered_ms=span.sum(),
        )
        .rename({"stretch_start": "start_ms", "stretch_end": "end_ms"})
        .sort("gpu", "start_ms")
        .to_dicts()
    )


KEYS = ("host", "gpu", "start_ms", "end_ms", "state", "holder", "source", "account", "job")
_COUNTS = ("zero_ms", "util_ms", "energy_ms")
_FLOATS = {
    "util_mean_pct": "util_mean_pct", "gpu_util_max_pct": "util_max_pct", "sm_active_mean_pct": "sm_mean_pct",
    "power_mean_w": "power_mean_w", "coverage_ratio": "coverage_ratio", "energy_mj": "energy_mj",
    "mem_used_max_bytes": "mem_used_max_bytes",
}  # fmt: skip
_ONE_DAY_ONLY = ("sm_active_mean_pct", "power_mean_w", "coverage_ratio")
"""Means whose weights the ledger does not state: over midnight they cannot be put together again."""


def assert_agree(ledger: Ledger, found: Found) -> None:
    """Stretches, spells and sums of the ledger are those that DuckDB found."""
    mine = whole_stretches(ledger)
    assert [tuple(row[key] for key in KEYS) for row in mine] == [
        tuple(row[key] for key in KEYS) for row in found.stretches
    ]
    for row, theirs in zip(mine, found.stretches, strict=True):
        _assert_sums(row, theirs)
    spells = ledger.spells.select("gpu", "spell_start", "spell_end").unique().sort("gpu", "spell_start").rows()
    assert spells == found.spells


def _assert_sums(row: dict[str, Any], theirs: dict[str, Any]) -> None:
    where = f"{row['gpu']} {row['start_ms']} {row['state']}"
    assert row["covered_ms"] == row["end_ms"] - row["start_ms"], where
    assert row["sample_count"] == theirs["sample_count"], where
    for name in _COUNTS:  # cut at midnight, each piece is rounded by itself
        assert abs(row[name] - theirs[name]) <= row["pieces"] - 1, (where, name)
    for name, their_name in _FLOATS.items():
        if row["pieces"] == 1 or name not in _ONE_DAY_ONLY:
            expected = theirs[their_name]
            if expected is None:
                assert row[name] is None, (where, name)
            else:
                # a millisecond that lies over midnight may be too little to have a sum of its own
                assert row[name] == pytest.approx(expected, rel=1e-6 if row["pieces"] == 1 else 1e-4, abs=1e-3), (
                    where,
                    name,
                )
    shares = row["holder_shares"]
    if row["start_ms"] // DAY_MS == (row["end_ms"] - 1) // DAY_MS:
        expected = theirs["holder_shares"]
        assert (shares is None) == (expected is None), (where, shares, expected)
        assert shares is None or shares == pytest.approx(expected, abs=1e-9), where
    assert shares is None or sum(shares) == pytest.approx(1), where
