"""Organisations, teams and projects with what they may have, had, used and waited for; and who starves while who hoards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share, from_cents, rounded_span
from analytics.language.sentences import tr
from analytics.plan.allocation import FleetAllocation, OwnerNode
from analytics.plan.starving import StarvingPair
from analytics.tables.names import GPU_HOURS, NAME_MOST, account_name, place_name
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Cell, Column, Table, column, fact, single
from fallow.clock import SECOND_MS

_KINDS = {"idle": tr("idle GPUs"), "quota": tr("quota")}
_LISTED = 40
_PAIRS = 10
_MOST_PAIRS = 100
"""So many of each kind on the page, which otherwise takes seconds to draw thousands."""


@dataclass(frozen=True)
class _OwnerRow:
    """An organisation, team or project below those of which it is a part."""

    node: OwnerNode
    parents: tuple[str, ...] = ()


def _with_parts(row: _OwnerRow) -> Iterator[_OwnerRow]:
    yield row
    for part in row.node.children:
        yield from _with_parts(_OwnerRow(part, (*row.parents, row.node.label)))


def owner_table(found: FleetAllocation) -> Table:
    """A row for each organisation, below it its teams, below each of those its projects."""
    rows = tuple(row for node in found.tree for row in _with_parts(_OwnerRow(node)))
    return Table(
        name="allocation",
        title=tr("Who has the GPUs"),
        question=tr(
            "What may each team and project have, what was it given, what did it use, and what did it wait for?"
        ),
        headline=_headline(found),
        columns=(
            fact("level", "words", "node.level"),
            fact("parents", "words", json_type="array"),
            column("name", tr("name"), "name", _indented, "node.label"),
            column(
                "quota_gpus",
                tr("quota"),
                "number",
                lambda row: "" if row.node.quota_gpus is None else Number(row.node.quota_gpus),
            ),
            column("gpus_mean", tr("mean"), "number", lambda row: Number(row.node.mean, 1)),
            column("gpus_most", tr("most"), "number", "node.most"),
            fact("gpu_hours", "gpu_hours", "node.allocated_ms"),
            column("used_gpu_hours", tr("used"), "gpu_hours", "node.used_ms"),
            column("unused_gpu_hours", tr("unused"), "gpu_hours", lambda row: _unused_ms(row.node)),
            fact("held_gpu_hours", "gpu_hours", lambda row: row.node.state_ms("held")),
            fact("reserved_gpu_hours", "gpu_hours", lambda row: row.node.state_ms("reserved")),
            fact("low_unused_gpu_hours", "gpu_hours", "node.low_unused_ms"),
            *_money_columns(found),
            *_waited_columns(found),
        ),
        rows=rows,
        shown=_LISTED,
        rest=tr("{number} more rows are on the page Allocation.", number=len(rows) - _LISTED),
        notes=tuple(_notes(found)),
        wide=True,
    )


def _money_columns(found: FleetAllocation) -> tuple[Column, ...]:
    has_money = any(node.account is not None and node.cents is not None for node in found.tree)
    return (
        column(
            "cost",
            tr("cost"),
            "money",
            lambda row: Number(from_cents(row.node.cents)),
            audience="all" if has_money else "programs",
        ),
        fact("currency", "words", lambda _: found.currency),
    )


def _waited_columns(found: FleetAllocation) -> tuple[Column, ...]:
    """Empty if no job has a time at which it asked for GPUs: no wait is known."""
    if not found.waits:
        return ()
    return (
        fact("jobs", "count", "node.waited.jobs"),
        fact("waited_hours", "gpu_hours", "node.waited.job_ms"),
        column("waited_gpu_hours", tr("waited"), "gpu_hours", "node.waited.gpu_ms"),
        column("median_wait_s", tr("median"), "number", _median, _median_s),
    )


def _median(row: _OwnerRow) -> Cell:
    median_ms = row.node.waited.median_ms
    return "" if median_ms is None else rounded_span(median_ms)


def _median_s(row: _OwnerRow) -> float | None:
    median_ms = row.node.waited.median_ms
    return None if median_ms is None else median_ms / SECOND_MS


def _headline(found: FleetAllocation) -> str:
    if not found.tree:
        return tr("Nobody was given a GPU.")
    total_ms, used_ms = (sum(getattr(node, name) for node in found.tree) for name in ("allocated_ms", "used_ms"))
    if not total_ms:
        return tr("Nobody was given a GPU.")
    most = max((team for node in found.tree for team in node.children), key=_unused_ms)
    return tr(
        "{used} of {hours} GPU-hours that were given out were used; the most without use, {most}, by {name}.",
        used=Share(used_ms / total_ms),
        hours=GpuHours(total_ms),
        most=GpuHours(_unused_ms(most)),
        name=_name(most),
    )


def _unused_ms(node: OwnerNode) -> float:
    return node.allocated_ms - node.used_ms


def _name(node: OwnerNode) -> str:
    if node.account is not None and node.account.name is None:
        return account_name(node.label)
    return plain(node.label, NAME_MOST)


def _indented(row: _OwnerRow) -> str:
    name = _name(row.node)
    if row.node.level == "organisation":
        return name
    return tr("· {name}", name=name) if row.node.level == "team" else tr("·· {name}", name=name)


def _notes(found: FleetAllocation) -> Iterator[str]:
    yield tr(
        "Organisations (none), their teams (·) and projects (··): every row is the sum of those below it. Mean and most are GPUs at once, waited is GPU-hours, median the wait of a job. A project is that of the owners table, else that of the job's allocation, else the account. "
        "Unused is what was given and held or reserved without use, and the unused part of low time; used and unused add up to what was given."
    )
    yield from counted_note(found.open_ms)
    if not found.has_owners:
        yield tr(
            "There is no owners table, so that organisations, teams and quotas are not known: `money.owners` names it, see docs/money.md."
        )
    if not found.waits:
        yield tr(
            "No job of this window is known with the time at which it asked for GPUs: what was waited is not known. "
            "`fallow allocations import slurm`, `kubernetes` or `csv` brings them in."
        )
    if found.seen is not None and round(found.seen, 3) < 1:
        yield tr(
            "{share} of the GPU time was observed; what was not is in no row, and the figures may be higher.",
            share=Share(found.seen),
        )


def starving_table(found: FleetAllocation, *, on_page: bool = False) -> Table | None:
    """Who waited while who had as much without use; None for people, and where no wait is known."""
    if found.pairs is None or not found.waits:
        return None
    idle = [each for each in found.pairs if each.kind == "idle"]
    quota = [each for each in found.pairs if each.kind == "quota"]
    drawn = (*idle[:_MOST_PAIRS], *quota[:_MOST_PAIRS])
    left = len(found.pairs) - len(drawn)
    more = tr("{number} more pairs with fewer GPU-hours are in `fallow plan allocation --json`.", number=left)
    return Table(
        name="starving",
        title=tr("Who starves while who hoards"),
        question=tr("Who waited for GPUs while others had as many without use, at the same moments?"),
        headline=_starving_sentence(idle, found.poolless_ms),
        columns=(
            column("waited", tr("starves"), "team", lambda pair: _owner_name(pair.starves), "starves"),
            column("did_not_use", tr("hoards"), "team", lambda pair: _owner_name(pair.hoards), "hoards"),
            column("kind", tr("what"), "words", lambda pair: _KINDS[pair.kind], "kind"),
            column("pool", tr("pool"), "pool", lambda pair: place_name(pair.pool) if pair.pool else ""),
            GPU_HOURS,
            column("waited_gpu_hours", tr("waited for"), "gpu_hours", "waited_ms"),
            column("unused_gpu_hours", tr("unused"), "gpu_hours", "unused_ms"),
            column(
                "quota_needed_share",
                tr("needed"),
                "share",
                lambda pair: "" if pair.needed_share is None else Share(pair.needed_share),
            ),
        ),
        rows=drawn if on_page else (*idle, *quota),
        shown=_PAIRS,
        rest=tr("{number} more are on the page Allocation.", number=len(drawn) - _PAIRS),
        notes=(
            *((more,) if left else ()),
            tr(
                "A team starves while its jobs wait and it has no more GPUs than its quota; it hoards GPUs that it holds or has reserved "
                "without use, in the pool for which the other waits. A GPU-hour is in one such pair at most, shared out in proportion; waited for and unused are all of both. A quota is hoarded where less than half of it "
                "was needed in 95 % of the hours; those GPU-hours are of the quota, not of GPUs, and are not to be added to the others."
            ),
        ),
        wide=True,
    )


def _starving_sentence(idle: list[StarvingPair], poolless_ms: float) -> str:
    if not idle and poolless_ms:
        return tr(
            "{hours} GPU-hours were waited for in a pool that nobody knows: whether others had as many without use there is not known.",
            hours=GpuHours(poolless_ms),
        )
    if not idle:
        return tr("Nobody waited while another team had GPUs of the same pool without use.")
    first = idle[0]
    return tr(
        "{hours} GPU-hours were waited for while others had them without use in the same pool; the most, {most}, by {starves} beside {hoards}.",
        hours=GpuHours(sum(each.gpu_ms for each in idle)),
        most=GpuHours(first.gpu_ms),
        starves=_owner_name(first.starves),
        hoards=_owner_name(first.hoards),
    )


def _owner_name(owner: str) -> str:
    return account_name(owner) if owner.startswith("(") else plain(owner, NAME_MOST)


def allocation_facts(found: FleetAllocation) -> Table:
    """Return for programs what the other tables rest on."""
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
