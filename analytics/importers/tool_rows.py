"""Converts a tool's values, under its own names, to the lake's columns by its mapping in `analytics/mapping/tools`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.processes import KINDS, LISTS, NO_PROCESS, command_names, one_process_lists
from analytics.importers.records import frame_of
from analytics.importers.times import split_times
from analytics.importers.values import absent_to_null, cell_factors, cell_parts, clean, with_decimal_points
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
_HEALTH = (("lost", r"(?i)\[?gpu is lost"), ("reset_required", r"(?i)(?:^|, |\[)(?:gpu )?requires reset"))


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

    `local` is the host's time; `sure_ms` is the moment, where the cell states it; rows with an unreadable time are
    dropped. `lines` has nr, block and the whole line of each row, and `processes` where their lists are known; `cells`
    has the texts by the tool's names, and TIMESTAMP; `units` are those that a header names.
    """
    local, sure_ms = split_times(cells[TIMESTAMP])
    readable = local.is_not_null() | sure_ms.is_not_null()
    tally.drop(NO_TIME, int((~readable).sum()))
    lines, cells = lines.filter(readable), cells.filter(readable)
    local, sure_ms = local.filter(readable), sure_ms.filter(readable)
    texts = {
        column: [cells[name] for name in names if name in cells.columns]
        for column, names in [*texts_of(tool).items(), (COUNT, (COUNT,))]
    }
    health = pl.coalesce(
        pl.when(pl.col("line").str.contains(pattern)).then(pl.lit(state)) for state, pattern in _HEALTH
    )
    columns: list[pl.Series] = []
    for column, named in texts.items():
        # a reader of the summary could not act on a missing name: not counted
        known = [absent_to_null(each, "", Tally()) for each in named]
        columns.append(_first_known(known or [pl.Series([None] * cells.height, dtype=pl.String)]).alias(column))
    here = ([each for each in metrics if each.metric in cells.columns] for metrics in quantities_of(tool).values())
    columns += [_first_value(cells, metrics, units, tally) for metrics in here if metrics]
    columns += _one_process(cells, tool, units, tally)
    return lines.select(
        pl.col("nr", "block").cast(pl.UInt32),
        local=local,
        sure_ms=sure_ms,
        health=health.cast(pl.String),
        nameless=pl.lit(not any(texts[column] for column in _NAMES_A_GPU)),
        **{PROCESSES: PROCESSES} if PROCESSES in lines.columns else {},
    ).with_columns(columns)


def rows_of_documents(samples: Iterator[Mapping[str, object]], tool: Exporter, tally: Tally) -> pl.DataFrame:
    """Return `rows_of_cells` for documents: values by the tool's names, TIMESTAMP and PROCESSES (dicts or None)."""
    names = [name for own in texts_of(tool).values() for name in own]
    names += [each.metric for metrics in quantities_of(tool).values() for each in metrics]
    cells = frame_of(samples, {**dict.fromkeys((TIMESTAMP, *names), pl.String()), PROCESSES: LISTS})
    texts = cells.drop(PROCESSES)
    whole = texts.select(pl.concat_str(pl.all().fill_null("[N/A]"), separator=", ")).to_series()
    lines = cells.select(PROCESSES, block=1, line=whole)
    return rows_of_cells(lines.with_row_index("nr", 1), texts, tool, {}, tally)


def cell(value: object) -> str | None:
    """Return a value of a document as the text of a cell; None where it holds no value."""
    if value is None or isinstance(value, dict | list | bool):
        return None
    return " ".join(str(value).split()) or None


def _first_known(places: Sequence[pl.Series]) -> pl.Series:
    """Return the first value of each row that is not null."""
    return pl.select(pl.coalesce(pl.lit(place) for place in places)).to_series().alias(places[0].name)


def _first_value(
    cells: pl.DataFrame, metrics: Sequence[MappedMetric], units: Mapping[str, str], tally: Tally
) -> pl.Series:
    """Return the column that the metrics fill: per row the first that has a value. Rows without any are counted."""

    def read(values: pl.Series, metric: MappedMetric, counts: Tally) -> pl.Series:
        if metric.column == _MASK:
            return _mask(values, counts)
        return _quantity(values, metric, units.get(metric.metric, ""), counts)

    places = [cells[metric.metric] for metric in metrics]
    shown = _first_known(places)
    if metrics[0].table != "process":  # a line without a process lacks no value
        shown = shown.fill_null("[N/A]")
    if len(places) == 1:
        return read(shown, metrics[0], tally)
    found = _first_known([read(*each, Tally()) for each in zip(places, metrics, strict=True)])
    read(shown.set(found.is_not_null(), None), metrics[0], tally)
    return found.alias(metrics[0].column)


def _quantity(values: pl.Series, metric: MappedMetric, header_unit: str, tally: Tally) -> pl.Series:
    """Return values such as `43 %`, `1024 MiB` or `75.2` in the lake's unit; other texts are null and counted."""
    column = lake_column(metric)
    name = f"process.{column.name}" if metric.table == "process" else column.name
    text = with_decimal_points(absent_to_null(values, name, tally), name)
    number, unit = cell_parts(text)
    factor = cell_factors(unit.set(unit == "", header_unit), column, metric.factor)
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
    of_processes = [each for each in tool.metrics if each.table == "process" and each.metric in cells.columns]
    used = cells.select(pl.when(~none).then(pl.col({each.metric for each in of_processes})))
    for column in dict.fromkeys(each.column for each in of_processes):
        known[column] = _first_value(used, [each for each in of_processes if each.column == column], units, tally)
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
