"""Opens input files by their first bytes, not names, within limits; undoes gzip and encodings; reads named columns."""

from __future__ import annotations

import codecs
import csv
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fallow.config import Config
from fallow.errors import InputError
from fallow.given_file import open_input, remedy
from fallow.units import format_bytes


@dataclass(frozen=True)
class InputLimits:
    """Limits for one file; a few kilobytes of gzip or Parquet can expand beyond any machine's memory."""

    max_bytes: int
    """Size of the decoded file."""

    max_record_bytes: int
    """Size of one line, or of one JSON or XML document."""

    max_rows: int

    @classmethod
    def of(cls, settings: Config) -> InputLimits:
        return cls(
            settings.integer("import.max_bytes"),
            settings.integer("import.max_record"),
            settings.integer("import.max_rows"),
        )

    def too_large(self, path: str) -> InputError:
        return InputError(
            f"{path} holds more than {format_bytes(self.max_bytes)} of data",
            "import it in parts, or raise import.max_bytes if you trust the file",
        )

    def too_long(self, path: str) -> InputError:
        return InputError(
            f"{path} holds a line or document of more than {format_bytes(self.max_record_bytes)}",
            "check the file, or raise import.max_record if you trust it",
        )

    def check_rows(self, path: str, rows: int) -> None:
        """Raise InputError for too many rows."""
        if rows > self.max_rows:
            raise InputError(
                f"{path} holds more than {self.max_rows:,} rows",
                "import it in parts, or raise import.max_rows if you trust the file",
            )

    def check_each(self, path: str, rows: Iterable[object]) -> None:
        """Raise InputError where there are too many rows; count no further than necessary."""
        self.check_rows(path, sum(1 for _ in islice(rows, self.max_rows + 1)))

    def check_lines(self, path: str, text: bytes) -> None:
        """Raise InputError for too many lines, or a line that is too long."""
        self.check_rows(path, text.count(b"\n"))
        start = 0
        while len(text) - start > self.max_record_bytes:
            end = text.rfind(b"\n", start, start + self.max_record_bytes + 1)
            if end < 0:
                raise self.too_long(path)
            start = end + 1


_GZIP = b"\x1f\x8b"
_PACKED_PIECE = 1 << 16
"""Small, because the data that follows a gzip member in its chunk is copied for the next member."""


def unpacked(path: str, head: bytes, file: BinaryIO, limits: InputLimits) -> tuple[bytes, bool]:
    """Return the content of the file, whose first bytes have been read, and whether a gzip stream ends too early.

    Raises InputError for a damaged file and for more data than a file may hold, and OSError.
    """
    chunks = chain([head], iter(partial(file.read, _PACKED_PIECE), b""))
    if head.startswith(_GZIP):
        return _gunzip(path, chunks, limits)
    return b"".join(_bounded_chunks(path, chunks, limits)), False


def _bounded_chunks(path: str, chunks: Iterable[bytes], limits: InputLimits) -> Iterator[bytes]:
    """Yield the chunks. Raises InputError as soon as there are more bytes than one file may hold."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limits.max_bytes:
            raise limits.too_large(path)
        yield chunk


def _gunzip(path: str, chunks: Iterable[bytes], limits: InputLimits) -> tuple[bytes, bool]:
    """Return the unpacked bytes of all members and whether the last one ends too early."""
    unpacker = _Unpacker()
    try:
        # the packed bytes are bounded as well: any number of members may be empty
        data = b"".join(_bounded_chunks(path, unpacker.unpacked(_bounded_chunks(path, chunks, limits)), limits))
    except zlib.error as error:
        raise InputError(f"{path} is a damaged gzip file ({error})", "fetch it again") from error
    return data, not unpacker.is_whole


class _Unpacker:
    """Gzip as a stream: at most one chunk is unpacked ahead of the reader."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    @property
    def is_whole(self) -> bool:
        return self._member.eof

    def unpacked(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the members' content in chunks; NUL bytes after a member are padding, anything else ends the stream."""
        for chunk in chunks:
            remaining = chunk
            while remaining:
                if self._member.eof:
                    remaining = remaining.lstrip(b"\x00")
                    if not remaining.startswith(_GZIP[:1]):
                        break
                    self._member = zlib.decompressobj(wbits=31)
                yield self._member.decompress(remaining, _PACKED_PIECE)
                remaining = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if not self._member.eof:
            yield self._member.flush(_PACKED_PIECE)


_PARQUET = b"PAR1"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\x7fELF": "a program",
    b"SQLite format 3": "SQLite",
    b"ARROW1": "Arrow IPC",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PIECE = 1 << 20
_BOM = b"\xef\xbb\xbf"
_NULS = re.compile(rb"\x00+")


@dataclass(frozen=True)
class ImportSource:
    r"""One input file. `text` is UTF-8 with `\\n` where NUL bytes were; it is None for Parquet."""

    path: str
    text: bytes | None
    parquet: str | io.BytesIO | None = None
    cut_off: bool = False
    notes: tuple[str, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()
    """Lines that `read_columns` left out: reason and count."""

    doubtful: str | None = None
    """The column whose value in the last row may be truncated, because the line has no end."""

    @property
    def last_line_whole(self) -> bool:
        return self.text is not None and self.text.endswith(b"\n")


def open_source(path: str, limits: InputLimits) -> ImportSource:
    """Return the content. Raises InputError for a folder or a missing, unreadable, empty, oversized or foreign file."""
    try:
        if Path(path).is_dir():
            raise InputError(f"{path} is a folder", f"name the files in it, such as {path.rstrip('/')}/*.csv")
        first, file = open_input(path)
        with file:
            head = first + file.read(16)
            if head.startswith(_PARQUET) and not first:
                return ImportSource(path, None, path)
            data, cut_off = unpacked(path, head, file, limits)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", "check the path") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", remedy(error)) from error
    return _kind(path, data, limits, cut_off=cut_off)


def _kind(path: str, data: bytes, limits: InputLimits, *, cut_off: bool) -> ImportSource:
    if _SOMETHING.search(data) is None:
        raise InputError(f"{path} is empty", "leave it out, or find out why nothing was written to it")
    if data.startswith(_PARQUET):
        return ImportSource(path, None, io.BytesIO(data), cut_off)
    for magic, kind in _OTHERS.items():
        if data.startswith(magic):
            raise InputError(f"{path} is neither CSV nor Parquet but {kind}", "unpack or convert it first")
    return _text(path, data, limits, cut_off=cut_off)


def _text(path: str, data: bytes, limits: InputLimits, *, cut_off: bool) -> ImportSource:
    notes = ["the gzip stream ends early: read up to there"] if cut_off else []
    unmarked = next((name for name, pattern in _UNMARKED_UTF16.items() if pattern.match(data)), "")
    if data.startswith(_UTF16) or unmarked:
        data = _as_utf8(data, unmarked or "utf-16")
        notes.append("read as UTF-16")
    data = data.removeprefix(_BOM)
    if data.endswith(b"\x00"):
        data, cut_off = data.rstrip(b"\x00"), True
        notes.append("padded with NUL bytes: truncated by a crash")
    if b"\x00" in data:
        limits.check_each(path, _NULS.finditer(data))
        # a crash leaves blocks of NUL bytes where a line was cut: the text after them is another line
        data = _NULS.sub(b"\n", data)
        notes.append("NUL bytes read as line ends")
    control = sum(byte < 32 and byte not in b"\t\r\n" for byte in data[:4096])
    if control * 10 > len(data[:4096]):
        raise InputError(f"{path} is neither CSV nor Parquet", "give a text file with a header line, or Parquet")
    if _DOCUMENT.match(data) is None:
        limits.check_lines(path, data)
    try:
        for _ in codecs.iterdecode(_pieces(data), "utf-8"):
            pass
    except UnicodeDecodeError:
        data = _as_utf8(data, "cp1252")
        notes.append("not UTF-8: read as Windows-1252")
    return ImportSource(path, data, None, cut_off, tuple(notes))


_UNMARKED_UTF16 = {"utf-16-le": re.compile(rb"(?:[^\x00]\x00){16}"), "utf-16-be": re.compile(rb"(?:\x00[^\x00]){16}")}
"""UTF-16 of ASCII characters, without the mark at its start."""
_SOMETHING = re.compile(rb"[^\x00 \r\n\t]")
_DOCUMENT = re.compile(rb"[ \t\r\n]*[{\[<]")
"""First characters of JSON and XML, which may be one line or many; their readers bound each document."""


def _pieces(data: bytes) -> Iterator[bytes]:
    """Yield chunks to decode one at a time: as text they may take four times the bytes."""
    return (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))


def _as_utf8(data: bytes, encoding: str) -> bytes:
    return b"".join(text.encode() for text in codecs.iterdecode(_pieces(data), encoding, "replace"))


_SEPARATORS = (",", ";", "\t")


def read_columns(
    path: str, names: Sequence[str], limits: InputLimits, is_wanted: Callable[[str], bool] = lambda _: False
) -> tuple[pl.DataFrame, ImportSource]:
    """Return the named and other wanted columns (CSV: text), in file order. Raises InputError that names the file."""
    source = open_source(path, limits)
    try:
        if source.text is None:
            return read_parquet(source, names, limits, is_wanted), source
        return _read_csv(source, names, is_wanted)
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
        pa.ArrowException,
        csv.Error,
        UnicodeDecodeError,
        OSError,
    ) as error:
        kind = "Parquet" if source.text is None else "CSV"
        reason = (str(error).splitlines() or ["damaged"])[0].rstrip(".")
        raise InputError(f"{path} is not a readable {kind} file ({reason})", "check or fetch it again") from error


_SEPARATOR_LINE = re.compile(rb'\A\s*(?:"?sep=.\r?\n|"sep=."\r?\n)')
"""What Excel and Grafana write before a table for Excel."""


def table_text(source: ImportSource) -> bytes:
    """Return the text of a table, lines in their places. Raises InputError for JSON and XML."""
    if _DOCUMENT.match(source.text or b""):
        raise InputError(
            f"{source.path} is JSON or XML, not a table", "save it as CSV with a header line, or as Parquet"
        )
    return _SEPARATOR_LINE.sub(b"\n", source.text or b"", count=1)


def _read_csv(
    source: ImportSource, names: Sequence[str], is_wanted: Callable[[str], bool]
) -> tuple[pl.DataFrame, ImportSource]:
    text = table_text(source).lstrip(b"\r\n\t ")
    head = text.split(b"\n", 1)[0].decode()
    separator = max(_SEPARATORS, key=lambda each: sum(name in _header_fields(head, each) for name in names))
    known = _header_fields(head, separator)
    check_columns(source.path, names, known)
    names = [*names, *filter(is_wanted, known)]
    whole, cut = (text[: text.rfind(b"\n") + 1], 1) if source.cut_off else (text, 0)
    text, long, blank = _fitting_lines(whole, separator, len(known))
    places = sorted({known.index(name) for name in names})
    frame = pl.read_csv(text, separator=separator, columns=places, infer_schema=False, truncate_ragged_lines=True)
    frame.columns = [known[place] for place in places]
    filled = frame.filter(~pl.all_horizontal(pl.all().is_null()))
    empty = max(frame.height - filled.height - blank, 0)
    counts = (
        ("last line truncated", cut),
        ("more fields than the header has", long),
        ("no value in any column", empty),
    )
    doubtful = None if source.last_line_whole or source.cut_off or long else _last_field(text, separator, known)
    return filled, replace(source, dropped=tuple(each for each in counts if each[1]), doubtful=doubtful)


def _last_field(text: bytes, separator: str, known: Sequence[str]) -> str | None:
    line = text[text.rfind(b"\n") + 1 :].decode()
    return known[min(len(_header_fields(line, separator)), len(known)) - 1] if line.strip() else None


def _fitting_lines(text: bytes, separator: str, width: int) -> tuple[bytes, int, int]:
    """Return the text without lines of too many fields, the number of these, and the number of blank lines.

    Two lines that were mixed, or a decimal comma, would otherwise put a value into another column.
    """
    lines = pl.read_csv(
        text.replace(b"\x1f", b" "), has_header=False, separator="\x1f", quote_char=None, infer_schema=False
    ).to_series()
    tidy = lines.fill_null("").str.strip_chars(" \r")
    spaces = ((tidy == "") & (lines.fill_null("") != "")).arg_true().to_list()
    blank = int((tidy == "").sum()) - len(spaces)
    many = (tidy.str.strip_chars_end(separator).str.count_matches(separator, literal=True) >= width).arg_true()
    wrong = [at for at in many.to_list() if len(_header_fields(str(tidy[at]), separator)) > width]
    if not wrong and not spaces:
        return text, 0, blank
    kept = (
        lines.to_frame().with_row_index("at").filter(~pl.col("at").is_in([*wrong, *spaces])).to_series(1).fill_null("")
    )
    return "\n".join(kept).encode() + b"\n", len(wrong), blank


def _header_fields(head: str, separator: str) -> list[str]:
    return [name.strip() for name in next(csv.reader([head.strip()], delimiter=separator))]


def read_parquet(
    source: ImportSource,
    names: Sequence[str] | None,
    limits: InputLimits,
    is_wanted: Callable[[str], bool] = lambda _: False,
) -> pl.DataFrame:
    """Return the named columns and wanted others, all by default. Raises InputError, ArrowException and OSError.

    A dictionary stores a long text once, and a file of some kilobytes may refer to it a million times: such columns are
    counted at their size without a dictionary before they are unpacked.
    """
    if source.parquet is None:
        raise InputError(f"{source.path} is neither CSV nor Parquet", "give a CSV with a header line")
    # Arrow describes a damaged file in one line, where Polars prints a stack trace of its own
    known = pq.ParquetFile(source.parquet).schema_arrow
    wanted = list(dict.fromkeys(known.names if names is None else [*names, *filter(is_wanted, known.names)]))
    check_columns(source.path, wanted, known.names)
    texts = [each.name for each in known if pa.types.is_string(each.type) or pa.types.is_binary(each.type)]
    if not isinstance(source.parquet, str):
        source.parquet.seek(0)
    opened = pq.ParquetFile(source.parquet, read_dictionary=texts)
    limits.check_rows(source.path, opened.metadata.num_rows)
    parts, size = [], 0
    for group in range(opened.num_row_groups):
        # the footer may misstate a group, and a page beyond it fails where it is unpacked
        if opened.metadata.row_group(group).total_byte_size > limits.max_bytes:
            raise limits.too_large(source.path)
        part = opened.read_row_group(group, columns=wanted).replace_schema_metadata()
        size += sum(_decoded_bytes(column) for column in part.columns)
        if size > limits.max_bytes:
            raise limits.too_large(source.path)
        parts.append(part)
    data = pa.concat_tables(parts) if parts else opened.schema_arrow.empty_table().select(wanted)
    data = pa.table([_without_dictionary(data[name]) for name in wanted], wanted)
    data.validate(full=True)
    return pl.DataFrame(pl.from_arrow(data))


def _decoded_bytes(column: pa.ChunkedArray) -> int:
    """Return the size of the column without dictionaries."""
    size = 0
    for chunk in column.chunks:
        size += chunk.nbytes
        if isinstance(chunk, pa.DictionaryArray):
            lengths = pc.binary_length(chunk.dictionary)
            size += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return size


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def check_columns(path: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raise InputError for the first name that the file lacks."""
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            guess = f"did you mean '{near[0]}'? " if near else ""
            raise InputError(f"{path} has no column '{name}'", f"{guess}it has: {listed}")
