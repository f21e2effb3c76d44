"""Column types, columns and tables of the lake, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Type(Enum):
    """Column types of the lake; `fallow.parquet` maps them to Arrow."""

    TIMESTAMP = "timestamp[ms, UTC]"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT = "float"
    DOUBLE = "double"
    BOOL = "bool"
    STRING = "string"
    INT_LIST = "list<int32>"
    DOUBLE_LIST = "list<double>"
    STRING_LIST = "list<string>"


_UNITS = {
    "_bytes_per_s": "bytes/s",
    "_bytes": "bytes",
    "_per_s": "1/s",
    "_w": "W",
    "_mj": "mJ",
    "_kwh": "kWh",
    "_c": "degC",
    "_mhz": "MHz",
    "_ms": "ms",
    "_s": "s",
    "_hours": "h",
    "_pct": "%",
    "_ratio": "1",
}
"""Units by the end of a column's name, the longest ending first."""


@dataclass(frozen=True)
class LakeColumn:
    """A column: its name, type, meaning, source, resolution and unit."""

    name: str
    type: Type
    meaning: str
    source: str
    resolution: str = ""
    unit: str = ""
    """From the end of the name or from the type, if they define it; `1` is a count."""
    key: bool = False  # part of the key; null only if the meaning says so
    counter: bool = False
    """Whether it only rises within an epoch; stored as differences."""

    def __post_init__(self) -> None:
        named = (
            "UTC"
            if self.type is Type.TIMESTAMP
            else next((_UNITS[each] for each in _UNITS if self.name.endswith(each)), "")
        )
        object.__setattr__(self, "unit", named or self.unit)


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake: the meaning of a row, whether it is derived, and its columns in file order."""

    name: str
    row: str
    derived: bool
    columns: tuple[LakeColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.key)

    def column(self, name: str) -> LakeColumn:
        """Return the column with this name; raises KeyError for an unknown column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
