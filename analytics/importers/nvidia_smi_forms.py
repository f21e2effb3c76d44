"""Converts `nvidia-smi dmon` and `pmon -o DT` to CSV like that of --query-gpu, and documents of `nvidia-smi -q -x`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from xml.etree import ElementTree as ET

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.processes import process_list
from analytics.importers.records import CUT_OFF
from analytics.importers.source import InputLimits
from analytics.importers.tool_rows import TIMESTAMP, cell, quantities_of, texts_of
from analytics.mapping.mapping_file import tool
from fallow.errors import InputError

_GPU_FIELDS = {
    "gpu": ("index", "Idx"),
    "pwr": ("power.draw [W]", "W"),
    "gtemp": ("temperature.gpu", "C"),
    "mtemp": ("temperature.memory", "C"),
    "sm": ("utilization.gpu [%]", "%"),
    "mem": ("utilization.memory [%]", "%"),
    "mclk": ("clocks.mem [MHz]", "MHz"),
    "pclk": ("clocks.sm [MHz]", "MHz"),
    "fb": ("memory.used [MiB]", "MB"),
}
"""By dmon's column: the field of --query-gpu for the same quantity, and the unit in dmon's second header line.

`sm` is the share of time in which a kernel ran (man nvidia-smi), which --query-gpu calls utilization.gpu. `fb` is in
MiB although dmon writes MB: it is the number that --query-gpu writes as MiB.
"""

_PROCESS_FIELDS = {
    "gpu": ("index", "Idx"),
    "pid": ("pid", "#"),
    "type": ("process_type", "C/G"),
    "fb": ("used_gpu_memory [MiB]", "MB"),
    "command": ("process_name", "name"),
}
"""pmon's columns likewise. Its `sm` is the share of one process and implies nothing for the GPU."""

_UNITS = re.compile(r"#\s*(?:YYYYMMDD|HH:MM:SS|Idx)\b")
_HEADER = re.compile(r"#\s*(?:Date\b|Time\b|gpu\b)")
_HALF_DAY_S = 43_200


def kind_of_table(text: bytes) -> str | None:
    """Return `dmon` or `pmon`, the tool that wrote the table; None if the text is no such table."""
    head = text[:400].decode(errors="replace").lstrip().partition("\n")[0]
    if _HEADER.match(head) is None:
        return None
    return "pmon" if "pid" in _cells(head.lstrip("# ")) else "dmon"


@dataclass
class _Table:
    """The columns of the latest header, their meaning, and the day of times without a date."""

    kind: str
    names: tuple[str, ...] = ()
    day: date | None = None
    last_s: int = 0

    @property
    def fields(self) -> Mapping[str, tuple[str, str]]:
        return _PROCESS_FIELDS if self.kind == "pmon" else _GPU_FIELDS

    @property
    def quantities(self) -> list[str]:
        """Return the columns to write: for pmon only those that are read."""
        names = [name for name in self.names if name not in ("Date", "Time")]
        return [name for name in names if name in _PROCESS_FIELDS] if self.kind == "pmon" else names


def table_as_csv(path: str, text: bytes, day: date | None) -> bytes:
    """Return the lines as CSV; header lines of units are blank. `day` is the first line's where no date is written.

    Raises InputError for tables without times, and where a column has another unit.
    """
    table = _Table(kind_of_table(text) or "dmon", day=day)
    written = io.BytesIO()
    for line in _table_lines(path, (part for whole in io.BytesIO(text) for part in _parts(whole)), table):
        written.write(line.encode() + b"\n")
    return written.getvalue() if text.endswith(b"\n") else written.getvalue().removesuffix(b"\n")


def _parts(line: bytes) -> list[str]:
    """Return the line without its end; a lone carriage return or form feed in it ends a line too."""
    return line.decode(errors="replace").splitlines()


def _table_lines(path: str, lines: Iterable[str], table: _Table) -> Iterator[str]:
    for line in lines:
        if _UNITS.match(line.strip()):
            _check_units(path, table, _cells(line.strip().removeprefix("#")))
            yield ""
        elif _HEADER.match(line.strip()):
            table.names = _cells(line.lstrip("# "))
            _check_header(path, table)
            yield ", ".join(["timestamp", *(table.fields.get(name, (name, ""))[0] for name in table.quantities)])
        else:
            yield _row(line, table)


def _cells(line: str, most: int = 0) -> tuple[str, ...]:
    """Return the cells of a line; where `most` limits them, the last one holds all remaining text."""
    return tuple(cell.strip() for cell in line.replace(",", " ").split(None, most - 1))


def _check_header(path: str, table: _Table) -> None:
    what = f"{path} is a table of nvidia-smi {table.kind}"
    if "Time" not in table.names:
        raise InputError(f"{what} without times", f"record it with nvidia-smi {table.kind} -o DT")
    if "Date" not in table.names and table.day is None:
        raise InputError(f"{what} without dates", "give the day of its first line: --date 2026-11-20")


def _check_units(path: str, table: _Table, units: Sequence[str]) -> None:
    for name, unit in zip(table.names, units, strict=False):
        expected = table.fields.get(name, ("", unit))[1]
        if unit != expected:
            raise InputError(
                f"{path}: {name} is in {unit}, but {table.kind} writes {expected}", "import the CSV of --query-gpu"
            )


def _row(line: str, table: _Table) -> str:
    cells = _cells(line, len(table.names) if table.kind == "pmon" else 0)
    if len(cells) != len(table.names) or not table.names:
        return line.replace(",", " ")  # too few fields, or a message: counted as such later
    values = dict(zip(table.names, cells, strict=True))
    when = _row_time(values, table)
    absent = {name: "[N/A]" for name in table.quantities if values[name] == "-" and name != "pid"}
    return ", ".join([when, *(absent.get(name, values[name]) for name in table.quantities)])


def _row_time(values: dict[str, str], table: _Table) -> str:
    """Return `2026-11-20 10:00:00`; where only the time is written, the day advances at each midnight."""
    written = values.get("Date", "").replace("-", "").replace("/", "")
    if "Date" in table.names or table.day is None:
        return f"{written[:4]}-{written[4:6]}-{written[6:8]} {values['Time']}"
    found = re.fullmatch(r"(\d\d):(\d\d):(\d\d)", values["Time"])
    if found is None:
        return values["Time"]
    seconds = 3600 * int(found[1]) + 60 * int(found[2]) + int(found[3])
    if seconds < table.last_s - _HALF_DAY_S:
        table.day += timedelta(days=1)
    table.last_s = seconds
    return f"{table.day.isoformat()} {values['Time']}"


XML = tool("nvidia-smi-xml")
_PLACES = tuple(
    dict.fromkeys(
        (
            *(name for names in texts_of(XML).values() for name in names),
            *(metric.metric for metrics in quantities_of(XML).values() for metric in metrics),
        )
    )
)
_END = b"</nvidia_smi_log>"


def is_xml(text: bytes) -> bool:
    """Return whether the text begins like a document of nvidia-smi -q -x."""
    return re.match(rb"\s*(?:<\?xml|<!DOCTYPE nvidia_smi_log|<nvidia_smi_log)", text) is not None


def xml_samples(path: str, text: bytes, limits: InputLimits, tally: Tally) -> Iterator[dict[str, object]]:
    """Yield each GPU's values per document, by their places, with its process list; unreadable documents count by GPU.

    Raises InputError where the documents have no time, and for a document that is too long.
    """
    for document in _documents(path, text, limits):
        try:
            root = _parsed_document(document)
        except ET.ParseError:
            tally.drop(CUT_OFF, max(len(re.findall(rb"<gpu id=", document)), 1))
            continue
        when = _document_time(path, root.findtext("timestamp"))
        for index, gpu in enumerate(root.iterfind("gpu")):
            found = {place: cell(gpu.findtext(place)) for place in _PLACES}
            found |= {
                "index": str(index),
                "id": cell(gpu.get("id")),
                "driver_version": cell(root.findtext("driver_version")),
            }
            yield {TIMESTAMP: when, PROCESSES: _processes(gpu, tally), **found}


def _documents(path: str, text: bytes, limits: InputLimits) -> Iterator[bytes]:
    """Yield each document with its end, added if missing. Its length is limited: elements take fifty times its size."""
    start = 0
    while start < len(text):
        end = text.find(_END, start)
        end = len(text) if end < 0 else end
        if end - start > limits.max_record_bytes:
            raise limits.too_long(path)
        if document := text[start:end].strip():
            yield document + _END
        start = end + len(_END)


def _parsed_document(document: bytes) -> ET.Element:
    begin = document.find(b"<nvidia_smi_log")
    if begin < 0 or b"<!ENTITY" in document:
        raise ET.ParseError
    return ET.fromstring(document[begin:])  # noqa: S314 (without its document type nothing in it can refer to anything)


def _processes(gpu: ET.Element, tally: Tally) -> list[dict[str, object]] | None:
    """Return the processes of a GPU; None where the document has `N/A` or nothing instead of a list."""
    block = gpu.find("processes")
    if block is None or (block.text or "").strip():
        return None
    return process_list(({each.tag: each.text for each in info} for info in block.iterfind("process_info")), XML, tally)


def _document_time(path: str, text: str | None) -> str:
    """Return `2026-11-20 10:00:00` for `Fri Nov 20 10:00:00 2026`: nvidia-smi writes English in every locale."""
    if text is None:
        raise InputError(f"{path} has a document without a timestamp", "record it with nvidia-smi -q -x")
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    parts = text.split()
    if len(parts) != 5 or parts[1] not in months:
        return text.strip()  # unreadable: counted as such later
    try:
        clock = datetime.strptime(parts[3], "%H:%M:%S").time()  # noqa: DTZ007 (a local time of day)
        return f"{int(parts[4]):04}-{months.index(parts[1]) + 1:02}-{int(parts[2]):02} {clock.isoformat()}"
    except ValueError:
        return text.strip()
