"""How much the choice of a threshold does to an idle headline: the same time, counted in longer and longer intervals."""

from __future__ import annotations

from analytics.glossary import STATES, term
from analytics.language.quantities import GpuHours, Minutes, Number, Share
from analytics.language.sentences import tr
from analytics.ledger.summary import SPELLS, ratio
from analytics.report.model import Report
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Bar, Column, RankedBars, Table
from fallow.clock import HOUR_MS, MINUTE_MS

_HELD = tr("held without a kernel, GPU-hours")
_ZERO = tr("measured at 0 %, whoever holds the GPU, of the observed time")


def idle(report: Report) -> Table:
    """Time held without a kernel, and time at 0 % whoever holds the GPU, by the shortest interval that counts."""
    held, zero = _held(report), _zero(report)
    observed_ms = report.summary.totals.observed_ms
    whole_ms = held[0][1]
    return Table(
        name="idle",
        title=tr("What counts as idle?"),
        question=tr("How much of the idle time comes in intervals that are long enough to use?"),
        headline=_headline(report),
        columns=(
            Column("measure", tr("idle as"), "words"),
            Column("at_least", tr("in intervals of"), "words"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("share", tr("of observed"), "share"),
        ),
        rows=tuple(
            (tr(name), label, GpuHours(spent_ms), Share(ratio(spent_ms, observed_ms)))
            for name, rows in (("held", held), ("at 0 %", zero))
            for label, spent_ms in rows
        ),
        chart=RankedBars(
            (
                (_HELD, "held", tuple(Bar(label, ratio(ms, whole_ms), GpuHours(ms)) for label, ms in held)),
                (_ZERO, "free", tuple(Bar(label, share, Share(share)) for label, ms in zero for share in [ratio(ms, observed_ms)])),
            )
        ),
        notes=(tr("A threshold is a choice: it can move an idle headline several times over."), *sampled_note([report.summary.totals])),
        terms=(STATES["held"], term("idle interval")),
    )  # fmt: skip


def _headline(report: Report) -> str:
    held, idle, observed_ms = report.review.sensitivity, report.summary.idle, report.summary.totals.observed_ms
    if not report.summary.totals.state_ms["held"]:
        shares = (Share(ratio(idle.spell_ms[name], observed_ms)) for name in ("30m", "120m"))
        return tr(
            "No GPU was held without a kernel. At 0 %, whoever holds the GPU: {half} of the observed time in intervals of 30 min and more, {two} in intervals of 120 min and more.",
            **dict(zip(("half", "two"), shares, strict=True)),
        )  # fmt: skip
    return tr(
        "Held without a kernel: {half} GPU-hours in intervals of 30 min and more, {two} in intervals of 120 min and more.",
        half=Number(held[30], 1), two=Number(held[120], 1),
    )  # fmt: skip


def _held(report: Report) -> list[tuple[str, float]]:
    whole_ms: float = report.summary.totals.state_ms["held"]
    found = report.review.sensitivity.items()
    return [(tr("in all"), whole_ms), *((_at_least(minutes * MINUTE_MS), hours * HOUR_MS) for minutes, hours in found)]


def _zero(report: Report) -> list[tuple[str, float]]:
    spent = report.summary.idle
    return [(tr("in all"), spent.zero_ms), *((_at_least(SPELLS[name]), ms) for name, ms in spent.spell_ms.items())]


def _at_least(span_ms: int) -> str:
    return tr("≥ {span}", span=Minutes(span_ms))
