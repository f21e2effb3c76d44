"""Brings allocations into the lake, one import at a time: each is compared and merged with the result before it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import polars as pl

from analytics.allocations.known_runs import on_known_runs, on_seen_gpus
from analytics.allocations.model import ReadAllocations, conform
from analytics.allocations.write import imported_files, merge, time_zones, write
from analytics.frames import read_frame, typed
from analytics.importers.publish import Published
from analytics.language.sentences import count
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, utc_day
from fallow.errors import InputError
from fallow.lake import Lake, LakeFile, visible
from fallow.lake_init import opened_for_writing
from fallow.leases import leased
from fallow.schema import ALLOCATION, REQUEST, WITHHELD, LakeTable

_STEP_MS = 15 * MINUTE_MS
_MOST_MS = 26 * HOUR_MS
"""The difference between UTC+14 and UTC-12."""

_RUN = ["scheduler", "allocation_id", "host", "time"]
_GENERATED_ID = r"@\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"
"""What `csv_file` puts after a name to make an id; the id changes with the start."""


@dataclass(frozen=True)
class Shifted:
    """Pairs of an imported run and the same run in the lake, with `time_old`, `allocation_id_old` and `shift`."""

    pairs: pl.DataFrame

    @property
    def removed(self) -> pl.DataFrame:
        """Return the lake's runs (scheduler, allocation_id, host, time) that the imported ones replace."""
        return self.pairs.select("scheduler", "host", allocation_id="allocation_id_old", time="time_old")

    @property
    def forward(self) -> bool:
        """Return whether most imported runs start later than the lake's."""
        return 2 * int((self.pairs["shift"] > 0).sum()) > self.pairs.height

    def sentence(self) -> str:
        """Return a sentence such as `5 jobs are in the lake already, 1 h apart`."""
        slurm = (self.pairs["scheduler"] == "slurm").all()
        allocations = self.pairs.select("allocation_id", "time").unique().height
        apart = sorted(set(self.pairs["shift"].abs()))
        hours = " or ".join(f"{each / HOUR_MS:g} h" for each in apart)
        verb = "is" if allocations == 1 else "are"
        return f"{count(allocations, 'job' if slurm else 'allocation')} {verb} in the lake already, {hours} apart"

    def error(self, read: ReadAllocations) -> InputError:
        """Return the error for the case that neither import was declared the right one."""
        source = read.files[0].path if len(read.files) == 1 else f"{len(read.files)} files"
        was = "it was" if self.pairs.select("allocation_id", "time").unique().height == 1 else "they were"
        return InputError(
            f"{source}: {self.sentence()}: {was} imported with another --time-zone",
            "nothing was imported; --replace replaces the earlier import with this one",
        )


def find_shifted(lake: Lake, read: ReadAllocations, *, replace: bool) -> Shifted:
    """Return the imported runs that the lake has at other times.

    In a pair, both ends or both submission times differ by as much as the starts, and no other time contradicts the
    shift. Where no submission time is known, the lake's run must come from an import in another zone: a table may have
    one name twice a day. Runs that the lake has at their own time as well count only with `replace`, and only Slurm's.
    """
    new = _runs(read.rows.filter(pl.col("scheduler") != "kubernetes"))  # Kubernetes writes its times in UTC
    if new.is_empty():
        return Shifted(_pairs(new, new))
    days = [utc_day(day * DAY_MS) for day in range(_day(new["time"].min()) - 2, _day(new["time"].max()) + 3)]
    files = visible([file for file in imported_files(lake, set(new["host"])) if file.date in set(days)])
    old = _runs(read_frame(files, ALLOCATION))
    other_zone = time_zones(files) != {read.zone}
    exact = pl.col("scheduler") == "slurm" if replace else pl.lit(value=False)
    again = new.join(old, on=_RUN, how="semi", nulls_equal=True).filter(exact)
    pairs = _pairs(
        pl.concat([new.join(old, on=_RUN, how="anti", nulls_equal=True), again]),
        old.join(new, on=_RUN, how="anti", nulls_equal=True),
    )
    ends, submitted = _is_moved("end"), _is_moved("submitted")
    alike = ends.fill_null(value=True) & submitted.fill_null(value=True)
    sure = submitted.fill_null(value=False) | (ends.fill_null(value=False) & other_zone)
    shifts = pairs.filter(alike & sure)["shift"].unique().implode()
    # a job over the change to or from summer time shifts by two steps
    moved = [(pl.col(f"{name}_shift").is_in(shifts)).fill_null(value=True) for name in ("end", "submitted")]
    found = pairs.filter(pl.col("shift").is_in(shifts), *moved)
    nearest = found.sort(pl.col("shift").abs(), *_RUN)
    for run in (["scheduler", "allocation_id_old", "host", "time_old"], _RUN):
        nearest = nearest.unique(run, keep="first", maintain_order=True)
    return Shifted(nearest)


def moved_rows(lake: Lake, rows: pl.DataFrame, shifted: Shifted) -> pl.DataFrame:
    """Return the imported rows, completed with what the lake knows of them apart from times, such as their GPUs."""
    hosts = set(shifted.pairs["host"])
    old = read_frame(visible(imported_files(lake, hosts)), ALLOCATION).rename(
        {"time": "time_old", "allocation_id": "allocation_id_old"}
    )
    there = old.join(
        shifted.pairs.select("scheduler", "allocation_id_old", "host", "time_old", "allocation_id", "time"),
        on=["scheduler", "allocation_id_old", "host", "time_old"],
        nulls_equal=True,
    ).with_columns(pl.lit(None, pl.Int64).alias(name) for name in ("end", "submitted", "planned_end"))
    return merge(conform(there), rows)


def _runs(rows: pl.DataFrame) -> pl.DataFrame:
    name = pl.when(pl.col("scheduler") == "csv").then(pl.col("allocation_id").str.replace(_GENERATED_ID, "@"))
    runs = rows.group_by(_RUN).agg(pl.col("end", "submitted").max())
    return runs.with_columns(name=name.otherwise("allocation_id"), part=pl.col("time") // _MOST_MS)


def _pairs(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    """Return every new run with every old run that may be the same one, with the `shift` of each time."""
    near = pl.concat([old.with_columns(part=pl.col("part") + step) for step in (-1, 0, 1)])
    pairs = new.join(near, on=["scheduler", "name", "host", "part"], suffix="_old", nulls_equal=True)
    shifts = {name: pl.col(name) - pl.col(f"{name}_old") for name in ("time", "end", "submitted")}
    pairs = pairs.with_columns(shift=shifts["time"], end_shift=shifts["end"], submitted_shift=shifts["submitted"])
    whole = (pl.col("shift") != 0) & (pl.col("shift") % _STEP_MS == 0) & (pl.col("shift").abs() <= _MOST_MS)
    return pairs.filter(whole)


def _is_moved(name: str) -> pl.Expr:
    """Return whether a time moved as the start did; null where either run lacks the time."""
    return pl.col(f"{name}_shift") == pl.col("shift")


def _day(moment_ms: object) -> int:
    return int(str(moment_ms)) // DAY_MS


_REQUEST_JOB = ("scheduler", "allocation_id")
_NUMBERS_PER_MS = 1_000


def add_requests(lake: Lake, requests: pl.DataFrame) -> Published:
    """Add requests (REQUEST's columns) that the lake lacks; one import at a time may call this. Raises LakeError."""
    known = _known_rows(lake, REQUEST, requests)
    asked = _request_rows(requests, known)
    waits = pl.col("withdrawn").is_null() & pl.col("granted").is_null()
    return _write_rows(lake, REQUEST, asked, _new_rows(REQUEST, asked, known, grows=waits))


def add_withheld(lake: Lake, withheld: pl.DataFrame) -> Published:
    """Add withheld GPUs likewise, with WITHHELD's columns."""
    known = _known_rows(lake, WITHHELD, withheld)
    return _write_rows(lake, WITHHELD, withheld, _new_rows(WITHHELD, withheld, known, grows=pl.lit(value=True)))


def _known_rows(lake: Lake, table: LakeTable, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the lake's rows for the schedulers of these rows."""
    return typed(read_frame(lake.files(table.name, hosts=set(rows["scheduler"])), table), table)


def _write_rows(lake: Lake, table: LakeTable, seen: pl.DataFrame, news: pl.DataFrame) -> Published:
    """Write the new rows of an import, one file per scheduler and day."""
    there = lake.files(table.name, hosts=set(seen["scheduler"]))
    days = news.with_columns(day=pl.col("as_of") // DAY_MS)
    files = days.partition_by("scheduler", "day", as_dict=True)
    for (scheduler, day), rows in sorted(files.items()):
        date, host = utc_day(int(day) * DAY_MS), str(scheduler)
        taken = max((each.last_seq for each in there if (each.date, each.host) == (date, host)), default=0)
        number = max(taken + 1, _NUMBERS_PER_MS * int(str(rows["as_of"].max())))
        file = LakeFile(table.name, date, host, number, number)
        in_order = rows.sort(*(column.name for column in table.columns if column.key), nulls_last=True)
        lake.put_confirmed(file, parquet.encode(table, in_order, {"fallow_source": "requests"}))
    return Published(table.name, days.height, seen.height - days.height, 0, len(files))


def _request_rows(requests: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Return ungranted requests, and grants that close a wait in the lake; for other grants allocations suffice."""
    waited = known.filter(pl.col("withdrawn").is_null()).select(*_REQUEST_JOB, waited="time").unique()
    granted = requests.filter(pl.col("granted").is_not_null()).join(waited, on=_REQUEST_JOB)
    closed = granted.filter(pl.col("waited") <= pl.col("granted")).with_columns(time="waited").drop("waited")
    return pl.concat([requests.filter(pl.col("granted").is_null()), closed])


def _new_rows(table: LakeTable, rows: pl.DataFrame, known: pl.DataFrame, *, grows: pl.Expr) -> pl.DataFrame:
    """Return rows whose content the lake lacks, and running rows (`grows`) observed later than the lake has them."""
    content = [name for name in table.names if name != "as_of"]
    seen = known.group_by(content).agg(seen=pl.col("as_of").max())
    met = rows.unique(maintain_order=True).join(seen, on=content, how="left", nulls_equal=True)
    return met.filter(pl.col("seen").is_null() | (grows & (pl.col("as_of") > pl.col("seen")))).drop("seen")


def publish_allocations(
    lake: Lake, read: ReadAllocations, *, replace: bool
) -> tuple[ReadAllocations, tuple[Published, ...]]:
    """Publish an import. Return what was written, and how many of its rows are new, of allocations and of requests.

    Raises LakeError, after which the lake is whole and the same import completes it. Raises InputError where the lake
    has the allocations in another time zone, unless `replace` is given.
    """
    opened_for_writing(lake)
    with leased(lake, "allocations", "the import of allocations") as mine:
        read, removed, newest_first = merged_with_lake(mine, read, replace=replace)
        allocations = write(mine, read, removed, newest_first=newest_first)
        return read, (allocations, add_requests(mine, read.requests), add_withheld(mine, read.withheld))


def merged_with_lake(lake: Lake, read: ReadAllocations, *, replace: bool) -> tuple[ReadAllocations, pl.DataFrame, bool]:
    """Return the import on the lake's runs and GPUs, the runs that it replaces, and whether the newest day goes first.

    Writes nothing. Raises InputError as `publish_allocations`.
    """
    # of several files, one in which an allocation has ended is newer than one in which it runs
    in_order = read.rows.sort(pl.col("end").is_not_null(), "as_of", maintain_order=True)
    read = dataclasses.replace(read, rows=in_order.unique([*_RUN, "gpu"], keep="last", maintain_order=True))
    shifted = find_shifted(lake, read, replace=replace)
    if shifted.pairs.height:
        if not replace:
            raise shifted.error(read)
        note = f"{shifted.sentence()}: this import replaces them"
        read = dataclasses.replace(read, rows=moved_rows(lake, read.rows, shifted), notes=(*read.notes, note))
    rows, stood_for = on_seen_gpus(lake, read.rows)
    rows, joined = on_known_runs(lake, rows)
    removed = pl.concat([shifted.removed, stood_for, joined], how="diagonal")
    return dataclasses.replace(read, rows=rows), removed, shifted.forward or not stood_for.is_empty()
