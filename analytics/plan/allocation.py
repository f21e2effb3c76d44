"""Who has which GPUs, who wants them and which come free: what `fallow plan allocation` answers from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl

from analytics.inventory import Inventory
from analytics.ledger.build import Ledger
from analytics.money.accounts import Accounts
from analytics.money.owners import Owners
from analytics.money.priced_segments import placed
from analytics.money.window_money import Money
from analytics.plan.endings import Ending, Endings
from analytics.plan.owner_tree import OwnerNode, owner_tree, with_claimed_projects
from analytics.plan.owner_waits import owner_waits
from analytics.plan.starving import StarvingPair, starving_pairs
from analytics.plan.uptake import Arrival
from analytics.scope import Scope


@dataclass(frozen=True)
class FleetAllocation:
    """What a reader may know of who has GPUs, who wants them and which come free.

    `endings` are those of the scope, `calendar` what is known of all of them; `pairs` and `arrivals` are None for people, who
    see nobody else and have no cards of their own. `waits` is how many jobs are known to have asked for GPUs in the window,
    `poolless_ms` the GPU time that was waited for in a pool that nobody knows, `has_owners` whether there is a table of owners, `seen` the observed share of the window, None where it has no time, `open_ms` what of the given GPU time point samples alone call idle.
    """

    tree: tuple[OwnerNode, ...]
    pairs: tuple[StarvingPair, ...] | None
    endings: tuple[Ending, ...]
    calendar: Endings
    arrivals: tuple[Arrival, ...] | None
    waits: int
    poolless_ms: float
    has_owners: bool
    currency: str
    seen: float | None
    open_ms: float


@dataclass(frozen=True)
class Owned:
    """The GPU time of everybody or of a scope, the waits of the same, and the window."""

    accounts: Accounts
    waits: pl.DataFrame
    window: tuple[int, int]


def owned_in(ledger: Ledger, jobs: pl.DataFrame, window: tuple[int, int], money: Money, inventory: Inventory) -> Owned:
    """What a ledger that was clipped to the window says of everybody in it."""
    rows = with_claimed_projects(ledger.stretches, jobs)
    waits = owner_waits(jobs, placed(ledger.stretches, money.costs, inventory), window, money.owners)
    accounts = Accounts(replace(ledger, stretches=rows), money.costs, inventory, money.owners)
    return Owned(accounts, waits, window)


def poolless_ms(waits: pl.DataFrame) -> float:
    """GPU time that was waited for in a pool that nobody knows."""
    spans = waits.filter(pl.col("pool").is_null()).select((pl.col("until") - pl.col("begin")) * pl.col("gpus"))
    return float(spans.to_series().sum())


def tree_of(part: Owned, scope: Scope, owners: Owners) -> tuple[OwnerNode, ...]:
    """The tree of what a scope leaves, with quotas where it is of all GPUs and of a whole team at least."""
    has_quotas = scope.of_gpus.is_all and scope.holder is None
    own = {name: team for name, team in owners.teams().items() if scope.team in (None, name)}
    lines = {(line.kind, line.name): line for team in own.values() for line in team.owners}
    return owner_tree(part.accounts, part.waits, Owners(lines), part.window, has_quotas=has_quotas)


def pairs_of(everybody: Owned, owners: Owners, held_min_ms: int) -> tuple[StarvingPair, ...]:
    """Who starves while who hoards, over all GPUs."""
    quotas = {team.name: team.quota_gpus for team in owners.teams().values() if team.quota_gpus is not None}
    return starving_pairs(everybody.waits, everybody.accounts.allocated, quotas, everybody.window, held_min_ms)
