"""Spooled rows as an Arrow table of arro3: by column, sorted, and with null for what does not fit."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from arro3.core import Array, DataType, Field, Schema, list_array
from arro3.core import Table as ArrowTable

from fallow.errors import LakeError
from fallow.parquet_writer import LIST_ITEM
from fallow.schema import LakeColumn, LakeTable, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_PLAIN = {
    Type.INT16: DataType.int16(),
    Type.INT32: DataType.int32(),
    Type.INT64: DataType.int64(),
    Type.FLOAT: DataType.float32(),
    Type.DOUBLE: DataType.float64(),
    Type.BOOL: DataType.bool(),
    Type.STRING: DataType.string(),
}
_ITEMS = {
    Type.INT_LIST: DataType.int32(),
    Type.DOUBLE_LIST: DataType.float64(),
    Type.STRING_LIST: DataType.string(),
}
_TIMESTAMP = DataType.timestamp("ms", tz="UTC")
_WHOLE = (Type.TIMESTAMP, Type.INT16, Type.INT32, Type.INT64)
_UNFIT = (TypeError, ValueError, OverflowError)  # a text that is no UTF-8 is a ValueError


def arrow_rows(table: LakeTable, rows: Iterable[Mapping[str, object]]) -> tuple[ArrowTable, Counter[str]]:
    """The rows in the table's columns and types, sorted by its (gpu, time), and how many values per column had to become null.

    A key that a row lacks is null; LakeError for one that the table lacks. Timestamps are epoch milliseconds.
    """
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    for row in rows:
        if unknown := row.keys() - columns.keys():
            raise LakeError(f"the table '{table.name}' has no column {', '.join(sorted(unknown))}")
        for name, values in columns.items():
            values.append(row.get(name))
    order = _order(columns)
    misfits: Counter[str] = Counter()
    arrays = []
    for column in table.columns:
        values = columns.pop(column.name)
        arrays.append(_array([values[at] for at in order], column, misfits))
    return ArrowTable.from_arrays(arrays, schema=arrow_schema(table)), misfits


def arrow_schema(table: LakeTable) -> Schema:
    """The Arrow schema of a table."""
    return Schema([Field(column.name, arrow_type(column), nullable=True) for column in table.columns])


def _order(columns: Mapping[str, Sequence[Any]]) -> list[int]:
    """The rows' places by GPU and time, those without a GPU last; rows of one moment stay in their order."""
    times = columns["time"]
    if (gpus := columns.get("gpu")) is None:
        return sorted(range(len(times)), key=times.__getitem__)
    return sorted(range(len(times)), key=lambda at: (gpus[at] is None, gpus[at] or "", times[at]))


def arrow_type(column: LakeColumn) -> DataType:
    if column.type is Type.TIMESTAMP:
        return _TIMESTAMP
    if (item := _ITEMS.get(column.type)) is not None:
        return DataType.list(Field(LIST_ITEM, item, nullable=True))
    return _PLAIN[column.type]


def _array(values: Sequence[Any], column: LakeColumn, misfits: Counter[str]) -> Array:
    """The values in the column's type; one that does not fit becomes null, so that it never keeps the others back."""
    try:
        return _exact(values, column)
    except _UNFIT:
        fitting = [_fitting(value, column) for value in values]
        if lost := fitting.count(None) - values.count(None):
            misfits[column.name] += lost
        return _exact(fitting, column)


def _fitting(value: Any, column: LakeColumn) -> Any:
    if column.type in _WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        _exact([value], column)
    except _UNFIT:
        return None
    return value


def _exact(values: Sequence[Any], column: LakeColumn) -> Array:
    if column.type is Type.TIMESTAMP:
        return Array(values, type=_PLAIN[Type.INT64]).cast(_TIMESTAMP)
    if (item := _ITEMS.get(column.type)) is None:
        return Array(values, type=_PLAIN[column.type])
    if any(isinstance(value, str) for value in values):  # its characters would pass for a list
        raise TypeError
    offsets = accumulate((0 if value is None else len(value) for value in values), initial=0)
    flat = [each for value in values if value is not None for each in value]
    return list_array(
        Array(list(offsets), type=_PLAIN[Type.INT32]),
        Array(flat, type=item),
        type=arrow_type(column),
        mask=Array([value is None for value in values], type=_PLAIN[Type.BOOL]),
    )
