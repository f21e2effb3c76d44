"""Workloads that may share a whole card: their needs, which fit together, and the groups that spare the most cards.

The best choice of groups is set packing by HiGHS: first-fit frees up to a sixth less (`python -m benchmarks packing`).
HiGHS (highspy) is one wheel of 3 MB that needs only numpy; OR-tools brings 30 MB and pandas, SciPy 35 MB, and has the
same HiGHS inside. The result is the same on every machine: one thread, and the search ends after a number of nodes and
not after a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analytics.language.sentences import tr
from analytics.money.owners import Owners
from analytics.solver import one_thread_solver, program_of_sums
from analytics.workloads.ledger_rows import first_ms
from analytics.workloads.model import Context
from analytics.workloads.runs import peak_histograms, run_hours
from analytics.workloads.workloads import runs_of
from fallow.clock import HOUR_MS

_NODES = 500
"""Most nodes of the search; groups of a block of 40 members are mostly proven best at the first."""


@dataclass(frozen=True)
class Choice:
    """Places of the chosen groups in the input, and the bound: no choice spares more than `at_most`."""

    chosen: tuple[int, ...]
    at_most: int


def best_groups(groups: Sequence[Sequence[int]], members: int) -> Choice:
    """Return the groups that spare the most members, which is all but one of each group.

    Each of 0..`members`-1 is in at most one group.
    """
    if not groups:
        return Choice((), 0)
    import highspy

    sizes = np.array([len(each) for each in groups])
    once = np.full(members, -np.inf), np.ones(members)
    starts, rows = np.concatenate(([0], np.cumsum(sizes))), np.concatenate([np.asarray(each) for each in groups])
    model = program_of_sums((sizes - 1).astype(np.float64), 1.0, once, starts, rows)
    model.sense_ = highspy.ObjSense.kMaximize
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(groups)
    solver = one_thread_solver(mip_max_nodes=_NODES)
    solver.passModel(model)
    solver.run()
    info = solver.getInfo()
    values = np.array(solver.getSolution().col_value)
    chosen = tuple(int(each) for each in np.flatnonzero(values > 0.5))
    # a sum of whole numbers is whole: a bound in between says no more than the number below it
    return Choice(chosen, int(np.floor(info.mip_dual_bound + 1e-6)))


_BEST_EFFORT = re.compile(r"best.?effort|preempt|scaveng|backfill|opportun|spot|idle|low|batch|free", re.IGNORECASE)
"""Usual names of priority classes that may be slowed or stopped."""

MEMORY_MAX_SHARE = 0.9
BUSY_MAX_PCT = 80.0
BUSY_SHARE = 0.95
ALIGNED_MIN_HOURS = 24
GROUP_MAX = 3


@dataclass(frozen=True)
class CardSharer:
    """One workload on one GPU.

    It has hourly means of utilization on a common grid of hours (NaN: absent), and the time at each percent.
    """

    work: int
    gpu: str
    user: str | None
    memory_bytes: int
    hourly_pct: NDArray[np.float64]
    histogram: NDArray[np.int64]


@dataclass(frozen=True)
class Group:
    """Workloads that may share a card: total memory, hours side by side, and the utilization level of 95 % of the time.

    `aligned_pct` is the level of the sums of hourly means. `bursts_pct` is the level of the sum of samples if they do
    not move together.
    """

    members: tuple[CardSharer, ...]
    memory_bytes: int
    aligned_hours: int
    aligned_pct: float
    bursts_pct: float


def candidates(context: Context, found: pl.DataFrame, number: str = "work") -> dict[int, CardSharer]:
    """Return the workloads of `found` (work, gpu, user, q98_bytes), grouped by the column `number`, in its order.

    Workloads without any whole hour of utilization are left out.
    """
    numbered = found.select("work", number=pl.col(number))
    runs = runs_of(context, found).select("run", "work").join(numbered, on="work").sort("number", "run")
    histograms = peak_histograms(context, runs)
    hours = run_hours(context).join(runs, on="run").drop_nulls("gpu_util_mean_pct")
    if hours.is_empty():
        return {}
    first = first_ms(hours)
    place = ((hours["time"] - first) // HOUR_MS).to_numpy()
    codes = {each: code for code, each in enumerate(found[number].unique(maintain_order=True))}
    levels = np.full((len(codes), int(place.max()) + 1), np.nan)
    levels[[codes[each] for each in hours["number"]], place] = hours["gpu_util_mean_pct"].to_numpy()
    sums: dict[int, NDArray[np.int64]] = {}
    for run, each in runs.select("run", "number").iter_rows():
        if run in histograms:
            sums[each] = sums[each] + histograms[run] if each in sums else histograms[run]
    rows = found.group_by(number, maintain_order=True).agg(
        pl.col("gpu").first(), users=pl.col("user").unique(), memory=pl.col("q98_bytes").max()
    )
    return {
        each: CardSharer(each, gpu, users[0] if len(users) == 1 else None, memory, levels[codes[each]], sums[each])
        for each, gpu, users, memory in rows.iter_rows()
        if each in sums
    }


def is_best_effort(owners: Owners, user: str | None, account: str | None) -> bool:
    """Return True if the user's or account's work is known to be best effort: it may be slowed or stopped."""
    owner = owners.of(user, account)
    return bool(owner is not None and owner.priority_class and _BEST_EFFORT.search(owner.priority_class))


def users_apart(own: pl.DataFrame) -> list[str]:
    """Return a failure unless all belong to one user: a shared card does not isolate memory and faults of users."""
    if own["user"].null_count():
        return [tr("the user of one workload is not known")]
    if own["user"].n_unique() > 1:
        return [tr("the workloads belong to different users, and a shared card does not isolate their faults")]
    return []


def groups(those: Sequence[CardSharer], card_bytes: int) -> list[Group]:
    """Return pairs and triples of candidates of one host and model, the largest first.

    Each GPU is in at most one group.
    """
    left = sorted(those, key=lambda each: (-each.memory_bytes, each.work))
    found: list[Group] = []
    while len(left) > 1:
        anchor = left.pop(0)
        group = _grown(anchor, left, card_bytes)
        if group is not None:
            found.append(group)
            taken = {each.gpu for each in group.members}
            left = [each for each in left if each.gpu not in taken]
    return found


def _grown(anchor: CardSharer, left: Sequence[CardSharer], card_bytes: int) -> Group | None:
    """Return the anchor with one partner or two, its own user's workloads first."""
    group: Group | None = None
    members: tuple[CardSharer, ...] = (anchor,)
    for each in sorted(left, key=lambda other: (other.user != anchor.user, -other.memory_bytes, other.work)):
        if len(members) == GROUP_MAX:
            break
        if any(each.gpu == member.gpu for member in members):
            continue
        tried = together((*members, each), card_bytes)
        if tried is not None:
            group, members = tried, tried.members
    return group


def together(members: tuple[CardSharer, ...], card_bytes: int) -> Group | None:
    """Return the group, if memory and both sums of utilization fit and the workloads ran side by side for a day."""
    memory = sum(each.memory_bytes for each in members)
    if memory > MEMORY_MAX_SHARE * card_bytes:
        return None
    sums = np.sum([each.hourly_pct for each in members], axis=0)
    aligned = np.sort(sums[~np.isnan(sums)])
    if len(aligned) < ALIGNED_MIN_HOURS:
        return None
    aligned_pct = float(aligned[max(int(np.ceil(BUSY_SHARE * len(aligned))) - 1, 0)])
    if aligned_pct > BUSY_MAX_PCT:
        return None
    bursts_pct = _independent_pct([each.histogram for each in members])
    if bursts_pct > BUSY_MAX_PCT:
        return None
    return Group(members, memory, len(aligned), aligned_pct, bursts_pct)


def _independent_pct(histograms: Sequence[NDArray[np.int64]]) -> float:
    """Return the level of the sum of independent values for BUSY_SHARE of the time.

    It is the convolution of their shares of time. Percents in histograms of peaks are already rounded up.
    """
    shares = np.ones(1)
    for histogram in histograms:
        shares = np.convolve(shares, histogram / histogram.sum())
    return float(np.searchsorted(np.cumsum(shares), BUSY_SHARE - 1e-9))


@dataclass(frozen=True)
class Slowdown:
    """Factors of the run time.

    `expected` follows from what the workload uses. `at_most` holds if its kernels never overlap with its other work.
    """

    expected: float
    at_most: float


def in_a_part(sm_share: float, *, used_pct: float, busy_mean_pct: float, sm_mean_pct: float | None) -> Slowdown:
    """Return the slowdown in an instance with this share of the SMs.

    The workload uses `used_pct` of the SMs for 95 % of the time: what fits into the share is not slowed down. In the
    worst case its kernels need more than the share for moments, and everything else waits for them: the time with a
    kernel then grows from `busy_mean_pct` to the mean SM activity divided by the share (of all SMs, if SM activity was
    not measured).
    """
    busy = busy_mean_pct / 100
    taken = busy if sm_mean_pct is None else min(sm_mean_pct / 100, busy)
    expected = max(used_pct / 100 / sm_share, 1.0)
    return Slowdown(expected, max(1 - busy + max(busy, taken / sm_share), expected))


def on_a_shared_card(own: CardSharer, others: Iterable[CardSharer]) -> Slowdown:
    """Return the slowdown on a whole card, except for the moments in which another workload's kernels run.

    Expected: within an hour both run independently. Worst case: they always run at the same moments.
    """
    present = ~np.isnan(own.hourly_pct)
    mine = own.hourly_pct[present] / 100
    beside = [np.nan_to_num(each.hourly_pct[present]) / 100 for each in others]
    expected = 1 + sum(float(np.mean(mine * each)) for each in beside)
    at_most = 1 + sum(float(np.mean(np.minimum(mine, each))) for each in beside)
    return Slowdown(expected, at_most)


BLOCK = 40
"""Candidates that are examined together: 9,880 triples, which the solver proves best in a tenth of a second."""
ROUNDS = 3
"""With more candidates, the remaining ones are examined again in other blocks."""

_LEVELS = int(BUSY_MAX_PCT) + 1


@dataclass(frozen=True)
class Sharing:
    """The groups, and the number of cards that no choice could exceed."""

    groups: tuple[Group, ...]
    at_most: int


def best_sharing(those: Sequence[CardSharer], best_effort: frozenset[int], card_bytes: int) -> Sharing:
    """Return the pairs and triples that spare the most cards. At most one member of a group is not best effort.

    Each of `those` has a card of its own. `best_effort` has the numbers of those that may be slowed or stopped.
    """
    left = sorted(those, key=lambda each: (each.work in best_effort, -each.memory_bytes, each.work))
    proven = len(left) <= BLOCK
    found: list[Group] = []
    for _ in range(1 if proven else ROUNDS):
        blocks = -(-len(left) // BLOCK)
        # each block has its part of those that give way, and of large and small ones
        shared = [_in_block(left[first::blocks], best_effort, card_bytes) for first in range(blocks)]
        found += [group for each in shared for group in each.groups]
        grouped = {member.work for group in found for member in group.members}
        left = [each for each in left if each.work not in grouped]
        if proven:
            return Sharing(tuple(found), sum(each.at_most for each in shared))
    return Sharing(tuple(found), _bound(those, best_effort, card_bytes))


def _in_block(block: Sequence[CardSharer], best_effort: frozenset[int], card_bytes: int) -> Sharing:
    fitting = fitting_groups(block, best_effort, card_bytes)
    choice = best_groups(fitting, len(block))
    tried = (together(tuple(block[each] for each in fitting[number]), card_bytes) for number in choice.chosen)
    return Sharing(tuple(group for group in tried if group is not None), choice.at_most)


def _bound(those: Sequence[CardSharer], best_effort: frozenset[int], card_bytes: int) -> int:
    """Return the bound: a card holds a limited number, one that is not best effort, and limited memory."""
    important = sum(each.work not in best_effort for each in those)
    memory = sum(each.memory_bytes for each in those)
    cards = max(important, -(-len(those) // GROUP_MAX), int(np.ceil(memory / (MEMORY_MAX_SHARE * card_bytes))))
    return len(those) - cards


def fitting_groups(those: Sequence[CardSharer], best_effort: frozenset[int], card_bytes: int) -> list[tuple[int, ...]]:
    """Return the pairs that `together` accepts with a best-effort member, and triples of only such pairs; by place."""
    if len(those) < 2:
        return []
    memory = np.array([each.memory_bytes for each in those], np.float64)
    gives_way = np.array([each.work in best_effort for each in those])
    hourly = np.array([each.hourly_pct for each in those])
    shares = np.array([each.histogram / each.histogram.sum() for each in those])
    # what each stays within, from what the others leave down to 0
    within = np.cumsum(shares, axis=1)[:, _LEVELS - 1 :: -1]
    room = MEMORY_MAX_SHARE * card_bytes
    one, two = np.triu_indices(len(those), 1)
    kept = (memory[one] + memory[two] <= room) & (gives_way[one] | gives_way[two])
    one, two = one[kept], two[kept]
    bursts = np.einsum("ij,ij->i", shares[one][:, :_LEVELS], within[two])
    kept = (bursts >= BUSY_SHARE - 1e-9) & _calm(hourly[one] + hourly[two])
    one, two = one[kept], two[kept]
    beside = np.zeros((len(those), len(those)), np.bool_)
    beside[one, two] = True
    pair, third = np.nonzero(beside[one] & beside[two])
    kept = memory[one[pair]] + memory[two[pair]] + memory[third] <= room
    pair, third = pair[kept], third[kept]
    both = np.array([np.convolve(shares[a], shares[b])[:_LEVELS] for a, b in zip(one, two, strict=True)])
    if len(pair):
        bursts = np.einsum("ij,ij->i", both[pair], within[third])
        kept = (bursts >= BUSY_SHARE - 1e-9) & _calm(hourly[one[pair]] + hourly[two[pair]] + hourly[third])
        pair, third = pair[kept], third[kept]
    pairs = list(zip(one.tolist(), two.tolist(), strict=True))
    return [*pairs, *((*pairs[each], other) for each, other in zip(pair.tolist(), third.tolist(), strict=True))]


def _calm(sums: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which rows of summed hours are long enough and calm; NaN is absent.

    Calm rows stay within BUSY_MAX_PCT for BUSY_SHARE of their hours.
    """
    hours = (~np.isnan(sums)).sum(axis=1)
    at = np.maximum(np.ceil(BUSY_SHARE * hours).astype(np.int64) - 1, 0)
    level: NDArray[np.float64] = np.take_along_axis(np.sort(sums, axis=1), at[:, None], axis=1)[:, 0]  # NaN comes last
    calm: NDArray[np.bool_] = (hours >= ALIGNED_MIN_HOURS) & (level <= BUSY_MAX_PCT)
    return calm
