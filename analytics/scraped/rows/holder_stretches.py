"""Who held which GPU from when to when, as the labels of its series say, or as metrics whose value is a job or a user."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from analytics.scraped.mapping.model import HOLDERS
from analytics.scraped.rows.exporter_rows import GIVEN_PREFIX, UnitCodes
from analytics.scraped.rows.metric_frame import TIME_BITS, Ints, Mask, SampleArrays, keys_of
from analytics.scraped.rows.scraped_units import ScrapedUnits

_GAP_INTERVALS = 3
"""A holder that is not named for longer was not seen to stay (the ledger's rule for samples)."""

_WHO = ("host", "gpu", *HOLDERS)
GIVEN_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    "gpu": pl.String(),
    "start_ms": pl.Int64(),
    "end_ms": pl.Int64(),
    **dict.fromkeys(HOLDERS, pl.String()),
}

Who = tuple[str | None, ...]
"""Host, GPU, and what is said of its holder in the order of HOLDERS."""


def holders_by_label(found: ScrapedUnits, codes: UnitCodes, samples: SampleArrays, interval_ms: Ints) -> pl.DataFrame:
    """Stretches (GIVEN_SCHEMA) of the holders that labels name; `interval_ms` is by unit."""
    first_metric: dict[Who, int] = {}
    told: list[tuple[int, int, Who]] = []
    for parts in found.parts.values():
        for part in parts:
            if part.held:
                unit, holder = codes.units[found.unit_of[part.series]], found.holders[part.series]
                who = (unit.host, unit.gpu, *map(holder.get, HOLDERS))
                first_metric[who] = min(part.metric, first_metric.get(who, part.metric))
                told.append((part.series, part.metric, who))
    chosen = dict.fromkeys((series, who) for series, metric, who in told if metric == first_metric[who])
    numbers = {who: code for code, who in enumerate(dict.fromkeys(who for _, who in chosen))}
    series = np.array([each for each, _ in chosen], np.int64)
    at, counts = samples.of_series(series)
    key = keys_of(np.repeat(np.array([numbers[who] for _, who in chosen], np.int64), counts), samples.time_ms[at])
    unit_of = np.array([found.unit_of[each] for each in series], np.int64)
    return _stretches(key, samples.ended[at], np.repeat(interval_ms[unit_of], counts), list(numbers))


def holders_by_value(gpus: pl.DataFrame, codes: UnitCodes) -> pl.DataFrame:
    """The same of the metrics that say it by their value, in columns of rows of GPUs behind GIVEN_PREFIX; 0 is nobody."""
    named = [name for name in gpus.columns if name.startswith(GIVEN_PREFIX)]
    words = [
        pl.when(pl.col(name) > 0).then(pl.col(name).cast(pl.Int64, strict=False).cast(pl.String)) for name in named
    ]
    told = gpus.select("host", "gpu", "time_ms", "interval_ms", *words).filter(
        ~pl.all_horizontal(pl.col(named).is_null())
    )
    if told.is_empty():
        return pl.DataFrame(schema=GIVEN_SCHEMA)
    who = told.select("host", "gpu", *named).unique(maintain_order=True).with_row_index("code")
    rows = told.join(who, on=["host", "gpu", *named], nulls_equal=True)
    spoken = [
        (codes.hosts[row["host"]], codes.gpus[row["gpu"]], *(row.get(GIVEN_PREFIX + name) for name in HOLDERS))
        for row in who.iter_rows(named=True)
    ]
    key = keys_of(rows["code"].cast(pl.Int64).to_numpy(), rows["time_ms"].to_numpy())
    return _stretches(key, np.zeros(len(key), bool), rows["interval_ms"].to_numpy(), spoken)


def _stretches(key: Ints, ended: Mask, interval_ms: Ints, who: Sequence[Who]) -> pl.DataFrame:
    """Unbroken runs of samples of one holder: a series that ended breaks one, and so do three intervals without a sample."""
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")
        key, ended, interval_ms = key[order], ended[order], interval_ms[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        # one of two series of the holder goes on
        key, ended, interval_ms = key[first], np.logical_and.reduceat(ended, first), interval_ms[first]
    # another holder is further away than any gap
    begins = np.append(True, (np.diff(key) > _GAP_INTERVALS * interval_ms[1:]) | ended[:-1])[: len(key)]
    first = np.flatnonzero(begins & ~ended)
    run = np.cumsum(begins & ~ended)[~ended]
    last = np.flatnonzero(~ended)[np.append(run[1:] != run[:-1], True)[: len(run)]]
    code = key[first] >> TIME_BITS
    holders = pl.DataFrame(who, dict.fromkeys(_WHO, pl.String), orient="row")[code]
    times = {"start_ms": key[first] & (1 << TIME_BITS) - 1, "end_ms": key[last] & (1 << TIME_BITS) - 1}
    return holders.with_columns(**{name: pl.Series(values) for name, values in times.items()}).select(*GIVEN_SCHEMA)
