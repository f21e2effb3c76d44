"""What `fallow import prometheus --check` shows: what a server has for fallow, how it is read, and what stays unsaid."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analytics.language.plain_text import PAGE_COLUMNS, count, fitted_lines, wrap
from analytics.scraped.mapping.recognition import FoundColumn, FoundExporter, Missing, Recognised
from fallow.outside_text import json_text, plain

_MOST_NAMES = 3


def check_text(found: Recognised, width: int = PAGE_COLUMNS) -> str:
    """A page for a terminal of that many columns."""
    return "\n".join(_lines(found, width))


def check_json(found: Recognised) -> str:
    """The same for machines; `covers_s` is null for a moment and text for what began with the scrape before."""
    content = {
        "gpus": found.gpus,
        "hosts": found.hosts,
        "exporters": [_exporter_content(each) for each in found.exporters],
        "missing": [
            {
                "what": each.absence.name,
                "columns": list(each.absence.sources),
                "gpus": each.gpus,
                "without": each.absence.without,
                "would_tell": list(each.would_tell),
            }
            for each in found.missing
        ],
        "not_understood": [{"metric": metric, "series": series} for metric, series in found.not_understood],
    }
    return json_text(content)


def _exporter_content(found: FoundExporter) -> dict[str, object]:
    columns = [
        {
            "column": each.column,
            "metrics": list(each.metrics),
            "unit": each.unit,
            "kind": each.kind,
            "covers_s": "since the scrape before" if each.covers_s == math.inf else each.covers_s,
            "series": each.series,
        }
        for each in found.columns
    ]
    return {
        "name": found.exporter.name,
        "title": found.exporter.title,
        "gpus": found.gpus,
        "hosts": found.hosts,
        "series": found.series,
        "columns": columns,
        "labels": dict(found.labels),
        "unused": list(found.unused),
        "readings": found.exporter.readings,
    }


def _lines(found: Recognised, width: int) -> Iterator[str]:
    if not found.gpus:
        yield "No series of a GPU were found."
    else:
        yield f"{count(found.gpus, 'GPU')} on {count(found.hosts, 'host')}."
    for each in sorted(found.exporters, key=lambda one: not one.exporter.of_gpus):
        yield ""
        yield from _exporter_lines(each, width)
    if found.missing and found.gpus:
        yield ""
        yield "What is missing, and what fallow cannot say without it"
        for missing in found.missing:
            yield from _missing_lines(missing, found.gpus, width)
    if found.not_understood:
        yield ""
        yield "Not understood: a mapping of your own (--mapping FILE) can say what they are"
        names = [[plain(metric), count(series, "series").removesuffix("s")] for metric, series in found.not_understood]
        yield from fitted_lines([["metric", ""], *names], width, [("metric", 30)], right=("",))[1:]


def _exporter_lines(found: FoundExporter, width: int) -> Iterator[str]:
    yield f"{found.exporter.title}: {_extent(found)}{found.series:,} series"
    if found.columns or found.labels:
        yield from _table_lines(found, width)
    if found.columns and found.exporter.readings:
        yield from wrap(found.exporter.readings, width, "  ", "  ")
    if found.unused:
        shown = ", ".join(found.unused[:_MOST_NAMES])
        more = len(found.unused) - _MOST_NAMES
        yield from wrap(f"Not used: {shown}{f' and {more} more' if more > 0 else ''}.", width, "  ", "  ")


def _extent(found: FoundExporter) -> str:
    if not found.hosts:
        return ""
    hosts = count(found.hosts, "host")
    return f"{count(found.gpus, 'GPU')} on {hosts}, " if found.exporter.of_gpus else f"{hosts}, "


def _table_lines(found: FoundExporter, width: int) -> list[str]:
    """A line for each column; on a narrow terminal without units and counts, so that the names stay whole."""
    rows = [["column", "is filled from", "a value is", "in", "series"]]
    order = list(dict.fromkeys(each.column for each in found.columns))
    before: set[str] = set()
    for each in sorted(found.columns, key=lambda column: order.index(column.column)):
        from_ = each.metrics[0] if len(each.metrics) == 1 else f"{len(each.metrics)} metrics together"
        name = "  else" if each.column in before else each.column
        rows.append([name, from_, _meaning(each), each.unit, f"{each.series:,}"])
        before.add(each.column)
    rows += [[column, f"label {label}", "", "", ""] for column, label in found.labels]
    shown = rows if width >= PAGE_COLUMNS else [row[:3] for row in rows]
    shrinking = [("is filled from", 44), ("a value is", 10), ("column", 16), ("is filled from", 24)]
    return fitted_lines(shown, width, shrinking, right=("series",))


def _meaning(column: FoundColumn) -> str:
    if column.kind == "average":
        return "mean, scrape" if column.covers_s in (None, math.inf) else f"mean, {column.covers_s:g} s"
    if column.kind == "reading":
        return "moment" if column.covers_s is None else f"{column.covers_s:.2g} s"
    return {"counter": "counter", "info": "fact", "count": "count"}[column.kind]


def _missing_lines(missing: Missing, gpus: int, width: int) -> Iterator[str]:
    of = f" (of {count(missing.gpus, 'GPU')})" if 0 < missing.gpus < gpus else ""
    text = f"{missing.absence.name}{of}: {missing.absence.without}."
    if missing.would_tell:
        text += f" {' or '.join(missing.would_tell[:_MOST_NAMES])} would tell."
    yield from wrap(text, width, "  ", "    ")
