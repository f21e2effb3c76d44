"""The money of one window: its accounts, the prices that they rest on, and the grid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from analytics.inventory import NO_POOL, UNKNOWN_MODEL, Inventory
from analytics.ledger.build import Ledger
from analytics.mig import MIG_PREFIX
from analytics.money.accounts import Accounts
from analytics.money.catalog import listed
from analytics.money.costs import Costs
from analytics.money.energy import Grid
from analytics.money.owners import Owners
from analytics.money.prices import Price, PriceBook
from analytics.money.terms import UNKNOWN
from analytics.money.unmatched import unmatched_owners, unmatched_prices
from analytics.window import Inputs
from fallow.config import Config


@dataclass(frozen=True)
class PriceBasis:
    """The price of the GPUs of one model in one pool; None where there is none.

    A GPU that changed its pool, or whose price changed, stands in several.
    """

    model: str
    pool: str
    names: frozenset[str]
    price: Price | None

    @property
    def gpus(self) -> int:
        """How many GPUs it is the price of."""
        return len(self.names)


@dataclass(frozen=True)
class Money:
    """Everything that is said about the money and the energy of a window."""

    accounts: Accounts
    basis: tuple[PriceBasis, ...]
    grid: Grid
    costs: Costs
    owners: Owners
    remarks: tuple[str, ...] = ()
    """Names in the tables of prices and owners that nobody has."""
    counter_share: float | None = None
    """Share of the time of known energy for which a counter told it, the rest is power times time; None without any."""

    @property
    def currency(self) -> str:
        """The currency of every sum."""
        return self.accounts.currency

    def of(self, inside: Ledger, inventory: Inventory) -> Money:
        """The same prices and owners over another part of the ledger."""
        accounts = Accounts(inside, self.costs, inventory, self.owners)
        basis = price_basis(inside.stretches, self.costs)
        return replace(self, accounts=accounts, basis=basis, counter_share=_counter_share(inside.stretches))

    @property
    def missing(self) -> tuple[PriceBasis, ...]:
        """Models and pools without a price."""
        return tuple(each for each in self.basis if each.price is None)

    @property
    def needs_exchange(self) -> bool:
        """Whether the catalog has prices that are of no use for want of an exchange rate."""
        return any(listed(each.model) is not None for each in self.missing)


def open_prices(settings: Config) -> PriceBook:
    """The prices that the settings name; raises ConfigError."""
    return PriceBook.load(settings.text("money.prices") or None, settings.text("money.currency"))


def open_owners(settings: Config) -> Owners:
    """The owners that the settings name; raises ConfigError."""
    path = settings.text("money.owners")
    return Owners.load(path) if path else Owners.none()


def open_money(inputs: Inputs, inside: Ledger, inventory: Inventory) -> Money:
    """The money of a ledger that was clipped to its window; raises ConfigError for tables that cannot be used."""
    book, owners = open_prices(inputs.settings), open_owners(inputs.settings)
    costs = Costs(book, inventory)
    basis = price_basis(inside.stretches, costs)
    remarks = (
        unmatched_prices(inputs.settings, book, inventory),
        unmatched_owners(inputs.settings, owners, inside.stretches),
    )
    usd = book.rate("USD")
    return Money(
        Accounts(inside, costs, inventory, owners),
        basis,
        Grid.from_config(inputs.settings, None if usd is None else float(usd)),
        costs,
        owners,
        tuple(remark for remark in remarks if remark),
        _counter_share(inside.stretches),
    )


def _counter_share(stretches: pl.DataFrame) -> float | None:
    counted_ms, known_ms = stretches.select(pl.col("counter_ms", "energy_ms").sum()).row(0)
    return counted_ms / known_ms if known_ms else None


def price_basis(stretches: pl.DataFrame, costs: Costs) -> tuple[PriceBasis, ...]:
    """Whole GPUs by model, pool and price of the time that the ledger's rows span; the most GPUs first, then those without a price."""
    found: dict[tuple[str, str, Price | None], set[str]] = defaultdict(set)
    spans = stretches.group_by("gpu").agg(pl.col("time").min(), pl.col("end").max())
    for gpu, first_ms, last_ms in spans.filter(~pl.col("gpu").str.starts_with(MIG_PREFIX)).iter_rows():
        for term in costs.terms.get(gpu, (UNKNOWN,)):
            if term.since_ms < last_ms and term.until_ms > first_ms:
                found[term.model or UNKNOWN_MODEL, term.pool or NO_POOL, term.price].add(gpu)
    return _ordered(found)


def newest_basis(inventory: Inventory, costs: Costs) -> tuple[PriceBasis, ...]:
    """The same of the whole inventory, with the newest model, pool and price of each GPU."""
    found: dict[tuple[str, str, Price | None], set[str]] = defaultdict(set)
    for gpu in inventory.devices:
        if not gpu.startswith(MIG_PREFIX):
            found[inventory.model(gpu), inventory.pool(gpu), costs.price_of(gpu)].add(gpu)
    return _ordered(found)


def _ordered(found: Mapping[tuple[str, str, Price | None], set[str]]) -> tuple[PriceBasis, ...]:
    basis = [PriceBasis(model, pool, frozenset(gpus), price) for (model, pool, price), gpus in found.items()]
    return tuple(
        sorted(basis, key=lambda each: (each.price is None, -each.gpus, each.model, each.pool, str(each.price)))
    )
