"""GPU time by pool or host: its observed share, and its shares by state."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.glossary import state_label
from analytics.language.sentences import GpuHours, Share, plain, tr
from analytics.ledger.summary import Totals, ratio
from analytics.report.parts import Breakdown
from analytics.states import OBSERVED, UNUSED
from analytics.tables.basis import marked
from analytics.tables.names import more_with_hours, place_name
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Kind, Table, column

_LISTED = {"pool": 40, "host": 200}
_TITLES = {"pool": tr("By pool"), "host": tr("By host")}
_NAMES = {"pool": tr("pool"), "host": tr("host")}
_KINDS: dict[str, Kind] = {"pool": "pool", "host": "host"}


def pools(breakdown: Breakdown) -> Table | None:
    """Return a row per pool, the most GPU time first; None if there is no pool."""
    groups = sorted(breakdown.by["pool"].items(), key=lambda item: -item[1].total_ms)
    return totals_section("pool", groups) if groups else None


def totals_section(by: str, groups: Sequence[tuple[str, Totals]]) -> Table:
    """Return a row per pool or host, in the given order."""
    # what would be written as 0.0 GPU-hours is only counted
    shown = min(_LISTED[by], sum(str(GpuHours(totals.total_ms)) != "0.0" for _, totals in groups) or len(groups))
    of = dict(groups)

    def share(state: str) -> Column:
        figure = column(f"{state}_share", state_label(state), "share", lambda name: Share(of[name].share(state)))
        return marked(figure, lambda name: of[name].unconfirmed(state)) if state in UNUSED else figure

    return Table(
        name=f"by_{by}",
        title=_TITLES[by],
        question=tr("Where did the GPU time go? Shares refer to the observed time."),
        headline=_headline(groups),
        columns=(
            column(by, _NAMES[by], _KINDS[by], _name, str),
            column("gpus", tr("GPUs"), "count", lambda name: of[name].gpus),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda name: of[name].total_ms),
            column("observed_share", tr("observed"), "share", lambda name: Share(of[name].coverage)),
            *map(share, OBSERVED),
        ),
        rows=tuple(name for name, _ in groups),
        shown=shown,
        notes=sampled_note(totals for _, totals in groups),
        rest=more_with_hours([totals.total_ms for _, totals in groups[shown:]]),
        wide=True,
    )


def _headline(groups: Sequence[tuple[str, Totals]]) -> str:
    name, worst = max(groups, key=lambda item: item[1].wasted_ms)
    if not any(totals.observed_ms for _, totals in groups):
        return tr("Nothing was observed.")
    if not worst.wasted_ms:
        return tr("No unused time is confirmed.") if worst.leaves_open else tr("All of the observed time was used.")
    return tr(
        "{name} has the most unused GPU-hours: {hours}, {share} of its observed time.",
        hours=GpuHours(worst.wasted_ms),
        name=_name(name),
        share=Share(ratio(worst.wasted_ms, worst.observed_ms)),
    )


def _name(name: str) -> str:
    return place_name(plain(name, 200))
