"""What a replay changes: the fleet, the allocation of jobs and their order; and changes as TOML or flags."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""Columns of REPLAY_JOB_SCHEMA that can rank jobs."""

EVERY_POOL = ""
"""The name in `gpus` of the whole fleet, which then has one pool and one model."""

GPUS_MAX = 100_000
"""A pool of more GPUs is not replayed: memory and time grow with the number of hosts."""


@dataclass(frozen=True)
class Priorities:
    """Which jobs go first."""

    by: str
    """The column that ranks jobs. `priority` is the scheduler's number: the highest first, jobs without one last."""
    values: tuple[str, ...] = ()
    """The values of the column, the most urgent first; other values come last. Empty for `priority`."""
    preempt: bool = False
    """Whether a job without room takes GPUs from less urgent jobs, which return to their old place in the queue."""
    resume: bool = True
    """Whether a preempted job continues where it stopped; otherwise it starts again."""
    cost_ms: int = 0
    """How much longer a preempted job runs."""


@dataclass(frozen=True)
class OffPeakHours:
    """The hours of every day in which deferrable jobs may start: minutes of the day in an IANA time zone.

    An end before the start lies on the next day.
    """

    since_min: int
    until_min: int
    zone: str = "UTC"


@dataclass(frozen=True)
class SmallWork:
    """The pool or model `to` where small work goes first, if its memory fits.

    Small work: jobs of these `kinds`, and every job on one GPU. A job whose memory need is unknown stays in its pool.
    """

    to: str
    kinds: tuple[str, ...] = ("batch", "test")


@dataclass(frozen=True)
class ReplayPolicy:
    """How jobs are replayed; by default with their own allocation, in the order of their submission."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs by `pool`, or by `pool/model` where a pool has several models."""
    more_gpus: Mapping[str, int] = field(default_factory=dict)
    """GPUs to add by the same names; negative numbers remove GPUs."""
    groups: tuple[HostGroup, ...] = ()
    """Hosts that replace all hosts of their pools."""
    merge: tuple[tuple[str, ...], ...] = ()
    """Pools that become one, under the name of the first."""
    order: Order = "fifo"
    """`fifo`: the first job in the queue of a pool and model starts first. `backfill`: later jobs may start first if,
    by the time limits, that does not delay the first job (EASY). `conservative`: later jobs may start first if that
    delays no earlier job."""
    priorities: Priorities | None = None
    off_peak: OffPeakHours | None = None
    """Deferrable jobs that arrive outside these hours arrive when the hours start."""
    small_work: SmallWork | None = None
    share: int = 1
    """How many jobs take turns on one GPU, at most."""
    mig: bool = False
    """Whether jobs on one GPU get the MIG instance that they need."""
    idle_timeout_ms: int | None = None
    """Jobs end when none of their GPUs has worked for this time."""
    limit_to_need: bool = False
    """Whether time limits are the run times."""
    block: int | None = None
    """Jobs get the GPUs that they used, rounded up to blocks of this size."""


def changed_fleet(fleet: ReplayFleet, policy: ReplayPolicy) -> ReplayFleet:
    """Return the fleet under the policy. Raise UsageError for unknown or twice merged pools and impossible sizes."""
    groups = _replaced(fleet.groups, policy.groups)
    for name, gpus in policy.gpus.items():
        groups = _resized(groups, name, gpus)
    for name, more in policy.more_gpus.items():
        groups = _resized(groups, name, gpus_of(groups, name) + more)
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
    """Return the groups with `others` instead of all hosts of their pools; an unknown pool is new."""
    pools = {group.pool for group in others}
    return [*(group for group in groups if group.pool not in pools), *others]


def named_groups(groups: Iterable[HostGroup], name: str) -> list[HostGroup]:
    """Return the groups of a pool, or of `pool/model`."""
    return [group for group in groups if name in (EVERY_POOL, group.pool, f"{group.pool}/{group.model}")]


def gpus_of(groups: Iterable[HostGroup], name: str) -> int:
    return sum(group.gpus for group in named_groups(groups, name))


def _resized(groups: Sequence[HostGroup], name: str, gpus: int) -> list[HostGroup]:
    """Return the groups with this number of GPUs in a pool, or in a model of a pool.

    Hosts closed to all jobs leave first, then the last hosts. New hosts are like the first ones; one may be incomplete.
    """
    mine = named_groups(groups, name)
    if not mine:
        raise _no_pool(groups, name)
    there, subject = gpus_of(mine, name), "the fleet" if name == EVERY_POOL else f"the pool {name}"
    if len({(group.pool, group.model) for group in mine}) > 1:
        hint = f"name one of them, such as {mine[0].pool}/{mine[0].model}"
        raise UsageError(f"{subject} has GPUs of several pools or models", hint)
    if gpus < 0:
        raise UsageError(f"{subject} has {there} GPUs, so {there - gpus} cannot be removed", f"remove {there} at most")
    if gpus > GPUS_MAX:
        raise UsageError(f"{subject} would have {gpus} GPUs", f"a replay takes {GPUS_MAX} GPUs of a pool at most")
    kept, left = list[HostGroup](), gpus
    mine.sort(key=lambda group: group.partitions == frozenset())
    for group in mine:
        kept += _hosts_with(group, min(left, group.gpus))
        left -= min(left, group.gpus)
    kept += _hosts_with(mine[0], left)
    return [*(group for group in groups if group not in mine), *kept]


def _hosts_with(group: HostGroup, gpus: int) -> list[HostGroup]:
    """Return hosts like these with this number of GPUs: whole hosts, and one incomplete host for the rest."""
    whole, part = divmod(gpus, group.gpus_per_host)
    found = [replace(group, hosts=whole), replace(group, hosts=1, gpus_per_host=part)]
    return [each for each in found if each.gpus]


def _merged(groups: Sequence[HostGroup], pools: Sequence[str]) -> list[HostGroup]:
    """Return the groups with these pools merged into the first and open to all partitions."""
    return [replace(group, pool=pools[0], partitions=None) if group.pool in pools else group for group in groups]


def _no_pool(groups: Sequence[HostGroup], name: str) -> UsageError:
    return UsageError(
        f"there is no pool {name}", f"the pools are {', '.join(sorted({group.pool for group in groups}))}"
    )


GIB = 1 << 30
_DAY_MIN = 24 * 60
_SPAN = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)")

Reader: TypeAlias = Callable[[object], Any]
"""Returns the meaning of a value; raises UsageError with what is expected."""


def policy_table(path: Path) -> Mapping[str, object]:
    """Return the keys and values of a file; raise UsageError if it cannot be read."""
    try:
        return tomllib.loads(given_text("the policy", path, SETTINGS_BYTES, UsageError))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the policy {path} is not TOML: {error}", "correct that line") from error


def policy_from(content: Mapping[str, object], zone: str, where: str) -> ReplayPolicy:
    """Return the policy of keys and values, as in a file; raise UsageError, which starts with `where`."""
    found = _read(content, _POLICY, where)
    if "gpus" in found:
        found["gpus"], found["more_gpus"] = found["gpus"]
    hours, kinds = found.pop("off_peak", None), found.pop("small_work_kinds", None)
    if hours is not None:
        found["off_peak"] = OffPeakHours(hours[0], hours[1], zone)
    if "small_work_to" in found:
        found["small_work"] = SmallWork(found.pop("small_work_to"), *([kinds] if kinds is not None else []))
    elif kinds is not None:
        raise UsageError(f"{where} sets small_work_kinds without small_work_to", "set small_work_to as well")
    if found.get("mig") and found.get("share", 1) > 1:
        raise UsageError(
            f"{where} sets both mig and share", "a GPU is shared in one of these ways: leave out the other"
        )
    return ReplayPolicy(**found)


def _read(content: Mapping[str, object], readers: Mapping[str, tuple[str, Reader]], where: str) -> dict[str, Any]:
    """Return the values of a table by the names of the attributes that they set."""
    found = {}
    for key, value in content.items():
        if key not in readers:
            near = get_close_matches(key, readers, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(readers)}"
            raise UsageError(f"{where} sets {key}, which is not a known key".strip(), hint)
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
            raise UsageError(f"must be a whole number of at least {least}", f"write {max(least, 1)}, without quotes")
        return value

    return read


def _amount(unit: float) -> Reader:
    """Return a reader of a number above 0, multiplied by the unit."""

    def read(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise UsageError("must be a number above 0", "write 2 or 0.5, without quotes")
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


_DIFFERENCE = re.compile(r"[+-]\d{1,9}")


def _gpus(value: object) -> tuple[dict[str, int], dict[str, int]]:
    """Return GPUs by pool, and GPUs to add by pool; a single value stands for a fleet of one pool."""
    by_pool = value if isinstance(value, dict) else {EVERY_POOL: value}
    counts, differences = dict[str, int](), dict[str, int]()
    for pool, gpus in by_pool.items():
        if isinstance(gpus, str) and _DIFFERENCE.fullmatch(gpus):
            differences[pool] = int(gpus)
        elif isinstance(gpus, int) and not isinstance(gpus, bool) and gpus >= 0:
            counts[pool] = gpus
        else:
            raise UsageError("must be a number of GPUs", 'write 48, or "+16" for 16 more and "-8" for 8 fewer')
    return counts, differences


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
        raise UsageError("has no by", f"set by to one of {', '.join(PRIORITY_COLUMNS)}")
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
        raise UsageError("has an incomplete table", "write pool, model, count and gpus_per_host in every [[hosts]]")
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
"""The keys of a policy: the attribute that a key sets, and its reader."""


def policy_over(today: ReplayPolicy, table: Mapping[str, object], zone: str, where: str) -> ReplayPolicy:
    """Return a policy file's policy, by default with today's order and priorities. A UsageError begins with `where`."""
    policy = policy_from({"order": today.order, **table}, zone, where)
    return policy if "priorities" in table else replace(policy, priorities=today.priorities)
