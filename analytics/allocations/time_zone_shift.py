"""Allocations that the lake has already, a whole number of quarter hours apart: their times were read in another time zone.

An allocation's start is part of what it is, so the same export read in two zones would stand in the lake twice. Zones differ by
quarters of an hour and by at most 26 hours; a job that began again moves by any time, and rarely lasts as long as before.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.allocations.model import ReadAllocations
from analytics.allocations.write import imported_files, merge, time_zones
from analytics.frames import read_frame
from analytics.language.plain_text import count
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, utc_day
from fallow.errors import InputError
from fallow.lake import Lake, visible
from fallow.schema import CLAIM

_STEP_MS = 15 * MINUTE_MS
_MOST_MS = 26 * HOUR_MS
"""UTC+14 and UTC-12 are that far apart."""

_RUN = ["scheduler", "claim_id", "host", "time"]
_MADE_ID = r"@\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
"""What `csv_file` puts behind a name to make an id; it moves with the start."""


@dataclass(frozen=True)
class Shifted:
    """Pairs of an imported run and the run of the lake that it is, with `time_old`, `claim_id_old` and `shift`."""

    pairs: pl.DataFrame

    @property
    def removed(self) -> pl.DataFrame:
        """The lake's runs (scheduler, claim_id, host, time) that the imported ones stand for."""
        return self.pairs.select("scheduler", "host", claim_id="claim_id_old", time="time_old")

    @property
    def forward(self) -> bool:
        """Whether most start later than the lake says."""
        return 2 * int((self.pairs["shift"] > 0).sum()) > self.pairs.height

    def said(self) -> str:
        """`5 jobs are in the lake already, 1 h apart`."""
        slurm = (self.pairs["scheduler"] == "slurm").all()
        allocations = self.pairs.select("claim_id", "time").unique().height
        apart = sorted(set(self.pairs["shift"].abs()))
        hours = " or ".join(f"{each / HOUR_MS:g} h" for each in apart)
        verb = "is" if allocations == 1 else "are"
        return f"{count(allocations, 'job' if slurm else 'allocation')} {verb} in the lake already, {hours} apart"

    def error(self, read: ReadAllocations) -> InputError:
        """The error if neither import was said to be the right one."""
        source = read.files[0].path if len(read.files) == 1 else f"{len(read.files)} files"
        was = "it was" if self.pairs.select("claim_id", "time").unique().height == 1 else "they were"
        return InputError(
            f"{source}: {self.said()}: {was} imported with another --time-zone",
            "nothing was imported; --replace puts these in their place",
        )


def find_shifted(lake: Lake, read: ReadAllocations, *, replace: bool) -> Shifted:
    """The imported runs that the lake has at other times.

    A pair has both ends, or both times of submission, as far apart as the starts, and nothing that says otherwise. Where no
    submission is known the lake's run must come from an import in another zone: a table may have one name twice a day.
    Runs that the lake has also at their own time count only where they are to replace the others, and only Slurm's.
    """
    new = _runs(read.rows.filter(pl.col("scheduler") != "kubernetes"))  # which writes its times in UTC
    if new.is_empty():
        return Shifted(_pairs(new, new))
    days = [utc_day(day * DAY_MS) for day in range(_day(new["time"].min()) - 2, _day(new["time"].max()) + 3)]
    files = visible([file for file in imported_files(lake, set(new["host"])) if file.date in set(days)])
    old = _runs(read_frame(files, CLAIM))
    other_zone = time_zones(files) != {read.zone}
    exact = pl.col("scheduler") == "slurm" if replace else pl.lit(value=False)
    again = new.join(old, on=_RUN, how="semi", nulls_equal=True).filter(exact)
    pairs = _pairs(
        pl.concat([new.join(old, on=_RUN, how="anti", nulls_equal=True), again]),
        old.join(new, on=_RUN, how="anti", nulls_equal=True),
    )
    ends, submitted = _moved("end"), _moved("submitted")
    alike = ends.fill_null(value=True) & submitted.fill_null(value=True)
    sure = submitted.fill_null(value=False) | (ends.fill_null(value=False) & other_zone)
    shifts = pairs.filter(alike & sure)["shift"].unique().implode()
    # a job over a change to or from summer time moves by two steps
    moved = [(pl.col(f"{name}_shift").is_in(shifts)).fill_null(value=True) for name in ("end", "submitted")]
    found = pairs.filter(pl.col("shift").is_in(shifts), *moved)
    nearest = found.sort(pl.col("shift").abs(), *_RUN)
    for run in (["scheduler", "claim_id_old", "host", "time_old"], _RUN):
        nearest = nearest.unique(run, keep="first", maintain_order=True)
    return Shifted(nearest)


def moved_rows(lake: Lake, rows: pl.DataFrame, shifted: Shifted) -> pl.DataFrame:
    """The imported rows, completed with what the lake knows of them apart from times, such as their GPUs."""
    hosts = set(shifted.pairs["host"])
    old = read_frame(visible(imported_files(lake, hosts)), CLAIM).rename(
        {"time": "time_old", "claim_id": "claim_id_old"}
    )
    there = old.join(
        shifted.pairs.select("scheduler", "claim_id_old", "host", "time_old", "claim_id", "time"),
        on=["scheduler", "claim_id_old", "host", "time_old"],
        nulls_equal=True,
    ).with_columns(pl.lit(None, pl.Int64).alias(name) for name in ("end", "submitted", "planned_end"))
    return merge(there.select(rows.columns), rows)


def _runs(rows: pl.DataFrame) -> pl.DataFrame:
    made = pl.when(pl.col("scheduler") == "csv").then(pl.col("claim_id").str.replace(_MADE_ID, "@"))
    runs = rows.group_by(_RUN).agg(pl.col("end", "submitted").max())
    return runs.with_columns(name=made.otherwise("claim_id"), part=pl.col("time") // _MOST_MS)


def _pairs(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    """Every new run with every old run that may be the same one, with the `shift` of each time."""
    near = pl.concat([old.with_columns(part=pl.col("part") + step) for step in (-1, 0, 1)])
    pairs = new.join(near, on=["scheduler", "name", "host", "part"], suffix="_old", nulls_equal=True)
    shifts = {name: pl.col(name) - pl.col(f"{name}_old") for name in ("time", "end", "submitted")}
    pairs = pairs.with_columns(shift=shifts["time"], end_shift=shifts["end"], submitted_shift=shifts["submitted"])
    whole = (pl.col("shift") != 0) & (pl.col("shift") % _STEP_MS == 0) & (pl.col("shift").abs() <= _MOST_MS)
    return pairs.filter(whole)


def _moved(name: str) -> pl.Expr:
    """Whether a time moved as the start did; null where one of both does not know it."""
    return pl.col(f"{name}_shift") == pl.col("shift")


def _day(moment_ms: object) -> int:
    return int(str(moment_ms)) // DAY_MS
