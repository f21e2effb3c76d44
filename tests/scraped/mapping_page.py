"""docs/mappings.md, and the summary of it in docs/prometheus.md, from the mapping files."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from analytics.mapping.mapping_file import built_in

if TYPE_CHECKING:
    from analytics.mapping.model import Exporter, MappedMetric

BEGIN = "<!-- mappings: written by `make docs` -->"
END = "<!-- mappings end -->"

_NO_LABELS = "-"


def mappings_page() -> str:
    """All of docs/mappings.md."""
    head = [
        "# How series of each exporter are read",
        "",
        "<!-- written by `make docs` from analytics/mapping/exporters -->",
        "",
        "What a metric fills is a column of the lake ([schema.md](schema.md)); `given` stands for who holds the GPU. Where several metrics fill one",
        "column, the first that has a value counts. A value describes a *moment*, a time that is *surely* covered, a *mean* of a time (the exporter's",
        "interval), or the time *since the scrape* before; a *counter* climbs, and what it climbs by between two scrapes is the value where the column",
        "is a rate or a share. Labels in braces have to match (regular expressions of the whole value). Metrics without a column are read for their",
        "labels or as parts of a sum. How a site says what its own series are: [prometheus.md](prometheus.md#mappings).",
    ]
    return "\n".join([*head, *[line for each in built_in() for line in _section(each)], ""])


def with_summary(page: str) -> str:
    """docs/prometheus.md with the table of exporters as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = ["| exporter | a GPU is | its holder is | a value of utilization |", "|---|---|---|---|"]
    lines += [
        f"| [{each.title}](mappings.md#{_anchor(each)}) | {_gpu(each)} | {_holder(each)} | {each.readings} |"
        for each in built_in()
        if each.of_gpus
    ]
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])


def _anchor(exporter: Exporter) -> str:
    return "".join(char for char in exporter.title.lower().replace(" ", "-") if char.isalnum() or char in "-_")


def _gpu(exporter: Exporter) -> str:
    return _labels((*exporter.mig_uuid, *exporter.gpu)) + (
        f", {_labels(exporter.mig_instance)}" if exporter.mig_instance else ""
    )


def _holder(exporter: Exporter) -> str:
    words = [f"{word.replace('_', ' ')} {_labels(names[:1])}" for word, names in exporter.holder]
    return ", ".join(words) or _NO_LABELS


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or _NO_LABELS


def _section(exporter: Exporter) -> list[str]:
    lines = ["", f"## {exporter.title}", "", f"{exporter.readings} Looked up in {_source(exporter)}.", ""]
    told = [("GPU", exporter.gpu), ("position", exporter.index), ("host", exporter.host)]
    told += [("MIG instance", (*exporter.mig_uuid, *exporter.mig_instance))]
    told += [(word.replace("_", " "), names) for word, names in exporter.holder]
    told += [(f"device.{column}", names) for column, names in exporter.device]
    lines += [f"- {word}: {_labels(names)}" for word, names in told if names]
    lines += ["", "| metric | unit | fills | a value is |", "|---|---|---|---|"]
    lines += [_metric(mapped) for mapped in exporter.metrics]
    for combined in exporter.combined:
        sum_of = " + ".join(f"`{name}`" for name in combined.add)
        less = "".join(f" - `{name}`" for name in combined.subtract)
        lines.append(
            f"| {sum_of}{less} | | {combined.table}.{combined.column} | what they amount to, where no metric says it |"
        )
    return lines


def _source(exporter: Exporter) -> str:
    url = exporter.source_url
    return f"<{url}>" if "://" in url else f"[{url.removeprefix('docs/')}]({url.removeprefix('docs/')})"


def _metric(mapped: MappedMetric) -> str:
    only = ", ".join(f'{label}="{pattern}"' for label, pattern in mapped.only)
    name = f"`{mapped.metric}{{{only}}}`" if only else f"`{mapped.metric}`"
    column = f"{mapped.table}.{mapped.column}" if mapped.table else ""
    return f"| {name.replace('|', '&#124;')} | {mapped.unit} | {column} | {_meaning(mapped) if column else ''} |"


def _meaning(mapped: MappedMetric) -> str:
    per = f", summed over {_labels(mapped.sum_over)}" if mapped.sum_over else ""
    if mapped.kind == "count":
        return f"how many values {_labels((mapped.per,))} has"
    if mapped.kind == "average":
        return (
            "mean since the scrape before" if mapped.covers_s == math.inf else f"mean of {mapped.covers_s:g} s"
        ) + per
    if mapped.kind == "reading":
        return ("moment" if mapped.covers_s is None else f"surely {mapped.covers_s:.2g} s") + per
    of_each = f", divided by the values of {_labels((mapped.per,))}" if mapped.per else ""
    return {"counter": "counter", "info": "fact"}[mapped.kind] + per + of_each
