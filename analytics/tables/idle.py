"""Effect of the threshold on the idle figure: the same idle time, counted in longer and longer intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analytics.glossary import STATES, state_label, term
from analytics.language.sentences import Minutes, Number, Share, tr
from analytics.ledger.summary import IDLE_INTERVALS, ratio
from analytics.report.parts import LedgerFigures
from analytics.tables.basis import marked
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPU_HOURS
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Table, column, drawn
from fallow.clock import HOUR_MS, SECOND_MS


class CountedIdleTime(NamedTuple):
    """Idle GPU time in intervals of at least `at_least_s` seconds (None: all intervals), by one of two definitions."""

    measure: str
    at_least_s: int | None
    gpu_ms: float


def idle(ledger: LedgerFigures) -> Table:
    """Return held idle time, and time at 0 % with or without a user, by the shortest interval that counts."""
    totals, zero = ledger.summary.totals, ledger.summary.idle
    held_times = {None: totals.state_ms["held"]} | {
        60 * minutes: hours * HOUR_MS for minutes, hours in ledger.sensitivity.items()
    }
    zero_times = {None: zero.zero_ms} | {
        IDLE_INTERVALS[name] // SECOND_MS: spent for name, spent in zero.idle_interval_ms.items()
    }
    held_rows = tuple(CountedIdleTime(state_label("held"), *each) for each in held_times.items())
    zero_rows = tuple(CountedIdleTime(tr("at 0 % utilization"), *each) for each in zero_times.items())

    def share(row: CountedIdleTime) -> float | None:
        return ratio(row.gpu_ms, totals.observed_ms)

    def unconfirmed(row: CountedIdleTime) -> float:
        return totals.unconfirmed("held") if row in held_rows else 0.0

    hours_column = marked(GPU_HOURS, unconfirmed)
    share_column = marked(column("share", tr("share of observed"), "share", share), unconfirmed)
    held_panel = _panel(tr("held idle, GPU-hours"), "held", hours_column, held_rows)
    zero_title = tr("0 % utilization with or without a user, share of the observed time")
    zero_panel = _panel(zero_title, "free", share_column, zero_rows, ceiling=1.0)
    return Table(
        name="idle",
        title=tr("Idle time by definition"),
        question=tr("How much of the idle time is in intervals long enough to use?"),
        headline=_headline(ledger),
        columns=(
            column("measure", tr("definition of idle"), "words"),
            column("at_least_s", tr("interval length"), "words", _at_least, "at_least_s", json_type="integer"),
            hours_column,
            share_column,
        ),
        rows=held_rows + zero_rows,
        chart=Chart((held_panel, zero_panel)),
        notes=(
            tr("The chosen threshold can change the idle figure several times over."),
            *sampled_note([totals]),
        ),
        terms=(STATES["held"], term("idle interval")),
    )


def _panel(title: str, state: str, figure: Column, rows: Sequence[CountedIdleTime], ceiling: float = 0.0) -> Panel:
    bars = Bars("", state, **drawn(figure, rows))
    places = tuple(ChartPlace(_at_least(row), figure=cell) for row, cell in zip(rows, bars.shown, strict=True))
    return Panel(title, (bars,), places, lying=True, ceiling=ceiling)


def _headline(ledger: LedgerFigures) -> str:
    totals, idle = ledger.summary.totals, ledger.summary.idle
    held, observed_ms = ledger.sensitivity, totals.observed_ms
    if not totals.state_ms["held"]:
        return tr(
            "No GPU was held idle. Utilization was 0 % for {half} of the observed time in intervals of at least 30 min,"
            " and for {two} in intervals of at least 120 min.",
            half=Share(ratio(idle.idle_interval_ms["30m"], observed_ms)),
            two=Share(ratio(idle.idle_interval_ms["120m"], observed_ms)),
        )
    return tr(
        "GPUs were held idle for {half} GPU-hours in intervals of at least 30 min, and for {two} in intervals of at"
        " least 120 min.",
        half=Number(held[30], 1),
        two=Number(held[120], 1),
    )


def _at_least(row: CountedIdleTime) -> str:
    return tr("all intervals") if row.at_least_s is None else tr("≥ {span}", span=Minutes(row.at_least_s * SECOND_MS))
