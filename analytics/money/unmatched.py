"""What the tables of prices and owners name and nobody has: most often a name that is spelt in another way."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path

import polars as pl

from analytics.inventory import Inventory
from analytics.language.plain_text import count, plain
from analytics.money.cards import card
from analytics.money.owners import Owners
from analytics.money.prices import Price, PriceBook, priced_as
from fallow.config import Config

_SHOWN = 5


def unmatched_prices(settings: Config, book: PriceBook, inventory: Inventory) -> str:
    """Lines of the price table that price no GPU of the lake; empty where there are none.

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
            wrong.append(f"'{plain(price.model or '', 40)}'{_model_like(price, models)}")
        if pool is not None and pool not in pools:
            wrong.append(f"pool '{plain(pool, 40)}' (pools: {_listed(sorted(pools)) or 'none'})")
        if wrong:
            said.append(" in ".join(wrong))
    if not said:
        return ""
    verb = "prices" if len(said) == 1 else "price"
    lines = f"{count(len(said), 'line')} {verb} no GPU of this lake: {_listed(said)}"
    return f"{_name(settings, 'money.prices')}: {lines}"


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
