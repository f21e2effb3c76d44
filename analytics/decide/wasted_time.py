"""The wasted time of a window in whole cents: what of it is whose recommendation, and what no recommendation can act on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.decide.leads import SHARE, own_key
from analytics.money.priced_segments import AMOUNT, nested, rounded
from analytics.states import WASTED


@dataclass(frozen=True)
class Waste:
    """The wasted time of a window and its whole cents: unavailable, free, reserved, held, and the unused part of low.

    `rest_ms` and `rest_cents` of it are what no recommendation can act on: pauses, the reserve, fragments. `open_ms` and `open_cents`
    of it are idle by point samples alone. Cents are None where nothing has a price; `unpriced_ms` is in no sum of money.
    """

    state_ms: Mapping[str, float]
    state_cents: Mapping[str, int] | None
    rest_ms: Mapping[str, float]
    rest_cents: Mapping[str, int] | None
    open_ms: float
    open_cents: int | None
    unpriced_ms: float
    currency: str

    @property
    def gpu_ms(self) -> float:
        """All of it."""
        return sum(self.state_ms.values())

    @property
    def cents(self) -> int | None:
        """All of it that has a price."""
        return None if self.state_cents is None else sum(self.state_cents.values())

    @property
    def not_actionable_ms(self) -> float:
        """What no recommendation can act on."""
        return sum(self.rest_ms.values())

    @property
    def not_actionable_cents(self) -> int | None:
        """The cents of that."""
        return None if self.rest_cents is None else sum(self.rest_cents.values())


def with_off_peak(pieces: pl.DataFrame) -> pl.DataFrame:
    """The pieces with free time that nothing claims cut in two: in off-peak hours, which is that recommendation's, and outside."""
    open_to_use = pl.col("recommendation").is_null() & (pl.col("state") == "free") & (pl.col(SHARE) > 0)
    cut, whole = pieces.filter(open_to_use), pieces.filter(~open_to_use.fill_null(value=False))
    if cut.is_empty():
        return pieces
    keys = {pool: own_key("off_peak", pool) for pool in cut["pool"].unique()}
    inside = (pl.col("waste_amount").cast(pl.Float64) * pl.col(SHARE)).round().cast(AMOUNT)
    times = [pl.col(name) * pl.col(SHARE) for name in ("gpu_ms", "waste_ms", "open_ms")]
    others = [pl.col(name) * (1 - pl.col(SHARE)) for name in ("gpu_ms", "waste_ms", "open_ms")]
    part = cut.with_columns(
        *times,
        amount=inside,
        waste_amount=inside,
        recommendation=pl.col("pool").replace_strict(keys, return_dtype=pl.String),
    )
    rest = cut.with_columns(*others, amount=pl.col("amount") - inside, waste_amount=pl.col("waste_amount") - inside)
    return pl.concat([whole, part, rest])


def wasted_cents(pieces: pl.DataFrame) -> dict[tuple[str, str], int]:
    """Whole cents of the wasted time by state and recommendation, empty for what none claims; they add up to the ledger's of each state.

    Every state's cents are those of `Accounts`; in them used and wasted part, and in the latter the recommendations.
    """
    known = pieces.filter(pl.col("amount").is_not_null()).with_columns(pl.col("recommendation").fill_null(""))
    wasted = known.group_by("state", "recommendation").agg(pl.col("waste_amount").sum())
    used = known.group_by("state").agg((pl.col("amount") - pl.col("waste_amount")).sum())
    amounts: dict[tuple[str, ...], int] = {
        (state, "wasted", key): amount for state, key, amount in wasted.iter_rows() if state in WASTED
    }
    amounts |= {(state, "used", ""): amount for state, amount in used.iter_rows()}
    return {(state, key): each for (state, part, key), each in nested(amounts).items() if part == "wasted"}


def waste_of(pieces: pl.DataFrame, cents: Mapping[tuple[str, str], int], currency: str) -> Waste:
    def by_state(rows: pl.DataFrame) -> dict[str, float]:
        found = dict(rows.group_by("state").agg(pl.col("waste_ms").sum()).iter_rows())
        return {state: found.get(state, 0.0) for state in WASTED}

    priced = bool(pieces["amount"].is_not_null().any()) or pieces.is_empty()
    open_amount = pieces.select(pl.col("waste_amount").cast(pl.Float64) * pl.col("open_share")).to_series().sum()
    all_cents, rest_cents = dict.fromkeys(WASTED, 0), dict.fromkeys(WASTED, 0)
    for (state, key), each in cents.items():
        all_cents[state] += each
        rest_cents[state] += 0 if key else each
    return Waste(
        state_ms=by_state(pieces),
        state_cents=all_cents if priced else None,
        rest_ms=by_state(pieces.filter(pl.col("recommendation").is_null())),
        rest_cents=rest_cents if priced else None,
        open_ms=float(pieces["open_ms"].sum()),
        open_cents=rounded(round(open_amount)) if priced else None,
        unpriced_ms=float(pieces.filter(pl.col("amount").is_null())["waste_ms"].sum()),
        currency=currency,
    )
