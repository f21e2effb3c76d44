"""How much the choice of a threshold does to an idle headline: the same time, counted in longer and longer intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analytics.glossary import STATES, term
from analytics.language.quantities import Minutes, Number, Share
from analytics.language.sentences import tr
from analytics.ledger.summary import SPELLS, ratio
from analytics.report.parts import LedgerFigures
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPU_HOURS
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Table, column, drawn
from fallow.clock import HOUR_MS, SECOND_MS


class CountedIdleTime(NamedTuple):
    """Idle GPU time in intervals of `at_least_s` and more (None: in all intervals), by one of two measures."""

    measure: str
    at_least_s: int | None
    gpu_ms: float


_HELD = tr("held without a kernel, GPU-hours")
_ZERO = tr("measured at 0 %, whoever holds the GPU, of the observed time")


def idle(ledger: LedgerFigures) -> Table:
    """Time held without a kernel, and time at 0 % whoever holds the GPU, by the shortest interval that counts."""
    totals, zero = ledger.summary.totals, ledger.summary.idle
    held_times = {None: totals.state_ms["held"]} | {
        60 * minutes: hours * HOUR_MS for minutes, hours in ledger.sensitivity.items()
    }
    zero_times = {None: zero.zero_ms} | {SPELLS[name] // SECOND_MS: spent for name, spent in zero.spell_ms.items()}
    held_rows = tuple(CountedIdleTime(tr("held"), *each) for each in held_times.items())
    zero_rows = tuple(CountedIdleTime(tr("at 0 %"), *each) for each in zero_times.items())

    def share(row: CountedIdleTime) -> float | None:
        return ratio(row.gpu_ms, totals.observed_ms)

    hours_column = GPU_HOURS
    share_column = column("share", tr("of observed"), "share", share)
    held_panel = _panel(_HELD, "held", hours_column, held_rows)
    zero_panel = _panel(_ZERO, "free", share_column, zero_rows, ceiling=1.0)
    return Table(
        name="idle",
        title=tr("What counts as idle?"),
        question=tr("How much of the idle time comes in intervals that are long enough to use?"),
        headline=_headline(ledger),
        columns=(
            column("measure", tr("idle as"), "words"),
            column("at_least_s", tr("in intervals of"), "words", _at_least, "at_least_s", json_type="integer"),
            hours_column,
            share_column,
        ),
        rows=held_rows + zero_rows,
        chart=Chart((held_panel, zero_panel)),
        notes=(
            tr("A threshold is a choice: it can move an idle headline several times over."),
            *sampled_note([totals]),
        ),
        terms=(STATES["held"], term("idle interval")),
    )


def _panel(title: str, state: str, figure: Column, rows: Sequence[CountedIdleTime], ceiling: float = 0.0) -> Panel:
    """A bar for each row, with its figure."""
    bars = Bars("", state, **drawn(figure, rows))
    places = tuple(ChartPlace(_at_least(row), figure=cell) for row, cell in zip(rows, bars.shown, strict=True))
    return Panel(title, (bars,), places, lying=True, ceiling=ceiling)


def _headline(ledger: LedgerFigures) -> str:
    totals, idle = ledger.summary.totals, ledger.summary.idle
    held, observed_ms = ledger.sensitivity, totals.observed_ms
    if not totals.state_ms["held"]:
        shares = (Share(ratio(idle.spell_ms[name], observed_ms)) for name in ("30m", "120m"))
        return tr(
            "No GPU was held without a kernel. At 0 %, whoever holds the GPU: {half} of the observed time in intervals of 30 min and more, {two} in intervals of 120 min and more.",
            **dict(zip(("half", "two"), shares, strict=True)),
        )
    return tr(
        "Held without a kernel: {half} GPU-hours in intervals of 30 min and more, {two} in intervals of 120 min and more.",
        half=Number(held[30], 1),
        two=Number(held[120], 1),
    )


def _at_least(row: CountedIdleTime) -> str:
    return tr("in all") if row.at_least_s is None else tr("≥ {span}", span=Minutes(row.at_least_s * SECOND_MS))
