"""Converts values of a file to a column of the lake: unit, type, and null for impossible values, each counted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.frames import POLARS, shaped
from analytics.importers.model import Tally
from fallow.errors import InputError, UsageError
from fallow.schema import HEALTH_STATES, LakeColumn, LakeTable, Type

_TYPES = POLARS | {Type.TIMESTAMP: pl.Datetime("ms", "UTC")}
_LARGEST: dict[Type, float] = {
    Type.INT16: 2**15 - 1,
    Type.INT32: 2**31 - 1,
    Type.INT64: 2**63 - 1,
    Type.FLOAT: 3.4028234663852886e38,
    Type.DOUBLE: 1.7976931348623157e308,
}
_WORDS = {"health": HEALTH_STATES, "util_source": ("gpm", "samples", "rates", "none", "import", "scraped", "simulated")}
"""The only values that these text columns may hold (`fallow schema gpu`)."""


def polars_type(column: LakeColumn) -> pl.DataType:
    return _TYPES[column.type]


def polars_schema(table: LakeTable) -> dict[str, pl.DataType]:
    """Return column names and Polars types of a table, in file order."""
    return {column.name: polars_type(column) for column in table.columns}


def conform(frame: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
    """Return the frame with exactly the table's columns and types; missing columns are null."""
    return shaped(frame, polars_schema(table))


_ABSENT = (
    r"(?i)^(?:\[.*\]|n/?a|err!|none|null|-+|unknown|unknown error|not (?:supported|available|found)|no data|(?:gpu"
    r" )?requires reset)$"
)


def absent_to_null(values: pl.Series, column: str, tally: Tally) -> pl.Series:
    """Return the values with `[N/A]`, `[Not Supported]`, `ERR!` and the like as null, counted by their text."""
    text = values.str.strip_chars()
    absent = (text.str.contains(_ABSENT) | (text == "")).fill_null(value=False)
    for reason, count in text.filter(absent).rename("text").value_counts().iter_rows():
        tally.null(column, reason or "empty", count)
    return text.set(absent, None)


def clean(values: pl.Series, column: LakeColumn, tally: Tally) -> pl.Series:
    """Return the values in the column's type; NaN, text and impossible values become null and are counted.

    Percentages lie in 0..100, ratios in 0..1; only a temperature may be negative. Raises
    polars.exceptions.PolarsError where values of this kind hold no numbers at all.
    """
    if column.type is Type.STRING:
        return _clean_words(values, column, tally)
    if values.dtype == pl.String:
        text = values.str.strip_chars()
        values = with_decimal_points(absent_to_null(text.set(text == "", None), column.name, tally), column.name)
    numbers = values.cast(pl.Float64, strict=False)
    _count(tally, column, "not a number", values.is_not_null() & numbers.is_null())
    wrong = {"NaN": numbers.is_nan(), "infinite": numbers.is_infinite()}
    low, high = _bounds(column)
    finite = numbers.is_finite()
    if low == 0 and high in (1, 100):
        wrong[f"outside 0..{high:g}: value dropped"] = finite & ((numbers < low) | (numbers > high))
    else:
        wrong["negative: value dropped"] = finite & (numbers < low)
        wrong["too large: value dropped"] = finite & (numbers > high)
    if column.name.endswith("_bytes"):
        wrong["less than one byte: value dropped"] = finite & (numbers > 0) & (numbers < 1)
    good = numbers.is_not_null()
    for reason, where in wrong.items():
        _count(tally, column, reason, where)
        good &= ~where.fill_null(value=False)
    kind = polars_type(column)
    if kind.is_float():
        result = numbers.cast(kind)
    else:
        # whole numbers beyond 2^53 would lose digits on the way through a float
        exact = values.cast(pl.Int64, strict=False) if not values.dtype.is_float() else None
        rounded = numbers.zip_with(good, pl.Series([None], dtype=pl.Float64)).round(0).cast(pl.Int64, strict=False)
        result = rounded if exact is None else exact.zip_with(exact.is_not_null(), rounded)
    result = result.zip_with(good, pl.Series([None], dtype=result.dtype))
    return result.cast(kind, strict=False).alias(column.name)


def _clean_words(values: pl.Series, column: LakeColumn, tally: Tally) -> pl.Series:
    text = values.cast(pl.String).str.strip_chars()
    text = text.set(text == "", None)
    words = _WORDS.get(column.name)
    if words is not None:
        known = text.is_in(words)
        _count(tally, column, f"none of {', '.join(words)}", text.is_not_null() & ~known)
        text = text.set(~known.fill_null(value=True), None)
    return text.alias(column.name)


def _bounds(column: LakeColumn) -> tuple[float, float]:
    if column.name.endswith("_pct"):
        return 0, 100
    if column.name.endswith("_ratio"):
        return 0, 1
    largest = _LARGEST[column.type]
    return (-largest if column.name.endswith("_c") else 0), largest


def _count(tally: Tally, column: LakeColumn, reason: str, where: pl.Series) -> None:
    tally.null(column.name, reason, int(where.sum() or 0))


_GROUPED = r"^[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?(?:[^\d,.]|$)"
_POINTED = r"^[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:[^\d,.]|$)"


def with_decimal_points(values: pl.Series, name: str) -> pl.Series:
    """Return texts such as `88,10 W` and `1.234,5` with decimal points, `1,234,567` without separators of thousands.

    Raises InputError that names the column where a comma may be either: all of its numbers are like `9,000`.
    """
    comma = values.str.contains(r"^[+-]?[\d.]*\d,\d").fill_null(value=False)
    if not comma.any():
        return values
    grouped = values.str.contains(_GROUPED).fill_null(value=False)
    if (grouped == comma).all():
        if values.filter(grouped).str.contains(r"^[^,]*,\d{3}[,.]").any():
            return values.str.replace_all(",", "", literal=True)
        doubtful = values.filter(grouped)
    else:
        doubtful = values.filter(values.str.contains(_POINTED).fill_null(value=False))
    if len(doubtful):
        raise InputError(
            f"{name}: '{doubtful[0]}' may have a decimal {'comma' if ',' in doubtful[0] else 'point'} or a separator of"
            " thousands",
            "save the file with decimal points and without separators of thousands",
        )
    plain = values.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    return values.zip_with(~comma, plain)


BYTES: Mapping[str, float] = {
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
PERCENT: Mapping[str, float] = {"%": 1.0, "ratio": 100.0}
RATIO: Mapping[str, float] = {"ratio": 1.0, "%": 0.01}
WATTS: Mapping[str, float] = {"W": 1.0, "mW": 1e-3, "kW": 1e3}
MILLIJOULES: Mapping[str, float] = {"mJ": 1.0, "J": 1e3, "kJ": 1e6, "Wh": 3.6e6, "kWh": 3.6e9}
CELSIUS: Mapping[str, float] = {"C": 1.0}
MHZ: Mapping[str, float] = {"MHz": 1.0, "Hz": 1e-6, "kHz": 1e-3, "GHz": 1e3}
MILLISECONDS: Mapping[str, float] = {"ms": 1.0, "s": 1e3, "us": 1e-3, "ns": 1e-6}

_BY_SUFFIX: tuple[tuple[str, Mapping[str, float]], ...] = (
    ("_bytes", BYTES),
    ("_bytes_per_s", BYTES),
    ("_pct", PERCENT),
    ("_ratio", RATIO),
    ("_w", WATTS),
    ("_mj", MILLIJOULES),
    ("_c", CELSIUS),
    ("_mhz", MHZ),
    ("_ms", MILLISECONDS),
)
_WRITTEN = {
    written: unit
    for unit, names in {
        "B": ("bytes", "byte"),
        "%": ("percent", "percentage", "pct"),
        "ratio": ("fraction", "frac"),
        "W": ("watt", "watts"),
        "mW": ("milliwatt", "milliwatts"),
        "J": ("joule", "joules"),
        "C": ("celsius",),
        "s": ("seconds", "sec"),
        "ms": ("milliseconds",),
        "MB": ("mbytes",),
        "GB": ("gbytes",),
        "KB": ("kbytes",),
    }.items()
    for written in names
}
_ELSEWHERE = {"f": "Fahrenheit", "fahrenheit": "Fahrenheit", "k": "Kelvin", "kelvin": "Kelvin"}
_BRACKETS = re.compile(r"[\[(]\s*([^\])]*?)\s*[\])]\s*$")
_LETTERS = r"[A-Za-z%]"
_CELL = r"^([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)$"


@dataclass(frozen=True)
class ReadUnit:
    """The unit of one column of a file, and its source: declared, named (by the column) or assumed."""

    unit: str
    known_by: str
    factor: float

    @property
    def declared(self) -> bool:
        """Return whether a flag declared it for this import."""
        return self.known_by == "declared"


def units_of(column: LakeColumn) -> Mapping[str, float]:
    """Return the possible units of a column of the lake, its own first; empty where it has none."""
    return next((units for suffix, units in _BY_SUFFIX if column.name.endswith(suffix)), {})


def find_unit(text: str, units: Mapping[str, float]) -> str | None:
    """Return the unit in the text, however it is spelled; None where it is none of these."""
    plain = text.strip()
    if plain in units:
        return plain
    known = {name.casefold(): name for name in units}
    return known.get(_WRITTEN.get(plain.casefold(), plain).casefold())


def parse_units(texts: Sequence[str], columns: Sequence[LakeColumn]) -> dict[str, str]:
    """Return the --unit flags' declarations by column. Raises UsageError where a flag fits no imported column."""
    declared: dict[str, str] = {}
    by_name = {column.name: column for column in columns}
    for text in texts:
        name, equals, written = text.rpartition("=")
        if equals and name not in by_name:
            raise UsageError(f"--unit {text}: no --column fills {name}", f"the columns are {', '.join(by_name)}")
        meant = [by_name[name]] if equals else columns
        fits = {column.name: unit for column in meant if (unit := find_unit(written, units_of(column))) is not None}
        if not fits:
            known = dict.fromkeys(unit for column in meant for unit in units_of(column))
            raise UsageError(f"--unit {text}: no such unit", f"units are {', '.join(known) or 'none'} here")
        declared |= fits
    return declared


def unit_of(source: str, column: LakeColumn, declared: str | None) -> ReadUnit | None:
    """Return the unit of a file's column: declared, else in its name (`mem_mib`, `memory [MiB]`), else the lake's.

    None for a column without unit. Raises UsageError where the name has an unusable unit.
    """
    units = units_of(column)
    if not units:
        return None
    if declared is not None:
        return ReadUnit(declared, "declared", units[declared])
    brackets = _BRACKETS.search(source)
    written = brackets[1] if brackets else re.split(r"[_\s.\-]+", source.strip())[-1]
    unit = find_unit(written, units)
    if unit is not None:
        return ReadUnit(unit, "named", units[unit])
    foreign = _ELSEWHERE.get(written.casefold()) if units is CELSIUS else None
    if foreign is not None or (brackets and written):
        raise UsageError(
            f"the column '{source}' names the unit {foreign or written}, which {column.name} cannot be read from",
            f"declare --unit {column.name}=UNIT ({', '.join(units)}), or convert it first",
        )
    own = next(iter(units))
    return ReadUnit(own, "assumed", units[own])


def named_otherwise(source: str, column: LakeColumn, unit: ReadUnit) -> str | None:
    """Return the unit in the column's name where another one was declared."""
    if not unit.declared:
        return None
    try:
        named = unit_of(source, column, None)
    except UsageError:
        return None
    return None if named is None or named.known_by != "named" or named.unit == unit.unit else named.unit


def in_lake_unit(values: pl.Series, column: LakeColumn, unit: ReadUnit | None, tally: Tally) -> pl.Series:
    """Return the values times the unit's factor; a unit inside a cell (`512 MiB`) overrides the column's.

    Text that is no number stays as it is, for `clean` to count.
    """
    if unit is None:
        return values
    if values.dtype != pl.String:
        return values if unit.factor == 1 else (values.cast(pl.Float64) * unit.factor).alias(values.name)
    values = with_decimal_points(values.str.strip_chars(), column.name)
    if unit.factor == 1 and not values.str.contains(_LETTERS).any():
        return values
    text = values.str.strip_chars()
    number, written = cell_parts(text)
    if unit.factor == 1 and not (written != "").any():
        return values
    factor = cell_factors(written, column, unit.factor)
    scaled = number * factor
    unknown = written.is_not_null() & factor.is_null()
    tally.null(column.name, "unknown unit", int(unknown.sum()))
    unscaled = text.set(unknown, None)  # counted already
    return scaled.cast(pl.String).zip_with(scaled.is_not_null(), unscaled).alias(values.name)


def cell_parts(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the numbers of cells such as `512 MiB`, and their units, empty for a number alone; null for others."""
    parts = text.str.extract_groups(_CELL).struct.unnest()
    return parts.to_series(0).cast(pl.Float64, strict=False), parts.to_series(1)


def cell_factors(written: pl.Series, column: LakeColumn, factor: float) -> pl.Series:
    """Return the factors of the units to that of the column, `factor` for no unit; null for an unknown unit."""
    units = units_of(column)
    known = {each: units[name] for each in written.unique().drop_nulls() if (name := find_unit(each, units))}
    return written.replace_strict({"": factor, **known}, default=None, return_dtype=pl.Float64)
