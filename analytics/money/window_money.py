"""The money of one window: accounts, prices and the grid, and names in the tables that match nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import polars as pl

from analytics.cards import card
from analytics.inventory import NO_POOL, UNKNOWN_MODEL, Inventory
from analytics.language.languages import site_zone
from analytics.language.sentences import count, plain
from analytics.ledger.build import Ledger
from analytics.mig import MIG_PREFIX
from analytics.money.accounts import COLUMN_OF, Accounts
from analytics.money.carbon import NOTHING, CarbonSum, carbon_sums, hourly_energy
from analytics.money.costs import UNKNOWN_TERM, Costs
from analytics.money.energy import Grid, GridIntensity, open_intensity
from analytics.money.owners import Owners
from analytics.money.prices import Price, PriceBook, catalog, listed, priced_as
from analytics.window import Inputs
from fallow.config import Config
from fallow.errors import ConfigError

_SHOWN = 5


def unmatched_prices(settings: Config, book: PriceBook, inventory: Inventory) -> str:
    """Return a sentence about lines of the price table without a matching GPU in the lake; empty if there are none.

    A line for a known card that the lake lacks is no mistake: one table may serve several lakes.
    """
    if not inventory.devices:
        return ""
    models = {device.model for device in inventory.devices.values() if device.model}
    pools = {device.pool for device in inventory.devices.values() if device.pool}
    pools |= set(inventory.terms["pool"].drop_nulls())
    keys = {priced_as(model, None)[0] for model in models}
    unmatched = []
    for (model, pool), (price, *_) in book.site.items():
        wrong = []
        if model is not None and model not in keys and card(price.model) is None:
            wrong.append(f"model '{plain(price.model or '', 40)}'{_model_like(price, models)}")
        if pool is not None and pool not in pools:
            wrong.append(f"pool '{plain(pool, 40)}' (pools: {_listed(sorted(pools)) or 'none'})")
        if wrong:
            unmatched.append(" in ".join(wrong))
    if not unmatched:
        return ""
    matches = "matches" if len(unmatched) == 1 else "match"
    return (
        f"{_name(settings, 'money.prices')}: {count(len(unmatched), 'line')} {matches} no GPU in this lake:"
        f" {_listed(unmatched)}"
    )


def unmatched_owners(settings: Config, owners: Owners, segments: pl.DataFrame) -> str:
    """Return names of the owners table without GPU time in the window, if a user without an owner has a similar name.

    Names without a similar user are only counted: people who left or are away have no line to correct.
    """
    seen = {kind: _seen(segments, kind) for kind in ("user", "account")}
    strangers = {
        "user": seen["user"] - {name for kind, name in owners.by_name if kind == "user"},
        "account": seen["account"] - {name for kind, name in owners.by_name if kind != "user"},
    }
    alike, rest = [], 0
    for kind, name in owners.by_name:
        if name in seen["user" if kind == "user" else "account"]:
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
    """Return the most similar name, regardless of case."""
    by_lower = {each.lower(): each for each in sorted(names)}
    near = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.75)
    return by_lower[near[0]] if near else None


def _seen(segments: pl.DataFrame, column: str) -> set[str]:
    return {name for joined in segments[column].drop_nulls().unique() for name in joined.split("+")}


def _listed(names: Iterable[str]) -> str:
    everything = list(names)
    more = len(everything) - _SHOWN
    return ", ".join(everything[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _name(settings: Config, setting: str) -> str:
    return Path(settings.text(setting)).name


@dataclass(frozen=True)
class PriceBasis:
    """The price of the GPUs of one model in one pool; None without a price.

    A GPU that changed its pool or its price is in several entries.
    """

    model: str
    pool: str
    names: frozenset[str]
    price: Price | None

    @property
    def gpus(self) -> int:
        """Return the number of GPUs with this price."""
        return len(self.names)


@dataclass(frozen=True)
class Money:
    accounts: Accounts
    basis: tuple[PriceBasis, ...]
    grid: Grid
    costs: Costs
    owners: Owners
    remarks: tuple[str, ...] = ()
    """Problems: names in the tables of prices and owners without a match, and why the grid's intensity is unusable."""
    counter_share: float | None = None
    """Share of the time of known energy that a counter measured; the other time uses power times time.

    None without any.
    """

    @property
    def currency(self) -> str:
        return self.accounts.currency

    def of(self, inside: Ledger, inventory: Inventory) -> Money:
        """Return the same prices and owners over another part of the ledger."""
        accounts = Accounts(inside, self.costs, inventory, self.owners, self.accounts.zone)
        basis = price_basis(inside.segments, self.costs)
        return replace(self, accounts=accounts, basis=basis, counter_share=_counter_share(inside.segments))

    @cached_property
    def _rated(self) -> pl.DataFrame | None:
        """Return the energy of the accounts with its CO2; None if the grid's intensity is not known."""
        grid, accounts = self.grid, self.accounts
        if grid.intensity is None:
            return None
        return hourly_energy(accounts.pieces, accounts.rollups, grid.intensity, grid.pue)

    def carbon_by(self, group: str) -> Mapping[str, CarbonSum]:
        """Return the CO2 of each account of `accounts.by` by its label; empty if the grid's intensity is not known."""
        sums = {} if self._rated is None else carbon_sums(self._rated, (COLUMN_OF.get(group, group),))
        return {label: each for (label,), each in sums.items()}

    @cached_property
    def carbon(self) -> CarbonSum | None:
        """Return the CO2 of all accounts; None if the grid's intensity is not known."""
        return (
            None
            if self._rated is None
            else carbon_sums(self._rated.with_columns(all=pl.lit("")), ("all",)).get(("",), NOTHING)
        )

    @property
    def missing(self) -> tuple[PriceBasis, ...]:
        """Return models and pools without a price."""
        return tuple(each for each in self.basis if each.price is None)

    @property
    def needs_exchange(self) -> bool:
        """Return True if catalog prices need an exchange rate that is not known."""
        return any(listed(each.model) is not None for each in self.missing)


def open_prices(settings: Config) -> PriceBook:
    """Read the prices of the settings. Raises ConfigError."""
    return PriceBook.load(settings.text("money.prices") or None, settings.text("money.currency"))


def open_owners(settings: Config) -> Owners:
    """Read the owners of the settings. Raises ConfigError."""
    path = settings.text("money.owners")
    return Owners.load(path) if path else Owners.none()


def open_grid(settings: Config, book: PriceBook) -> Grid:
    """Return the grid with the price of electricity in the currency of the prices."""
    usd = book.rate("USD")
    return Grid.from_config(settings, _intensity(settings)[0], None if usd is None else float(usd))


def open_money(inputs: Inputs, inside: Ledger, inventory: Inventory) -> Money:
    """Return the money of a ledger that is clipped to its window. Raises ConfigError for unusable tables."""
    book, owners = open_prices(inputs.settings), open_owners(inputs.settings)
    costs = Costs(book, inventory)
    basis = price_basis(inside.segments, costs)
    _, unusable = _intensity(inputs.settings)
    remarks = (
        unusable,
        unmatched_prices(inputs.settings, book, inventory),
        unmatched_owners(inputs.settings, owners, inside.segments),
    )
    return Money(
        Accounts(inside, costs, inventory, owners, site_zone(inputs.settings)),
        basis,
        open_grid(inputs.settings, book),
        costs,
        owners,
        tuple(remark for remark in remarks if remark),
        _counter_share(inside.segments),
    )


def _intensity(settings: Config) -> tuple[GridIntensity | None, str]:
    """Return the intensity of the settings, or why it is unusable: then only CO2 is unknown."""
    try:
        return open_intensity(settings), ""
    except ConfigError as error:
        return None, str(error)


def _counter_share(segments: pl.DataFrame) -> float | None:
    counted_ms, known_ms = segments.select(pl.col("counter_ms", "energy_ms").sum()).row(0)
    return counted_ms / known_ms if known_ms else None


def price_basis(segments: pl.DataFrame, costs: Costs) -> tuple[PriceBasis, ...]:
    """Return whole GPUs by model, pool and price of the ledger's time, most GPUs first, those without a price last."""
    found: dict[tuple[str, str, Price | None], set[str]] = defaultdict(set)
    spans = segments.group_by("gpu").agg(pl.col("time").min(), pl.col("end").max())
    for gpu, first_ms, last_ms in spans.filter(~pl.col("gpu").str.starts_with(MIG_PREFIX)).iter_rows():
        for term in costs.terms.get(gpu, (UNKNOWN_TERM,)):
            if term.since_ms < last_ms and term.until_ms > first_ms:
                found[term.model or UNKNOWN_MODEL, term.pool or NO_POOL, term.price].add(gpu)
    return _ordered(found)


def newest_basis(inventory: Inventory, costs: Costs) -> tuple[PriceBasis, ...]:
    """Return the same for the whole inventory, with the newest model, pool and price of each GPU."""
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
    """Return the site's prices of any time, then the list prices, the highest first."""
    listed = [price for model in catalog() if (price := book.from_catalog(model)) is not None]
    stated = [price for prices in book.site.values() for price in prices]
    return sorted(dict.fromkeys([*stated, *listed]), key=lambda price: (price.origin == "catalog", -price.hourly))


def gpus_at(price: Price, basis: Sequence[PriceBasis]) -> int:
    """Return the number of GPUs with this price."""
    return sum(each.gpus for each in basis if each.price == price)
