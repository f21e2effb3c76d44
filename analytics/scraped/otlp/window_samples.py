"""The points of a window as samples: sums climb, and what one push says has one time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from analytics.scraped.mapping.mapped_series import target_of
from analytics.scraped.otlp.points import Point
from analytics.scraped.samples import SAMPLE_SCHEMA, Labels, Samples

ONE_PUSH_MS = 500
"""Instruments of one collection are read one after the other, each with its own time; nobody collects twice a second."""

_Key = tuple[tuple[str, str], ...]

_POINT_SCHEMA = {**SAMPLE_SCHEMA, "start_ms": pl.Int64(), "is_delta": pl.Boolean(), "target": pl.UInt32()}


@dataclass(frozen=True)
class DeltaSum:
    """What the deltas of a series add up to, and the end of the newest of them."""

    total: float
    until_ms: int


@dataclass(frozen=True)
class WindowSamples:
    """The samples; `sums` are those to go on from once they are in the lake; `late` deltas came after newer ones and are lost."""

    samples: Samples
    sums: dict[_Key, DeltaSum]
    late: int = 0


def window_samples(points: Iterable[Point], sums: dict[_Key, DeltaSum]) -> WindowSamples:
    """Samples in the order that SAMPLE_SCHEMA asks for; of two points of one series and time the later one counts.

    Where a sum starts anew, which its start says even if the value is larger than before, the series ends first.
    """
    labels, frame = _frame(points)
    frame = frame.unique(["series", "time_ms"], keep="last", maintain_order=True).sort("series", "time_ms")
    new_sums, late = dict(sums), 0
    if frame["is_delta"].any():
        keys = [_key(each) for each in labels]
        old = frame.filter("is_delta").group_by("series").agg(pl.col("time_ms").max())
        before = pl.DataFrame(
            [(number, *_before(sums, keys[number])) for number in old["series"]],
            schema={"series": pl.UInt32, "total": pl.Float64, "until_ms": pl.Int64},
            orient="row",
        )
        frame, late = _climbing(frame.join(before, on="series", how="left"))
        last = frame.filter("is_delta").group_by("series").agg(pl.col("value", "time_ms").last())
        new_sums |= {keys[number]: DeltaSum(value, until_ms) for number, value, until_ms in last.iter_rows()}
    frame = pl.concat([frame.select(*_POINT_SCHEMA), _ends(frame)]).sort("series", "time_ms")
    return WindowSamples(Samples(tuple(labels), _aligned(frame).select(*SAMPLE_SCHEMA)), new_sums, late)


def _frame(points: Iterable[Point]) -> tuple[list[Labels], pl.DataFrame]:
    """Every series once, and the points with _POINT_SCHEMA."""
    numbers: dict[_Key, int] = {}
    targets: dict[tuple[str, ...], int] = {}
    labels: list[Labels] = []
    of_series: list[int] = []
    columns: tuple[list[object], ...] = ([], [], [], [], [], [])
    for point in points:
        number = numbers.setdefault(_key(point.labels), len(labels))
        if number == len(labels):
            labels.append(point.labels)
            of_series.append(targets.setdefault(target_of(point.labels), len(targets)))
        row = (number, point.time_ms, point.value, point.start_ms, point.is_delta, of_series[number])
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return labels, pl.DataFrame(dict(zip(_POINT_SCHEMA, columns, strict=True)), schema=_POINT_SCHEMA)


def _key(labels: Labels) -> _Key:
    return tuple(sorted(labels.items()))


def _before(sums: dict[_Key, DeltaSum], key: _Key) -> tuple[float, int]:
    found = sums.get(key)
    return (0.0, 0) if found is None else (found.total, found.until_ms)


def _climbing(frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Deltas added up from `total` on, and how many came too late for that."""
    is_late = pl.col("is_delta") & (pl.col("time_ms") <= pl.col("until_ms"))
    late = int(frame.select(is_late.sum()).item())
    climbed = pl.col("total") + pl.col("value").fill_null(0.0).cum_sum().over("series")
    kept = frame.filter(~is_late.fill_null(value=False))
    return kept.with_columns(value=pl.when("is_delta").then(climbed).otherwise("value")), late


def _ends(frame: pl.DataFrame) -> pl.DataFrame:
    """A marker before each cumulative point that counts from a later start than the one before, and not from it."""
    anew = (
        ~pl.col("is_delta")
        & (pl.col("start_ms") > 0)
        & (pl.col("start_ms") > pl.col("start_ms").shift().over("series"))
        & (pl.col("time_ms") - 1 > pl.col("time_ms").shift().over("series"))
    )
    ends = frame.filter(anew.fill_null(value=False))
    return ends.with_columns(value=pl.lit(None, pl.Float64), time_ms=pl.col("time_ms") - 1).select(*_POINT_SCHEMA)


def _aligned(frame: pl.DataFrame) -> pl.DataFrame:
    """Times of one target that lie closer together than two pushes ever do become the first of them."""
    moments = frame.filter(pl.col("value").is_not_null()).select("target", "time_ms").unique().sort("target", "time_ms")
    begins = (pl.col("time_ms").diff().over("target") > ONE_PUSH_MS).fill_null(value=True)
    pushes = moments.with_columns(push_ms=pl.when(begins).then("time_ms").forward_fill())
    joined = frame.join(pushes, on=["target", "time_ms"], how="left", maintain_order="left")
    found = joined.with_columns(time_ms=pl.coalesce("push_ms", "time_ms"))
    return found.unique(["series", "time_ms"], keep="last", maintain_order=True)
