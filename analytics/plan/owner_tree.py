"""Organisations, their teams and the projects of those: what each may have, was given, used, wasted, paid and waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from analytics.capacity.concurrency import hourly_most
from analytics.ledger.shared_work import job_names
from analytics.money.accounts import OF_TEAM, Account, Accounts
from analytics.money.owners import Owners
from analytics.money.priced_segments import NO_ORGANISATION, NO_PROJECT, NOBODY, project_of

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
    jobs, job_ms, gpu_ms, median = rows.select(
        pl.len(), job_ms=wait.sum(), gpu_ms=(wait * pl.col("gpus")).sum(), median=wait.median()
    ).row(0)
    return Waited(jobs, job_ms, gpu_ms, median)
