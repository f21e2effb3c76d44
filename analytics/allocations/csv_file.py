"""`fallow allocations import csv`: a site's own table, one row per allocation and GPU or host."""

from __future__ import annotations

import argparse

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations, Surroundings, conform
from analytics.allocations.times import Moments, read_moments, start_and_end
from analytics.importers.kinds import with_progress
from analytics.importers.limits import InputLimits
from analytics.importers.lines import HandTable, named_lines, read_lines
from analytics.importers.model import FileReport, Tally
from analytics.importers.times import LATEST_MS, check_zone
from analytics.names import single_names
from fallow.errors import InputError

COLUMNS = {
    "start": "start of the allocation",
    "end": "its end; empty while it runs",
    "gpu": "UUID of the GPU or MIG instance",
    "host": "its host; where `gpu` is given, it counts only for GPUs that the lake does not know",
    "gpu_count": "GPUs of the allocation on the host, where `gpu` is empty",
    "user": "who asked for it",
    "account": "account or project that it is charged to",
    "claim_id": "id of the allocation; empty: user (or account) and start",
    "name": "in words",
    "partition": "pool or queue",
    "qos": "quality of service or priority",
    "submitted": "when it was asked for",
    "planned_end": "when it ends at the latest",
}
"""The columns that a file may have, and what they mean."""

_TIMES = ("start", "end", "submitted", "planned_end")
_MOST_ON_HOST = 10_000
_TABLE = HandTable(
    "an allocation",
    COLUMNS,
    (frozenset({"start", "gpu"}), frozenset({"start", "host", "gpu_count"})),
    "start, and gpu, or host and gpu_count",
)
_AT = pl.from_epoch("time", time_unit="ms").dt.strftime("@%Y-%m-%dT%H:%M:%SZ")


class CsvFile:
    name = "csv"
    summary = "a table of allocations with the columns " + ", ".join(COLUMNS)
    example = "fallow allocations import csv reservations.csv --time-zone Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="CSV with a header line, plain or gzipped")
        parser.add_argument("--time-zone", "--tz", dest="zone", metavar="ZONE",
                            help="time zone of times without an offset (default: UTC)")  # fmt: skip

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Reads the files; raises InputError naming the lines, or UsageError."""
        zone = check_zone(args.zone or "UTC", "--time-zone")
        limits = InputLimits.of(around.settings)
        read = [read_file(path, zone, around.hosts, limits) for path in with_progress(args.files, "reading")]
        assumed = "" if args.zone else " (assumed)"
        return ReadAllocations(
            pl.concat([rows for rows, _ in read]), tuple(report for _, report in read), zone + assumed, None
        )


def read_file(path: str, zone: str, hosts: KnownHosts, limits: InputLimits) -> tuple[pl.DataFrame, FileReport]:
    """One file's allocations and its account; raises InputError that names the lines that cannot be used."""
    lines = read_lines(path, _TABLE, limits)
    tally = Tally()
    moments = {name: read_moments(lines[name], zone) for name in _TIMES}
    start, end = start_and_end(moments["start"], moments["end"])
    by_lake = lines["gpu"].replace_strict(hosts.host_of_gpu, default=None, return_dtype=pl.String)
    ambiguous = int(sum((moments[name].ambiguous for name in ("start", "end")), start=pl.Series([0])).sum())
    if ambiguous:
        tally.notes.append(
            f"{ambiguous} times lie in the hour that {zone} repeats: read as its first pass; write an offset"
        )
    rows = lines.with_columns(
        single_names("user", "account"),
        time=start, end=end, submitted=moments["submitted"].first, planned_end=moments["planned_end"].first,
        host=by_lake.zip_with(by_lake.is_not_null(), lines["host"]), written_host=lines["host"],
        count=lines["gpu_count"].cast(pl.Int64, strict=False),
    )  # fmt: skip
    _refuse(path, rows, moments)
    _remark_hosts(rows, hosts, tally)
    named = rows["claim_id"].is_not_null()
    rows = rows.with_columns(
        claim_id=pl.coalesce("claim_id", pl.coalesce("user", "account", pl.lit("-")) + _AT),
        host_gpu_count=pl.when(pl.col("gpu").is_null()).then("count"),
        scheduler=pl.lit("csv"),
    )
    rows = _once(path, rows.with_columns(named=named), tally)
    on_host = pl.coalesce("host_gpu_count", pl.lit(1)).sum().over("claim_id", "time")
    return conform(rows.with_columns(gpu_count=on_host)), tally.report(path, lines.height, rows.height)


def _refuse(path: str, rows: pl.DataFrame, moments: dict[str, Moments]) -> None:
    count_wrong = pl.col("gpu_count").is_not_null() & ~pl.col("count").is_between(1, _MOST_ON_HOST).fill_null(
        value=False
    )
    reasons = {
        "no start": moments["start"].absent,
        **{f"{name} is not a time, or one that the zone skips": moments[name].wrong for name in _TIMES},
        **{f"{name} is not in the years 2000 to 9999": moments[name].outside for name in _TIMES},
        "start is after the year 5137": (rows["time"] >= LATEST_MS).fill_null(value=False),
        "it ends before it starts": (rows["end"] <= rows["time"]).fill_null(value=False),
        "neither gpu, nor host and gpu_count": rows.select(
            pl.col("gpu").is_null() & (pl.col("host").is_null() | pl.col("gpu_count").is_null())
        ).to_series(),
        f"gpu_count is not a whole number from 1 to {_MOST_ON_HOST:,}": rows.select(count_wrong).to_series(),
        "both gpu and gpu_count: a GPU that is named is one, so leave gpu_count empty": rows.select(
            pl.col("gpu").is_not_null() & pl.col("gpu_count").is_not_null()
        ).to_series(),
        "the lake does not know on which host the gpu is: name the host": rows.select(
            pl.col("gpu").is_not_null() & pl.col("host").is_null()
        ).to_series(),
    }
    wrong = [(int(line), reason) for reason, where in reasons.items() for line in rows.filter(where)["line"]]
    if wrong:
        raise InputError(f"{path}: {named_lines(wrong)}", "correct them: nothing was imported")


def _remark_hosts(rows: pl.DataFrame, hosts: KnownHosts, tally: Tally) -> None:
    """Notes lines whose host is not the one on which the lake has their GPU."""
    other = rows.filter(pl.col("gpu").is_not_null() & (pl.col("written_host") != pl.col("host"))).filter(
        pl.col("written_host").map_elements(hosts.named, return_dtype=pl.String) != pl.col("host")
    )
    if other.height:
        line, written, host = other.select("line", "written_host", "host").row(0)
        lines = "1 line names another host than the lake has its"
        if other.height > 1:
            lines = f"{other.height} lines name other hosts than the lake has their"
        tally.notes.append(f"{lines} GPU on, and the lake's counts: line {line} names {written}, it is on {host}")


def _once(path: str, rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Each allocation once per host and GPU. Where a claim_id is given the last line counts and the others are noted.

    Raises InputError for lines without one that would be one allocation: they may well be two.
    """
    key = ["claim_id", "host", "time", "gpu"]
    again = rows.filter(pl.len().over(key) > 1)
    same = again.filter(~pl.col("named")).group_by(key, maintain_order=True).agg(pl.col("line"))
    if same.height:
        first, second, *_ = same["line"].to_list()[0]
        raise InputError(
            f"{path}, lines {first} and {second} have the same user (or account), host and start, and no claim_id",
            "give each a claim_id, or leave one of them: nothing was imported",
        )
    last = rows.unique(key, keep="last", maintain_order=True)
    tally.drop("the same allocation as a later line, which counts", rows.height - last.height)
    return last
