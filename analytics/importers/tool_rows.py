"""Converts a tool's values, under the tool's own names, to the lake's columns by its mapping in `analytics/mapping/tools`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.processes import KINDS, LISTS, NO_PROCESS, command_names, one_process_lists
from analytics.importers.records import frame_of
from analytics.importers.times import split_times
from analytics.importers.values import clean, find_unit, units_of
from analytics.mapping.mapping_file import lake_column
from analytics.mapping.model import Exporter, MappedMetric

TIMESTAMP = "timestamp"
NO_TIME = "timestamp unreadable"
COUNT = "count"
"""nvidia-smi's field for the host's number of GPUs: a text of rows that is no column of the lake."""

TEXTS = ("uuid", "index", "pci_bus_id", "model", "driver_version")
"""Columns of rows that stay text: names or descriptions of a GPU."""

_NAMES_A_GPU = ("uuid", "index", "pci_bus_id")
_MASK = "throttle_reasons"
_HEALTH = (("lost", r"(?i)\[?gpu is lost"), ("reset_required", r"(?i)\[?gpu requires reset"))
_NUMBER = r"^([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)$"
_ABSENT = r"(?i)^(?:\[.*\]|n/a|err!|not supported|unknown error)$"


def texts_of(tool: Exporter) -> Mapping[str, tuple[str, ...]]:
    """Return the tool's names for the columns of TEXTS, best first."""
    known = {"uuid": tool.gpu, "index": tool.index, **dict(tool.device)}
    return {column: known.get(column, ()) for column in TEXTS}


def quantities_of(tool: Exporter) -> Mapping[str, list[MappedMetric]]:
    """Return the metrics of each column of `gpu` and `device`, best first."""
    found: dict[str, list[MappedMetric]] = {}
    for metric in tool.metrics:
        if metric.table != "process":
            found.setdefault(metric.column, []).append(metric)
    return found


def rows_of_cells(
    lines: pl.DataFrame, cells: pl.DataFrame, tool: Exporter, units: Mapping[str, str], tally: Tally
) -> pl.DataFrame:
    """Return rows from text cells: nr, block, local, sure_ms, health, nameless, TEXTS and columns of the lake.

    `local` is the host's time; `sure_ms` is the moment, where the cell states it.

    Args:
        lines: nr, block and the whole line of each row; `processes` where their lists are known.
        cells: texts by the tool's names, the time as TIMESTAMP; rows with an unreadable time are dropped.
        tool: its mapping.
        units: units that a header names; the mapping's where it names none.
        tally: counts dropped rows.
    """
    local, sure_ms = split_times(cells[TIMESTAMP])
    readable = local.is_not_null() | sure_ms.is_not_null()
    tally.drop(NO_TIME, int((~readable).sum()))
    lines, cells = lines.filter(readable), cells.filter(readable)
    local, sure_ms = local.filter(readable), sure_ms.filter(readable)
    texts = {
        column: next((name for name in names if name in cells.columns), None)
        for column, names in [*texts_of(tool).items(), (COUNT, (COUNT,))]
    }
    health = pl.coalesce(
        pl.when(pl.col("line").str.contains(pattern)).then(pl.lit(state)) for state, pattern in _HEALTH
    )
    columns: list[pl.Series] = []
    for column, name in texts.items():
        # a reader of the summary could not act on a missing name: not counted
        found = (
            pl.Series([None] * cells.height, dtype=pl.String)
            if name is None
            else absent_to_null(cells[name], "", Tally())
        )
        columns.append(found.alias(column))
    for column, metrics in quantities_of(tool).items():
        metric = next((each for each in metrics if each.metric in cells.columns), None)
        if metric is not None:
            values = cells[metric.metric]
            unit = units.get(metric.metric, "")
            columns.append(_mask(values, tally) if column == _MASK else _quantity(values, metric, unit, tally))
    columns += _one_process(cells, tool, units, tally)
    return lines.select(
        pl.col("nr", "block").cast(pl.UInt32),
        local=local,
        sure_ms=sure_ms,
        health=health.cast(pl.String),
        nameless=pl.lit(all(texts[column] is None for column in _NAMES_A_GPU)),
        **{PROCESSES: PROCESSES} if PROCESSES in lines.columns else {},
    ).with_columns(columns)


def rows_of_documents(samples: Iterator[Mapping[str, object]], tool: Exporter, tally: Tally) -> pl.DataFrame:
    """Return `rows_of_cells` for samples of documents: values by the best name of each column, TIMESTAMP and PROCESSES (dicts or None)."""
    names = [name for own in texts_of(tool).values() for name in own]
    names += [metrics[0].metric for metrics in quantities_of(tool).values()]
    cells = frame_of(samples, {**dict.fromkeys((TIMESTAMP, *names), pl.String()), PROCESSES: LISTS})
    texts = cells.drop(PROCESSES).fill_null("[N/A]")
    lines = cells.select(PROCESSES, block=1, line=texts.select(pl.concat_str(pl.all(), separator=", ")).to_series())
    return rows_of_cells(lines.with_row_index("nr", 1), texts, tool, {}, tally)


def cell(value: object) -> str | None:
    """Return a value of a document as the text of a cell; None where it holds no value."""
    if value is None or isinstance(value, dict | list | bool):
        return None
    return " ".join(str(value).split()) or None


def _quantity(values: pl.Series, metric: MappedMetric, header_unit: str, tally: Tally) -> pl.Series:
    """Return values such as `43 %`, `1024 MiB` or `75.2` in the lake's unit; other texts are null and counted."""
    column = lake_column(metric)
    name = f"process.{column.name}" if metric.table == "process" else column.name
    text = absent_to_null(values, name, tally)
    parts = text.str.extract_groups(_NUMBER).struct.unnest()
    number = parts.to_series(0).cast(pl.Float64, strict=False)
    unit = parts.to_series(1)
    unit = unit.set(unit == "", header_unit)
    units = units_of(column)
    known = {each: units[own] for each in unit.unique().drop_nulls() if (own := find_unit(each, units))}
    factor = unit.replace_strict({"": metric.factor, **known}, default=None, return_dtype=pl.Float64)
    tally.null(name, "not a number", int((text.is_not_null() & number.is_null()).sum()))
    tally.null(name, "unknown unit", int((number.is_not_null() & factor.is_null()).sum()))
    return clean(number * factor, column, tally)


def _one_process(cells: pl.DataFrame, tool: Exporter, units: Mapping[str, str], tally: Tally) -> Iterator[pl.Series]:
    """Yield the one process of each line, as a list; `-` means that there is none."""
    text = {
        column: cells[name].str.strip_chars()
        for column, names in tool.process
        for name in names
        if name in cells.columns
    }
    if "pid" not in text:
        return
    none = text["pid"] == NO_PROCESS
    pid = text["pid"].cast(pl.Int32, strict=False)
    known = {"pid": pid.set(pid <= 0, None)}
    for metric in tool.metrics:
        if metric.table == "process" and metric.metric in cells.columns and metric.column not in known:
            used = cells[metric.metric].set(none, None)
            known[metric.column] = _quantity(used, metric, units.get(metric.metric, ""), tally)
    if "command" in text:
        known["command"] = command_names(text["command"])
    if "kind" in text:
        known["kind"] = text["kind"].replace_strict(KINDS, default=None, return_dtype=pl.String)
    yield one_process_lists(pl.DataFrame(known), none=none)


def _mask(values: pl.Series, tally: Tally) -> pl.Series:
    """Return hexadecimal bit masks such as `0x0000000000000004`."""
    text = absent_to_null(values, _MASK, tally)
    number = text.str.extract(r"^0[xX]([0-9a-fA-F]{1,16})$", 1).str.to_integer(base=16, strict=False)
    tally.null(_MASK, "not a number", int((text.is_not_null() & number.is_null()).sum()))
    return number.cast(pl.Int64).alias(_MASK)


def absent_to_null(values: pl.Series, column: str, tally: Tally) -> pl.Series:
    """Return the values with `[N/A]`, `[Not Supported]`, `ERR!` and the like as null, counted by their text."""
    text = values.str.strip_chars()
    absent = (text.str.contains(_ABSENT) | (text == "")).fill_null(value=False)
    for reason, count in text.filter(absent).rename("text").value_counts().iter_rows():
        tally.null(column, reason or "empty", count)
    return text.set(absent, None)
