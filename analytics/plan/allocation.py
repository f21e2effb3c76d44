"""Allocation of GPUs: who has them, who waits, and which become free. The data behind `fallow plan allocation`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.capacity.jobs import IS_COUNTED, jobs_in_window, located, with_allocation_facts
from analytics.frames import with_mapped
from analytics.inventory import Inventory
from analytics.ledger.build import Ledger
from analytics.money.accounts import OF_TEAM, Account, Accounts
from analytics.money.owners import Owners
from analytics.money.priced_segments import NO_ORGANISATION, NO_PROJECT, NO_TEAM, NOBODY, placed, project_of, whose
from analytics.money.window_money import Money
from analytics.plan.endings import Ending, Endings
from analytics.plan.starving import StarvingPair, starving_pairs
from analytics.scope import Scope
from analytics.states import IDLE_ALLOCATED
from analytics.workloads.model import Context
from analytics.workloads.uptake import added_gpus, ramps
from fallow.clock import DAY_MS, utc_day


def owner_waits(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int], owners: Owners) -> pl.DataFrame:
    """Return the jobs that waited or ran in a window. Jobs without a submission time or a GPU count are left out.

    Columns: those of `jobs_in_window`, and organisation, team and team_project as `Accounts` labels them.

    `jobs` has JOB_SCHEMA; `placed` are the ledger's rows of the window with `pool`.
    """
    known, _ = located(jobs, placed)
    rows = jobs_in_window(known, *window).filter(IS_COUNTED)

    def path(user: str | None, account: str | None, project: str | None) -> tuple[str, str, str]:
        team, organisation = whose(owners, user, account)
        named = project_of(owners, user, account, project) or NO_PROJECT
        return organisation or NO_ORGANISATION, team or NO_TEAM, OF_TEAM.join((team or NO_TEAM, named))

    labels = dict.fromkeys(("organisation", "team", "team_project"), pl.String())
    return with_mapped(rows, ("user", "account", "project"), labels, path)


Level = Literal["organisation", "team", "project"]

_GROUPS: dict[str, Level] = {"organisation": "organisation", "team": "team", "team_project": "project"}
"""The level of a tree node, by the column that names it."""


@dataclass(frozen=True)
class QueueWaitSum:
    """The queue waits of some jobs in the window."""

    jobs: int
    """Jobs with and without a wait."""
    job_ms: int
    gpu_ms: int
    """Sum of the waits, each times the GPUs of the job."""
    median_ms: float | None
    """Median wait of the jobs that started or still wait; None without jobs."""


@dataclass(frozen=True)
class OwnerNode:
    """An organisation, team or project, with its GPU time and queue waits."""

    level: Level
    label: str
    """The name, or the words for time without an organisation, team or project."""
    account: Account | None
    """The GPU time and its cost; None without any allocation."""
    quota_gpus: float | None
    """The quota in GPUs; None without a quota, or if the tree covers a part of the GPUs."""
    mean: float
    """Allocated GPUs, on average over the window."""
    most: float | None
    """Allocated GPUs in the highest whole hour; None if the window has no whole hour."""
    waited: QueueWaitSum
    children: tuple[OwnerNode, ...] = ()
    """The nodes of the next level. They add up to this node: time without a team or project has a node of its own."""

    @property
    def allocated_ms(self) -> float:
        return 0.0 if self.account is None else self.account.allocated_ms

    @property
    def used_ms(self) -> float:
        """Return the part of the allocated GPU time that was used."""
        return 0.0 if self.account is None else self.account.effective_ms

    @property
    def low_unused_ms(self) -> float:
        """Return the unused part of the time with low use."""
        return self.allocated_ms - self.used_ms - sum(map(self.state_ms, IDLE_ALLOCATED))

    def state_ms(self, state: str) -> float:
        return 0.0 if self.account is None else self.account.state_ms[state]

    @property
    def cents(self) -> int | None:
        """Return the cost; None without a price."""
        return 0 if self.account is None else self.account.paid_cents


def owner_tree(
    accounts: Accounts, waits: pl.DataFrame, owners: Owners, window: tuple[int, int], *, has_quotas: bool
) -> tuple[OwnerNode, ...]:
    """Return the organisations with their teams and projects, the most GPU time first.

    The accounts are of rows `with_allocation_facts`, the waits from `owner_waits`. `has_quotas`: the accounts cover all
    GPUs, and only to these quotas apply.
    """
    quotas = owners if has_quotas else Owners.none()
    levels = {group: _nodes(group, accounts, waits, quotas, window) for group in _GROUPS}
    known = {team.name: team.organisation or NO_ORGANISATION for team in owners.teams().values()}
    pairs = (rows.select("team", "organisation").unique() for rows in (accounts.allocated, waits))
    organisations = known | dict(row for each in pairs for row in each.iter_rows())
    for label, team in levels["team"].items():
        own = [each for path, each in levels["team_project"].items() if path.partition(OF_TEAM)[0] == label]
        levels["team"][label] = replace(team, children=_most_first(own))
    for label, organisation in levels["organisation"].items():
        own = [each for name, each in levels["team"].items() if organisations[name] == label]
        levels["organisation"][label] = replace(organisation, children=_most_first(own))
    return _most_first(list(levels["organisation"].values()))


def _most_first(nodes: Sequence[OwnerNode]) -> tuple[OwnerNode, ...]:
    return tuple(sorted(nodes, key=lambda each: (-each.allocated_ms, -each.waited.gpu_ms, each.label)))


def _nodes(
    group: str, accounts: Accounts, waits: pl.DataFrame, owners: Owners, window: tuple[int, int]
) -> dict[str, OwnerNode]:
    given = {each.label: each for each in accounts.by(group) if each.allocated_ms > 0}
    most = hourly_most(accounts.allocated, (group,), *window).group_by(group).agg(pl.col("most").max())
    highest = dict(most.iter_rows())
    wait = pl.col("until") - pl.col("begin")
    sums = waits.group_by(group).agg(
        pl.len(), job_ms=wait.sum(), gpu_ms=(wait * pl.col("gpus")).sum(), median_ms=wait.median()
    )
    waited = {str(name): QueueWaitSum(*figures) for name, *figures in sums.iter_rows()}
    quotas = _quotas(group, owners)
    span_ms = window[1] - window[0]
    nodes = {}
    for label in sorted({*given, *waited, *quotas} - {NOBODY}):
        account = given.get(label)
        nodes[label] = OwnerNode(
            level=_GROUPS[group],
            label=label.rpartition(OF_TEAM)[2],
            account=account,
            quota_gpus=quotas.get(label),
            mean=0.0 if account is None else account.allocated_ms / span_ms,
            most=highest.get(label, 0.0 if account is None else None),
            waited=waited.get(label, QueueWaitSum(0, 0, 0, None)),
        )
    return nodes


def _quotas(group: str, owners: Owners) -> Mapping[str, float]:
    """Return the sum of the quotas by label, for labels with a quota."""
    found: dict[str, float] = {}
    for line in owners.by_name.values():
        if line.quota_gpus is not None:
            organisation = owners.teams()[line.team].organisation or NO_ORGANISATION
            project = project_of(
                owners, line.name if line.kind == "user" else None, None if line.kind == "user" else line.name
            )
            path = OF_TEAM.join((line.team, project or NO_PROJECT))
            label = {"organisation": organisation, "team": line.team, "team_project": path}[group]
            found[label] = found.get(label, 0.0) + line.quota_gpus
    return found


_HOURS_A_DAY = 24


@dataclass(frozen=True)
class Arrival:
    """The cards of a pool and model that were first observed on a host on a day (UTC)."""

    day: date
    pool: str
    model: str
    host: str
    gpus: tuple[str, ...]
    unused: int
    """Cards without any use up to the end of the window."""
    idle_days: float
    """Card-days from first observation to first use, or to the last observation if a card was never used."""
    first_use_days: float | None
    """Median days to first use, of the cards that were used; None without such a card."""
    ramp_days: float | None
    """Median days to half of the fleet's mean activity, of the cards that reached it; None without such a card."""
    active_share: float | None
    """Share of the time since arrival in which the cards were active; None if unknown."""
    fleet_share: float | None
    """The same share of the cards that were there from the start; None if unknown."""
    day_cost: float | None
    """Cost of a day of all these cards; None without a price."""
    idle_cost: float | None
    """Cost of the idle days; None without a price."""
    earlier_days: float | None
    """Median days to first use of earlier cards.

    A card without use counts its days so far, so the value may be too low, never too high.
    """
    earlier: int
    """Number of cards that came before."""


def arrivals(context: Context) -> tuple[Arrival, ...]:
    """Return the cards that came after the lake's first day, the newest first. Cards of the first day are not new."""
    added = added_gpus(context)
    if added.is_empty():
        return ()
    schema = {"pool": pl.String(), "model": pl.String(), "rate": pl.Float64()}
    inventory, rate_of = context.inventory, context.costs.rate_of
    cards = with_mapped(
        ramps(context, added), ("gpu",), schema, lambda gpu: (inventory.pool(gpu), inventory.model(gpu), rate_of(gpu))
    ).with_columns(
        idle_days=(pl.coalesce("first_use", "last_seen") - pl.col("first_seen")) / DAY_MS,
        ramp_days=(pl.col("ramp_day") - pl.col("day")).cast(pl.Float64),
    )
    hourly, idle_days, place = pl.col("rate"), pl.col("idle_days"), ("day", "pool", "model", "host")
    is_priced, is_used = hourly.null_count() == 0, pl.col("first_use").is_not_null()
    ordered = cards.sort(*place, "gpu", descending=(True, False, False, False, False))
    batches = ordered.group_by(place, maintain_order=True).agg(
        "gpu",
        unused=(~is_used).sum(),
        idle=idle_days.sum(),
        first_use_days=idle_days.filter(is_used).median(),
        ramp_days=pl.col("ramp_days").median(),
        active_share=pl.col("active_share").mean(),
        fleet_share=pl.col("fleet_mean").first(),
        day_cost=pl.when(is_priced).then(hourly.sum() * _HOURS_A_DAY),
        idle_cost=pl.when(is_priced).then((hourly * idle_days).sum() * _HOURS_A_DAY),
    )
    found = []
    for day, pool, model, host, gpus, *figures in batches.iter_rows():
        earlier = cards.filter(pl.col("day") < day).select(idle_days.median(), pl.len()).row(0)
        came = date.fromisoformat(utc_day(day * DAY_MS))
        found.append(Arrival(came, pool, model, host, tuple(gpus), *figures, *earlier))
    return tuple(found)


@dataclass(frozen=True)
class FleetAllocation:
    """What a reader may know about GPUs that are allocated, waited for and becoming free."""

    tree: tuple[OwnerNode, ...]
    pairs: tuple[StarvingPair, ...] | None
    """Teams that wait while others leave GPUs unused; None for people, who see no other team."""
    endings: tuple[Ending, ...]
    """The endings of the scope."""
    calendar: Endings
    """All endings, and what is known about them."""
    arrivals: tuple[Arrival, ...] | None
    """New cards; None for people, who have no cards of their own."""
    waits: int
    """Number of jobs with a submission time in the window."""
    poolless_ms: float
    """GPU time of waits whose pool is unknown."""
    has_owners: bool
    """True if there is an owners table."""
    currency: str
    seen: float | None
    """Observed share of the window; None if the window has no time."""
    open_ms: float
    """Allocated GPU time that is idle by point samples only."""


@dataclass(frozen=True)
class Owned:
    """The GPU time and the queue waits of all users or of a scope, and the window."""

    accounts: Accounts
    waits: pl.DataFrame
    window: tuple[int, int]


def owned_in(ledger: Ledger, jobs: pl.DataFrame, window: tuple[int, int], money: Money, inventory: Inventory) -> Owned:
    """Return the GPU time and queue waits of all users, from a ledger clipped to the window."""
    rows = with_allocation_facts(ledger.segments, jobs, ("project",))
    waits = owner_waits(jobs, placed(ledger.segments, money.costs, inventory), window, money.owners)
    accounts = Accounts(replace(ledger, segments=rows), money.costs, inventory, money.owners)
    return Owned(accounts, waits, window)


def poolless_ms(waits: pl.DataFrame) -> float:
    """Return the GPU time of waits whose pool is unknown."""
    spans = waits.filter(pl.col("pool").is_null()).select((pl.col("until") - pl.col("begin")) * pl.col("gpus"))
    return float(spans.to_series().sum())


def tree_of(part: Owned, scope: Scope, owners: Owners) -> tuple[OwnerNode, ...]:
    """Return the owner tree of a scope, with quotas if the scope has all GPUs and at least a whole team."""
    has_quotas = scope.of_gpus.is_all and scope.user is None
    own = {name: team for name, team in owners.teams().items() if scope.team in (None, name)}
    lines = {(line.kind, line.name): line for team in own.values() for line in team.owners}
    return owner_tree(part.accounts, part.waits, Owners(lines), part.window, has_quotas=has_quotas)


def pairs_of(everybody: Owned, owners: Owners, held_min_ms: int) -> tuple[StarvingPair, ...]:
    """Return the teams that wait while others leave GPUs unused, over all GPUs."""
    quotas = {team.name: team.quota_gpus for team in owners.teams().values() if team.quota_gpus is not None}
    return starving_pairs(everybody.waits, everybody.accounts.allocated, quotas, everybody.window, held_min_ms)
