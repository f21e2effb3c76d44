"""The words in which tables are described: column types, columns and tables, all of them plain data."""

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
"""By how a column's name ends, the longest ending first."""


@dataclass(frozen=True)
class LakeColumn:
    """One column: its name, type, what it means, where it comes from, the step that it is stored in, and its unit."""

    name: str
    type: Type
    meaning: str
    source: str
    resolution: str = ""
    unit: str = ""
    """What the name ends with or the type says, where they do; `1` counts."""
    key: bool = False  # part of what tells two rows apart; null only where its meaning says so

    def __post_init__(self) -> None:
        named = (
            "UTC"
            if self.type is Type.TIMESTAMP
            else next((_UNITS[each] for each in _UNITS if self.name.endswith(each)), "")
        )
        object.__setattr__(self, "unit", named or self.unit)


@dataclass(frozen=True)
class LakeTable:
    """One table of the lake: what a row is, who writes it and its columns in file order."""

    name: str
    row: str
    derived: bool
    columns: tuple[LakeColumn, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that tell two rows apart."""
        return tuple(column.name for column in self.columns if column.key)

    def column(self, name: str) -> LakeColumn:
        """The column of that name; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
