"""Organisations, teams and projects with what they may have, had, used and waited for; and who starves while who hoards."""

from __future__ import annotations

from collections.abc import Iterator

from analytics.language.plain_text import plain
from analytics.language.quantities import GpuHours, Number, Share, from_cents
from analytics.language.sentences import tr
from analytics.plan.allocation import FleetAllocation
from analytics.plan.owner_tree import OwnerNode
from analytics.plan.starving import StarvingPair
from analytics.tables.names import NAME_MOST, account_name, place_name
from analytics.tables.plan_waits import wait_span
from analytics.tables.point_samples import counted_note
from analytics.tables.table import Cell, Column, Table

_LISTED = 40
_PAIRS = 10
_MOST_PAIRS = 100
"""So many of each kind on the page, which otherwise takes seconds to draw thousands."""


def owner_table(found: FleetAllocation) -> Table:
    """A row for each organisation, below it its teams, below each of those its projects."""
    rows = tuple(
        row for node in found.tree for row in _rows(node, with_money=_has_money(found), with_waits=bool(found.waits))
    )
    return Table(
        name="allocation",
        title=tr("Who has the GPUs"),
        question=tr("What may each team and project have, what was it given, what did it use, and what did it wait for?"),
        headline=_headline(found),
        columns=(
            Column("name", tr("name"), "name"),
            Column("quota", tr("quota"), "number"),
            Column("mean", tr("mean"), "number"),
            Column("most", tr("most"), "number"),
            Column("used", tr("used"), "gpu_hours"),
            Column("unused", tr("unused"), "gpu_hours"),
            *((Column("cost", tr("cost"), "money"),) if _has_money(found) else ()),
            *_waited_columns(found),
        ),
        rows=rows,
        shown=_LISTED,
        rest=tr("{number} more rows are on the page Allocation.", number=Number(len(rows) - _LISTED)),
        notes=tuple(_notes(found)),
        wide=True,
    )  # fmt: skip


def _waited_columns(found: FleetAllocation) -> tuple[Column, ...]:
    """None where nobody knows who waited."""
    columns = (Column("waited", tr("waited"), "gpu_hours"), Column("median", tr("median"), "number"))
    return columns if found.waits else ()


def _has_money(found: FleetAllocation) -> bool:
    return any(node.account is not None and node.cents is not None for node in found.tree)


def _headline(found: FleetAllocation) -> str:
    if not found.tree:
        return tr("Nobody was given a GPU.")
    total_ms, used_ms = (sum(getattr(node, name) for node in found.tree) for name in ("allocated_ms", "used_ms"))
    if not total_ms:
        return tr("Nobody was given a GPU.")
    most = max((team for node in found.tree for team in node.children), key=_unused_ms)
    return tr(
        "{used} of {hours} GPU-hours that were given out were used; the most without use, {most}, by {name}.",
        used=Share(used_ms / total_ms), hours=GpuHours(total_ms), most=GpuHours(_unused_ms(most)), name=_name(most),
    )  # fmt: skip


def _unused_ms(node: OwnerNode) -> float:
    return node.allocated_ms - node.used_ms


def _name(node: OwnerNode) -> str:
    if node.account is not None and node.account.name is None:
        return account_name(node.label)
    return plain(node.label, NAME_MOST)


def _indented(node: OwnerNode) -> str:
    name = _name(node)
    if node.level == "organisation":
        return name
    return tr("· {name}", name=name) if node.level == "team" else tr("·· {name}", name=name)


def _rows(node: OwnerNode, *, with_money: bool, with_waits: bool) -> Iterator[tuple[Cell, ...]]:
    median = node.waited.median_ms
    yield (
        _indented(node),
        "" if node.quota_gpus is None else Number(node.quota_gpus),
        Number(node.mean, 1),
        None if node.most is None else Number(node.most),
        GpuHours(node.used_ms),
        GpuHours(_unused_ms(node)),
        *((Number(from_cents(node.cents)),) if with_money else ()),
        *((GpuHours(node.waited.gpu_ms), "" if median is None else wait_span(median)) if with_waits else ()),
    )
    for child in node.children:
        yield from _rows(child, with_money=with_money, with_waits=with_waits)


def _notes(found: FleetAllocation) -> Iterator[str]:
    yield tr(
        "Organisations (none), their teams (·) and projects (··): every row is the sum of those below it. Mean and most are GPUs at once, waited is GPU-hours, median the wait of a job. A project is that of the owners table, else that of the job's allocation, else the account. "
        "Unused is what was given and held or reserved without use, and the unused part of low time; used and unused add up to what was given."
    )  # fmt: skip
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


def starving_table(found: FleetAllocation) -> Table | None:
    """Who waited while who had as much without use; None for people, and where no wait is known."""
    if found.pairs is None or not found.waits:
        return None
    idle = [each for each in found.pairs if each.kind == "idle"]
    quota = [each for each in found.pairs if each.kind == "quota"]
    rows = [*idle[:_MOST_PAIRS], *quota[:_MOST_PAIRS]]
    left = len(found.pairs) - len(rows)
    return Table(
        name="starving",
        title=tr("Who starves while who hoards"),
        question=tr("Who waited for GPUs while others had as many without use, at the same moments?"),
        headline=_starving_sentence(idle, found.poolless_ms),
        columns=(
            Column("starves", tr("starves"), "team"),
            Column("hoards", tr("hoards"), "team"),
            Column("what", tr("what"), "words"),
            Column("pool", tr("pool"), "pool"),
            Column("gpu_hours", tr("GPU-hours"), "gpu_hours"),
            Column("waited_for", tr("waited for"), "gpu_hours"),
            Column("unused", tr("unused"), "gpu_hours"),
            Column("needed", tr("needed"), "share"),
        ),
        rows=tuple(_pair_row(each) for each in rows),
        shown=_PAIRS,
        rest=tr("{number} more are on the page Allocation.", number=Number(len(rows) - _PAIRS)),
        notes=(
            *((tr("{number} more pairs with fewer GPU-hours are in `fallow plan allocation --json`.", number=Number(left)),) if left else ()),
            tr(
                "A team starves while its jobs wait and it has no more GPUs than its quota; it hoards GPUs that it holds or has reserved "
                "without use, in the pool for which the other waits. A GPU-hour is in one such pair at most, shared out in proportion; waited for and unused are all of both. A quota is hoarded where less than half of it "
                "was needed in 95 % of the hours; those GPU-hours are of the quota, not of GPUs, and are not to be added to the others."
            ),
        ),
        wide=True,
    )  # fmt: skip


def _starving_sentence(idle: list[StarvingPair], poolless_ms: float) -> str:
    if not idle and poolless_ms:
        return tr("{hours} GPU-hours were waited for in a pool that nobody knows: whether others had as many without use there is not known.", hours=GpuHours(poolless_ms))  # fmt: skip
    if not idle:
        return tr("Nobody waited while another team had GPUs of the same pool without use.")
    first = idle[0]
    return tr(
        "{hours} GPU-hours were waited for while others had them without use in the same pool; the most, {most}, by {starves} beside {hoards}.",
        hours=GpuHours(sum(each.gpu_ms for each in idle)), most=GpuHours(first.gpu_ms),
        starves=_owner_name(first.starves), hoards=_owner_name(first.hoards),
    )  # fmt: skip


def _owner_name(owner: str) -> str:
    return account_name(owner) if owner.startswith("(") else plain(owner, NAME_MOST)


def _pair_row(each: StarvingPair) -> tuple[Cell, ...]:
    return (
        _owner_name(each.starves),
        _owner_name(each.hoards),
        tr("idle GPUs") if each.kind == "idle" else tr("quota"),
        place_name(each.pool) if each.pool else "",
        GpuHours(each.gpu_ms),
        GpuHours(each.waited_ms),
        GpuHours(each.unused_ms),
        "" if each.needed_share is None else Share(each.needed_share),
    )
