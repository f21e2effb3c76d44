"""Contradictions in rows of `gpu` before they are in the lake: each UTC day by itself, as the ledger judges it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from analytics.contradictions.sentences import SENTENCES, contradiction_sentence
from analytics.contradictions.verdicts import COLUMNS, GpuReadings, contradictions
from fallow import schema
from fallow.clock import DAY_MS, HOUR_MS

_KEYS = ("gpu", "day")


@dataclass(frozen=True)
class ContradictoryTime:
    """The time of one kind of contradiction in the rows of one source."""

    kind: str
    source: str
    span_ms: dict[str, int]
    """The time by GPU."""
    examples: dict[str, str]

    @property
    def gpu_hours(self) -> float:
        return sum(self.span_ms.values()) / HOUR_MS

    def plus(self, gpu: str, span_ms: int, example: str) -> ContradictoryTime:
        """Return the same with the time of a GPU; its first example stays."""
        total = self.span_ms | {gpu: self.span_ms.get(gpu, 0) + span_ms}
        return ContradictoryTime(self.kind, self.source, total, {gpu: example} | self.examples)

    def __str__(self) -> str:
        worst = max(self.span_ms, key=lambda gpu: (self.span_ms[gpu], gpu))
        total_ms, example = sum(self.span_ms.values()), f"{worst}: {self.examples[worst]}"
        return str(contradiction_sentence(self.kind, self.source, len(self.span_ms), total_ms, example))


class ContradictoryTimes:
    """The times of an import's contradictions, by kind and source; hosts and days are added one after the other."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], ContradictoryTime] = {}

    def add(self, rows: pl.DataFrame) -> None:
        """Add one host's rows: columns of `gpu` in the lake's types, whole days or parts of them."""
        for kind, source, gpu, span_ms, example in _found_in(rows):
            before = self._found.get((kind, source), ContradictoryTime(kind, source, {}, {}))
            self._found[kind, source] = before.plus(gpu, span_ms, example)

    def __iter__(self) -> Iterator[ContradictoryTime]:
        """Yield the times, those that cost observed time first, and the longest first."""
        order = list(SENTENCES)
        yield from sorted(self._found.values(), key=lambda each: (order.index(each.kind), -each.gpu_hours))

    def as_json(self) -> list[dict[str, object]]:
        return [
            {
                "kind": each.kind,
                "source": each.source,
                "gpus": len(each.span_ms),
                "gpu_hours": each.gpu_hours,
                "note": str(each),
            }
            for each in self
        ]


def _found_in(rows: pl.DataFrame) -> Iterator[tuple[str, str, str, int, str]]:
    """Yield kind, source, GPU, milliseconds and an example."""
    frame = rows if rows.is_empty() else _in_order(rows)
    if frame.is_empty():
        return
    readings = _readings(frame)
    for found in contradictions(readings).found():
        first = int(found.rows[0])
        source = str(frame["util_source"][first])
        yield found.kind, source, frame["gpu"][first], int(readings.span[found.rows].sum()), found.example


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by GPU and true start in `at`, with what follows from the rows beside them."""
    absent: dict[str, pl.DataType] = {
        "offset_ms": pl.Int32(),
        "counters_since": pl.Datetime("ms", "UTC"),
        "util_source": pl.String(),
    }
    frame = rows.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in absent.items() if name not in rows.columns
    )
    at = pl.col("time").dt.epoch("ms") + pl.col("offset_ms").fill_null(0)
    frame = frame.with_columns(
        at=at, day=pl.col("time").dt.epoch("ms") // DAY_MS, util_source=pl.col("util_source").fill_null("import")
    )
    frame = frame.filter(pl.col("interval_ms") > 0).unique(["gpu", "at"], keep="first").sort("gpu", "at")
    most_ms = schema.GAP_INTERVALS * pl.col("interval_ms").cast(pl.Int64)
    following = pl.col("at").shift(-1).over(_KEYS) - pl.col("at")
    passed = pl.col("at").diff().over(_KEYS)
    goes_on = (passed <= most_ms.shift(1).over(_KEYS)) & pl.col("counters_since").eq_missing(
        pl.col("counters_since").shift(1).over(_KEYS)
    )
    risen = pl.col("energy_mj").diff().over(_KEYS) if "energy_mj" in frame.columns else pl.lit(None, pl.Int64)
    return frame.with_columns(
        span=pl.when(following.is_null()).then("interval_ms").otherwise(pl.min_horizontal(following, most_ms)),
        drawn=pl.when(goes_on & (risen >= 0)).then(risen / passed),
        code=pl.struct(_KEYS).rle_id(),
    )


def _readings(frame: pl.DataFrame) -> GpuReadings:
    def floats(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return frame[name].cast(pl.Float64).to_numpy().copy()

    stated = [name for name in frame.columns if frame[name].null_count() < len(frame)]
    counted = "energy_mj" in stated
    codes = frame["code"].to_numpy().astype(np.int32)
    lists = (
        frame["process_count"] if "process_count" in stated else pl.repeat(None, len(frame), dtype=pl.Int64, eager=True)
    )
    return GpuReadings(
        gpu=codes,
        hosts=[""] * (int(codes[-1]) + 1),
        source=frame["util_source"].cast(pl.Categorical).to_physical().to_numpy().astype(np.int32),
        start=frame["at"].to_numpy().astype(np.int64),
        interval=frame["interval_ms"].to_numpy().astype(np.int64),
        span=frame["span"].to_numpy().astype(np.int64),
        columns={name: floats(name) for name in COLUMNS if name in stated},
        counter_mj=floats("energy_mj") if counted else None,
        drawn_w=floats("drawn") if counted else None,
        process_count=lists.cast(pl.Int64).fill_null(-1).to_numpy(),
    )
