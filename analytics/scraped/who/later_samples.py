"""What the lake knows already of the time after an import: last month may be read after last week."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.frames import read_frame
from analytics.importers.times import LATEST_MS
from analytics.scraped.rows.scraped_rows import ENDED
from analytics.scraped.who.given import LOOKED_SCHEMA, STRETCH_SCHEMA, Given
from analytics.scraped.who.label_runs import RUN_KEY
from fallow.clock import DAY_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import CLAIM, GPU


@dataclass(frozen=True)
class LaterSamples:
    """`runs` (RUN_KEY, `began`, `end_there`) went on after `since_ms` as the lake had it before the import that ends there."""

    lake: Lake
    since_ms: int
    runs: pl.DataFrame

    @classmethod
    def of(cls, lake: Lake, since_ms: int) -> LaterSamples:
        """Raises LakeError."""
        files = _scraped(lake.files(CLAIM.name)) if lake.store.exists() else []
        known = read_frame(files, CLAIM, ["time", "end", "gpu", "claim_id", "scheduler"], lake.left_out.leave_out)
        runs = known.filter(pl.col("gpu").is_not_null(), (pl.col("end") > since_ms).fill_null(value=True))
        return cls(lake, since_ms, runs.select(*RUN_KEY, began="time", end_there="end"))

    def ends(self, runs: pl.DataFrame) -> tuple[Given, pl.DataFrame]:
        """Of the runs that the import leaves open (RUN_SCHEMA) those that the lake has a later sample of, and what ends them.

        Whoever the next sample of a GPU names is a part of the run that the lake has then; the others had left by then. Raises LakeError.
        """
        before = runs.filter(pl.col("time") < self.since_ms)
        met = before.join(self._next_looks(set(before["host"])), on=["host", "gpu"])
        there = (
            met.select(*RUN_KEY, "time", "next_ms")
            .join(self.runs, on=RUN_KEY)
            .filter(
                pl.col("began") <= pl.col("next_ms"), (pl.col("end_there") > pl.col("next_ms")).fill_null(value=True)
            )
        )
        now = LaterSamples.of(self.lake, self.since_ms).runs.select(*RUN_KEY, "began", is_apart=pl.lit(value=True))
        there = there.join(now, on=[*RUN_KEY, "began"], how="left")
        # it is one of the lake already, and runs
        is_one = (pl.col("began") == pl.col("time")) | pl.col("is_apart").is_null()
        goes_on = there.group_by(RUN_KEY).agg(
            on_ms=pl.max_horizontal("next_ms", "end_there").max(),
            is_known=(is_one & pl.col("end_there").is_null()).any(),
        )
        end = pl.coalesce("on_ms", pl.min_horizontal("until_ms", "next_ms"))
        ended = met.join(goes_on, on=RUN_KEY, how="left").filter(~pl.col("is_known").fill_null(value=False))
        ended = ended.with_columns(until_ms=end)
        looked = ended.group_by("host", "gpu").agg(first_ms=pl.col("until_ms").max())
        given = Given(pl.DataFrame(schema=STRETCH_SCHEMA), looked.select(*LOOKED_SCHEMA))
        return given, ended.select(runs.columns)

    def _next_looks(self, hosts: set[str]) -> pl.DataFrame:
        """The first scraped sample (`next_ms`) of each GPU of the hosts (host, gpu) in the day after the import."""
        dates = {utc_day(self.since_ms), utc_day(self.since_ms + DAY_MS)}
        files = _scraped(self.lake.files(GPU.name, hosts=hosts, dates=dates)) if hosts else []
        at = pl.col("time") + pl.col("offset_ms").fill_null(0)
        found = [pl.DataFrame(schema={"host": pl.String, "gpu": pl.String, "next_ms": pl.Int64})]
        later_files = [file for file in files if file.last_seq >= self.since_ms]
        for host in sorted({file.host for file in later_files}):
            own = [file for file in later_files if file.host == host]
            samples = read_frame(own, GPU, ["time", "offset_ms", "gpu", "health"], self.lake.left_out.leave_out)
            later = samples.filter(at >= self.since_ms, pl.col("health").ne_missing(ENDED))
            found.append(later.group_by("host", "gpu").agg(next_ms=at.min()))
        return pl.concat(found, how="vertical_relaxed")


def with_ends(rows: pl.DataFrame, ended: pl.DataFrame) -> pl.DataFrame:
    """The allocations (ROW_SCHEMA) of a window and those that ended since, each once."""
    key = [*RUN_KEY, "time"]
    met = rows.join(ended.select(*key, end_since="end"), on=key, how="left", nulls_equal=True, maintain_order="left")
    told = met.with_columns(end=pl.coalesce("end", "end_since")).drop("end_since")
    return pl.concat([told, ended.join(rows, on=key, how="anti")])


def _scraped(files: list[LakeFile]) -> list[LakeFile]:
    return [file for file in files if file.first_seq < LATEST_MS]
