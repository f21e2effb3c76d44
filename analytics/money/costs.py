"""The cost of ledger segments: the price term of a GPU at each time, and its price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.inventory import Inventory
from analytics.money.prices import Price, PriceBook
from fallow.clock import HOUR_MS

ALWAYS_MS = -(2**62)
NEVER_MS = 2**62

_FLOWS = ("energy_mj", "energy_ms")


@dataclass(frozen=True)
class PriceTerm:
    """A GPU's model, pool and price in [since_ms, until_ms)."""

    since_ms: int
    until_ms: int
    model: str | None
    pool: str | None
    price: Price | None

    @property
    def rate(self) -> float | None:
        """Return the price of an hour of the whole GPU; None if no price is known."""
        return None if self.price is None else float(self.price.hourly)


UNKNOWN_TERM = PriceTerm(ALWAYS_MS, NEVER_MS, None, None, None)
"""Term of a GPU that the inventory lacks."""


def terms_of(inventory: Inventory, prices: PriceBook) -> dict[str, tuple[PriceTerm, ...]]:
    """Return the terms of every GPU of the inventory, in order; together they cover all of time."""
    changed: dict[str, list[_Kind]] = {}
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
    """Return the ledger's rows with `since`, the start of their term; null for GPUs without a term.

    A row in which a GPU's term changed becomes several rows, which share its energy by their time.
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
    shares = [
        # up to the part's end less up to its start, so that the parts of whole numbers add up to the row's
        _until(name, pl.col("last")) - _until(name, pl.col("first"))
        for name in _FLOWS
        if name in rows.columns
    ]
    parts = parts.with_columns(**cut).with_columns(*shares, time=pl.col("first"), end=pl.col("last"))
    return pl.concat([rows.filter(~changing).with_columns(since=since), parts.select(*rows.columns, "since")])


def _until(name: str, moment: pl.Expr) -> pl.Expr:
    """Return the part of a row's sum up to a moment in it."""
    part = pl.col(name) * (moment - pl.col("time"))
    return part // SPAN_MS if name == "energy_ms" else part / SPAN_MS


_Kind = tuple[int, str | None, str | None]
"""Start of a GPU's model and pool."""


def _kinds(gpu: str, inventory: Inventory, changed: Mapping[str, list[_Kind]]) -> list[_Kind]:
    """Return the start of a GPU's model and pool; a MIG instance without its own has its GPU's."""
    device = inventory.devices[gpu]
    parent = inventory.devices.get(device.parent_gpu or "")
    own = changed.get(gpu, [(ALWAYS_MS, device.model, device.pool)])
    if parent is None:
        return own
    above = changed.get(parent.gpu, [(ALWAYS_MS, parent.model, parent.pool)])
    if any(pool is not None for _, _, pool in own):
        return [(since_ms, model or above[-1][1], pool) for since_ms, model, pool in own]
    return [(since_ms, own[-1][1] or model, pool) for since_ms, model, pool in above]


def _spans(kinds: list[_Kind]) -> Iterator[tuple[int, int, str | None, str | None]]:
    """Return the time span of each; the first one also covers the time before it."""
    starts = [ALWAYS_MS, *(since_ms for since_ms, _, _ in kinds[1:])]
    for (_, model, pool), since_ms, until_ms in zip(kinds, starts, [*starts[1:], NEVER_MS], strict=True):
        yield since_ms, until_ms, model, pool


def _priced(span: tuple[int, int, str | None, str | None], prices: PriceBook) -> Iterator[PriceTerm]:
    """Return the terms in the span of one model and pool, one per price in it."""
    since_ms, until_ms, model, pool = span
    changes = [at_ms for at_ms in prices.changes(model, pool) if since_ms < at_ms < until_ms]
    for start_ms, end_ms in zip([since_ms, *changes], [*changes, until_ms], strict=True):
        yield PriceTerm(start_ms, end_ms, model, pool, prices.hourly(model, pool, start_ms))


RATES = {"gpu": pl.String, "since": pl.Int64, "rate": pl.Float64}

_SPANS = ("gpu", "time", "end", "gpu_share")


class Costs:
    """GPU time at the price of its time.

    A MIG instance costs its share of its GPU's price. Without a price there is no cost.
    """

    def __init__(self, prices: PriceBook, inventory: Inventory) -> None:
        """Take prices by model and pool, and the model and pool of each GPU."""
        self._prices = prices
        self._inventory = inventory

    @property
    def currency(self) -> str:
        return self._prices.currency

    @property
    def prices(self) -> PriceBook:
        return self._prices

    def price_of(self, gpu: str) -> Price | None:
        """Return the newest price of a GPU, or of the whole GPU of a MIG instance; None if there is none."""
        return None if (term := self._newest.get(gpu)) is None else term.price

    def rate_of(self, gpu: str) -> float | None:
        """Return the price of an hour of the whole GPU at its newest price; None if no price is known."""
        return None if (term := self._newest.get(gpu)) is None else term.rate

    def of(self, segments: pl.DataFrame) -> float | None:
        """Return the cost of rows with `gpu`, `time`, `end` and `gpu_share`; None if some time has no price."""
        return self.of_each(segments.select(*_SPANS, part=0), "part").get(0, 0.0)

    def of_each(self, segments: pl.DataFrame, part: str) -> dict[int, float | None]:
        """Return the same by a column of numbers."""
        gpu_ms: dict[int, dict[str, float]] = defaultdict(dict)
        sums = segments.group_by(part, "gpu", maintain_order=True).agg((SPAN_MS * pl.col("gpu_share")).sum())
        for number, gpu, time_ms in sums.iter_rows():
            gpu_ms[number][gpu] = time_ms
        found: dict[int, float | None] = {}
        for number, times in gpu_ms.items():
            if not self._changing.isdisjoint(times):
                found[number] = self._of_changing(segments.filter(pl.col(part) == number))
                continue
            rates = {gpu: self.rate_of(gpu) for gpu in times}
            costs = [rate * times[gpu] / HOUR_MS for gpu, rate in rates.items() if rate is not None]
            found[number] = sum(costs, 0.0) if len(costs) == len(rates) else None
        return found

    def _of_changing(self, segments: pl.DataFrame) -> float | None:
        """Return the same if a GPU among them changed its pool or its price."""
        rows = self.at_their_time(segments.select(_SPANS)).join(self.rates(), on=("gpu", "since"), how="left")
        if rows["rate"].null_count():
            return None
        hours = SPAN_MS * pl.col("gpu_share") / HOUR_MS
        return float(rows.select((hours * pl.col("rate")).sum()).item())

    def at_their_time(self, segments: pl.DataFrame) -> pl.DataFrame:
        """Return the ledger's rows cut where a GPU's model, pool or price changed, with `since`, the term's start."""
        return split(segments, self.terms)

    def rates(self) -> pl.DataFrame:
        """Return `gpu`, `since` and `rate` per hour of every term with a price."""
        priced = [
            (gpu, term.since_ms, rate)
            for gpu, terms in self.terms.items()
            for term in terms
            if (rate := term.rate) is not None
        ]
        return pl.DataFrame(priced, schema=RATES, orient="row")

    @cached_property
    def terms(self) -> Mapping[str, tuple[PriceTerm, ...]]:
        """Return the terms of every GPU, in order."""
        return terms_of(self._inventory, self._prices)

    @cached_property
    def _changing(self) -> frozenset[str]:
        return frozenset(gpu for gpu, terms in self.terms.items() if len(terms) > 1)

    @cached_property
    def _newest(self) -> Mapping[str, PriceTerm]:
        """Return the terms at the newest entry of the inventory: future prices are not in force yet."""
        newest_ms = self._inventory.newest_ms
        now_ms = NEVER_MS - 1 if newest_ms is None else min(max(newest_ms, ALWAYS_MS), NEVER_MS - 1)
        return {
            gpu: next(term for term in terms if term.since_ms <= now_ms < term.until_ms)
            for gpu, terms in self.terms.items()
        }
