"""Who held which GPU from when to when, as the labels of its series say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from analytics.scraped.mapping.model import HOLDERS
from analytics.scraped.rows.metric_frame import SampleArrays
from analytics.scraped.rows.scraped_units import ScrapedUnit, ScrapedUnits

_GAP_INTERVALS = 3
"""A holder that is not named for longer was not seen to stay (the ledger's rule for samples)."""

GIVEN_SCHEMA: dict[str, pl.DataType] = {"host": pl.String(), "gpu": pl.String(), "start_ms": pl.Int64(), "end_ms": pl.Int64(),
                                        **dict.fromkeys(HOLDERS, pl.String())}  # fmt: skip


def named_holders(found: ScrapedUnits, samples: SampleArrays) -> pl.DataFrame:
    """What labels say: unit, time_ms, ended and HOLDERS, a row for each sample of one metric of each holder."""
    first_metric: dict[tuple[int, tuple[tuple[str, str], ...]], int] = {}
    told = [(part.series, part.metric, (found.unit_of[part.series], tuple(found.holders[part.series].items())))
            for parts in found.parts.values() for part in parts if part.held]  # fmt: skip
    for _, metric, who in told:
        first_metric[who] = min(metric, first_metric.get(who, metric))
    chosen = sorted({(series, who) for series, metric, who in told if metric == first_metric[who]})
    numbers = np.array([series for series, _ in chosen], np.int64)
    at, counts = samples.of_series(numbers)
    holders = pl.DataFrame(
        {
            "unit": [unit for _, (unit, _) in chosen],
            **{name: [dict(words).get(name) for _, (_, words) in chosen] for name in HOLDERS},
        },
        schema={"unit": pl.Int64(), **dict.fromkeys(HOLDERS, pl.String())},
    )
    rows = holders[np.repeat(np.arange(len(chosen)), counts)]
    return rows.with_columns(time_ms=pl.Series(samples.time_ms[at]), ended=pl.Series(samples.ended[at]))


def holder_stretches(named: pl.DataFrame, units: Sequence[ScrapedUnit], interval_ms: pl.Series) -> pl.DataFrame:
    """Stretches (GIVEN_SCHEMA) of rows of `named_holders`; `interval_ms` is by unit.

    One ends where a series that named the holder ended, or where none did for three intervals.
    """
    if named.is_empty():
        return pl.DataFrame(schema=GIVEN_SCHEMA)
    who = ["host", "gpu", *HOLDERS]
    about = pl.DataFrame({"host": [unit.host for unit in units], "gpu": [unit.gpu for unit in units],
                          "interval_ms": interval_ms}).with_row_index("unit").with_columns(pl.col("unit").cast(pl.Int64))  # fmt: skip
    told = (
        named.join(about, on="unit").group_by(*who, "time_ms").agg(pl.col("ended").all(), pl.col("interval_ms").max())
    )
    told = told.sort(*who, "time_ms")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in who)
    near = pl.col("time_ms").diff() <= _GAP_INTERVALS * pl.col("interval_ms")
    goes_on = (same & near & ~pl.col("ended").shift(1)).fill_null(value=False)
    runs = told.with_columns(run=(~goes_on).cum_sum()).filter(~pl.col("ended"))
    return (
        runs.group_by("run", *who).agg(start_ms=pl.col("time_ms").min(), end_ms=pl.col("time_ms").max())
        .select(*GIVEN_SCHEMA).sort("gpu", "start_ms", *HOLDERS)
    )  # fmt: skip
