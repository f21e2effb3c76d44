"""A fleet as a policy changes it: other hosts, other numbers of GPUs, merged pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analytics.plan.replay.policy import EVERY_POOL, ReplayPolicy
from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from fallow.errors import UsageError


def changed_fleet(fleet: ReplayFleet, policy: ReplayPolicy) -> ReplayFleet:
    """The fleet under the policy; raises UsageError where it names a pool that is not there, or merges one twice."""
    groups = _replaced(fleet.groups, policy.groups)
    for name, gpus in policy.gpus.items():
        groups = _resized(groups, name, gpus)
    known = _replaced(fleet.groups, policy.groups)  # with those that have no GPUs left
    for pools in policy.merge:
        _check_pools(known, pools)
    _check_merged_once(policy.merge)
    for pools in policy.merge:
        groups, known = _merged(groups, pools), _merged(known, pools)
    if policy.small_work is not None:
        _check_small_work(known, policy.small_work.to)
    return ReplayFleet(tuple(groups))


def _replaced(groups: Sequence[HostGroup], others: Sequence[HostGroup]) -> list[HostGroup]:
    """The groups, with others instead of all those of their pools; a pool that is not there is new."""
    pools = {group.pool for group in others}
    return [*(group for group in groups if group.pool not in pools), *others]


def _resized(groups: Sequence[HostGroup], name: str, gpus: int) -> list[HostGroup]:
    """So many GPUs in a pool, or in a model of it: hosts that are open to nobody go first, then the last ones, or hosts like its first ones come; one of them perhaps in part."""
    mine = [group for group in groups if name in (EVERY_POOL, group.pool, f"{group.pool}/{group.model}")]
    if not mine:
        raise _no_pool(groups, name)
    if len({(group.pool, group.model) for group in mine}) > 1:
        said = "the fleet" if name == EVERY_POOL else f"the pool {name}"
        hint = f"say which of them, such as {mine[0].pool}/{mine[0].model}"
        raise UsageError(f"{said} has GPUs of several pools or models", hint)
    kept, left = list[HostGroup](), gpus
    mine.sort(key=lambda group: group.partitions == frozenset())
    for group in mine:
        kept += _hosts_with(group, min(left, group.gpus))
        left -= min(left, group.gpus)
    kept += _hosts_with(mine[0], left)
    return [*(group for group in groups if group not in mine), *kept]


def _hosts_with(group: HostGroup, gpus: int) -> list[HostGroup]:
    """Whole hosts like these, and one in part, with so many GPUs in all."""
    whole, part = divmod(gpus, group.gpus_per_host)
    found = [replace(group, hosts=whole), replace(group, hosts=1, gpus_per_host=part)]
    return [each for each in found if each.gpus]


def _check_pools(groups: Sequence[HostGroup], pools: Sequence[str]) -> None:
    for name in pools:
        if name not in {group.pool for group in groups}:
            raise _no_pool(groups, name)


def _check_merged_once(merge: Sequence[Sequence[str]]) -> None:
    names = [name for pools in merge for name in pools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(
            f"the pool {twice} is merged twice", "name all pools that become one together: train,research,old"
        )


def _check_small_work(groups: Sequence[HostGroup], name: str) -> None:
    pools, models = ({group.pool for group in groups}, {group.model for group in groups})
    if name not in pools | models:
        known = ", ".join((*sorted(pools), *sorted(models)))
        raise UsageError(f"small work goes to {name}, which is no pool or model", f"there are {known}")


def _merged(groups: Sequence[HostGroup], pools: Sequence[str]) -> list[HostGroup]:
    """Pools that are one, open to everybody."""
    return [replace(group, pool=pools[0], partitions=None) if group.pool in pools else group for group in groups]


def _no_pool(groups: Sequence[HostGroup], name: str) -> UsageError:
    return UsageError(
        f"there is no pool {name}", f"the pools are {', '.join(sorted({group.pool for group in groups}))}"
    )
