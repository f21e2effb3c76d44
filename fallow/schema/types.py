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


@dataclass(frozen=True)
class LakeColumn:
    """One column: its name, type, unit, the step that it is stored in, what it means and where it comes from."""

    name: str
    type: Type
    meaning: str
    source: str
    unit: str = ""
    resolution: str = ""
    key: bool = False  # part of what tells two rows apart; null only where its meaning says so
    dictionary: bool = False  # few distinct values: stored as a dictionary


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
