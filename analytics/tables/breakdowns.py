"""Where the time went by pool or host: how much was observed, and in which states."""

from __future__ import annotations

from collections.abc import Sequence

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Share
from analytics.language.sentences import tr
from analytics.ledger.summary import Totals, ratio
from analytics.report.parts import Breakdown
from analytics.states import OBSERVED
from analytics.tables.names import place_name
from analytics.tables.point_samples import sampled_note
from analytics.tables.table import Column, Kind, Table, column

_SHORT = {"unavailable": tr("unavail.")}
_LISTED = {"pool": 40, "host": 200}
_TITLES = {"pool": tr("By pool"), "host": tr("By host")}
_NAMES = {"pool": tr("pool"), "host": tr("host")}
_KINDS: dict[str, Kind] = {"pool": "pool", "host": "host"}


def pools(breakdown: Breakdown) -> Table | None:
    """A row for each pool, the most GPU time first; None where there is none."""
    groups = sorted(breakdown.by["pool"].items(), key=lambda item: -item[1].total_ms)
    return totals_section("pool", groups) if groups else None


def totals_section(by: str, groups: Sequence[tuple[str, Totals]]) -> Table:
    """A row for each of some pools or hosts, in the order in which they come."""
    # what would be written as 0.0 GPU-hours is only counted
    shown = min(_LISTED[by], sum(str(GpuHours(totals.total_ms)) != "0.0" for _, totals in groups) or len(groups))
    rest_ms = sum(totals.total_ms for _, totals in groups[shown:])
    of = dict(groups)

    def share(state: str) -> Column:
        title = _SHORT.get(state, tr(state))
        return column(f"{state}_share", title, "share", lambda name: Share(of[name].share(state)))

    return Table(
        name=f"by_{by}",
        title=_TITLES[by],
        question=tr("Where did the time go? Shares are of the observed time."),
        headline=_headline(groups),
        columns=(
            column(by, _NAMES[by], _KINDS[by], _name, str),
            column("gpus", tr("GPUs"), "count", lambda name: of[name].gpus),
            column("gpu_hours", tr("GPU-hours"), "gpu_hours", lambda name: of[name].total_ms),
            column("observed_share", tr("known"), "share", lambda name: Share(of[name].coverage)),
            *map(share, OBSERVED),
        ),
        rows=tuple(name for name, _ in groups),
        shown=shown,
        notes=sampled_note(totals for _, totals in groups),
        rest=tr("and {number} more with {hours} GPU-hours", number=len(groups) - shown, hours=GpuHours(rest_ms)),
        wide=True,
    )


def _headline(groups: Sequence[tuple[str, Totals]]) -> str:
    name, worst = max(groups, key=lambda item: item[1].wasted_ms)
    if not any(totals.observed_ms for _, totals in groups):
        return tr("Nothing was observed.")
    if not worst.wasted_ms:
        return (
            tr("None of the observed time is known to have gone unused.")
            if worst.leaves_open
            else tr("None of the observed time went unused.")
        )
    return tr(
        "The most unused GPU-hours: {hours}, by {name}, {share} of what was observed there.",
        hours=GpuHours(worst.wasted_ms),
        name=_name(name),
        share=Share(ratio(worst.wasted_ms, worst.observed_ms)),
    )


def _name(name: str) -> str:
    return place_name(plain(name, 200))
