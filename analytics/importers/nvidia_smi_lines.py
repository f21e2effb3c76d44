"""Parses the text that nvidia-smi writes: header lines, blocks of values under them, broken lines.

Names and units of fields: `nvidia-smi --help-query-gpu` of drivers 470 to 580.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.processes import KINDS, NO_PROCESS, command_names, one_process_lists
from analytics.importers.source import ImportSource
from analytics.importers.times import parse_local
from analytics.importers.values import BYTES, CELSIUS, MHZ, MILLIJOULES, WATTS, clean, find_unit
from fallow.errors import InputError, UsageError
from fallow.schema import DEVICE, GPU, PROCESS, LakeColumn

_PERCENT = {"%": 1.0}

RECORD = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,name,memory.total,utilization.gpu,memory.used,power.draw "
    "--format=csv -l 10 > gpu.csv"
)
"""The command line whose file has what a ledger with cost and energy needs: the model, memory, power."""


@dataclass(frozen=True)
class Field:
    """A quantity: the lake's column, nvidia-smi's names for it (best first) and its units; the first is the default."""

    column: str
    names: tuple[str, ...]
    units: Mapping[str, float]
    default_unit: str = ""

    @property
    def described(self) -> LakeColumn:
        """The column of the `gpu`, `device` or (`process.`) `process` table."""
        if self.column.startswith("process."):
            return PROCESS.column(self.column.removeprefix("process."))
        return (GPU if self.column in GPU.names else DEVICE).column(self.column)


QUANTITIES = (
    Field("gpu_util_pct", ("utilization.gpu",), _PERCENT, "%"),
    Field("mem_util_pct", ("utilization.memory",), _PERCENT, "%"),
    Field("mem_used_bytes", ("memory.used",), BYTES, "MiB"),
    Field("mem_reserved_bytes", ("memory.reserved",), BYTES, "MiB"),
    Field("power_w", ("power.draw", "power.draw.average", "power.draw.instant"), WATTS, "W"),
    Field("energy_mj", ("total_energy_consumption", "energy.total", "total_energy"), MILLIJOULES, "mJ"),
    Field("temperature_c", ("temperature.gpu",), CELSIUS, "C"),
    Field("mem_temperature_c", ("temperature.memory",), CELSIUS, "C"),
    Field("sm_clock_mhz", ("clocks.sm", "clocks.current.sm"), MHZ, "MHz"),
    Field("mem_clock_mhz", ("clocks.mem", "clocks.current.memory"), MHZ, "MHz"),
    Field("mem_total_bytes", ("memory.total",), BYTES, "MiB"),
    Field("power_limit_w", ("enforced.power.limit", "power.limit"), WATTS, "W"),
)
MASKS = Field("throttle_reasons", ("clocks_event_reasons.active", "clocks_throttle_reasons.active"), {})
TEXTS = {
    "uuid": ("uuid", "gpu_uuid"),
    "index": ("index",),
    "pci_bus_id": ("pci.bus_id", "gpu_bus_id"),
    "model": ("name", "gpu_name"),
    "driver_version": ("driver_version",),
    "count": ("count",),
}
TIMESTAMP = "timestamp"
PID = "pid"
COMMAND = "process_name"
KIND = "process_type"
"""Of pmon's tables as CSV: --query-compute-apps has no such field."""

PROCESS_MEMORY = Field("process.mem_used_bytes", ("used_gpu_memory", "used_memory"), BYTES, "MiB")
KNOWN = (
    TIMESTAMP,
    *(name for field in (*QUANTITIES, MASKS, PROCESS_MEMORY) for name in field.names),
    *(name for names in TEXTS.values() for name in names),
    PID,
    COMMAND,
    KIND,
)

HEADER = r"(?i)(?:^|,)\s*(?:" + "|".join(re.escape(name) for name in KNOWN) + r")\s*(?:\[[^\]]*\])?\s*(?:,|$)"
"""Matches a header line: it names a field, which no line of values does."""

HEADER_WITHIN = r"(?i)((?:" + "|".join(re.escape(name) for name in KNOWN) + r")\s*(?:\[[^\]]*\])?\s*,.*)$"
"""Finds where a header begins in a line."""

_NUMBER = r"^([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)$"
_ABSENT = r"(?i)^(?:\[.*\]|n/a|err!|not supported|unknown error)$"


def check_fields(names: Sequence[str]) -> tuple[str, ...]:
    """The names of --fields; UsageError where one is a slip of a known name. Others are read past."""
    cleaned = tuple(name.strip() for name in names)
    for name in cleaned:
        bare = header_name(name)[0]
        near = get_close_matches(bare, KNOWN, n=1, cutoff=0.9)
        if bare not in KNOWN and near:
            raise UsageError(f"--fields: nvidia-smi has no field '{name}'", f"did you mean {near[0]}?")
    if TIMESTAMP not in [header_name(name)[0] for name in cleaned]:
        raise UsageError("--fields names no timestamp", "name every column of the file in order: timestamp,index,...")
    return cleaned


def header_name(text: str) -> tuple[str, str]:
    """Field name and unit of a header such as `memory.used [MiB]`; the unit is empty where there is none."""
    name, _, unit = text.strip().partition("[")
    return name.strip().lower(), unit.strip().removesuffix("]").strip()


def quantity(values: pl.Series, field: Field, header_unit: str, tally: Tally) -> pl.Series:
    """Values such as `43 %`, `1024 MiB` or `75.2` in the lake's unit; whatever is no number is null and counted."""
    text = absent_to_null(values, field.column, tally)
    parts = text.str.extract_groups(_NUMBER).struct.unnest()
    number = parts.to_series(0).cast(pl.Float64, strict=False)
    unit = parts.to_series(1)
    unit = unit.set(unit == "", header_unit or field.default_unit)
    factors = {each: field.units[name] for each in unit.unique().drop_nulls() if (name := find_unit(each, field.units))}
    factor = unit.replace_strict(factors, default=None, return_dtype=pl.Float64)
    tally.null(field.column, "not a number", int((text.is_not_null() & number.is_null()).sum()))
    tally.null(field.column, "unknown unit", int((number.is_not_null() & factor.is_null()).sum()))
    return clean(number * factor, field.described, tally)


def mask(values: pl.Series, tally: Tally) -> pl.Series:
    """Hexadecimal bit masks such as `0x0000000000000004`."""
    text = absent_to_null(values, MASKS.column, tally)
    number = text.str.extract(r"^0[xX]([0-9a-fA-F]{1,16})$", 1).str.to_integer(base=16, strict=False)
    tally.null(MASKS.column, "not a number", int((text.is_not_null() & number.is_null()).sum()))
    return number.cast(pl.Int64).alias(MASKS.column)


def absent_to_null(values: pl.Series, column: str, tally: Tally) -> pl.Series:
    """The values with `[N/A]`, `[Not Supported]`, `ERR!` and their like as null, counted by what stood there."""
    text = values.str.strip_chars()
    absent = (text.str.contains(_ABSENT) | (text == "")).fill_null(value=False)
    for reason, count in text.filter(absent).value_counts().iter_rows():
        tally.null(column, reason or "empty", count)
    return text.set(absent, None)


_MESSAGE = r"(?i)^(?:unable to|failed to|no devices|nvidia-smi has failed|error|warning|terminated|killed)"
_HEALTH = (("lost", r"(?i)\[?gpu is lost"), ("reset_required", r"(?i)\[?gpu requires reset"))
CUT_OFF = "wrong number of fields: cut off or mixed lines"
_ENDS_WHOLE = r"(?:%|W|MHz|MiB|\])$"

_NO_TIMESTAMP = "below a header line that names no timestamp"
_CHUNK_BYTES = 16 * 2**20
_NAMES_A_GPU = ("uuid", "index", "pci_bus_id")

SCHEMA: dict[str, pl.DataType] = {
    "nr": pl.UInt32(),
    "block": pl.UInt32(),
    "local": pl.Datetime("ms"),
    "health": pl.String(),
    "nameless": pl.Boolean(),
    **{name: pl.String() for name in TEXTS},
}
"""Columns that every parsed frame starts with: line, run of nvidia-smi, host's time, health, whether no column names the GPU, what names the GPU."""


@dataclass(frozen=True)
class Header:
    """One header line: (field name, unit) per column."""

    fields: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str) -> Header:
        """The fields that a header line names."""
        return cls(tuple(header_name(part) for part in text.split(",")))

    def position(self, name: str) -> int | None:
        """Where a field stands; None where the header lacks it."""
        return next((at for at, (field, _) in enumerate(self.fields) if field == name), None)


@dataclass
class _Reader:
    """The state of reading a file between two chunks."""

    header: str
    given: str
    """What --fields names; empty without."""

    block: int = 0
    lines: int = 0
    last_nr: int = -1
    last_line: str = ""
    timed: bool = False

    def in_force(self, header: str) -> Header:
        """The fields of the lines below a header line: as given, where it names the same ones or none that can be read."""
        own, given = Header.of(header), Header.of(self.given)
        known = own.position(TIMESTAMP) is not None and [name for name, _ in own.fields] != [
            name for name, _ in given.fields
        ]
        return own if known or not self.given else given


def parse_lines(source: ImportSource, fields: Sequence[str] | None, tally: Tally) -> tuple[pl.DataFrame, int]:
    """The rows of one file in file order (SCHEMA plus columns of the lake), and how many lines it has.

    Raises UsageError for a file without header where `fields` is None, InputError for one without timestamps.
    """
    reader = _Reader(",".join(fields or ()), ",".join(fields or ()))
    parts = [part for chunk in _chunks(source.text or b"") for part in _parse_chunk(chunk, reader, tally)]
    if fields is None and not reader.block:
        raise UsageError(
            f"{source.path} has no header line of nvidia-smi --query-gpu",
            "if it was written with noheader, name its columns: --fields timestamp,index,utilization.gpu,...",
        )
    if not reader.timed and _NO_TIMESTAMP in tally.dropped:
        names = ", ".join(name for name, _ in Header.of(reader.header).fields[:8])
        raise InputError(
            f"{source.path} has no timestamp field (its header names {names})",
            f"record it again: {RECORD}",
        )
    if not parts:
        return pl.DataFrame(schema=SCHEMA), reader.lines
    frame = pl.concat(parts, how="diagonal").sort("nr")
    return (frame if source.last_line_whole else _doubt_last_value(frame, reader, tally)), reader.lines


def _chunks(text: bytes) -> Iterator[bytes]:
    """The text in pieces that end at line ends: the split lines of a large file need ten times its size."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK_BYTES) + 1 or len(text)
        yield text[start:end]
        start = end


def _parse_chunk(chunk: bytes, reader: _Reader, tally: Tally) -> Iterator[pl.DataFrame]:
    """The rows of one chunk, one frame per header."""
    lines = _lines(chunk, reader.lines)
    reader.lines += lines.height
    blank = lines.filter(pl.col("line") == "").height
    lines = lines.filter(pl.col("line") != "")
    message = lines["line"].str.contains(_MESSAGE)
    tally.drop("a message of nvidia-smi, not a sample", int(message.sum()))
    lines = lines.filter(~message).with_columns(is_header=pl.col("line").str.contains(HEADER))
    lines, joined = _part_joined(lines, tally)
    tally.not_samples += blank + int(lines["is_header"].sum()) - joined
    lines = lines.with_columns(
        header=pl.when("is_header").then("line").forward_fill().fill_null(reader.header),
        block=(pl.col("is_header").cum_sum() + reader.block).cast(pl.UInt32),
    )
    if lines.is_empty():
        return
    reader.header, reader.block = str(lines["header"][-1]), int(lines["block"][-1])
    reader.last_nr, reader.last_line = int(lines["nr"][-1]), str(lines["line"][-1])
    for (header,), group in lines.filter(~pl.col("is_header")).group_by("header", maintain_order=True):
        if header == "":
            tally.drop("before the first header line (--fields would name them)", group.height)
            continue
        fields = reader.in_force(str(header))
        at = fields.position(TIMESTAMP)
        if at is None:
            tally.drop(_NO_TIMESTAMP, group.height)
            continue
        reader.timed = True
        yield _parse_group(fields, at, group, tally)


def _lines(chunk: bytes, before: int) -> pl.DataFrame:
    """Every line, blank ones too, stripped, with its number."""
    frame = pl.read_csv(
        chunk.replace(b"\x1f", b" "),
        has_header=False,
        separator="\x1f",  # no line holds it, so each is one column
        quote_char=None,
        infer_schema=False,
        new_columns=["line"],
    )
    return frame.select(pl.col("line").fill_null("").str.strip_chars()).with_row_index("nr", before)


def _part_joined(lines: pl.DataFrame, tally: Tally) -> tuple[pl.DataFrame, int]:
    """A run that was killed in the middle of a line leaves it in front of the next run's header: the header is kept.

    The lines, and how many of their headers stood behind such a line, which is counted as dropped.
    """
    joined = pl.col("is_header") & pl.col("line").str.contains(r"^\d{4}[/-]\d\d[/-]\d\d ")
    tally.drop(CUT_OFF, lines.filter(joined).height)
    parted = lines.with_columns(
        joined=joined, line=pl.when(joined).then(pl.col("line").str.extract(HEADER_WITHIN, 1)).otherwise("line")
    ).drop_nulls("line")
    return parted.drop("joined"), int(parted["joined"].sum())


def _parse_group(header: Header, at: int, group: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """The rows below one header (which may stand in the file many times); its field `at` is the timestamp."""
    width = len(header.fields)
    _note_unused(header, tally)
    # one field beyond the width shows lines that are too long
    cells = group["line"].str.split_exact(",", width).struct.unnest()
    whole = cells.to_series(width - 1).is_not_null() & cells.to_series(width).is_null()
    tally.drop(CUT_OFF, int((~whole).sum()))
    cells, group = cells.filter(whole), group.filter(whole)
    local = parse_local(cells.to_series(at))
    readable = local.is_not_null()
    tally.drop("timestamp unreadable", int((~readable).sum()))
    cells, group, local = cells.filter(readable), group.filter(readable), local.filter(readable)
    health = pl.coalesce(
        pl.when(pl.col("line").str.contains(pattern)).then(pl.lit(state)) for state, pattern in _HEALTH
    )
    nameless = all(header.position(name) is None for text in _NAMES_A_GPU for name in TEXTS[text])
    frame = group.select(
        pl.col("nr", "block").cast(pl.UInt32),
        local=local,
        health=health.cast(pl.String),
        nameless=pl.lit(nameless),
    )
    frame = frame.with_columns(
        *_texts(header, cells), *_quantities(header, cells, tally), *_processes(header, cells, tally)
    )
    if PROCESSES not in frame.columns:
        return frame
    tally.drop("a process without an id", frame[PROCESSES].null_count())
    return frame.drop_nulls(PROCESSES)


def _note_unused(header: Header, tally: Tally) -> None:
    """Without this note, a typing error in a field's name would lose a whole column silently."""
    unused = [name for name, _ in header.fields if name not in KNOWN]
    note = f"columns not used: {', '.join(unused)}"
    if unused and note not in tally.notes:
        tally.notes.append(note)


def _texts(header: Header, cells: pl.DataFrame) -> list[pl.Series]:
    found = []
    for column, names in TEXTS.items():
        at = next((place for name in names if (place := header.position(name)) is not None), None)
        if at is None:
            found.append(pl.Series(column, [None] * cells.height, dtype=pl.String))
        else:
            # a missing name changes nothing that a reader of the summary could act on: not counted
            found.append(absent_to_null(cells.to_series(at), column, Tally()).alias(column))
    return found


def _quantities(header: Header, cells: pl.DataFrame, tally: Tally) -> list[pl.Series]:
    found = []
    for field in (*QUANTITIES, MASKS):
        at = next((place for name in field.names if (place := header.position(name)) is not None), None)
        if at is None:
            continue
        values, unit = cells.to_series(at), header.fields[at][1]
        series = mask(values, tally) if field is MASKS else quantity(values, field, unit, tally)
        found.append(series.alias(field.column))
    return found


def _processes(header: Header, cells: pl.DataFrame, tally: Tally) -> Iterator[pl.Series]:
    """The one process that each line is about, as a list of it; `-` says that there is none."""
    at = header.position(PID)
    if at is None:
        return
    text = cells.to_series(at).str.strip_chars()
    none = text == NO_PROCESS
    pid = text.cast(pl.Int32, strict=False)
    pid = pid.set(pid <= 0, None)
    known = {"pid": pid}
    place = next((found for name in PROCESS_MEMORY.names if (found := header.position(name)) is not None), None)
    if place is not None:
        used = cells.to_series(place).set(none, None)
        known["mem_used_bytes"] = quantity(used, PROCESS_MEMORY, header.fields[place][1], tally)
    if (place := header.position(COMMAND)) is not None:
        known["command"] = command_names(cells.to_series(place))
    if (place := header.position(KIND)) is not None:
        kinds = cells.to_series(place).str.strip_chars()
        known["kind"] = kinds.replace_strict(KINDS, default=None, return_dtype=pl.String)
    yield one_process_lists(pl.DataFrame(known), none=none)


def _doubt_last_value(frame: pl.DataFrame, reader: _Reader, tally: Tally) -> pl.DataFrame:
    """nvidia-smi ends every line. If the last one has no end, its last value may lack digits and is dropped."""
    last, header = reader.last_nr, reader.in_force(reader.header)
    if frame.is_empty() or frame["nr"][-1] != last or re.search(_ENDS_WHOLE, reader.last_line):
        return frame
    name = header.fields[-1][0]
    column = next((field.column for field in (*QUANTITIES, MASKS) if name in field.names), None)
    if name in (TIMESTAMP, PID, COMMAND, KIND, *PROCESS_MEMORY.names) or any(name in names for names in TEXTS.values()):
        tally.drop("last line cut off", 1)
        return frame.head(-1)
    if column is not None and frame[column][-1] is not None:
        tally.null(column, "last line has no end: value may be cut off", 1)
        return frame.with_columns(pl.when(pl.col("nr") == last).then(None).otherwise(column).alias(column))
    return frame
