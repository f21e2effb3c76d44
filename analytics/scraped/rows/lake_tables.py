"""Further tables from rows of GPUs: inventory, XIDs, restarts of counters, and users of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from analytics.importers.values import polars_schema
from analytics.mapping.model import USERS, Exporter
from analytics.scraped.rows.exporter_rows import COUNTERS, DEVICE_PREFIX, GIVEN_PREFIX, UnitCodes
from analytics.scraped.rows.metric_frame import TIME_BITS, Ints, Mask, SampleArrays, ScrapedUnit, ScrapedUnits, keys_of
from analytics.scraped.rows.model import RowSettings
from analytics.scraped.samples import Labels, first_label
from analytics.scraped.series_labels import gpu_of
from fallow import schema
from fallow.clock import DAY_MS
from fallow.schema import DEVICE, EVENT

_SLICES = re.compile(r"(\d+)g\.")
_TYPES = polars_schema(DEVICE)


def device_facts(labels: Sequence[Labels], found: ScrapedUnits, samples: SampleArrays) -> pl.DataFrame:
    """Return labels' facts on GPUs (gpu, since_ms, columns of `device`), a row from each series that changes them."""
    units = tuple(found.units)
    words = {
        name: [label for _, known in exporter.device for label in known] + list(exporter.index)
        for name, exporter in found.exporters.items()
    }
    first_ms: dict[tuple[int, tuple[str | None, ...]], tuple[int, int]] = {}
    for series, unit in found.unit_of.items():
        if units[unit].gpu and samples.first[series] < samples.first[series + 1]:
            key = (unit, tuple(map(labels[series].get, words[units[unit].source[0]])))
            since = (int(samples.time_ms[samples.first[series]]), series)
            first_ms[key] = min(since, first_ms.get(key, since))
    facts = [
        {"since_ms": since_ms} | own
        for (unit, _), (since_ms, series) in first_ms.items()
        for own in _series_facts(labels[series], units[unit], found.exporters[units[unit].source[0]])
    ]
    rows = pl.DataFrame(
        facts, schema={"gpu": pl.String(), "since_ms": pl.Int64(), **dict.fromkeys(_TYPES, pl.String())} | _NO_TEXTS
    )
    return rows.sort("gpu", "since_ms").select(
        "gpu",
        "since_ms",
        *(pl.col(name).forward_fill().over("gpu").cast(_TYPES[name], strict=False) for name in _FACTS),
    )


_FACTS = tuple(name for name in _TYPES if name not in ("time", "gpu", "source"))
_OF_INSTANCES = ("mig_profile", "gpu_instance_id")
_NO_TEXTS: dict[str, pl.DataType] = {"mig_enabled": pl.Boolean(), "mig_gpu_slices": pl.Int64()}


def _series_facts(labels: Labels, unit: ScrapedUnit, exporter: Exporter) -> Iterator[dict[str, object]]:
    """Yield the facts of one series about its GPU; for a MIG instance, about the instance and its GPU."""
    facts: dict[str, object] = {column: first_label(labels, names) or None for column, names in exporter.device}
    if unit.parent:
        slices = _SLICES.search(str(facts.get("mig_profile")))
        own = {"gpu": unit.gpu, "parent_gpu": unit.parent, "mig_gpu_slices": int(slices[1]) if slices else None}
        yield facts | own
        facts = {name: value for name, value in facts.items() if name not in _OF_INSTANCES} | {"mig_enabled": True}
    yield facts | {"gpu": unit.parent or unit.gpu, "gpu_index": gpu_of(labels, exporter).index or None}


def device_rows(gpus: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `device` and their `host`.

    `gpus` has host, gpu, time_ms and columns behind DEVICE_PREFIX; `facts` are from `device_facts`.
    """
    measured = [name for name in gpus.columns if name.startswith(DEVICE_PREFIX)]
    days = gpus.group_by("host", "gpu", day=pl.col("time_ms") // DAY_MS).agg(
        pl.col("time_ms").min(), *(pl.col(name).drop_nulls().last() for name in measured)
    )
    days = days.with_columns(until_ms=(pl.col("day") + 1) * DAY_MS).sort("gpu", "until_ms")
    found = days.join_asof(facts, left_on="until_ms", right_on="since_ms", by="gpu", check_sortedness=False)
    own = (name.removeprefix(DEVICE_PREFIX) for name in measured)
    return found.with_columns(
        time=pl.from_epoch("time_ms", time_unit="ms").cast(_TYPES["time"]),
        source=pl.lit("scraped"),
        **{name: pl.col(DEVICE_PREFIX + name).cast(_TYPES[name], strict=False) for name in own},
    ).select("host", *_TYPES)


_LARGEST_CODE = 2**31 - 1
"""NVIDIA's numbers have three digits; a number that the column cannot hold is not an XID."""


def xid_events(gpus: pl.DataFrame, settings: RowSettings) -> pl.DataFrame:
    """Return rows of `event` in the window, and their `host`.

    `gpus` are rows of GPUs, by GPU and time (host, gpu, time_ms, code). A number that was present in a GPU's first row
    came at an unknown time, and a repeated number looks like one.
    """
    if "code" not in gpus.columns:
        return pl.DataFrame(schema={"host": pl.String, **polars_schema(EVENT)})
    before = pl.col("code").forward_fill().shift(1).over("gpu")
    inside = pl.col("time_ms").is_between(settings.since_ms, settings.until_ms, closed="left")
    can_be = pl.col("code").is_between(1, _LARGEST_CODE)
    changed = gpus.filter(can_be & (pl.col("code") != before) & inside)
    return changed.select(
        "host",
        time=pl.from_epoch("time_ms", time_unit="ms").cast(_TYPES["time"]),
        gpu="gpu",
        kind=pl.lit("xid"),
        code=pl.col("code").cast(pl.Int32),
        detail=pl.format("the metrics show XID {} from this scrape on", pl.col("code").cast(pl.Int32)),
    )


_MOST_W = 5_000
"""A counter that rises faster has restarted (the agent's rule)."""


def with_epochs(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows, by GPU and time, with `counters_since`: the first row after the last restart; null before any.

    No series states when its counter started, and readers of the rows take differences within one epoch only.
    """
    present = [name for name in COUNTERS if name in frame.columns]
    if not present:
        return frame
    begins = [pl.col(name) < pl.col(name).forward_fill().shift(1).over("gpu") for name in present]
    if "energy_mj" in present:
        begins.append(_is_too_fast())
    restarted = pl.any_horizontal(pl.lit(value=False), *(each.fill_null(value=False) for each in begins))
    found = frame.with_columns(_restarted=restarted)
    if not found["_restarted"].any():
        return found.drop("_restarted").with_columns(counters_since=pl.lit(None, pl.Int64))
    since = pl.when("_restarted").then("time_ms").forward_fill().over("gpu")
    return found.with_columns(counters_since=since).drop("_restarted")


def _is_too_fast() -> pl.Expr:
    energy = pl.col("energy_mj")
    passed_ms = pl.col("time_ms") - pl.when(energy.is_not_null()).then("time_ms").forward_fill().shift(1).over("gpu")
    return energy - energy.forward_fill().shift(1).over("gpu") > _MOST_W * passed_ms


_WHO = ("host", "gpu", *USERS)
GIVEN_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    "gpu": pl.String(),
    "start_ms": pl.Int64(),
    "end_ms": pl.Int64(),
    **dict.fromkeys(USERS, pl.String()),
}

Who = tuple[str | None, ...]
"""Host, GPU, and the user's names in the order of USERS."""


def users_by_label(found: ScrapedUnits, codes: UnitCodes, samples: SampleArrays, interval_ms: Ints) -> pl.DataFrame:
    """Return segments (GIVEN_SCHEMA) of the users that labels name; `interval_ms` is by unit."""
    first_metric: dict[Who, int] = {}
    named_rows: list[tuple[int, int, Who]] = []
    for parts in found.parts.values():
        for part in parts:
            if part.held:
                unit, user = codes.units[found.unit_of[part.series]], found.users[part.series]
                who = (unit.host, unit.gpu, *map(user.get, USERS))
                first_metric[who] = min(part.metric, first_metric.get(who, part.metric))
                named_rows.append((part.series, part.metric, who))
    chosen = dict.fromkeys((series, who) for series, metric, who in named_rows if metric == first_metric[who])
    numbers = {who: code for code, who in enumerate(dict.fromkeys(who for _, who in chosen))}
    series = np.array([each for each, _ in chosen], np.int64)
    at, counts = samples.of_series(series)
    key = keys_of(np.repeat(np.array([numbers[who] for _, who in chosen], np.int64), counts), samples.time_ms[at])
    unit_of = np.array([found.unit_of[each] for each in series], np.int64)
    return _segments(key, samples.ended[at], np.repeat(interval_ms[unit_of], counts), list(numbers))


def users_by_value(gpus: pl.DataFrame, codes: UnitCodes) -> pl.DataFrame:
    """Return the same for metrics whose value names the user, in GIVEN_PREFIX columns of GPU rows; 0 means no user."""
    named = [name for name in gpus.columns if name.startswith(GIVEN_PREFIX)]
    words = [
        pl.when(pl.col(name) > 0).then(pl.col(name).cast(pl.Int64, strict=False).cast(pl.String)) for name in named
    ]
    named_rows = gpus.select("host", "gpu", "time_ms", "interval_ms", *words).filter(
        ~pl.all_horizontal(pl.col(named).is_null())
    )
    if named_rows.is_empty():
        return pl.DataFrame(schema=GIVEN_SCHEMA)
    who = named_rows.select("host", "gpu", *named).unique(maintain_order=True).with_row_index("code")
    rows = named_rows.join(who, on=["host", "gpu", *named], nulls_equal=True)
    spoken = [
        (codes.hosts[row["host"]], codes.gpus[row["gpu"]], *(row.get(GIVEN_PREFIX + name) for name in USERS))
        for row in who.iter_rows(named=True)
    ]
    key = keys_of(rows["code"].cast(pl.Int64).to_numpy(), rows["time_ms"].to_numpy())
    return _segments(key, np.zeros(len(key), bool), rows["interval_ms"].to_numpy(), spoken)


def _segments(key: Ints, ended: Mask, interval_ms: Ints, who: Sequence[Who]) -> pl.DataFrame:
    """Return unbroken runs of samples of one user: a series' end or three intervals without a sample break a run."""
    if not (key[1:] > key[:-1]).all():
        order = np.argsort(key, kind="stable")
        key, ended, interval_ms = key[order], ended[order], interval_ms[order]
        first = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        # one of two series of the user continues
        key, ended, interval_ms = key[first], np.logical_and.reduceat(ended, first), interval_ms[first]
    # another user is further away than any gap
    begins = np.append(True, (np.diff(key) > schema.GAP_INTERVALS * interval_ms[1:]) | ended[:-1])[: len(key)]
    first = np.flatnonzero(begins & ~ended)
    run = np.cumsum(begins & ~ended)[~ended]
    last = np.flatnonzero(~ended)[np.append(run[1:] != run[:-1], True)[: len(run)]]
    code = key[first] >> TIME_BITS
    users = pl.DataFrame(who, dict.fromkeys(_WHO, pl.String), orient="row")[code]
    times = {"start_ms": key[first] & (1 << TIME_BITS) - 1, "end_ms": key[last] & (1 << TIME_BITS) - 1}
    return users.with_columns(**{name: pl.Series(values) for name, values in times.items()}).select(*GIVEN_SCHEMA)
