"""`nvidia-smi -q -x`: its documents, one or many in a file, rewritten as the CSV of --query-gpu."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from xml.etree import ElementTree as ET

import polars as pl

from analytics.importers.limits import InputLimits
from analytics.importers.measures import BYTES
from analytics.importers.model import Tally
from analytics.importers.processes import KINDS, ImportedProcess, command_name, lists_by_line, readable, readable_pid
from fallow.errors import InputError

_FIELDS = {
    "uuid": ("uuid",),
    "name": ("product_name",),
    "memory.total": ("fb_memory_usage/total",),
    "memory.used": ("fb_memory_usage/used",),
    "memory.reserved": ("fb_memory_usage/reserved",),
    "utilization.gpu": ("utilization/gpu_util",),
    "utilization.memory": ("utilization/memory_util",),
    "power.draw": tuple(
        f"{block}/{name}"
        for block in ("gpu_power_readings", "power_readings")
        for name in ("power_draw", "average_power_draw", "instant_power_draw")
    ),
    "power.limit": tuple(
        f"{block}/{name}"
        for block in ("gpu_power_readings", "power_readings")
        for name in ("enforced_power_limit", "current_power_limit", "power_limit")
    ),
    "temperature.gpu": ("temperature/gpu_temp",),
    "temperature.memory": ("temperature/memory_temp",),
    "clocks.sm": ("clocks/sm_clock",),
    "clocks.mem": ("clocks/mem_clock",),
}
"""The field of --query-gpu, and where documents of drivers 470 to 580 hold it: the first that is there counts."""

HEADER = ("timestamp", "index", "pci.bus_id", "driver_version", *_FIELDS)
_END = b"</nvidia_smi_log>"


def is_xml(text: bytes) -> bool:
    """Whether the text begins as a document of nvidia-smi -q -x does."""
    return re.match(rb"\s*(?:<\?xml|<!DOCTYPE nvidia_smi_log|<nvidia_smi_log)", text) is not None


def xml_as_csv(path: str, text: bytes, limits: InputLimits, tally: Tally) -> tuple[bytes, pl.DataFrame, int]:
    """A line per GPU and document, the lines' process lists, and how many GPUs stand in documents that cannot be read.

    Raises InputError where the documents have no time, and for one that is too long.
    """
    lines, lost = [", ".join(HEADER)], 0
    lists: dict[int, list[ImportedProcess] | None] = {}
    for document in _documents(path, text, limits):
        try:
            root = _parse(document)
            lists |= enumerate((_processes(gpu, tally) for gpu in root.iterfind("gpu")), len(lines))
            lines.extend(_lines(path, root))
        except ET.ParseError:
            lost += max(len(re.findall(rb"<gpu id=", document)), 1)
    return ("\n".join(lines) + "\n").encode(), lists_by_line(lists), lost


def _documents(path: str, text: bytes, limits: InputLimits) -> Iterator[bytes]:
    """Each with its end, also where the last one lacks it; at most so long, for as elements it takes fifty times its size."""
    start = 0
    while start < len(text):
        end = text.find(_END, start)
        end = len(text) if end < 0 else end
        if end - start > limits.max_record_bytes:
            raise limits.too_long(path)
        if document := text[start:end].strip():
            yield document + _END
        start = end + len(_END)


def _parse(document: bytes) -> ET.Element:
    begin = document.find(b"<nvidia_smi_log")
    if begin < 0 or b"<!ENTITY" in document:
        raise ET.ParseError
    return ET.fromstring(document[begin:])  # noqa: S314 (without its document type nothing in it can refer to anything)


def _lines(path: str, root: ET.Element) -> Iterator[str]:
    when = _moment(path, root.findtext("timestamp"))
    driver = _cell(root.findtext("driver_version"))
    for index, gpu in enumerate(root.iterfind("gpu")):
        found = (next((text for place in places if (text := gpu.findtext(place))), None) for places in _FIELDS.values())
        yield ", ".join([when, str(index), _cell(gpu.get("id")), driver, *(_cell(text) for text in found)])


def _cell(text: str | None) -> str:
    return " ".join((text or "[N/A]").strip().replace(",", " ").splitlines())


def _processes(gpu: ET.Element, tally: Tally) -> list[ImportedProcess] | None:
    """The processes of a GPU; None where the document says `N/A` or nothing instead of a list."""
    block = gpu.find("processes")
    if block is None or (block.text or "").strip():
        return None
    return readable((_process(each) for each in block.iterfind("process_info")), tally)


def _process(info: ET.Element) -> ImportedProcess | None:
    pid = readable_pid(info.findtext("pid"))
    if pid is None:
        return None
    kind = KINDS.get((info.findtext("type") or "").strip())
    size = re.fullmatch(r"(\d+) (MiB|KiB|GiB)", (info.findtext("used_memory") or "").strip())
    used = None if size is None else int(int(size[1]) * BYTES[size[2]])
    return ImportedProcess(pid, kind, used, command=command_name(info.findtext("process_name")))


def _moment(path: str, text: str | None) -> str:
    """`2026-11-20 10:00:00` of `Fri Nov 20 10:00:00 2026`, which nvidia-smi writes in English in every locale."""
    if text is None:
        raise InputError(f"{path} has a document without a timestamp", "record it with nvidia-smi -q -x")
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    parts = text.split()
    if len(parts) != 5 or parts[1] not in months:
        return text.strip().replace(",", " ")  # unreadable: counted as such further on
    try:
        clock = datetime.strptime(parts[3], "%H:%M:%S").time()  # noqa: DTZ007 (a local time of day)
        return f"{int(parts[4]):04}-{months.index(parts[1]) + 1:02}-{int(parts[2]):02} {clock.isoformat()}"
    except ValueError:
        return text.strip().replace(",", " ")
