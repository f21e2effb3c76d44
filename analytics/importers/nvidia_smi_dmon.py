"""`nvidia-smi dmon -o DT`: its table rewritten as the CSV of --query-gpu, line for line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from fallow.errors import InputError

_FIELDS = {
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
"""dmon's column: the field of --query-gpu that is the same quantity, and the unit that dmon's second header line names.

`sm` is the share of time in which a kernel ran (man nvidia-smi), which --query-gpu calls utilization.gpu. `fb` is in
MiB although dmon writes MB: it is the number that --query-gpu writes as MiB.
"""

_UNITS = re.compile(r"#\s*(?:YYYYMMDD|HH:MM:SS|Idx)\b")
_HEADER = re.compile(r"#\s*(?:Date\b|Time\b|gpu\b)")
_HALF_DAY_S = 43_200


def is_dmon(text: bytes) -> bool:
    """Whether the text is a table of dmon (or pmon)."""
    return _HEADER.match(text[:200].decode(errors="replace").lstrip()) is not None


@dataclass
class _Table:
    """The columns of the header read last, and the day that times without one belong to."""

    names: tuple[str, ...] = ()
    day: date | None = None
    last_s: int = 0


def dmon_as_csv(path: str, text: bytes, day: date | None) -> bytes:
    """The same lines as CSV; header lines of units are blank. `day` is that of the first line where dmon wrote no date.

    Raises InputError for pmon's tables and for those without times.
    """
    table = _Table(day=day)
    end = "\n" if text.endswith(b"\n") else ""
    return ("\n".join(_lines(path, text.decode(errors="replace").splitlines(), table)) + end).encode()


def _lines(path: str, lines: Sequence[str], table: _Table) -> Iterator[str]:
    for line in lines:
        if _UNITS.match(line.strip()):
            _check_units(path, table, tuple(line.replace(",", " ").lstrip("# ").split()))
            yield ""
        elif _HEADER.match(line.strip()):
            table.names = tuple(line.replace(",", " ").lstrip("# ").split())
            _check_header(path, table)
            yield ", ".join(["timestamp", *(_FIELDS.get(name, (name, ""))[0] for name in _quantities(table))])
        else:
            yield _row(line, table)


def _quantities(table: _Table) -> list[str]:
    return [name for name in table.names if name not in ("Date", "Time")]


def _check_header(path: str, table: _Table) -> None:
    if "pid" in table.names:
        raise InputError(
            f"{path} is a table of nvidia-smi pmon, which says nothing of whole GPUs", "import one of dmon"
        )
    if "Time" not in table.names:
        raise InputError(f"{path} is a table of nvidia-smi dmon without times", "record it with nvidia-smi dmon -o DT")
    if "Date" not in table.names and table.day is None:
        raise InputError(
            f"{path} is a table of nvidia-smi dmon without dates", "give the day of its first line: --date 2026-11-20"
        )


def _check_units(path: str, table: _Table, units: Sequence[str]) -> None:
    for name, unit in zip(table.names, units, strict=False):
        expected = _FIELDS.get(name, ("", unit))[1]
        if unit != expected:
            raise InputError(
                f"{path}: {name} is in {unit}, and dmon writes {expected}", "import the CSV of --query-gpu"
            )


def _row(line: str, table: _Table) -> str:
    cells = line.replace(",", " ").split()
    if len(cells) != len(table.names) or not table.names:
        return line.replace(",", " ")  # too few fields, or a message: counted as such further on
    values = dict(zip(table.names, cells, strict=True))
    when = _moment(values, table)
    return ", ".join([when, *("[N/A]" if values[name] == "-" else values[name] for name in _quantities(table))])


def _moment(values: dict[str, str], table: _Table) -> str:
    """`2026-11-20 10:00:00`; where only the time stands there, a day later after each midnight."""
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
