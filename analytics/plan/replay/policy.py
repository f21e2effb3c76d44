"""What a replay changes: the fleet, what jobs are given, and in which order they begin; and how people write that as TOML or flags."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeAlias

from analytics.plan.replay.replay_fleet import HostGroup, ReplayFleet
from analytics.plan.replay.replay_jobs import KINDS
from fallow.clock import HOUR_MS, MINUTE_MS
from fallow.errors import UsageError
from fallow.given_file import SETTINGS_BYTES, given_text

Order = Literal["fifo", "backfill", "conservative"]
ORDERS: tuple[Order, ...] = ("fifo", "backfill", "conservative")
PRIORITY_COLUMNS = ("priority", "kind", "team", "user", "pool", "partition")
"""By which columns of REPLAY_JOB_SCHEMA jobs can be ranked."""

EVERY_POOL = ""
"""In `gpus`: of the whole fleet, where it has one pool and one model."""


@dataclass(frozen=True)
class Priorities:
    """Which jobs go first: by the values of a column, the most urgent first; values that are not named come last.

    By `priority`, the scheduler's own number, no values are named: more goes first, and jobs without one come last.

    `preempt`: a job that has no room takes GPUs from less urgent ones. What was pre-empted waits again at its old place in the queue; it
    goes on where it stopped (`resume`) or begins anew, and takes `cost_ms` more.
    """

    by: str
    values: tuple[str, ...] = ()
    preempt: bool = False
    resume: bool = True
    cost_ms: int = 0


@dataclass(frozen=True)
class OffPeakHours:
    """The hours of every day in which deferrable jobs may begin: minutes of the day in a time zone of the IANA.

    The end may lie before the beginning: it is on the next day.
    """

    since_min: int
    until_min: int
    zone: str = "UTC"


@dataclass(frozen=True)
class SmallWork:
    """Where small work goes first: to the pool or the model of that name, where its memory fits.

    Small are jobs of these kinds, and any job on one GPU. A job whose need of memory is unknown stays where it was.
    """

    to: str
    kinds: tuple[str, ...] = ("batch", "test")


@dataclass(frozen=True)
class ReplayPolicy:
    """How jobs are replayed; by default as they were given, in the order in which they came.

    gpus             other numbers of GPUs: by `pool`, or `pool/model` where a pool has several models
    groups           hosts that take the place of all those of their pools
    merge            pools that become one, which has the name of the first
    order            `fifo`: the first in the queue of a pool and model begins first; `backfill`: others go before it where, by the
                     time limits, that does not delay it (EASY); `conservative`: where it delays nobody before them
    priorities       which jobs come first in the queue
    off_peak         deferrable jobs that come outside of these hours come when they begin
    small_work       small work goes to older cards first
    share            up to so many jobs take turns on one GPU
    mig              jobs on one GPU get the MIG instance that they need
    idle_timeout_ms  jobs end when none of their GPUs has worked for so long
    limit_to_need    time limits are what jobs needed
    block            jobs get as many GPUs as they ever used, in blocks of so many
    """

    gpus: Mapping[str, int] = field(default_factory=dict)
    groups: tuple[HostGroup, ...] = ()
    merge: tuple[tuple[str, ...], ...] = ()
    order: Order = "fifo"
    priorities: Priorities | None = None
    off_peak: OffPeakHours | None = None
    small_work: SmallWork | None = None
    share: int = 1
    mig: bool = False
    idle_timeout_ms: int | None = None
    limit_to_need: bool = False
    block: int | None = None


def changed_fleet(fleet: ReplayFleet, policy: ReplayPolicy) -> ReplayFleet:
    """The fleet under the policy; raises UsageError where it names a pool that is not there, or merges one twice."""
    groups = _replaced(fleet.groups, policy.groups)
    for name, gpus in policy.gpus.items():
        groups = _resized(groups, name, gpus)
    known = _replaced(fleet.groups, policy.groups)  # with those that have no GPUs left
    merged = [name for pools in policy.merge for name in pools]
    for name in merged:
        if name not in {group.pool for group in known}:
            raise _no_pool(known, name)
    for name in merged:
        if merged.count(name) > 1:
            raise UsageError(
                f"the pool {name} is merged twice", "name all pools that become one together: train,research,old"
            )
    for pools in policy.merge:
        groups, known = _merged(groups, pools), _merged(known, pools)
    if policy.small_work is not None:
        names = (*sorted({group.pool for group in known}), *sorted({group.model for group in known}))
        if policy.small_work.to not in names:
            raise UsageError(
                f"small work goes to {policy.small_work.to}, which is no pool or model", f"there are {', '.join(names)}"
            )
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


def _merged(groups: Sequence[HostGroup], pools: Sequence[str]) -> list[HostGroup]:
    """Pools that are one, open to everybody."""
    return [replace(group, pool=pools[0], partitions=None) if group.pool in pools else group for group in groups]


def _no_pool(groups: Sequence[HostGroup], name: str) -> UsageError:
    return UsageError(
        f"there is no pool {name}", f"the pools are {', '.join(sorted({group.pool for group in groups}))}"
    )


GIB = 1 << 30
_DAY_MIN = 24 * 60
_SPAN = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")

Reader: TypeAlias = Callable[[object], Any]
"""Gives what a value means; raises UsageError with what it has to be."""


def policy_table(path: Path) -> Mapping[str, object]:
    """The keys and values of a file; raises UsageError if it cannot be read."""
    try:
        return tomllib.loads(given_text("the policy", path, SETTINGS_BYTES, UsageError))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the policy {path} is not TOML: {error}", "correct that line") from error


def policy_from(content: Mapping[str, object], zone: str, where: str) -> ReplayPolicy:
    """The policy that keys and values say, as in a file; raises UsageError, which begins with `where`."""
    found = _read(content, _POLICY, where)
    hours, kinds = found.pop("off_peak", None), found.pop("small_work_kinds", None)
    if hours is not None:
        found["off_peak"] = OffPeakHours(hours[0], hours[1], zone)
    if "small_work_to" in found:
        found["small_work"] = SmallWork(found.pop("small_work_to"), *([kinds] if kinds is not None else []))
    elif kinds is not None:
        raise UsageError(f"{where} sets small_work_kinds, but not where they go", "set small_work_to as well")
    if found.get("mig") and found.get("share", 1) > 1:
        raise UsageError(
            f"{where} sets both mig and share", "a GPU is shared in one of these ways: leave out the other"
        )
    return ReplayPolicy(**found)


def _read(content: Mapping[str, object], readers: Mapping[str, tuple[str, Reader]], where: str) -> dict[str, Any]:
    """The values of a table by the names of what they are read into."""
    found = {}
    for key, value in content.items():
        if key not in readers:
            near = get_close_matches(key, readers, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(readers)}"
            raise UsageError(f"{where} sets {key}, which is not known".strip(), hint)
        name, reader = readers[key]
        try:
            found[name] = reader(value)
        except UsageError as error:
            raise UsageError(f"{where}{': ' if where else ''}{key} {error.message}", error.hint) from None
    return found


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError("is not a name", 'write it in quotes, such as "train"')
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise UsageError("is not a list of names", 'write it as ["batch", "test"]')
    return tuple(_text(each) for each in value)


def _kinds(value: object) -> tuple[str, ...]:
    return tuple(_one_of(KINDS)(each) for each in _texts(value))


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError("is neither true nor false", "write true or false, without quotes")
    return value


def _whole(least: int) -> Reader:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UsageError("is not a number that can be", f"write a whole number from {least} on")
        return value

    return read


def _amount(unit: float) -> Reader:
    """A number above 0 of a unit, in what is kept of it."""

    def read(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise UsageError("is not a number that can be", "write a number above 0")
        return value * unit

    return read


def _rounded(unit: float) -> Reader:
    return lambda value: round(_amount(unit)(value))


def _one_of(names: Sequence[str]) -> Reader:
    def read(value: object) -> str:
        if value not in names:
            raise UsageError(f"is none of {', '.join(names)}", "write one of them, in quotes")
        return str(value)

    return read


def _gpus(value: object) -> dict[str, int]:
    """GPUs by pool, from one number where the fleet has one pool."""
    by_pool = value if isinstance(value, dict) else {EVERY_POOL: value}
    return {pool: _whole(0)(gpus) for pool, gpus in by_pool.items()}


def _pools(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list) or not all(isinstance(each, list) and len(each) > 1 for each in value):
        raise UsageError("is not a list of pools that become one", 'write it as [["train", "research"]]')
    return tuple(_texts(each) for each in value)


def _hours(value: object) -> tuple[int, int]:
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    since_h, since_min, until_h, until_min = (int(part) for part in match.groups()) if match else (0, 0, 0, 0)
    since, until = since_h * 60 + since_min, until_h * 60 + until_min
    if max(since, until) > _DAY_MIN or max(since_min, until_min) > 59 or since == until:
        raise UsageError("is not a span of hours", 'write it as "20:00-08:00"')
    return since, until


def _priorities(value: object) -> Priorities:
    found = _table(value, _PRIORITIES, "priorities")
    if "by" not in found:
        raise UsageError("does not say by what", f"set by to one of {', '.join(PRIORITY_COLUMNS)}")
    if (found["by"] == "priority") == ("values" in found):
        hint = "leave out values: more is more urgent" if "values" in found else "set values, the most urgent first"
        raise UsageError(f"by {found['by']} " + ("has no values" if "values" in found else "needs values"), hint)
    return Priorities(**found)


def _groups(value: object) -> tuple[HostGroup, ...]:
    if not isinstance(value, list):
        raise UsageError("is not a list of tables", "write each as [[hosts]]")
    return tuple(_group(each) for each in value)


def _group(value: object) -> HostGroup:
    found = _table(value, _HOSTS, "hosts")
    missing = [each for each in ("pool", "model", "hosts", "gpus_per_host") if each not in found]
    if missing:
        raise UsageError("has hosts of which something is missing", "each needs pool, model, count and gpus_per_host")
    return HostGroup(**found)


def _table(value: object, readers: Mapping[str, tuple[str, Reader]], name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError("is not a table", f"write it below [{name}]")
    return _read(value, readers, "")


_PRIORITIES: Mapping[str, tuple[str, Reader]] = {
    "by": ("by", _one_of(PRIORITY_COLUMNS)),
    "values": ("values", _texts),
    "preempt": ("preempt", _switch),
    "resume": ("resume", _switch),
    "cost_min": ("cost_ms", _rounded(MINUTE_MS)),
}

_HOSTS: Mapping[str, tuple[str, Reader]] = {
    "pool": ("pool", _text),
    "model": ("model", _text),
    "count": ("hosts", _whole(1)),
    "gpus_per_host": ("gpus_per_host", _whole(1)),
    "memory_gib": ("mem_bytes", _rounded(GIB)),
    "price_per_hour": ("hourly_price", _amount(1)),
    "idle_w": ("idle_w", _amount(1)),
    "busy_w": ("busy_w", _amount(1)),
    "slowdown": ("slowdown", _amount(1)),
}

_POLICY: Mapping[str, tuple[str, Reader]] = {
    "gpus": ("gpus", _gpus),
    "hosts": ("groups", _groups),
    "merge": ("merge", _pools),
    "order": ("order", _one_of(ORDERS)),
    "priorities": ("priorities", _priorities),
    "off_peak": ("off_peak", _hours),
    "small_work_to": ("small_work_to", _text),
    "small_work_kinds": ("small_work_kinds", _kinds),
    "share": ("share", _whole(1)),
    "mig": ("mig", _switch),
    "idle_timeout_h": ("idle_timeout_ms", _rounded(HOUR_MS)),
    "limit_to_need": ("limit_to_need", _switch),
    "block": ("block", _whole(1)),
}
"""The keys of a policy: the name of what each is read into, and how."""


def policy_over(today: ReplayPolicy, table: Mapping[str, object], zone: str, where: str) -> ReplayPolicy:
    """The policy of the keys of a policy file; order and priorities that it does not name are today's. Raises UsageError, which begins with `where`."""
    policy = policy_from({"order": today.order, **table}, zone, where)
    return policy if "priorities" in table else replace(policy, priorities=today.priorities)
