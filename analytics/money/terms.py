"""Under which terms a GPU was paid for at a time: its model, its pool, and the price that held for them then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.inventory import Inventory
from analytics.money.prices import Price, PriceBook

ALWAYS_MS = -(2**62)
NEVER_MS = 2**62

_FLOWS = ("energy_mj", "energy_ms")


@dataclass(frozen=True)
class PriceTerm:
    """What a GPU was in [since_ms, until_ms): the model and pool that it is priced as, and the price."""

    since_ms: int
    until_ms: int
    model: str | None
    pool: str | None
    price: Price | None

    @property
    def rate(self) -> float | None:
        """What an hour of the whole GPU costs; None where no price is known."""
        return None if self.price is None else float(self.price.hourly)


UNKNOWN = PriceTerm(ALWAYS_MS, NEVER_MS, None, None, None)
"""Of a GPU that the inventory does not have."""


def terms_of(inventory: Inventory, prices: PriceBook) -> dict[str, tuple[PriceTerm, ...]]:
    """The terms of every GPU of the inventory, in order; together they are all of time."""
    changed: dict[str, list[tuple[int, str | None, str | None]]] = {}
    for gpu, since_ms, model, pool in inventory.terms.select("gpu", "since", "model", "pool").iter_rows():
        changed.setdefault(gpu, []).append((since_ms, model, pool))
    priced: dict[tuple[int, int, str | None, str | None], tuple[PriceTerm, ...]] = {}
    found = {}
    for gpu in inventory.devices:
        spans = list(_spans(_kinds(gpu, inventory, changed)))
        for span in spans:
            if span not in priced:
                priced[span] = tuple(_priced(span, prices))
        found[gpu] = tuple(term for span in spans for term in priced[span])
    return found


def split(rows: pl.DataFrame, terms: Mapping[str, tuple[PriceTerm, ...]]) -> pl.DataFrame:
    """The ledger's rows with `since`, the start of the term that each is of; null for GPUs without any.

    A row in which a GPU's terms changed becomes several, which share its energy by their time.
    """
    several = {gpu: own for gpu, own in terms.items() if len(own) > 1}
    since = pl.when(pl.col("gpu").is_in(list(terms))).then(ALWAYS_MS).cast(pl.Int64)
    if not several:
        return rows.with_columns(since=since)
    changing = pl.col("gpu").is_in(list(several))
    spans = pl.DataFrame(
        [(gpu, term.since_ms, term.until_ms) for gpu, own in several.items() for term in own],
        schema={"gpu": pl.String, "since": pl.Int64, "until": pl.Int64},
        orient="row",
    )
    within = rows.filter(changing).join(spans, on="gpu")
    parts = within.filter((pl.col("time") < pl.col("until")) & (pl.col("end") > pl.col("since")))
    cut = {"first": pl.max_horizontal("time", "since"), "last": pl.min_horizontal("end", "until")}
    span = pl.col("end") - pl.col("time")
    shares = [
        # up to the part's end less up to its start, so that the parts of whole numbers add up to the row's
        _until(name, pl.col("last"), span) - _until(name, pl.col("first"), span)
        for name in _FLOWS
        if name in rows.columns
    ]
    parts = parts.with_columns(**cut).with_columns(*shares, time=pl.col("first"), end=pl.col("last"))
    return pl.concat([rows.filter(~changing).with_columns(since=since), parts.select(*rows.columns, "since")])


def _until(name: str, moment: pl.Expr, span: pl.Expr) -> pl.Expr:
    """What of a row's sum was there at a moment in it."""
    part = pl.col(name) * (moment - pl.col("time"))
    return part // span if name == "energy_ms" else part / span


def _kinds(
    gpu: str, inventory: Inventory, changed: Mapping[str, list[tuple[int, str | None, str | None]]]
) -> list[tuple[int, str | None, str | None]]:
    """Since when a GPU is of which model and pool; those of its GPU for a MIG instance that has none of its own."""
    device = inventory.devices[gpu]
    parent = inventory.devices.get(device.parent_gpu or "")
    own = changed.get(gpu, [(ALWAYS_MS, device.model, device.pool)])
    if parent is None:
        return own
    above = changed.get(parent.gpu, [(ALWAYS_MS, parent.model, parent.pool)])
    if any(pool is not None for _, _, pool in own):
        return [(since_ms, model or above[-1][1], pool) for since_ms, model, pool in own]
    return [(since_ms, own[-1][1] or model, pool) for since_ms, model, pool in above]


def _spans(
    kinds: list[tuple[int, str | None, str | None]],
) -> Iterator[tuple[int, int, str | None, str | None]]:
    """From when until when each of them holds; the first holds for the time before it, too."""
    starts = [ALWAYS_MS, *(since_ms for since_ms, _, _ in kinds[1:])]
    for (_, model, pool), since_ms, until_ms in zip(kinds, starts, [*starts[1:], NEVER_MS], strict=True):
        yield since_ms, until_ms, model, pool


def _priced(span: tuple[int, int, str | None, str | None], prices: PriceBook) -> Iterator[PriceTerm]:
    """The terms in the span of one model and pool, one for each price that held in it."""
    since_ms, until_ms, model, pool = span
    changes = [at_ms for at_ms in prices.changes(model, pool) if since_ms < at_ms < until_ms]
    for start_ms, end_ms in zip([since_ms, *changes], [*changes, until_ms], strict=True):
        yield PriceTerm(start_ms, end_ms, model, pool, prices.hourly(model, pool, start_ms))
