"""`fallow claims import csv`: claims that a site keeps in a table of its own, one row per claim and GPU or host."""

from __future__ import annotations

import csv
from difflib import get_close_matches
from typing import TYPE_CHECKING

import polars as pl

from analytics.claims.model import ReadClaims
from analytics.claims.rows import conform
from analytics.claims.times import Moments, read_moments, start_and_end
from analytics.importers.model import Tally
from analytics.importers.source import open_source
from analytics.importers.times import check_zone
from analytics.names import single_names
from fallow.errors import InputError

if TYPE_CHECKING:
    import argparse

    from analytics.claims.hosts import Hosts
    from analytics.claims.model import Surroundings
    from analytics.importers.model import FileReport

COLUMNS = {
    "start": "start of the claim",
    "end": "its end; empty while it runs",
    "gpu": "UUID of the GPU or MIG instance",
    "host": "its host; where `gpu` is given, only for GPUs that the lake does not know",
    "gpu_count": "GPUs of the claim on the host, where `gpu` is empty",
    "user": "who asked for it",
    "account": "account or project that it is charged to",
    "claim_id": "what the claim is called; empty: user (or account) and start",
    "name": "in words",
    "partition": "pool or queue",
    "qos": "quality of service or priority",
    "submitted": "when it was asked for",
    "planned_end": "when it ends at the latest",
}
"""The columns that a file may have, and what they mean."""

_TIMES = ("start", "end", "submitted", "planned_end")
_SHOWN = 5
_AT = pl.from_epoch("time", time_unit="ms").dt.strftime("@%Y-%m-%dT%H:%M:%SZ")


class CsvFile:
    """A site's own table."""

    name = "csv"
    summary = "a table of claims with the columns " + ", ".join(COLUMNS)
    example = "fallow claims import csv reservations.csv --time-zone Europe/Paris --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the source's own flags."""
        parser.add_argument("files", nargs="+", metavar="FILE", help="CSV with a header line, plain or gzipped")
        parser.add_argument("--time-zone", "--tz", dest="zone", metavar="ZONE",
                            help="time zone of times without an offset (default: UTC)")  # fmt: skip

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadClaims:
        """Reads the files; raises InputError naming the lines, or UsageError."""
        zone = check_zone(args.zone or "UTC", "--time-zone")
        read = [read_file(path, zone, around.hosts) for path in around.progress.each(args.files, "reading")]
        assumed = "" if args.zone else " (assumed)"
        return ReadClaims(
            pl.concat([rows for rows, _ in read]), tuple(report for _, report in read), zone + assumed, None
        )


def read_file(path: str, zone: str, hosts: Hosts) -> tuple[pl.DataFrame, FileReport]:
    """One file's claims and its account; raises InputError that names the lines that cannot be used."""
    lines = _lines(path)
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
        host=lines["host"].zip_with(lines["host"].is_not_null(), by_lake),
        count=lines["gpu_count"].cast(pl.Int64, strict=False),
    )  # fmt: skip
    _refuse(path, rows, moments)
    rows = rows.with_columns(
        claim_id=pl.coalesce("claim_id", pl.coalesce("user", "account", pl.lit("-")) + _AT),
        host_gpu_count=pl.when(pl.col("gpu").is_null()).then("count"),
        scheduler=pl.lit("csv"),
    )
    on_host = pl.coalesce("host_gpu_count", pl.lit(1)).sum().over("claim_id", "time")
    return conform(rows.with_columns(gpu_count=on_host)), tally.report(path, lines.height, rows.height)


def _lines(path: str) -> pl.DataFrame:
    """The file's lines as text columns COLUMNS (null where empty) with `line`; raises InputError."""
    source = open_source(path)
    if source.text is None or source.cut_off:
        raise InputError(f"{path} is {'cut off' if source.cut_off else 'no CSV file'}", "give a CSV with a header line")
    text = source.text.decode().lstrip("\r\n\t ")
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=separator)
    names = [name.strip().lower() for name in next(reader)]
    _check_header(path, names)
    records = []
    for fields in reader:
        if not any(field.strip() for field in fields):
            continue
        if len(fields) != len(names):
            raise InputError(
                f"{path}, line {reader.line_num}: {len(fields)} fields where the header names {len(names)}",
                "quote what holds a separator",
            )
        records.append(
            {name: field.strip() or None for name, field in zip(names, fields, strict=True)} | {"line": reader.line_num}
        )
    return pl.DataFrame(records, schema={**dict.fromkeys(COLUMNS, pl.String), "line": pl.Int64})


def _check_header(path: str, names: list[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, n=1)
            guess = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(
                f"{path} has a column '{name}', which no claim has", f"{guess}there are: {', '.join(COLUMNS)}"
            )
    if len(set(names)) != len(names):
        raise InputError(f"{path} names a column twice in its header line", "name each column once")
    if "start" not in names or not ("gpu" in names or {"host", "gpu_count"} <= set(names)):
        raise InputError(f"{path} lacks the columns of a claim", "it needs start, and gpu, or host and gpu_count")


def _refuse(path: str, rows: pl.DataFrame, moments: dict[str, Moments]) -> None:
    """InputError that names every line that cannot be used and why."""
    count_wrong = pl.col("gpu_count").is_not_null() & ~(pl.col("count") > 0).fill_null(value=False)
    reasons = {
        "no start": moments["start"].absent,
        **{f"{name} is no time, or one that the zone skips": moments[name].wrong for name in _TIMES},
        "it ends before it starts": (rows["end"] <= rows["time"]).fill_null(value=False),
        "neither gpu, nor host and gpu_count": rows.select(
            pl.col("gpu").is_null() & (pl.col("host").is_null() | pl.col("gpu_count").is_null())
        ).to_series(),
        "gpu_count is no whole number above 0": rows.select(count_wrong).to_series(),
        "the lake does not know on which host the gpu is: name the host": rows.select(
            pl.col("gpu").is_not_null() & pl.col("host").is_null()
        ).to_series(),
    }
    wrong = [(int(line), reason) for reason, where in reasons.items() for line in rows.filter(where)["line"]]
    if wrong:
        named = "; ".join(f"line {line}: {reason}" for line, reason in sorted(wrong)[:_SHOWN])
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise InputError(f"{path}: {named}{more}", "mend them: nothing was imported")
