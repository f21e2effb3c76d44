"""Who has which GPUs, who wants them and which come free: what `fallow plan allocation` answers from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

import polars as pl

from analytics.capacity.demand import hourly_most
from analytics.frames import with_mapped
from analytics.inventory import Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.usage import job_names
from analytics.money.accounts import OF_TEAM, Account, Accounts
from analytics.money.owners import Owners
from analytics.money.priced_segments import NO_ORGANISATION, NO_PROJECT, NO_TEAM, NOBODY, placed, project_of, whose
from analytics.money.window_money import Money
from analytics.plan.endings import Ending, Endings
from analytics.plan.jobs import IS_COUNTED, jobs_in_window, located
from analytics.plan.starving import StarvingPair, starving_pairs
from analytics.scope import Scope
from analytics.workloads.model import Context
from analytics.workloads.uptake import added_gpus, ramps
from fallow.clock import DAY_MS, utc_day


def owner_waits(jobs: pl.DataFrame, placed: pl.DataFrame, window: tuple[int, int], owners: Owners) -> pl.DataFrame:
    """The jobs that waited in a window or got GPUs in it, of those whose time of asking and number of GPUs are known.

    Columns: those of `jobs_in_window`, and organisation, team and team_project as `Accounts` labels them.

    Args:
        jobs: with JOB_SCHEMA.
        placed: the ledger's rows of the window with `pool`.
        window: its start and end, in ms.
        owners: who is who.
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
"""By column what a row of the tree is."""


@dataclass(frozen=True)
class Waited:
    """What jobs waited for GPUs in the window: job time, the same times the GPUs of each, and the median of all that were let in or wait."""

    jobs: int
    job_ms: int
    gpu_ms: int
    median_ms: float | None


@dataclass(frozen=True)
class OwnerNode:
    """One organisation, team or project; `label` is its name, or what stands for one.

    `account` is None where it was given nothing. `quota_gpus` is None where no line has one, and for a part of the GPUs;
    `mean` are the GPUs that it had on average, `most` those of its highest whole hour, None where the window has no whole hour. The children have all of
    their parent: what is of no team or project is one of them.
    """

    level: Level
    label: str
    account: Account | None
    quota_gpus: float | None
    mean: float
    most: float | None
    waited: Waited
    children: tuple[OwnerNode, ...] = ()

    @property
    def allocated_ms(self) -> float:
        """GPU time that it was given."""
        return 0.0 if self.account is None else self.account.allocated_ms

    @property
    def used_ms(self) -> float:
        """Of it what did something."""
        return 0.0 if self.account is None else self.account.effective_ms

    @property
    def low_unused_ms(self) -> float:
        """Of it the unused part of time with little activity."""
        return self.allocated_ms - self.used_ms - self.state_ms("held") - self.state_ms("reserved")

    def state_ms(self, state: str) -> float:
        """GPU time of a state."""
        return 0.0 if self.account is None else self.account.state_ms[state]

    @property
    def cents(self) -> int | None:
        """What was paid; None without a price."""
        return 0 if self.account is None else self.account.paid_cents


def owner_tree(
    accounts: Accounts, waits: pl.DataFrame, owners: Owners, window: tuple[int, int], *, has_quotas: bool
) -> tuple[OwnerNode, ...]:
    """The organisations with their teams and projects, the most GPU time first.

    Args:
        accounts: the money of the window, of rows `with_claimed_projects`.
        waits: see `owner_waits`.
        owners: who is who.
        window: its start and end, in ms.
        has_quotas: whether the accounts are of all GPUs, for which quotas are.
    """
    quotas = owners if has_quotas else Owners.none()
    levels = {group: _nodes(group, accounts, waits, quotas, window) for group in _GROUPS}
    organisations = _organisations(accounts, waits, owners)
    for label, team in levels["team"].items():
        own = [each for path, each in levels["team_project"].items() if path.partition(OF_TEAM)[0] == label]
        levels["team"][label] = replace(team, children=_most_first(own))
    for label, organisation in levels["organisation"].items():
        own = [each for name, each in levels["team"].items() if organisations[name] == label]
        levels["organisation"][label] = replace(organisation, children=_most_first(own))
    return _most_first(list(levels["organisation"].values()))


def _most_first(nodes: Sequence[OwnerNode]) -> tuple[OwnerNode, ...]:
    return tuple(sorted(nodes, key=lambda each: (-each.allocated_ms, -each.waited.gpu_ms, each.label)))


def with_claimed_projects(stretches: pl.DataFrame, jobs: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows with `project`: that which the claim of their job names, null of several jobs."""
    named = jobs.drop_nulls("project").unique("job", keep="last").select(_job="job", project="project")
    works = job_names()
    alone = pl.when(works.list.len() == 1).then(works.list.first().str.replace(r"^[a-z]+:", ""))
    return stretches.with_columns(_job=alone).join(named, on="_job", how="left", maintain_order="left").drop("_job")


def _organisations(accounts: Accounts, waits: pl.DataFrame, owners: Owners) -> dict[str, str]:
    """By team the label of its organisation."""
    known = {team.name: team.organisation or NO_ORGANISATION for team in owners.teams().values()}
    pairs = (rows.select("team", "organisation").unique() for rows in (accounts.allocated, waits))
    return known | dict(row for each in pairs for row in each.iter_rows())


def _nodes(
    group: str, accounts: Accounts, waits: pl.DataFrame, owners: Owners, window: tuple[int, int]
) -> dict[str, OwnerNode]:
    given = {each.label: each for each in accounts.by(group) if each.allocated_ms > 0}
    most = hourly_most(accounts.allocated, (group,), *window).group_by(group).agg(pl.col("most").max())
    highest = dict(most.iter_rows())
    waited = {str(name): _waited(own) for (name,), own in waits.group_by(group)}
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
            waited=waited.get(label, Waited(0, 0, 0, None)),
        )
    return nodes


def _quotas(group: str, owners: Owners) -> Mapping[str, float]:
    """By label the quotas of its lines together; of those only that have one."""
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


def _waited(rows: pl.DataFrame) -> Waited:
    wait = pl.col("until") - pl.col("begin")
    return Waited(
        *rows.select(pl.len(), job_ms=wait.sum(), gpu_ms=(wait * pl.col("gpus")).sum(), median_ms=wait.median()).row(0)
    )


_HOURS_A_DAY = 24


@dataclass(frozen=True)
class Arrival:
    """The cards of one pool and model that were first seen on a host on one day (UTC).

    `idle_days` are from a card's first moment to its first use, up to the end of the window where there was none, added up over
    the cards. `first_use_days` and `ramp_days` are medians of the cards that were used, and that reached half of the fleet's
    mean, None where none was. `day_cost` is what a day of all of these cards costs, `idle_cost` that of the idle days, None without a
    price. `active_share` is what share of the time since they were active, `fleet_share` that of the cards from before; None unknown.
    `earlier_days` is the median of the days to first use of the `earlier` cards that came before; one never used counts as it does in
    `idle_days`, so that it is rather said too low than too high.
    """

    day: date
    pool: str
    model: str
    host: str
    gpus: tuple[str, ...]
    unused: int
    idle_days: float
    first_use_days: float | None
    ramp_days: float | None
    active_share: float | None
    fleet_share: float | None
    day_cost: float | None
    idle_cost: float | None
    earlier_days: float | None
    earlier: int


def arrivals(context: Context) -> tuple[Arrival, ...]:
    """The cards that came after the lake's first day, the newest first; what was there from the start is not new."""
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
