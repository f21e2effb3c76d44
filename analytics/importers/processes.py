"""Process lists in imports: a column of lists beside a GPU's values at a moment, and the lake's rows from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import polars as pl

from analytics.importers.model import PROCESSES, Tally, unique_keys
from analytics.importers.records import number
from analytics.importers.values import BYTES, conform, polars_type
from analytics.mapping.model import Exporter
from fallow.schema import PROCESS

KINDS = {"C": "compute", "C+G": "compute", "G": "graphics", "M": "mps", "M+C": "mps"}
"""The letters of nvidia-smi. A process on both lists counts as compute."""

NO_PROCESS = "-"
"""pmon's mark for a GPU without a process."""

_UNEXPLAINED_BYTES = 10**9
"""More used memory than this (the default of ledger.held_min_bytes) has a user: an empty list then hides processes."""

LISTS_HOLD = 3
"""Number of steps between lists for which a list is valid, as for rows."""

_ONE_ANSWER_MS = 50
"""nvidia-smi writes the processes of one GPU within milliseconds, each line with a time of its own."""


@dataclass(frozen=True)
class ImportedProcess:
    """One process of a list; None where the source does not state a value."""

    pid: int
    kind: str | None = None
    mem_used_bytes: int | None = None
    user: str | None = None
    command: str | None = None
    host_mem_bytes: int | None = None


_TYPES = {each.name: polars_type(PROCESS.column(each.name)) for each in fields(ImportedProcess)}
LISTS = pl.List(pl.Struct(_TYPES))
_LARGEST_PID = 2**31 - 1


def readable_pid(value: object) -> int | None:
    """Return the process id in a JSON value or a text; None where there is none."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,10}", value.strip()):
        value = int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_PID
    return int(str(value)) if known else None


def process_list(entries: Iterable[object], tool: Exporter, tally: Tally) -> list[dict[str, object]] | None:
    """Return a document's processes as dicts, without those that lack an id, which are counted; None where all lack it.

    An entry holds values by the tool's names; anything else has no id.
    """
    listed = [_process(each if isinstance(each, Mapping) else {}, tool) for each in entries]
    known = [vars(each) for each in listed if each is not None]
    tally.null(PROCESSES, "a process without an id", len(listed) - len(known))
    return known if known or not listed else None


def _process(entry: Mapping[str, object], tool: Exporter) -> ImportedProcess | None:
    values = {column: next((entry[name] for name in names if name in entry), None) for column, names in tool.process}
    pid = readable_pid(values.get("pid"))
    if pid is None:
        return None
    sizes = {
        each.column: _size(entry.get(each.metric), each.factor) for each in tool.metrics if each.table == "process"
    }
    return ImportedProcess(
        pid,
        KINDS.get(_known_text(values.get("kind")) or ""),
        sizes.get("mem_used_bytes"),
        _known_text(values.get("user")),
        command_name(_known_text(values.get("command"))),
        sizes.get("host_mem_bytes") or None,  # gpustat writes 0 where it lacks permission
    )


def _known_text(value: object) -> str | None:
    """Return the text, or None for the `?` that gpustat writes where it lacks permission."""
    return value.strip() if isinstance(value, str) and value.strip() not in ("", "?") else None


def _size(value: object, factor: float) -> int | None:
    """Return the bytes of a number in the mapping's unit, or of a text such as `512 MiB`; None for anything else."""
    if isinstance(value, str) and (written := re.fullmatch(r"(\d+) (MiB|KiB|GiB)", value.strip())):
        value, factor = int(written[1]), BYTES[written[2]]
    size = number(value)
    return None if size is None or not 0 <= size < 2**43 else int(size * factor)


def command_name(text: str | None) -> str | None:
    """Return the command without its folder and arguments; None for the placeholder of an unknown command."""
    if text is None or text.strip() in ("", "-", "?", "N/A", "[N/A]", "[Not Found]", "[Insufficient Permissions]"):
        return None
    first = text.strip() if "\\" in text else text.split()[0]
    return re.split(r"[/\\]", first.rstrip("/\\"))[-1] or None


def command_names(texts: pl.Series) -> pl.Series:
    """Return `command_name` of many texts."""
    names = {each: command_name(each) for each in texts.unique()}
    return texts.replace_strict(names, default=None, return_dtype=pl.String)


def one_process_lists(frame: pl.DataFrame, *, none: pl.Series) -> pl.Series:
    """Return a list per row (`pid` and other fields of a process): empty where `none`, null without a pid."""
    known = [pl.col(name) if name in frame.columns else pl.lit(None) for name in _TYPES]
    one = pl.struct(each.cast(kind).alias(name) for each, (name, kind) in zip(known, _TYPES.items(), strict=True))
    readable = pl.col("pid").is_not_null() | none
    length = pl.when(none).then(0).otherwise(1)
    return frame.select(
        pl.when(readable).then(pl.concat_list(one).list.head(length)).cast(LISTS).alias(PROCESSES)
    ).to_series()


def flat(lists: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Return a row per process, with the frame's columns of those names beside it."""
    known = lists.filter(pl.col(PROCESSES).list.len() > 0)
    return known.select(*names, PROCESSES).explode(PROCESSES).unnest(PROCESSES)


def beside_samples(rows: pl.DataFrame, values: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Return one row per (gpu, true_ms), and how many rows with any of the `values` repeat one.

    Rows that hold only a list take the time of the GPU's nearest sample, if one is within its usual step. In a
    longer gap there is one row per step.
    """
    if PROCESSES not in rows.columns:
        once = unique_keys(rows)
        return once, rows.height - once.height
    bare = pl.all_horizontal(
        pl.col(PROCESSES).is_not_null(), *(pl.col(each).is_null() for each in values if each in rows)
    )
    lists, samples = rows.filter(bare), rows.filter(~bare)
    once = unique_keys(samples)
    moved = _lists_at_samples(_lists_of_one_answer(lists), once)
    return unique_keys(pl.concat([once, moved.select(once.columns)])), samples.height - once.height


def _lists_of_one_answer(lists: pl.DataFrame) -> pl.DataFrame:
    later = pl.col("true_ms").diff().fill_null(0) > _ONE_ANSWER_MS
    ordered = lists.sort("gpu", "true_ms", maintain_order=True)
    return ordered.with_columns(answer=later.cum_sum().over("gpu")).with_columns(
        true_ms=pl.col("true_ms").first().over("gpu", "answer")
    )


def _lists_at_samples(lists: pl.DataFrame, samples: pl.DataFrame) -> pl.DataFrame:
    """Return the lists at the times of samples, as in `beside_samples`; for GPUs without samples at their own times."""
    if lists.is_empty() or samples.is_empty():
        return lists
    moments = samples.select("gpu", "true_ms", sample_ms="true_ms").sort("true_ms")
    steps = moments.group_by("gpu").agg(step_ms=pl.col("true_ms").sort().diff().median().round(0).cast(pl.Int64))
    beside = lists.sort("true_ms").join_asof(
        moments, on="true_ms", by="gpu", strategy="nearest", check_sortedness=False
    )
    beside = beside.join(steps, on="gpu", how="left", maintain_order="left")
    near = (pl.col("sample_ms") - pl.col("true_ms")).abs() <= pl.col("step_ms")
    slot = pl.col("true_ms") - pl.col("true_ms") % pl.col("step_ms")
    return beside.with_columns(true_ms=pl.when(near).then("sample_ms").otherwise(pl.coalesce(slot, "true_ms")))


def counted(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the rows with `process_count`, null where the list is not known, and the notes on it."""
    if PROCESSES not in rows.columns:
        return rows, ()
    count = pl.col(PROCESSES).list.eval(pl.element().struct.field("pid").n_unique()).list.first()
    used = pl.col("mem_used_bytes") if "mem_used_bytes" in rows.columns else pl.lit(0)
    none = pl.col(PROCESSES).list.len() == 0
    hides = none & (used > _UNEXPLAINED_BYTES).fill_null(value=False)
    many = int(rows.select(hides.sum()).item() or 0)
    note = f"{many} process lists are empty although more than 1 GB is in use: treated as unknown"
    done = rows.with_columns(process_count=pl.when(~hides).then(pl.when(none).then(0).otherwise(count)).cast(pl.Int16))
    return _held_counts(done), (note,) if many else ()


def _held_counts(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows, those without a count with the last list's, for up to three of the usual steps between lists.

    As in the agent's rows, a list holds until the next one.
    """
    listed = pl.col("true_ms").filter(pl.col(PROCESSES).is_not_null())
    steps = rows.sort("true_ms").group_by("gpu").agg(list_ms=listed.diff().median())
    ordered = rows.join(steps, on="gpu", how="left").sort("gpu", "true_ms", maintain_order=True)
    known = pl.col("process_count").is_not_null() | pl.col(PROCESSES).is_not_null()
    since_ms = pl.col("true_ms") - pl.when(known).then("true_ms").forward_fill().over("gpu")
    goes_on = ~known & (since_ms <= LISTS_HOLD * pl.col("list_ms")).fill_null(value=False)
    last = pl.when(known).then(pl.col("process_count").fill_null(-1)).forward_fill().over("gpu")
    count = pl.when(goes_on & (last >= 0)).then(last).otherwise("process_count").cast(pl.Int16)
    return ordered.with_columns(process_count=count).drop("list_ms")


def process_rows(gpu: pl.DataFrame) -> pl.DataFrame:
    """Return the `process` table's rows that an import's `gpu` rows list: at their times, each process once."""
    if PROCESSES not in gpu.columns:
        return conform(pl.DataFrame(schema={"time": pl.Datetime("ms", "UTC")}), PROCESS)
    step = pl.col("time").filter(pl.col(PROCESSES).is_not_null()).diff().median().over("gpu").dt.total_milliseconds()
    lists = gpu.sort("gpu", "time").with_columns(interval_ms=pl.max_horizontal("interval_ms", step).cast(pl.Int32))
    listed = flat(lists, ("gpu", "time", "interval_ms"))
    once = listed.group_by("gpu", "time", "pid", maintain_order=True).agg(pl.all().drop_nulls().first())
    return conform(once, PROCESS).sort("gpu", "time", "pid")
