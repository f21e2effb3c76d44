"""Who was named on which GPU in a window, and when each GPU was looked at: what the labels of scraped series say, of all hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from analytics.scraped.host_rows import HostRows
from analytics.scraped.rows.scraped_rows import ENDED

STRETCH_SCHEMA: dict[str, pl.DataType] = {
    "host": pl.String(),
    "gpu": pl.String(),
    "namespace": pl.String(),
    "pod": pl.String(),
    "slurm_job": pl.String(),
    "user": pl.String(),
    "start_ms": pl.Int64(),
    "until_ms": pl.Int64(),
    "next_ms": pl.Int64(),
}
"""Columns of `Given.stretches`, one row per GPU, holder and unbroken stretch.

`until_ms` is the last sample that named the holder plus one interval of the GPU's, or the GPU's next sample where that came
sooner: the holder left in that time, if it left. `next_ms` is the GPU's next sample after the stretch, null where the window has none.
"""

LOOKED_SCHEMA: dict[str, pl.DataType] = {"host": pl.String(), "gpu": pl.String(), "first_ms": pl.Int64()}

_NAMES = ("namespace", "pod", "slurm_job", "user")


@dataclass(frozen=True)
class Given:
    """`stretches` has STRETCH_SCHEMA; `looked` the first sample in the window of every GPU that has any, with LOOKED_SCHEMA."""

    stretches: pl.DataFrame
    looked: pl.DataFrame

    @classmethod
    def of(cls, hosts: Sequence[HostRows]) -> Given:
        """Of the hosts of one window; host by host, for the samples of a fleet are many."""
        found = [_of_host(each) for each in hosts]
        return cls(
            pl.concat([pl.DataFrame(schema=STRETCH_SCHEMA), *(stretches for stretches, _ in found)]),
            pl.concat([pl.DataFrame(schema=LOOKED_SCHEMA), *(looked for _, looked in found)]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Given]) -> Given:
        """Of the parts of one window, those of a GPU in order of time: what a part could not see after a stretch, the next one says."""
        stretches, looked = (
            pl.concat([frame.with_columns(part=pl.lit(number)) for number, frame in enumerate(frames)])
            for frames in ([each.stretches for each in parts], [each.looked for each in parts])
        )
        told = stretches.join_asof(
            looked.rename({"first_ms": "later_ms"}),
            on="part",
            by=["host", "gpu"],
            strategy="forward",
            allow_exact_matches=False,
            check_sortedness=False,
        ).with_columns(next_ms=pl.coalesce("next_ms", "later_ms"))
        return cls(
            told.select(*STRETCH_SCHEMA).with_columns(until_ms=pl.min_horizontal("until_ms", "next_ms")),
            looked.group_by("host", "gpu", maintain_order=True).agg(pl.col("first_ms").min()),
        )


def _of_host(rows: HostRows) -> tuple[pl.DataFrame, pl.DataFrame]:
    # the end of a series is no look at its GPU
    looked_at = rows.gpu.filter(pl.col("health").ne_missing(ENDED))
    samples = looked_at.select(
        pl.col("gpu").cast(pl.String),
        next_ms=pl.col("time").cast(pl.Int64) + pl.col("offset_ms").cast(pl.Int64).fill_null(0),
        interval_ms=pl.col("interval_ms").cast(pl.Int64),
    ).sort("next_ms")
    looked = samples.group_by("gpu").agg(first_ms=pl.col("next_ms").min(), interval_ms=pl.col("interval_ms").last())
    given = rows.given.select(
        pl.col("gpu").cast(pl.String), pl.col("start_ms", "end_ms").cast(pl.Int64), pl.col(_NAMES).cast(pl.String)
    ).sort("end_ms")
    met = given.join_asof(
        samples.select("gpu", "next_ms"),
        left_on="end_ms",
        right_on="next_ms",
        by="gpu",
        strategy="forward",
        allow_exact_matches=False,
        check_sortedness=False,
    ).join(looked, on="gpu", how="left")
    left = pl.min_horizontal("next_ms", pl.col("end_ms") + pl.col("interval_ms").fill_null(0))
    stretches = met.with_columns(host=pl.lit(rows.host), until_ms=left).select(*STRETCH_SCHEMA)
    return stretches.cast(STRETCH_SCHEMA), looked.with_columns(host=pl.lit(rows.host)).select(*LOOKED_SCHEMA)  # type: ignore[arg-type]
