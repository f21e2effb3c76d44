"""Names in cells and sentences, words for missing names, and columns that many tables share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from analytics.cards import card
from analytics.inventory import NO_POOL, UNKNOWN_MODEL
from analytics.language.sentences import Amount, GpuHours, Quantity, Sentence, plain, tr
from analytics.tables.table import Cell, Column, column, column_of
from fallow.clock import HOUR_MS

NAME_MOST = 200
LEAST_MS = HOUR_MS // 20
"""Least GPU time to name: less is written as 0.0 GPU-hours."""


def place_name(name: str) -> str:
    """Return the name of a pool or model on one line, or the words for a missing name."""
    return tr(name) if name in (NO_POOL, UNKNOWN_MODEL) else plain(name, NAME_MOST)


POOL = column("pool", tr("pool"), "pool", lambda row: place_name(row.pool), "pool")
CONFIDENCE = column("confidence", tr("confidence"), "grade", lambda row: tr(row.confidence.grade))
HOST = column("host", tr("host"), "host")
TEAM = column("team", tr("team"), "team")
RULE = column("rule", tr("rule"), "name")
GPUS = column("gpus", tr("GPUs"), "count")
GPU_HOURS = column("gpu_hours", tr("GPU-hours"), "gpu_hours", "gpu_ms")
"""Columns of rows with the attribute of this name. `GPU_HOURS` reads `gpu_ms`."""


def card_name(model: str) -> str:
    """Return the short name of a known model, else its own name, or the words for a missing name."""
    known = card(model)
    return place_name(model) if known is None else known.name


MODEL = column("model", tr("model"), "name", lambda row: card_name(row.model), "model")
"""Programs read the whole name."""


def model_if_several(rows: Collection[Any]) -> Column:
    """Return the column of the rows' GPU models, for programs only unless a pool has several models."""
    several = len({(row.pool, row.model) for row in rows}) > len({row.pool for row in rows})
    return MODEL if several else replace(MODEL, audience="programs")


def least_to_most(least: Quantity, most: Quantity) -> Cell:
    """Return one figure if both are equal, else a range: `2 to 5`."""
    return least if str(least) == str(most) else tr("{least} to {most}", least=least, most=most)


def more_with_hours(rest_ms: Sequence[float]) -> Sentence:
    """Return the number of the rows that are left out, and their GPU time, which is given for each of them."""
    return tr("and {number} more with {hours} GPU-hours", number=len(rest_ms), hours=GpuHours(sum(rest_ms)))


def amount_column(key: str, title: str, currency: str | None, part: str | Callable[[Any], object] = "") -> Column:
    """Return the column of the money that a row has at a path, by default `key`, or that a function returns for it."""
    return column_of(part or key, column(key, title, "money", lambda value: Amount(value, currency)))
