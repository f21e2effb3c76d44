"""`fallow allocations import csv`: a site's own table, one row per allocation and GPU or host, or per request."""

from __future__ import annotations

import argparse

import polars as pl

from analytics.allocations.model import KnownHosts, ReadAllocations, Surroundings, conform
from analytics.allocations.times import Moments, read_moments, start_and_end
from analytics.frames import typed
from analytics.importers.kinds import with_progress
from analytics.importers.model import FileReport, Tally
from analytics.importers.records import HandTable, named_lines, read_lines
from analytics.importers.source import InputLimits
from analytics.importers.times import LATEST_MS, check_zone, import_zone
from analytics.names import single_names
from fallow.clock import SECOND_MS, parse_duration_ms
from fallow.errors import InputError, UsageError
from fallow.schema import REQUEST

COLUMNS = {
    "start": "start of the allocation; empty for a request, which has no GPU yet",
    "end": "its end; empty while it runs; of a request the time at which it was withdrawn",
    "gpu": "UUID of the GPU or MIG instance",
    "host": "its host; ignored where `gpu` names a GPU that the lake knows",
    "gpu_count": "GPUs of the allocation on the host, where `gpu` is empty; of a request all GPUs that it asks for",
    "user": "user who asked for it",
    "account": "account that is charged for it",
    "project": "project that it is for, where the project is not the account",
    "allocation_id": "id of the allocation; empty: user (or account) and start; required for a request",
    "name": "job name, in words",
    "partition": "pool or queue",
    "qos": "quality of service or priority class",
    "priority": "rank in the queue, a whole number: a larger number starts sooner",
    "gpu_model": "GPU model that it asked for; empty: any",
    "state": "its state, or how it ended, in the site's own words",
    "submitted": "time of submission",
    "eligible": "time from which it could have started",
    "time_limit": "how long it may run, such as 36h or 7d",
    "planned_end": "latest end; empty: start plus time_limit",
    "as_of": "time until which a request is known to wait; empty: the latest `submitted` or withdrawal in the file",
}
"""The columns that a file may have, with their meaning."""

_TIMES = ("start", "end", "submitted", "eligible", "planned_end", "as_of")
_MOST_ON_HOST = 10_000
_TABLE = HandTable(
    "an allocation",
    COLUMNS,
    (
        frozenset({"start", "gpu"}),
        frozenset({"start", "host", "gpu_count"}),
        frozenset({"submitted", "gpu_count", "allocation_id"}),
    ),
    "start, and gpu, or host and gpu_count; for requests submitted, gpu_count and allocation_id",
)
_IS_REQUEST = pl.col("is_request")
_HAS_GPU, _HAS_HOST, _HAS_COUNT = (pl.col(name).is_not_null() for name in ("gpu", "host", "gpu_count"))
_WRONG = {
    "it ends before it starts": (pl.col("end") <= pl.col("time")).fill_null(value=False),
    "it is withdrawn before it was submitted": _IS_REQUEST
    & (pl.col("end") < pl.col("submitted")).fill_null(value=False),
    "as_of is before it was submitted": (pl.col("as_of") < pl.col("submitted")).fill_null(value=False),
    "neither gpu, nor host and gpu_count": ~_IS_REQUEST & ~_HAS_GPU & ~(_HAS_HOST & _HAS_COUNT),
    "a request (it has no start) needs gpu_count and allocation_id, and no gpu": (
        _IS_REQUEST & (_HAS_GPU | ~_HAS_COUNT | pl.col("allocation_id").is_null())
    ),
    f"gpu_count is not a whole number from 1 to {_MOST_ON_HOST:,}": (
        _HAS_COUNT & ~pl.col("count").is_between(1, _MOST_ON_HOST).fill_null(value=False)
    ),
    "priority is not a whole number": pl.col("priority").is_not_null() & pl.col("rank").is_null(),
    "time_limit is not a duration such as 36h or 7d": pl.col("time_limit").is_not_null() & pl.col("limit_ms").is_null(),
    "both gpu and gpu_count: a GPU that is named is one, so leave gpu_count empty": ~_IS_REQUEST
    & _HAS_GPU
    & _HAS_COUNT,
    "the lake does not know on which host the gpu is: name the host": ~_IS_REQUEST & _HAS_GPU & ~_HAS_HOST,
}
"""Reasons why a line cannot be used, apart from invalid times."""
_AT = pl.from_epoch("time", time_unit="ms").dt.strftime("@%Y-%m-%dT%H:%M:%SZ")


class CsvFile:
    name = "csv"
    summary = "a table of allocations with the columns " + ", ".join(COLUMNS)
    example = "fallow allocations import csv reservations.csv --time-zone Europe/Paris --lake /srv/lake"
    remedies = (("", "give the file a line for each allocation"),)

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", nargs="+", metavar="FILE", help="CSV with a header line, plain or gzipped")
        parser.add_argument(
            "--time-zone",
            "--tz",
            dest="zone",
            metavar="ZONE",
            help="time zone of times without an offset (default: UTC)",
        )

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Return the allocations of the files. Raises InputError that names the lines, or UsageError."""
        zone = check_zone(args.zone or "UTC", "--time-zone")
        limits = InputLimits.of(around.settings)
        read = [read_file(path, zone, around.hosts, limits) for path in with_progress(args.files, "reading")]
        rows, requests, reports, local = zip(*read, strict=True)
        time_zone = import_zone(zone, given=args.zone is not None, local=any(local))
        return ReadAllocations(pl.concat(rows), pl.concat(requests), reports, time_zone, None)


def read_file(
    path: str, zone: str, hosts: KnownHosts, limits: InputLimits
) -> tuple[pl.DataFrame, pl.DataFrame, FileReport, bool]:
    """Return one file's allocations and requests, its report, and whether some of its times state no offset.

    Raises InputError that names the unusable lines.
    """
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
    limit_ms = lines["time_limit"].map_elements(_duration_ms, return_dtype=pl.Int64)
    rows = lines.with_columns(
        single_names("user", "account"),
        *(moments[name].first.alias(name) for name in ("submitted", "eligible", "as_of")),
        time=start,
        end=end,
        planned_end=pl.coalesce(moments["planned_end"].first, start + limit_ms),
        limit_ms=limit_ms,
        time_limit_s=limit_ms // SECOND_MS,
        host=by_lake.zip_with(by_lake.is_not_null(), lines["host"]),
        written_host=lines["host"],
        count=lines["gpu_count"].cast(pl.Int64, strict=False),
        rank=lines["priority"].cast(pl.Int64, strict=False),
        scheduler=pl.lit("csv"),
        is_request=moments["start"].absent & ~moments["submitted"].absent,
    )
    _check_times(path, rows, moments)
    seen = pl.max_horizontal(pl.col("submitted").max(), pl.col("end").filter("is_request").max())
    rows = rows.with_columns(priority="rank", as_of=pl.coalesce("as_of", seen))
    requests = _requests(rows.filter("is_request"), tally)
    allocations = _allocations(path, rows.filter(~pl.col("is_request")), tally)
    _remark_hosts(allocations, hosts, tally)
    report = tally.report(path, lines.height, allocations.height + requests.height)
    return conform(allocations.drop("as_of")), requests, report, any(found.local for found in moments.values())


def _duration_ms(text: str) -> int | None:
    try:
        return parse_duration_ms(text)
    except UsageError:
        return None


def _requests(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the requests of the file; the last line of a request counts."""
    last = rows.unique(["allocation_id", "submitted"], keep="last", maintain_order=True)
    tally.drop("the same request as a later line, which counts", rows.height - last.height)
    return typed(last.with_columns(time="submitted", withdrawn="end", gpu_count="count", task_count=1), REQUEST)


def _allocations(path: str, rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the allocations of the file, once per host and GPU."""
    named = rows["allocation_id"].is_not_null()
    rows = rows.with_columns(
        allocation_id=pl.coalesce("allocation_id", pl.coalesce("user", "account", pl.lit("-")) + _AT),
        host_gpu_count=pl.when(pl.col("gpu").is_null()).then("count"),
    )
    rows = _one_row_each(path, rows.with_columns(named=named), tally)
    on_host = pl.coalesce("host_gpu_count", pl.lit(1)).sum().over("allocation_id", "time")
    return rows.with_columns(gpu_count=on_host)


def _check_times(path: str, rows: pl.DataFrame, moments: dict[str, Moments]) -> None:
    reasons = {
        "no start": moments["start"].absent & ~rows["is_request"],
        **{f"{name} is not a time, or one that the zone skips": moments[name].wrong for name in _TIMES},
        **{f"{name} is not in the years 2000 to 9999": moments[name].outside for name in _TIMES},
        "start is after the year 5137": (rows["time"] >= LATEST_MS).fill_null(value=False),
        **{reason: rows.select(where).to_series() for reason, where in _WRONG.items()},
    }
    wrong = [(int(line), reason) for reason, where in reasons.items() for line in rows.filter(where)["line"]]
    if wrong:
        raise InputError(f"{path}: {named_lines(wrong)}", "correct them: nothing was imported")


def _remark_hosts(rows: pl.DataFrame, hosts: KnownHosts, tally: Tally) -> None:
    """Note lines whose host is not the one on which the lake has their GPU."""
    other = rows.filter(pl.col("gpu").is_not_null() & (pl.col("written_host") != pl.col("host"))).filter(
        pl.col("written_host").map_elements(hosts.named, return_dtype=pl.String) != pl.col("host")
    )
    if other.height:
        line, written, host = other.select("line", "written_host", "host").row(0)
        lines = "1 line names another host than the lake has for its"
        if other.height > 1:
            lines = f"{other.height} lines name other hosts than the lake has for their"
        tally.notes.append(f"{lines} GPU, and the lake's host counts: line {line} names {written}, the lake has {host}")


def _one_row_each(path: str, rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return each allocation once per host and GPU. With an allocation_id the last line counts, others are noted.

    Raises InputError where lines without an id have the same user, host and start: they may be two allocations.
    """
    key = ["allocation_id", "host", "time", "gpu"]
    again = rows.filter(pl.len().over(key) > 1)
    same = again.filter(~pl.col("named")).group_by(key, maintain_order=True).agg(pl.col("line"))
    if same.height:
        first, second, *_ = same["line"].to_list()[0]
        raise InputError(
            f"{path}, lines {first} and {second} have the same user (or account), host and start, and no allocation_id",
            "give each line an allocation_id, or delete one of them: nothing was imported",
        )
    last = rows.unique(key, keep="last", maintain_order=True)
    tally.drop("the same allocation as a later line, which counts", rows.height - last.height)
    return last
