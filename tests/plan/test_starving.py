"""Who starves while who hoards: the same GPU time once, in the same pool, within quotas."""

from __future__ import annotations

import polars as pl
import pytest

from analytics.money.priced_segments import NOT_KNOWN
from analytics.plan.starving import StarvingPair, starving_pairs
from fallow.clock import HOUR_MS

WINDOW = (0, 24 * HOUR_MS)


def waits(*rows: tuple[str, str | None, float, float, int]) -> pl.DataFrame:
    """Team, pool, from, until, GPUs."""
    names = ("team", "pool", "begin", "until", "gpus")
    frame = pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema_overrides={"pool": pl.String})
    hours = ((pl.col(name) * HOUR_MS).cast(pl.Int64) for name in ("begin", "until"))
    return frame.with_columns(*hours, user=pl.lit("u"), account=pl.lit(None, pl.String))


def given(*rows: tuple[str, str, str, float, float, float]) -> pl.DataFrame:
    """Team, pool, state, from, until, GPUs."""
    names = ("team", "pool", "state", "time", "end", "gpu_share")
    frame = pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows])
    hours = ((pl.col(name) * HOUR_MS).cast(pl.Int64) for name in ("time", "end"))
    frame = frame.with_columns(*hours, holder=pl.lit("u"), account=pl.lit("(no account)"))
    return frame.with_columns(spell_ms=pl.col("end") - pl.col("time"))


def hours(found: tuple[StarvingPair, ...], kind: str = "idle") -> dict[tuple[str, str], float]:
    return {(each.starves, each.hoards): round(each.gpu_ms / HOUR_MS, 6) for each in found if each.kind == kind}


def test_only_the_same_moments_of_the_same_pool_count_and_no_gpu_twice() -> None:
    wanted = waits(("a", "p", 0, 4, 2), ("b", "p", 2, 6, 2), ("c", "q", 0, 6, 9), ("d", None, 0, 6, 9))
    had = given(("x", "p", "held", 1, 6, 1), ("y", "p", "reserved", 3, 4, 3), ("x", "p", "active", 6, 9, 9))
    found = starving_pairs(wanted, had, {}, WINDOW, HOUR_MS)
    # 1-2 h: a alone beside x; 2-3 h: x's GPU for both; 3-4 h: 4 wanted, 4 there; 4-6 h: b alone
    assert hours(found) == {("a", "x"): 2.0, ("b", "x"): 3.0, ("a", "y"): 1.5, ("b", "y"): 1.5}
    assert sum(hours(found).values()) == pytest.approx(5 + 3)
    first = found[0]
    assert (first.waited_ms, first.unused_ms) == (8 * HOUR_MS, 5 * HOUR_MS)


def test_nobody_starves_above_its_quota_nor_beside_its_own() -> None:
    wanted = waits(("a", "p", 0, 6, 1))
    had = given(("x", "p", "held", 0, 6, 1), ("a", "p", "held", 0, 6, 1), ("a", "q", "active", 2, 4, 3))
    # its own idle GPU counts as there, but is no other's: half of what was waited for is beside x
    assert hours(starving_pairs(wanted, had, {"a": 2.0}, WINDOW, HOUR_MS)) == {("a", "x"): 2.0}
    assert hours(starving_pairs(wanted, had, {}, WINDOW, HOUR_MS)) == {("a", "x"): 3.0}
    assert hours(starving_pairs(wanted, had, {"a": 4.0}, WINDOW, 7 * HOUR_MS)) == {}


def test_a_quota_of_which_less_than_half_is_needed_is_hoarded() -> None:
    wanted = waits(("a", "p", 0.5, 2, 4))
    had = given(("x", "p", "active", 0, 24, 4), ("y", "p", "active", 0, 24, 6))
    found = starving_pairs(wanted, had, {"x": 10.0, "y": 10.0}, WINDOW, HOUR_MS)
    assert hours(found) == {}
    assert hours(found, "quota") == {("a", "x"): 6.0}
    assert found[0].needed_share == pytest.approx(0.4)


def test_who_is_not_known_is_said_to_be() -> None:
    waiting = waits(("(no team)", "A", 2, 5, 1)).with_columns(user=pl.lit(None, pl.String))
    found = starving_pairs(waiting, given(("vision", "A", "reserved", 0, 24, 2)), {}, WINDOW, HOUR_MS)
    assert hours(found) == {(NOT_KNOWN, "vision"): 3}
