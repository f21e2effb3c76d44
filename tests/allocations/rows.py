"""Claims as rows and frames."""

from __future__ import annotations

from typing import Any

import polars as pl

from analytics.allocations.model import ROW_SCHEMA

Row = dict[str, Any]


def claim(gpu: str | None, start: int, end: int | None, claim_id: str = "1", **more: object) -> Row:
    """A row of Slurm's, user and account named after the claim."""
    return {
        "host": "h1", "gpu": gpu, "time": start, "end": end, "claim_id": claim_id, "scheduler": "slurm",
        "user": f"u{claim_id}", "account": f"a{claim_id}", **more,
    }  # fmt: skip


def frame(*rows: Row) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=ROW_SCHEMA)
