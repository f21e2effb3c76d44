"""Parses the text that nvidia-smi writes: header lines, blocks of values under them, broken lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.source import ImportSource
from analytics.importers.tool_rows import COUNT, TEXTS, TIMESTAMP, quantities_of, rows_of_cells, texts_of
from analytics.mapping.mapping_file import tool
from fallow.errors import InputError, UsageError

RECORD = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,name,memory.total,utilization.gpu,memory.used,power.draw "
    "--format=csv -l 10 > gpu.csv"
)
"""The command line whose file has all that a ledger with cost and energy needs: the model, memory, power."""


TOOL = tool("nvidia-smi")
QUANTITIES = quantities_of(TOOL)
_TEXTS = (TIMESTAMP, COUNT, *(name for names in texts_of(TOOL).values() for name in names))
_OF_PROCESSES = (
    *(each.metric for each in TOOL.metrics if each.table == "process"),
    *(name for _, names in TOOL.process for name in names),
)
KNOWN = (*_TEXTS, *(each.metric for metrics in QUANTITIES.values() for each in metrics), *_OF_PROCESSES)

HEADER = r"(?i)(?:^|[,;\t])\s*(?:" + "|".join(re.escape(name) for name in KNOWN) + r")\s*(?:\[[^\]]*\])?\s*(?:[,;\t]|$)"
"""Matches a header line: it names a field, which no line of values does."""

HEADER_WITHIN = r"(?i)((?:" + "|".join(re.escape(name) for name in KNOWN) + r")\s*(?:\[[^\]]*\])?\s*[,;\t].*)$"
"""Finds where a header begins in a line."""


def check_fields(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of --fields. Raises UsageError where one is a misspelled known name; other names are skipped."""
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
    """Return field name and unit of a header such as `memory.used [MiB]`; the unit is empty where there is none."""
    name, _, unit = text.strip().partition("[")
    return name.strip().lower(), unit.strip().removesuffix("]").strip()


_MESSAGE = r"(?i)^(?:unable to|failed to|no devices|nvidia-smi has failed|error|warning|terminated|killed)"
CUT_OFF = "wrong number of fields: truncated or mixed lines"
TOO_MANY = "more fields than the header names: a decimal comma without quotes, or mixed lines"
_ENDS_WHOLE = r"(?:%|W|MHz|MiB|\])$"

_NO_TIMESTAMP = "below a header line that names no timestamp"
_CHUNK_BYTES = 16 * 2**20

SCHEMA: dict[str, pl.DataType] = {
    "nr": pl.UInt32(),
    "block": pl.UInt32(),
    "local": pl.Datetime("ms"),
    "sure_ms": pl.Int64(),
    "health": pl.String(),
    "nameless": pl.Boolean(),
    **{name: pl.String() for name in (*TEXTS, COUNT)},
}
"""First columns of every parsed frame: line, run of nvidia-smi, host's time or moment, health, `nameless` (true where
no column names the GPU), names of the GPU."""


@dataclass(frozen=True)
class Header:
    """One header line: (field name, unit) per column."""

    fields: tuple[tuple[str, str], ...]

    separator: str = ","

    @classmethod
    def of(cls, text: str, separator: str = ",") -> Header:
        """Return the fields that a header line names."""
        return cls(tuple(header_name(part) for part in text.split(separator)), separator)

    @property
    def has_time(self) -> bool:
        return any(name == TIMESTAMP for name, _ in self.fields)


@dataclass
class _Reader:
    """The state of reading a file between two chunks."""

    header: str
    given: str
    """Names in --fields; empty without the flag."""

    separator: str

    block: int = 0
    lines: int = 0
    last_nr: int = -1
    last_line: str = ""
    timed: bool = False

    def in_force(self, header: str) -> Header:
        """Return the fields below a header: as given, where the header has the same names or no readable ones."""
        own, given = Header.of(header, self.separator), Header.of(self.given, self.separator)
        known = own.has_time and [name for name, _ in own.fields] != [name for name, _ in given.fields]
        return own if known or not self.given else given


def parse_lines(source: ImportSource, fields: Sequence[str] | None, tally: Tally) -> pl.DataFrame:
    """Return the rows of one file in file order (SCHEMA plus columns of the lake).

    Raises UsageError for a file without header where `fields` is None, InputError for a file without timestamps.
    """
    text, separator = _separated_text(source.path, source.text or b"", fields)
    reader = _Reader(separator.join(fields or ()), separator.join(fields or ()), separator)
    parts = [part for chunk in _chunks(text) for part in _parse_chunk(chunk, reader, tally)]
    if fields is None and not reader.block:
        first = next(
            (
                line.strip()
                for line in (source.text or b"")[:_HEAD_BYTES].decode(errors="ignore").split("\n")
                if line.strip()
            ),
            "",
        )
        is_table = re.match(r"\d.*[,;\t]", first) is not None
        raise UsageError(
            f"{source.path} has no header line of nvidia-smi --query-gpu: it begins with '{first[:60]}'",
            "if it was written with noheader, name its columns: --fields timestamp,index,utilization.gpu,..."
            if is_table
            else f"record it with: {RECORD}",
        )
    if not reader.timed and _NO_TIMESTAMP in tally.dropped:
        names = ", ".join(name for name, _ in Header.of(reader.header, separator).fields[:8])
        raise InputError(
            f"{source.path} has no timestamp field (its header names {names})", f"record it again: {RECORD}"
        )
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    frame = pl.concat(parts, how="diagonal").sort("nr")
    return frame if source.last_line_whole else _doubt_last_value(frame, reader, tally)


_SEPARATORS = (",", ";", "\t")
_HEAD_BYTES, _MOST_BEFORE = 2**16, 20
"""Where a header is looked for: below some lines of messages."""


def _separated_text(path: str, text: bytes, fields: Sequence[str] | None) -> tuple[bytes, str]:
    """Return the lines without quotes, and their separator: nvidia-smi's comma, or what a spreadsheet saves instead."""
    heads = text[:_HEAD_BYTES].decode(errors="ignore").split("\n")
    heads = [line for line in heads if line.strip()][:_MOST_BEFORE] or [""]
    if fields is None:
        known = {each: max(_known_fields(line, each) for line in heads) for each in _SEPARATORS}
        separator = max(_SEPARATORS, key=known.__getitem__)
    else:
        separator = min(_SEPARATORS, key=lambda each: abs(len(fields) - 1 - heads[0].count(each)))
    if b'"' not in text:
        return text, separator
    # a quoted cell may hold the separator, and no cell holds a tab
    lines = (line if separator == "\t" else line.replace("\t", " ") for line in text.decode().splitlines())
    try:
        rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
        plain = "\n".join("\t".join(row) for row in rows).encode()
    except csv.Error as error:
        raise InputError(f"{path} has a line that no CSV has", "record it again, or save it without quotes") from error
    return (plain + b"\n" if text.endswith(b"\n") else plain), "\t"


def _known_fields(line: str, separator: str) -> int:
    return sum(name in KNOWN for name, _ in Header.of(line.replace('"', ""), separator).fields)


def _chunks(text: bytes) -> Iterator[bytes]:
    """Yield the text in chunks that end at line ends: the split lines of a large file need ten times its size."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _CHUNK_BYTES) + 1 or len(text)
        yield text[start:end]
        start = end


def _parse_chunk(chunk: bytes, reader: _Reader, tally: Tally) -> Iterator[pl.DataFrame]:
    """Yield the rows of one chunk, one frame per header."""
    lines = _lines(chunk, reader.lines)
    reader.lines += lines.height
    blank = lines.filter(pl.col("line") == "").height
    lines = lines.filter(pl.col("line") != "")
    message = lines["line"].str.contains(_MESSAGE)
    tally.drop("a message of nvidia-smi, not a sample", int(message.sum()))
    lines = lines.filter(~message).with_columns(is_header=pl.col("line").str.contains(HEADER))
    lines, joined = _restored_headers(lines, tally)
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
        if not fields.has_time:
            tally.drop(_NO_TIMESTAMP, group.height)
            continue
        reader.timed = True
        yield _parse_group(fields, group, tally)


def _lines(chunk: bytes, before: int) -> pl.DataFrame:
    """Return every line, including blank ones, stripped, with its number."""
    frame = pl.read_csv(
        chunk.replace(b"\x1f", b" "),
        has_header=False,
        separator="\x1f",  # no line holds this separator, so each line is one column
        quote_char=None,
        infer_schema=False,
        new_columns=["line"],
    )
    return frame.select(pl.col("line").fill_null("").str.strip_chars(" \r\f\v")).with_row_index("nr", before)


def _restored_headers(lines: pl.DataFrame, tally: Tally) -> tuple[pl.DataFrame, int]:
    """Return the lines with headers restored where a killed run left half a line in front of them.

    Return also how many headers followed such a half line, which is counted as dropped.
    """
    joined = pl.col("is_header") & pl.col("line").str.contains(r"^(\d{4}[/-]\d\d[/-]\d\d[ T]|\d{9,13}[.,])")
    tally.drop(CUT_OFF, lines.filter(joined).height)
    parted = lines.with_columns(
        joined=joined, line=pl.when(joined).then(pl.col("line").str.extract(HEADER_WITHIN, 1)).otherwise("line")
    ).drop_nulls("line")
    return parted.drop("joined"), int(parted["joined"].sum())


def _parse_group(header: Header, group: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """Return the rows below one header, which may occur in the file many times."""
    width = len(header.fields)
    # Without this note, a typing error in a field's name would lose a whole column silently.
    unused = [name for name, _ in header.fields if name not in KNOWN]
    note = f"columns not used: {', '.join(unused)}"
    if unused and note not in tally.notes:
        tally.notes.append(note)
    # one field beyond the width shows lines that are too long
    cells = group["line"].str.split_exact(header.separator, width).struct.unnest()
    whole = cells.to_series(width - 1).is_not_null() & cells.to_series(width).is_null()
    wide = int(cells.to_series(width).is_not_null().sum())
    tally.drop(TOO_MANY, wide)
    tally.drop(CUT_OFF, int((~whole).sum()) - wide)
    fields = header.fields
    at = {name: fields.index((name, unit)) for name, unit in reversed(fields)}  # the first column of a name counts
    named = pl.DataFrame([cells.filter(whole).to_series(place).alias(name) for name, place in at.items()])
    frame = rows_of_cells(group.filter(whole), named, TOOL, dict(reversed(fields)), tally)
    if PROCESSES not in frame.columns:
        return frame
    tally.drop("a process without an id", frame[PROCESSES].null_count())
    return frame.drop_nulls(PROCESSES)


def _doubt_last_value(frame: pl.DataFrame, reader: _Reader, tally: Tally) -> pl.DataFrame:
    """Return the rows. nvidia-smi ends every line: a last value without a line end may lack digits, and is dropped."""
    last, header = reader.last_nr, reader.in_force(reader.header)
    if frame.is_empty() or frame["nr"][-1] != last or re.search(_ENDS_WHOLE, reader.last_line):
        return frame
    name = header.fields[-1][0]
    if name in _TEXTS or name in _OF_PROCESSES:
        tally.drop("last line truncated", 1)
        return frame.head(-1)
    column = next((column for column, own in QUANTITIES.items() if name in [each.metric for each in own]), None)
    if column is not None and frame[column][-1] is not None:
        tally.null(column, "last line has no end: value may be truncated", 1)
        return frame.with_columns(pl.when(pl.col("nr") == last).then(None).otherwise(column).alias(column))
    return frame
