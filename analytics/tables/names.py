"""Names in cells and sentences, with words in the reader's language where there is no name, and columns that many tables share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from operator import attrgetter
from typing import Any

from analytics.inventory import NO_POOL, UNKNOWN_MODEL
from analytics.language.language import Language
from analytics.language.plain_text import plain
from analytics.language.quantities import Amount, Number, Quantity
from analytics.language.sentences import tr
from analytics.money.cards import card
from analytics.money.priced_segments import NOT_KNOWN
from analytics.tables.table import Cell, Column, column

NAME_MOST = 200


def place_name(name: str, most: int = NAME_MOST) -> str:
    """The name of a pool or a model on one line; where there is none, the words for that."""
    return tr(name) if name in (NO_POOL, UNKNOWN_MODEL) else plain(name, most)


POOL = column("pool", tr("pool"), "pool", lambda row: place_name(row.pool), "pool")
MODEL = column("model", tr("model"), "name", lambda row: place_name(row.model), "model")
CONFIDENCE = column("confidence", tr("confidence"), "grade", lambda row: tr(row.confidence.grade))
HOST = column("host", tr("host"), "host")
TEAM = column("team", tr("team"), "team")
RULE = column("rule", tr("rule"), "name")
GPUS = column("gpus", tr("GPUs"), "count")
GPU_HOURS = column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms")
"""Columns of rows that have the attribute; `GPU_HOURS` reads `gpu_ms`."""


def card_name(model: str) -> str:
    """The short name of a model that is known, else its own."""
    known = card(model)
    return plain(model, NAME_MOST) if known is None else known.name


def pool_column(path: str = "pool") -> Column:
    """Return the column of the pool that a row has at `path`."""
    name = attrgetter(path)
    return column("pool", tr("pool"), "pool", lambda row: place_name(name(row)), name)


def model_column(path: str = "model") -> Column:
    """Return the column of the GPU model that a row has at `path`; programs read its whole name."""
    name = attrgetter(path)
    return column("model", tr("model"), "name", lambda row: card_name(name(row)), name)


def model_if_several(rows: Collection[Any]) -> Column:
    """Return the column of the rows' GPU models, for programs alone unless a pool has cards of several models."""
    several = has_several_models([(row.pool, row.model) for row in rows])
    return model_column() if several else replace(model_column(), audience="programs")


def account_name(label: str) -> str:
    """The label of what has no name, as people read it: data say `holder` where the words are `user`."""
    return tr("(user not known)") if label == NOT_KNOWN else tr(label)


def placed(name: str, language: Language) -> str:
    """The same in the reader's language."""
    return language.shown(place_name(name))


def least_to_most(least: Quantity, most: Quantity) -> Cell:
    """One figure where both are the same, else `2 to 5`."""
    return least if str(least) == str(most) else tr("{least} to {most}", least=least, most=most)


def amount(value: float | None, currency: str | None) -> Amount | None:
    """Money; None is unknown."""
    return None if value is None else Amount(value, currency)


def decimals(value: float | None, digits: int) -> Number | None:
    """A number with so many decimals; None is unknown."""
    return None if value is None else Number(value, digits)


def has_several_models(places: Collection[tuple[str, str]]) -> bool:
    """Whether any pool of these pairs of pool and model has cards of several models, which a table then has to tell apart."""
    return len(set(places)) > len({pool for pool, _ in places})
