"""Organisations, teams and projects with their quotas, allocated and used GPUs and queue waits.

Also shows which teams wait while others leave GPUs unused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import methodcaller

from analytics.language.sentences import GpuHours, Number, Share, from_cents, plain, rounded_span, tr
from analytics.money.priced_segments import UNNAMED
from analytics.plan.allocation import FleetAllocation, OwnerNode
from analytics.plan.starving import StarvingPair
from analytics.states import IDLE_ALLOCATED
from analytics.tables.chart import Bars, Chart, ChartPlace, Panel
from analytics.tables.names import GPU_HOURS, LEAST_MS, NAME_MOST, place_name
from analytics.tables.plan_queue import no_waits
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Table, column, column_of, fact, single
from fallow.clock import HOUR_MS, SECOND_MS

_KINDS = {"idle": tr("idle GPUs"), "quota": tr("quota")}
_LISTED = 40
_PAIRS = 10
_DRAWN = 8
"""Teams in each half of the chart."""
_MOST_PAIRS = 100
"""Pairs of each kind on the page. The page would take seconds to draw thousands."""


@dataclass(frozen=True)
class _OwnerRow:
    """An organisation, team or project, with its level."""

    node: OwnerNode
    parents: tuple[str, ...] = ()


def _with_parts(row: _OwnerRow) -> Iterator[_OwnerRow]:
    yield row
    for part in row.node.children:
        yield from _with_parts(_OwnerRow(part, (*row.parents, row.node.label)))


def owner_table(found: FleetAllocation) -> Table:
    """Return a row per organisation, below it its teams, below each team its projects."""
    rows = tuple(row for node in found.tree for row in _with_parts(_OwnerRow(node)))
    has_money = any(node.account is not None and node.cents is not None for node in found.tree)
    return Table(
        name="allocation",
        title=tr("Who has the GPUs"),
        question=tr("How many GPUs may each team and project have, and what was allocated, used and waited for?"),
        headline=_headline(found),
        columns=(
            fact("level", "words", "node.level"),
            fact("parents", "words", json_type="array"),
            column("name", tr("name"), "name", _indented_name, "node.label"),
            column("quota_gpus", tr("quota"), "number", "node.quota_gpus", missing=""),
            column("gpus_mean", tr("mean GPUs"), "number", lambda row: Number(row.node.mean, 1)),
            column("gpus_most", tr("peak GPUs"), "number", "node.most"),
            fact("gpu_hours", "gpu_hours", "node.allocated_ms"),
            column("used_gpu_hours", tr("effective"), "gpu_hours", "node.used_ms"),
            column("unused_gpu_hours", tr("wasted"), "gpu_hours", lambda row: _unused_ms(row.node)),
            *(
                column_of("node", fact(f"{state}_gpu_hours", "gpu_hours", methodcaller("state_ms", state)))
                for state in IDLE_ALLOCATED[::-1]
            ),
            fact("low_unused_gpu_hours", "gpu_hours", "node.low_unused_ms"),
            column(
                "cost",
                tr("cost, {currency}", currency=found.currency),
                "money",
                lambda row: Number(from_cents(row.node.cents)),
                audience="all" if has_money else "programs",
            ),
            fact("currency", "words", lambda _: found.currency),
            *(_WAITED if found.waits else ()),
        ),
        rows=rows,
        shown=_LISTED,
        rest=tr("The page {page} lists {number} more.", page=tr("Starve or hoard"), number=len(rows) - _LISTED),
        notes=tuple(_notes(found)),
        wide=True,
    )


_MEDIAN = column("median_wait_s", tr("median wait"), "number", rounded_span, lambda ms: ms / SECOND_MS, missing="")
_WAITED = tuple(
    column_of("node.waited", each)
    for each in (
        fact("jobs", "count"),
        fact("waited_hours", "gpu_hours", "job_ms"),
        column("waited_gpu_hours", tr("queue wait"), "gpu_hours", "gpu_ms"),
        column_of("median_ms", _MEDIAN),
    )
)
"""Columns where any job has a submission time."""


def _headline(found: FleetAllocation) -> str:
    total_ms, used_ms = (sum(getattr(node, name) for node in found.tree) for name in ("allocated_ms", "used_ms"))
    if not total_ms:
        return tr("No GPU was allocated.")
    effective = tr(
        "{used} of {hours} allocated GPU-hours were effective.",
        used=Share(used_ms / total_ms),
        hours=GpuHours(total_ms),
    )
    most = max((team for node in found.tree for team in node.children), key=_unused_ms)
    if _unused_ms(most) < LEAST_MS:
        return effective
    return tr(
        "{effective} {name} wasted the most: {most}.",
        effective=effective,
        most=GpuHours(_unused_ms(most)),
        name=_name(most),
    )


def _unused_ms(node: OwnerNode) -> float:
    return node.allocated_ms - node.used_ms


def _name(node: OwnerNode) -> str:
    return tr(node.label) if node.label in UNNAMED else plain(node.label, NAME_MOST)


def _indented_name(row: _OwnerRow) -> str:
    name = _name(row.node)
    if row.node.level == "organisation":
        return name
    return tr("· {name}", name=name) if row.node.level == "team" else tr("·· {name}", name=name)


def _notes(found: FleetAllocation) -> Iterator[str]:
    yield tr(
        "Rows are organisations (no mark), teams (·) and projects (··). Every row is the sum of the rows below it. Mean"
        " and maximum count GPUs at once. Effective, wasted and queue wait are GPU-hours. Effective and wasted add up"
        " to the allocated time. Median wait: the queue wait of a job. Wasted: GPUs that were held or reserved without"
        " use, and the unused part of low use. The project comes from the owners table, otherwise from the job's"
        " allocation, otherwise it is the account."
    )
    yield from counted_note(found.open_ms)
    if not found.has_owners:
        yield tr(
            "There is no owners table, so organisations, teams and quotas are unknown. Set `money.owners` to its path"
            " (docs/money.md)."
        )
    if not found.waits:
        yield no_waits()
    if found.seen is not None and round(found.seen, 3) < 1:
        yield tr(
            "{share} of the GPU time was observed. The other time is in no row, so the real figures may be higher.",
            share=Share(found.seen),
        )


def starving_table(found: FleetAllocation, *, on_page: bool = False) -> Table | None:
    """Return the pairs of waiting and unused teams; None for people, and if no wait is known."""
    if found.pairs is None or not found.waits:
        return None
    idle = [each for each in found.pairs if each.kind == "idle"]
    quota = [each for each in found.pairs if each.kind == "quota"]
    drawn = (*idle[:_MOST_PAIRS], *quota[:_MOST_PAIRS])
    left = len(found.pairs) - len(drawn)
    more = tr("`fallow plan allocation --json` lists {number} more pairs with fewer GPU-hours.", number=left)
    return Table(
        name="starving",
        title=tr("Who starves, who hoards"),
        question=tr("Which teams waited for GPUs while other teams left as many unused?"),
        headline=_starving_sentence(idle, found.poolless_ms),
        columns=(
            column("waited", tr("waiting team"), "team", lambda pair: _owner_name(pair.starves), "starves"),
            column("did_not_use", tr("hoarding team"), "team", lambda pair: _owner_name(pair.hoards), "hoards"),
            column("kind", tr("kind"), "words", lambda pair: _KINDS[pair.kind], "kind"),
            column("pool", tr("pool"), "pool", lambda pair: place_name(pair.pool) if pair.pool else ""),
            GPU_HOURS,
            column("waited_gpu_hours", tr("queue wait, GPU-hours"), "gpu_hours", "waited_ms"),
            column("unused_gpu_hours", tr("unused"), "gpu_hours", "unused_ms"),
            column("quota_needed_share", tr("share of quota needed"), "share", "needed_share", missing=""),
        ),
        rows=drawn if on_page else (*idle, *quota),
        shown=_PAIRS,
        rest=tr("The page {page} lists {number} more.", page=tr("Starve or hoard"), number=len(drawn) - _PAIRS),
        notes=(
            *((more,) if left else ()),
            tr(
                "A team starves while its jobs wait and it has no more GPUs than its quota. A team hoards GPUs that it"
                " holds or reserves without use, in the pool for which the other team waits. A GPU-hour is in at most"
                " one pair, shared in proportion. The totals cover all that the one team waited for and the other left"
                " unused. A quota is hoarded if less than half of it was needed in 95 % of the hours. Its GPU-hours are"
                " quota, not GPUs: do not add them to the others."
            ),
        ),
        chart=_waits_and_unused(found),
        wide=True,
        ranked_by="gpu_hours",
    )


def _waits_and_unused(found: FleetAllocation) -> Chart | None:
    """Return the chart of the teams with most queue wait, above the teams with most unused time; both in GPU-hours."""
    teams = [team for node in found.tree for team in node.children]
    halves = (
        (tr("queue wait, GPU-hours"), "mark", lambda team: team.waited.gpu_ms),
        (tr("wasted, GPU-hours"), "held", _unused_ms),
    )
    panels = []
    for title, colour, measure in halves:
        most = sorted((team for team in teams if measure(team) > 0), key=measure, reverse=True)[:_DRAWN]
        places = tuple(ChartPlace(_name(team), figure=GpuHours(measure(team))) for team in most)
        bars = Bars("", colour, tuple(measure(team) / HOUR_MS for team in most))
        panels += [Panel(title, (bars,), places, lying=True)] if most else []
    return Chart(tuple(panels)) if panels else None


def _starving_sentence(idle: list[StarvingPair], poolless_ms: float) -> str:
    if not idle and poolless_ms:
        return tr(
            "Jobs waited for {hours} GPU-hours in an unknown pool. Whether other teams left as many unused there is"
            " unknown.",
            hours=GpuHours(poolless_ms),
        )
    if not idle:
        return tr("No team waited while another team left GPUs of the same pool unused.")
    first = idle[0]
    return tr(
        "Teams waited for {hours} GPU-hours that other teams left unused in the same pool. {starves} waited for the"
        " most, {most}, while {hoards} hoarded.",
        hours=GpuHours(sum(each.gpu_ms for each in idle)),
        most=GpuHours(first.gpu_ms),
        starves=_owner_name(first.starves),
        hoards=_owner_name(first.hoards),
    )


def _owner_name(owner: str) -> str:
    return tr(owner) if owner in UNNAMED else plain(owner, NAME_MOST)


def allocation_facts(found: FleetAllocation) -> Table:
    """Return for programs the basis of the other tables."""
    return single(
        "allocation_facts",
        (
            fact("observed_share", "share", "seen"),
            fact("has_owners", "words", json_type="boolean"),
            fact("jobs_that_asked", "count", "waits"),
            fact("days", "count", "calendar.days"),
            fact("running_jobs", "count", "calendar.running"),
            fact("running_jobs_with_limit", "count", "calendar.with_limit"),
            fact("projects_with_end", "count", "calendar.projects"),
        ),
        found,
    )
