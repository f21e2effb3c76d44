"""The money of one window: its accounts, the prices that they rest on and the grid, and names in the tables that nobody has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from analytics.inventory import NO_POOL, UNKNOWN_MODEL, Inventory
from analytics.language.plain_text import count, plain
from analytics.ledger.build import Ledger
from analytics.mig import MIG_PREFIX
from analytics.money.accounts import Accounts
from analytics.money.cards import card
from analytics.money.costs import UNKNOWN_TERM, Costs
from analytics.money.energy import Grid
from analytics.money.owners import Owners
from analytics.money.prices import Price, PriceBook, catalog, listed, priced_as
from analytics.window import Inputs
from fallow.config import Config

_SHOWN = 5


def unmatched_prices(settings: Config, book: PriceBook, inventory: Inventory) -> str:
    """Say which lines of the price table match no GPU of the lake; empty where there are none.

    A line for a card that fallow knows and the lake lacks is no mistake: one table may serve several lakes.
    """
    if not inventory.devices:
        return ""
    models = {device.model for device in inventory.devices.values() if device.model}
    pools = {device.pool for device in inventory.devices.values() if device.pool}
    pools |= set(inventory.terms["pool"].drop_nulls())
    keys = {priced_as(model, None)[0] for model in models}
    said = []
    for (model, pool), (price, *_) in book.site.items():
        wrong = []
        if model is not None and model not in keys and card(price.model) is None:
            wrong.append(f"model '{plain(price.model or '', 40)}'{_model_like(price, models)}")
        if pool is not None and pool not in pools:
            wrong.append(f"pool '{plain(pool, 40)}' (pools: {_listed(sorted(pools)) or 'none'})")
        if wrong:
            said.append(" in ".join(wrong))
    if not said:
        return ""
    matches = "matches" if len(said) == 1 else "match"
    return (
        f"{_name(settings, 'money.prices')}: {count(len(said), 'line')} {matches} no GPU in this lake: {_listed(said)}"
    )


def unmatched_owners(settings: Config, owners: Owners, stretches: pl.DataFrame) -> str:
    """Names of the owners' table that nobody has in the window, though somebody without an owner has nearly that name.

    Names that nothing resembles are counted only: who has left or is away has no line to mend.
    """
    seen = {kind: _seen(stretches, kind) for kind in ("holder", "account")}
    strangers = {
        "user": seen["holder"] - {name for kind, name in owners.by_name if kind == "user"},
        "account": seen["account"] - {name for kind, name in owners.by_name if kind != "user"},
    }
    alike, rest = [], 0
    for kind, name in owners.by_name:
        if name in seen["holder" if kind == "user" else "account"]:
            continue
        near = _near(name, strangers["user" if kind == "user" else "account"])
        if near:
            alike.append(f"{plain(name, 40)} ({plain(near, 40)}?)")
        else:
            rest += 1
    if not alike and rest < len(owners.by_name):
        return ""
    more = [f"{rest} more" if alike else f"all {rest} of its names"] if rest else []
    file = _name(settings, "money.owners")
    return (
        f"{file} names nobody in this window: {', '.join([_listed(alike), *more] if alike else more)}"
        if more or alike
        else ""
    )


def _model_like(price: Price, models: Collection[str]) -> str:
    names = {known.name if (known := card(model)) else model for model in models}
    near = _near(price.model or "", names | set(models))
    return f" (did you mean {near}?)" if near else ""


def _near(name: str, names: Collection[str]) -> str | None:
    """The name that is most like it, whatever the case."""
    by_lower = {each.lower(): each for each in sorted(names)}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def _seen(stretches: pl.DataFrame, column: str) -> set[str]:
    return {name for joined in stretches[column].drop_nulls().unique() for name in joined.split("+")}


def _listed(names: Iterable[str]) -> str:
    everything = list(names)
    more = len(everything) - _SHOWN
    return ", ".join(everything[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _name(settings: Config, setting: str) -> str:
    return Path(settings.text(setting)).name


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
        for term in costs.terms.get(gpu, (UNKNOWN_TERM,)):
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


def in_force(book: PriceBook) -> list[Price]:
    """The site's prices, whenever they hold, then the list prices, the dearest first."""
    listed = [price for model in catalog() if (price := book.from_catalog(model)) is not None]
    stated = [price for prices in book.site.values() for price in prices]
    return sorted(dict.fromkeys([*stated, *listed]), key=lambda price: (price.origin == "catalog", -price.hourly))


def gpus_at(price: Price, basis: Sequence[PriceBasis]) -> int:
    """How many GPUs have this price."""
    return sum(each.gpus for each in basis if each.price == price)
