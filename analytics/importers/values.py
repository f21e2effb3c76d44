"""Turns what a file holds into a column of the lake: the lake's type, null for what cannot be, each null counted."""

from __future__ import annotations

import polars as pl

from analytics.importers.model import Tally
from fallow.schema import HEALTH_STATES, LakeColumn, LakeTable, Type

_TYPES: dict[Type, pl.DataType] = {
    Type.TIMESTAMP: pl.Datetime("ms", "UTC"),
    Type.INT16: pl.Int16(),
    Type.INT32: pl.Int32(),
    Type.INT64: pl.Int64(),
    Type.FLOAT: pl.Float32(),
    Type.DOUBLE: pl.Float64(),
    Type.BOOL: pl.Boolean(),
    Type.STRING: pl.String(),
}
_LARGEST: dict[Type, float] = {
    Type.INT16: 2**15 - 1,
    Type.INT32: 2**31 - 1,
    Type.INT64: 2**63 - 1,
    Type.FLOAT: 3.4028234663852886e38,
    Type.DOUBLE: 1.7976931348623157e308,
}
_WORDS = {
    "health": HEALTH_STATES,
    "util_source": ("gpm", "samples", "rates", "none", "import", "scraped", "simulated"),
}
"""The only values that these text columns may hold (`fallow schema gpu`)."""


def polars_type(column: LakeColumn) -> pl.DataType:
    return _TYPES[column.type]


def polars_schema(table: LakeTable) -> dict[str, pl.DataType]:
    """Column names and Polars types of a table, in file order."""
    return {column.name: polars_type(column) for column in table.columns}


def conform(frame: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
    """The frame with exactly the table's columns and types; what it lacks is null."""
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in polars_schema(table).items()
    )


def clean(values: pl.Series, column: LakeColumn, tally: Tally) -> pl.Series:
    """The values in the column's type; NaN, text, and what the quantity cannot be become null and are counted.

    Percentages lie in 0..100, ratios in 0..1; nothing but a temperature is negative. Raises
    polars.exceptions.PolarsError where the values are of a kind that holds no numbers at all.
    """
    if column.type is Type.STRING:
        return _clean_words(values, column, tally)
    if values.dtype == pl.String:
        values = values.str.strip_chars()
        values = values.set(values == "", None)
    numbers = values.cast(pl.Float64, strict=False)
    _count(tally, column, "not a number", values.is_not_null() & numbers.is_null())
    wrong = {"NaN": numbers.is_nan(), "infinite": numbers.is_infinite()}
    low, high = _bounds(column)
    finite = numbers.is_finite()
    if low == 0 and high in (1, 100):
        wrong[f"outside 0..{high:g}: value dropped"] = finite & ((numbers < low) | (numbers > high))
    else:
        wrong["negative: value dropped"] = finite & (numbers < low)
        wrong["too large: value dropped"] = finite & (numbers > high)
    if column.name.endswith("_bytes"):
        wrong["less than one byte: value dropped"] = finite & (numbers > 0) & (numbers < 1)
    good = numbers.is_not_null()
    for reason, where in wrong.items():
        _count(tally, column, reason, where)
        good &= ~where.fill_null(value=False)
    kind = polars_type(column)
    if kind.is_float():
        result = numbers.cast(kind)
    else:
        # whole numbers beyond 2^53 would lose digits on the way through a float
        exact = values.cast(pl.Int64, strict=False) if not values.dtype.is_float() else None
        rounded = numbers.zip_with(good, pl.Series([None], dtype=pl.Float64)).round(0).cast(pl.Int64, strict=False)
        result = rounded if exact is None else exact.zip_with(exact.is_not_null(), rounded)
    result = result.zip_with(good, pl.Series([None], dtype=result.dtype))
    return result.cast(kind, strict=False).alias(column.name)


def _clean_words(values: pl.Series, column: LakeColumn, tally: Tally) -> pl.Series:
    text = values.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    words = _WORDS.get(column.name)
    if words is not None:
        known = text.is_in(words)
        _count(tally, column, f"none of {', '.join(words)}", text.is_not_null() & ~known)
        text = text.set(~known.fill_null(value=True), None)
    return text.alias(column.name)


def _bounds(column: LakeColumn) -> tuple[float, float]:
    if column.name.endswith("_pct"):
        return 0, 100
    if column.name.endswith("_ratio"):
        return 0, 1
    largest = _LARGEST[column.type]
    return (-largest if column.name.endswith("_c") else 0), largest


def _count(tally: Tally, column: LakeColumn, reason: str, where: pl.Series) -> None:
    tally.null(column.name, reason, int(where.sum() or 0))
