"""`fallow import nvitop`: what nvitop's ResourceMetricCollector collected, as JSON or as CSV of a data frame."""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import polars as pl

from analytics.importers.kinds import add_recording_flags, with_progress
from analytics.importers.model import PROCESSES, FileReport, Imported, Tally, check_host, daily_devices, unique_keys
from analytics.importers.nvidia_smi import check_count
from analytics.importers.nvidia_smi_lines import CUT_OFF as WRONG_WIDTH
from analytics.importers.plausibility import check_recording
from analytics.importers.processes import LISTS, ImportedProcess, counted, readable_pid
from analytics.importers.records import CUT_OFF, number, read_documents
from analytics.importers.source import ImportSource, InputLimits, open_source
from analytics.importers.times import NVIDIA_SMI_BEGAN_MS, UTC_OF_FILES, drop_impossible, given_interval_ms, on_grid
from analytics.importers.values import BYTES, clean, unit_of
from analytics.mapping.mapping_file import lake_column, tool
from fallow.errors import InputError
from fallow.schema import GPU, LakeColumn

_LONGEST_S = 1e11
_READ = re.compile(
    r"(timestamp|last_timestamp|duration \(s\))$|pid:\d+/([^/]+/gpu_memory|host/host_memory|host/running_time) "
    r"|(gpu|cuda):[^/]*/(gpu_util|memory_|power_|temperature)"
)
"""The keys that are read; the collector writes hundreds more for a host."""

_MOST_KEYS = 100_000
"""Keys in one record: a hundred for each GPU, and some for each of a thousand processes."""
_SAME_WINDOW = 0.5
"""A window that holds more than this share of the one before it began where that one began."""


@dataclass(frozen=True)
class CollectedRecord:
    """The result of one call of `collect`: values by key without the tag, and the window that they describe."""

    tag: str
    begin_s: float
    end_s: float
    last_s: float
    values: Mapping[str, float]
    goes_on: bool = False
    """True where the window covers several records, so that its averages are not of the time since the last record."""

    before: Mapping[str, float] | None = None
    """The values of the record before, where the window continues."""


def read_records(path: str, source: ImportSource, limits: InputLimits, tally: Tally) -> list[CollectedRecord]:
    """Return the file's records, in order per tag; other objects are counted. Raises InputError for another kind."""
    return list(_windowed_records(_records(path, source, limits, tally)))


def _records(path: str, source: ImportSource, limits: InputLimits, tally: Tally) -> Iterator[CollectedRecord]:
    if source.text is None:
        raise InputError(f"{path} is Parquet, not JSON or CSV of nvitop", "`fallow import series` reads Parquet")
    is_json = source.text.lstrip()[:1] in (b"{", b"[")
    objects = _objects(path, source.text, limits, tally) if is_json else _csv_records(path, source, tally)
    count = 0
    for each in objects:
        if len(each) > _MOST_KEYS:
            raise InputError(f"{path} has a record of more than {_MOST_KEYS:,} keys", "check that nvitop wrote it")
        record = _record(each)
        if record is None:
            tally.drop("no time and duration of nvitop's collector", 1)
        else:
            count += len(record.values)
            limits.check_rows(path, count)
            yield record


def _objects(path: str, text: bytes, limits: InputLimits, tally: Tally) -> Iterator[Mapping[str, object]]:
    for each in read_documents(path, text, limits):
        if isinstance(each, dict):
            yield each
        else:
            tally.drop(CUT_OFF, 1)


def _csv_records(path: str, source: ImportSource, tally: Tally) -> Iterator[Mapping[str, object]]:
    lines = csv.reader(io.TextIOWrapper(io.BytesIO(source.text or b""), encoding="utf-8", newline=""))
    try:
        header = next(lines, [])
        rows = (line for line in lines if line)
        last = None if source.last_line_whole else next(rows, None)
        for line in rows:
            # without a line end the last line may be truncated, so each line waits for the next
            row, last = (line, None) if source.last_line_whole else (last or [], line)
            if len(row) != len(header):
                tally.drop(WRONG_WIDTH, 1)
            else:
                yield {name: _cell(cell) for name, cell in zip(header, row, strict=True)}
    except csv.Error as error:
        raise InputError(f"{path} is not a readable CSV file ({error})", "check or fetch it again") from error
    if last is not None:
        tally.drop("last line truncated", 1)


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _record(found: Mapping[str, object]) -> CollectedRecord | None:
    """Return the record; None where it does not state its time."""
    tag = next((key.removesuffix("/timestamp") for key in found if key.endswith("/timestamp")), None)
    if tag is None:
        return None
    begins = f"{tag}/"
    values = {
        sys.intern(key.removeprefix(begins)): value  # every record has the same keys
        for key, each in found.items()
        if key.startswith(begins) and _READ.match(key, len(begins)) and (value := number(each)) is not None
    }
    end, duration = values.get("timestamp"), values.get("duration (s)")
    if end is None or duration is None or not 0 <= duration <= end < _LONGEST_S:
        return None
    last = values.get("last_timestamp", end)
    return CollectedRecord(tag, end - duration, end, last if end - duration <= last <= end else end, values)


def _windowed_records(records: Iterable[CollectedRecord]) -> Iterator[CollectedRecord]:
    """Yield the records with the values that depend on neighbours of the same tag.

    `collect` averages since the tag was activated or cleared: without a clear, every record includes those before it.
    """
    by_tag: dict[str, list[CollectedRecord]] = defaultdict(list)
    for record in records:
        by_tag[record.tag].append(record)
    for mine in by_tag.values():
        on = [False, *(_continues(each, before) for before, each in pairwise(mine))]
        for at, each in enumerate(mine):
            before = mine[at - 1].values if on[at] else None
            going = on[at] or on[at + 1 : at + 2] == [True]
            yield replace(each, goes_on=going, before=before)


def _continues(record: CollectedRecord, before: CollectedRecord) -> bool:
    return (
        before.end_s - record.begin_s > _SAME_WINDOW * (before.end_s - before.begin_s) and record.end_s > before.end_s
    )


_METRICS = {metric.metric: metric for metric in tool("nvitop").metrics}
_SHARES = ("gpu_utilization", "memory_utilization")
_GPU = re.compile(r"(?:cuda:\d+ \()?gpu:(\d{1,4})\)?")
_KEY = re.compile(r"(\w+) \([^)]*\)")
_SINCE_BEGUN = "averages since the collector began, without the last value"


class Nvitop:
    name = "nvitop"
    summary = "JSON or CSV from nvitop's ResourceMetricCollector on one host"
    example = "fallow import nvitop metrics.jsonl --host gn001 --lake /srv/lake"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_recording_flags(parser, "nvitop", "records as JSON or as CSV with a header", zone=False)

    def read(self, args: argparse.Namespace, limits: InputLimits) -> Imported:
        """Return the content of the files. Raises InputError or UsageError."""
        host, interval_ms = check_host(args.host), given_interval_ms(args.interval)
        read = [_read_file(path, host, limits) for path in with_progress(args.files, "reading")]
        rows = pl.concat([frame for frame, _ in read], how="diagonal")
        once = unique_keys(rows)
        check_count(once, host)
        frame, notes = counted(once)
        frame, interval = on_grid(frame, interval_ms)
        reports = tuple(report for _, report in read)
        return Imported(
            host,
            frame,
            daily_devices(frame),
            reports,
            interval,
            UTC_OF_FILES,
            notes,
            interval_ms,
            rows.height - once.height,
        )


def _read_file(path: str, host: str, limits: InputLimits) -> tuple[pl.DataFrame, FileReport]:
    tally = Tally()
    source = open_source(path, limits)
    tally.notes.extend(source.notes)
    frame = _frame(
        [row for record in read_records(path, source, limits, tally) for row in _rows(record, tally)], host, tally
    )
    read = frame.height + sum(tally.dropped.values())
    frame = drop_impossible(frame, NVIDIA_SMI_BEGAN_MS, tally)
    if frame.is_empty():
        raise InputError(
            f"{path} has no usable record of nvitop's collector{tally.reasons}",
            "write the results of ResourceMetricCollector.collect(), one JSON object per line",
        )
    declare = dict.fromkeys((metric.column for metric in _METRICS.values()), _unit_remedy)
    check_recording(path, frame, declare, _unit_remedy, tally)
    return frame, tally.report(path, read, frame.height)


def _unit_remedy(unit: str) -> str:
    return (
        f"{f'it looks like {unit}, but ' if unit else ''}its keys name another unit: give the file as nvitop wrote it"
    )


def _rows(record: CollectedRecord, tally: Tally) -> Iterator[dict[str, object]]:
    gpus: dict[int, dict[str, float]] = defaultdict(dict)
    for key, value in record.values.items():
        scope, _, metric = key.partition("/")
        if (gpu := _GPU.fullmatch(scope)) is not None:
            gpus[int(gpu[1])][metric] = value
        elif scope.startswith(("gpu:", "cuda:")):
            _add_note(tally, "metrics of MIG instances are not read")
    if not gpus:
        tally.drop("a record without a GPU", 1)
    lists = _processes(record)
    for index, metrics in gpus.items():
        values = dict(_values(metrics, goes_on=record.goes_on))
        if record.goes_on and "gpu_util_pct" not in values and any(key.startswith("gpu_util") for key in metrics):
            tally.drop(_SINCE_BEGUN, 1)
            continue
        moment = record.last_s if record.goes_on else record.begin_s
        yield {"index": index, "true_ms": round(moment * 1000), PROCESSES: lists.get(index), **values}


def _add_note(tally: Tally, note: str) -> None:
    if note not in tally.notes:
        tally.notes.append(note)


def _values(metrics: Mapping[str, float], *, goes_on: bool) -> Iterator[tuple[str, float]]:
    """Yield a GPU's columns: the window's averages for shares, last values for others and for windows that continue."""
    for key in dict.fromkeys(each.rpartition("/")[0] for each in metrics):
        known = _KEY.fullmatch(key)
        name = "" if known is None else known[1]
        if name not in _METRICS:
            continue
        column = lake_column(_METRICS[name])
        order = ("last",) if goes_on else ("mean",) if name in _SHARES else ("last", "mean")
        value = _first_number(metrics, [f"{key}/{each}" for each in order])
        if value is not None:
            yield column.name, value * _factor(key, column)
        if name == "gpu_utilization" and not goes_on and f"{key}/max" in metrics:
            yield "gpu_util_max_pct", metrics[f"{key}/max"] * _factor(key, column)


def _first_number(values: Mapping[str, float], keys: Sequence[str]) -> float | None:
    """Return the first of these values that is a number; NaN, to be counted later, if none is; None without any."""
    there = [values[key] for key in keys if key in values]
    return next((value for value in there if not math.isnan(value)), there[0] if there else None)


@cache
def _factor(key: str, column: LakeColumn) -> float:
    unit = unit_of(key, column, None)
    return 1.0 if unit is None else unit.factor


def _processes(record: CollectedRecord) -> dict[int, list[ImportedProcess]]:
    """Return the processes that the record names on each GPU.

    The collector follows only selected processes, so a GPU without one may have others. In a window that continues, it
    keeps ended processes: only the running time of a live process still grows.
    """
    found: dict[int, list[ImportedProcess]] = defaultdict(list)
    for key in record.values:
        named = re.fullmatch(r"pid:(\d+)/([^/]+)/gpu_memory \(MiB\)/(?:last|mean)", key)
        gpu = None if named is None else _GPU.fullmatch(named[2])
        if named is None or gpu is None or (pid := readable_pid(named[1])) is None or not _is_alive(record, pid):
            continue
        if all(each.pid != pid for each in found[int(gpu[1])]):
            used = _last_value(record.values, f"pid:{pid}/{named[2]}/gpu_memory (MiB)")
            resident = _last_value(record.values, f"pid:{pid}/host/host_memory (MiB)")
            found[int(gpu[1])].append(ImportedProcess(pid, mem_used_bytes=used, host_mem_bytes=resident))
    return found


def _is_alive(record: CollectedRecord, pid: int) -> bool:
    key = f"pid:{pid}/host/running_time (min)"
    return record.before is None or record.values.get(key) != record.before.get(key)


def _last_value(values: Mapping[str, float], key: str) -> int | None:
    value = _first_number(values, (f"{key}/last", f"{key}/mean"))
    return None if value is None or not 0 <= value < 2**43 else int(value * BYTES["MiB"])


def _frame(rows: list[dict[str, object]], host: str, tally: Tally) -> pl.DataFrame:
    """Return the rows as columns of the lake, impossible values null and counted."""
    columns = (GPU.column("gpu_util_max_pct"), *map(lake_column, _METRICS.values()))
    listed = [
        None if (each := row[PROCESSES]) is None else [vars(one) for one in each]  # type: ignore[attr-defined]
        for row in rows
    ]
    frame = pl.DataFrame(
        {
            "gpu_index": pl.Series([row["index"] for row in rows], dtype=pl.Int16),
            "true_ms": pl.Series([row["true_ms"] for row in rows], dtype=pl.Int64),
            PROCESSES: pl.Series(listed, dtype=LISTS),
            **{each.name: pl.Series([row.get(each.name) for row in rows], dtype=pl.Float64) for each in columns},
        }
    )
    cleaned = [clean(frame[each.name], each, tally) for each in columns]
    return frame.with_columns(cleaned).with_columns(gpu=pl.lit(f"{host}/") + pl.col("gpu_index").cast(pl.String))
