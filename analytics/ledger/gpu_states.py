"""The state of each GPU over the days before those of a command, kept by month: life tables read a year of it.

The kept rows of a month state which rows of the ledger they are from, and are rebuilt where the manifest names others.
A ledger day that has been damaged since costs nothing as long as its month is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import polars as pl

from analytics.decode import read_days
from analytics.frames import arrow, digest
from analytics.intervals import islands, one_row_each
from analytics.ledger.cache import facts_of
from analytics.states import WITH_KERNELS, WITHOUT_EVIDENCE
from fallow import parquet, schema
from fallow.errors import LakeError
from fallow.lake import ALL_HOSTS, MONTH_LAST_SEQ, Lake, LakeFile
from fallow.quarantine import OnUnusable

STATES_OF_GPUS = schema.GPU_STATE.names
"""The state of each GPU over time, and its user."""


def joined_states(rows: pl.DataFrame) -> pl.DataFrame:
    """Return ledger rows as STATES_OF_GPUS; adjacent rows of a GPU that `idle_intervals` does not tell apart are one.

    Such a row has the state of the first: `stalled`, `low` and `active` all have kernels, and neither `unknown` nor
    `unavailable` is evidence.
    """
    state = pl.col("state").cast(pl.String)
    use = (
        pl.when(state.is_in(WITH_KERNELS))
        .then(pl.lit("used"))
        .when(state.is_in(WITHOUT_EVIDENCE))
        .then(pl.lit("unseen"))
    )
    ordered = rows.select(STATES_OF_GPUS).sort("gpu", "time", "host").with_columns(kind=pl.coalesce(use, state))
    ordered = ordered.with_columns(user=pl.when(pl.col("kind") != "unseen").then("user"))
    return one_row_each(ordered, islands(("gpu", "host", "kind", "user"))).select(STATES_OF_GPUS)


def states_of_month(
    lake: Lake, month: str, contents: Mapping[str, str], on_unusable: OnUnusable | None
) -> pl.DataFrame:
    """Return `joined_states` of a month before the ledger's, such as `2026-11`; kept where the lake can be written.

    Args:
        lake: the lake that keeps the ledger.
        month: the month.
        contents: by date of the ledger a digest of its rows, as in `Manifest.contents`.
        on_unusable: receives unusable files of the ledger.

    Raises LakeError and its kinds.
    """
    stated = {date: of for date, of in contents.items() if date[:7] == month}
    sources = digest(*sorted(stated.items()))
    kept = LakeFile(schema.GPU_STATE.name, f"{month}-01", ALL_HOSTS, 0, MONTH_LAST_SEQ)
    for file in lake.all_files(kept.table, dates=[kept.date]):
        with contextlib.suppress(LakeError):  # a damaged file is written again
            rows = read_days([file], schema.GPU_STATE, STATES_OF_GPUS)
            if facts_of(file).get("sources") == sources:
                return rows
    files = lake.all_files(schema.LEDGER.name, dates=stated)
    rows = joined_states(read_days(files, schema.LEDGER, STATES_OF_GPUS, on_unusable))
    if {file.date: facts_of(file).get("content") for file in files} == stated:
        with contextlib.suppress(LakeError):  # without the right to write, the days are read again the next time
            lake.put(kept, parquet.encode(schema.GPU_STATE, arrow(rows, schema.GPU_STATE), {"sources": sources}))
    return rows
