"""The fields that `nvidia-smi --query-gpu` names, what they become in the lake, and how their values are read.

Names and units: `nvidia-smi --help-query-gpu` of drivers 470 to 580.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from analytics.importers.measures import BYTES, CELSIUS, MHZ, MILLIJOULES, WATTS, find_unit
from analytics.importers.model import Tally
from analytics.importers.values import clean
from fallow.errors import UsageError
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
