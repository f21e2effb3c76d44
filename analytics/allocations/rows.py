"""Claims in memory: the columns of the `claim` table and `host`, times as integer milliseconds."""

from __future__ import annotations

import polars as pl

from fallow.schema import CLAIM, Type

_TYPES = {Type.TIMESTAMP: pl.Int64(), Type.INT32: pl.Int32(), Type.STRING: pl.String()}

ROW_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    **{column.name: _TYPES[column.type] for column in CLAIM.columns},
}
"""Names and types of a claim in memory."""


def conform(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with exactly those columns; what they lack is null."""
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(kind).alias(name)
        for name, kind in ROW_SCHEMA.items()
    )
