"""Impossible and contradicting values, from the `quality` table: none of them was used as a number."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from analytics.contradictions.sentences import SENTENCES as CONTRADICTIONS
from analytics.contradictions.sentences import contradiction_sentence
from analytics.language.sentences import tr
from analytics.quality.model import Data, Remark, gpus_of, rows_of

SENTENCES = {
    "util_out_of_range": "a percentage or ratio outside its range: it counts as unknown",
    "negative_value": "a negative memory, power or energy: it counts as unknown",
    "not_a_number": "a value that is no number (NaN or infinite): it counts as unknown",
    "no_interval": "no interval, an interval of 0 or less, or of more than a day: they cover no time",
    "wrong_day": "a time far from the day of their file: they are left out",
    "too_large": "a value that no card can have: it counts as unknown",
    "duplicate_rows": (
        "the same moment as another row of their GPU: one of them counts, whatever the order of the files"
    ),
    "counter_fell": (
        "a counter that went back without an observed restart: the fall counts as neither energy nor throttled time"
    ),
}
"""The fault in the rows of a kind, and how fallow treats it. Overlapping rows belong to clocks and hosts."""


def impossible(data: Data) -> Iterator[Remark]:
    """Report one remark per kind of impossible value, with the GPU that has most of them."""
    by_gpu = (
        data.values.filter(pl.col("kind").is_in(list(SENTENCES)))
        .sort("count", "gpu", descending=[True, False])
        .group_by("kind", "host", "gpu", maintain_order=True)
        .agg(pl.col("count").sum(), pl.col("example").first())
        .sort("kind", "count", "gpu", descending=[False, True, False])
    )
    for (kind,), rows in by_gpu.group_by("kind", maintain_order=True):
        worst = rows.row(0, named=True)
        total = int(rows["count"].sum())
        where = worst["gpu"] or worst["host"]
        example = f"{where}: {worst['example']}" if worst["example"] else where
        sentence = tr(
            "{rows} of {gpus} with {what} (such as {example})",
            rows=rows_of(total),
            gpus=gpus_of(rows["gpu"].n_unique()),
            what=tr(SENTENCES[str(kind)]),
            example=example,
        )
        yield Remark(str(kind), sentence, total, example)


def contradicting(data: Data) -> Iterator[Remark]:
    """Report one remark per kind of contradiction and source, with its time; kinds that cost observed time first."""
    found = data.values.filter(pl.col("kind").is_in(list(CONTRADICTIONS)))
    by_gpu = found.group_by("kind", "source", "gpu").agg(
        pl.col("affected_ms", "count").sum(), pl.col("example").sort_by("affected_ms").last()
    )
    remarks = []
    for (kind, source), rows in by_gpu.partition_by("kind", "source", as_dict=True).items():
        worst = rows.sort("affected_ms", "gpu", descending=[True, False]).row(0, named=True)
        span_ms, example = int(rows["affected_ms"].sum()), f"{worst['gpu']}: {worst['example']}"
        sentence = contradiction_sentence(kind, source, len(rows), span_ms, example)
        order = (list(CONTRADICTIONS).index(kind), -span_ms, source)
        remarks.append((order, Remark(kind, sentence, int(rows["count"].sum()), example)))
    yield from (remark for _, remark in sorted(remarks, key=lambda each: each[0]))
