"""The money of one window: its accounts, the prices that they rest on, and the grid."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.ledger.day_mig import MIG_PREFIX
from analytics.money.accounts import Accounts
from analytics.money.catalog import listed
from analytics.money.costs import Costs
from analytics.money.energy import Grid
from analytics.money.owners import Owners
from analytics.money.prices import PriceBook
from analytics.money.unmatched import unmatched_owners, unmatched_prices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analytics.devices import Inventory
    from analytics.inputs import Inputs
    from analytics.ledger.build import Ledger
    from analytics.money.prices import Price
    from fallow.config import Config


@dataclass(frozen=True)
class Basis:
    """The price of the GPUs of one model in one pool; None where there is none."""

    model: str
    pool: str
    gpus: int
    price: Price | None


@dataclass(frozen=True)
class Money:
    """Everything that is said about the money and the energy of a window."""

    accounts: Accounts
    basis: tuple[Basis, ...]
    grid: Grid
    remarks: tuple[str, ...] = ()
    """Names in the tables of prices and owners that nobody has."""

    @property
    def currency(self) -> str:
        """The currency of every sum."""
        return self.accounts.currency

    @property
    def missing(self) -> tuple[Basis, ...]:
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
    basis = price_basis(inside.stretches["gpu"].unique(), costs, inventory)
    remarks = (
        unmatched_prices(inputs.settings, book, inventory),
        unmatched_owners(inputs.settings, owners, inside.stretches),
    )
    usd = book.rate("USD")
    return Money(
        Accounts(inside, costs, inventory, owners),
        basis,
        Grid.from_config(inputs.settings, None if usd is None else float(usd)),
        tuple(remark for remark in remarks if remark),
    )


def price_basis(gpus: Iterable[str], costs: Costs, inventory: Inventory) -> tuple[Basis, ...]:
    """Whole GPUs by model and pool with their price; the most GPUs first, those without a price last."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for gpu in gpus:
        if not gpu.startswith(MIG_PREFIX):
            found[inventory.model(gpu), inventory.pool(gpu)].append(gpu)
    basis = [Basis(model, pool, len(each), costs.price_of(each[0])) for (model, pool), each in found.items()]
    return tuple(sorted(basis, key=lambda each: (each.price is None, -each.gpus, each.model, each.pool)))
