"""A day's rows without contradictory values: refuted rows show nothing, other faulty values are unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analytics.contradictions.verdicts import COLUMNS, Contradictions, GpuReadings, contradictions
from analytics.ledger.columns import NONE, Strings
from analytics.ledger.day_rows import REFUTED, DayRows, Defect, usable_weights


def credible_rows(rows: DayRows) -> DayRows:
    """Return the rows without values that contradict each other, and a defect per GPU and kind of contradiction."""
    found = contradictions(_readings(rows))
    if not found.unknown:
        return rows
    floats = {
        name: np.where(found.unknown[name], np.nan, values)
        if name in found.unknown and values is not rows.nothing
        else values
        for name, values in rows.floats.items()
    }
    refuted = found.refuted
    uncounted = found.unknown.get("energy_mj", np.zeros(len(rows), bool))
    # the first rise after a counter stood still is that of the whole time
    uncounted = uncounted | np.append(False, uncounted[:-1] & (rows.gpu[1:] == rows.gpu[:-1]))
    usable = rows.usable & ~refuted
    names = (*rows.health.names, REFUTED)
    health = Strings(np.where(refuted, np.int32(len(names) - 1), rows.health.codes), names)
    return replace(
        rows,
        floats=floats,
        rates=rows.rates | {"energy_mj": np.where(uncounted, np.nan, rows.rates["energy_mj"])},
        risen_mj=np.where(uncounted, np.nan, rows.risen_mj),
        counted=rows.counted & ~uncounted,
        health=health,
        process_count=np.where(refuted, NONE, rows.process_count),
        usable=usable,
        weight=usable_weights(rows.gpu, rows.start, rows.interval, usable, health) if refuted.any() else rows.weight,
        defects=(*rows.defects, *_defects(rows, found)),
    )


def _readings(rows: DayRows) -> GpuReadings:
    known = {name: rows.floats[name] for name in COLUMNS if rows.floats[name] is not rows.nothing}
    counted = rows.counter_mj is not rows.nothing
    return GpuReadings(
        gpu=rows.gpu,
        hosts=[host for host, _ in rows.names],
        source=rows.source.codes,
        start=rows.start,
        interval=rows.interval,
        span=rows.span,
        columns=known,
        counter_mj=rows.counter_mj if counted else None,
        drawn_w=rows.rates["energy_mj"] if counted else None,
        process_count=rows.process_count,
        out_of_order=rows.out_of_order,
        throttled=[rises for name, rises in rows.rates.items() if name != "energy_mj" and rises is not rows.nothing],
    )


def _defects(rows: DayRows, found: Contradictions) -> Iterator[Defect]:
    for each in found.found():
        at = each.rows
        source = rows.source.take(at[:1]).known()[0]
        host, gpu = rows.names[rows.gpu[at[0]]]
        yield Defect(host, gpu, each.kind, len(at), each.example, source, int(rows.span[at].sum()))
