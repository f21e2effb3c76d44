"""Which whole GPUs can be given to somebody else, from which day, by whom and how surely: each GPU once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

import polars as pl

from analytics.inventory import UNKNOWN_MODEL, Device
from analytics.money.cards import card
from analytics.names import JOINER
from analytics.plan.endings import Chance, Endings
from analytics.states import ALLOCATED
from analytics.workloads.model import Context
from analytics.workloads.reclaimable import Reclaimable
from analytics.workloads.window_end import last_rows

SupplySource = Literal["idle", "time_limit", "project_end", "fading"]
"""Idle and safe to give back now, or what ends (`analytics.plan.endings`)."""


Host = tuple[str, str, str]
"""The pool, the model and the name of a host."""


@dataclass(frozen=True)
class Freed:
    """How GPUs come free from a day on.

    `name` is the job, project or user that ends, empty of idle ones. `team` gives them, several are joined by `+`; None is nobody,
    or not known. `leaves` is the day from which the team has them no more whether or not they are given to anybody: None of
    idle ones that do not end.
    """

    free_from: date
    source: SupplySource
    name: str
    team: str | None
    chance: Chance | None
    leaves: date | None


@dataclass(frozen=True)
class Supply(Freed):
    """GPUs of one host, and of one NVLink island where it is known, that come free in one way."""

    pool: str
    model: str
    host: str
    island: str | None
    gpus: tuple[str, ...]

    @property
    def host_key(self) -> Host:
        """Where it is."""
        return self.pool, self.model, self.host

    @property
    def doubt(self) -> float:
        """How likely each does not come free: 0 of idle ones, 1 where that is not known."""
        if self.source == "idle":
            return 0.0
        return 1.0 if self.chance is None else 1 - self.chance.point


@dataclass(frozen=True)
class SupplyHost:
    """A host of the fleet by its whole GPUs of one pool and model, whether or not any of them can be given.

    `islands` has the number of GPUs of each NVLink island, where all are known and narrower than the host.
    """

    pool: str
    model: str
    name: str
    width: int
    islands: Mapping[str, int]

    @property
    def key(self) -> Host:
        """What it is known by."""
        return self.pool, self.model, self.name


@dataclass(frozen=True)
class FleetSupply:
    """What can be given from `today` on, as far as it is known `days` ahead.

    `models` are those of the fleet with the memory of a GPU in GiB, rounded, of the least where they differ; `allocated` is how many GPUs each team has at the end of
    the window, shares of several teams in equal parts.
    """

    supplies: tuple[Supply, ...]
    hosts: tuple[SupplyHost, ...]
    models: Mapping[str, int | None]
    allocated: Mapping[str, float]
    today: date
    days: int

    @property
    def last_day(self) -> date:
        """The last on which anything is known to come free."""
        return self.today + timedelta(self.days + 1)


def find_supply(context: Context, safe: Reclaimable, calendar: Endings) -> FleetSupply:
    """GPUs that are idle and safe to give back, and what ends; one that is both counts from today.

    Parts of cards, and cards that several share, are not given.
    """
    rows = last_rows(context)
    inventory = context.inventory
    parts = [gpu for gpu in rows["gpu"] if inventory.card_of(gpu) != gpu]
    whole = rows.filter((pl.col("gpu_share") == 1) & ~pl.col("gpu").is_in(parts)).sort("host", "gpu")
    devices = {gpu: inventory.device(gpu, host) for gpu, host in whole.select("gpu", "host").iter_rows()}
    hosts = _hosts(context, whole, devices)
    return FleetSupply(
        supplies=_supplies(context, whole, hosts, _freed(context, whole, safe, calendar)),
        hosts=tuple(hosts.values()),
        models=_models(devices.values()),
        allocated=_allocated(context, rows),
        today=calendar.today,
        days=calendar.days,
    )


def _freed(context: Context, whole: pl.DataFrame, safe: Reclaimable, calendar: Endings) -> dict[str, Freed]:
    """By GPU how it comes free."""
    found: dict[str, Freed] = {}
    for each in calendar.rows:
        after = each.day + timedelta(1)
        found |= dict.fromkeys(each.gpus, Freed(after, each.source, each.name, each.team, each.chance, after))
    idle = whole.filter(pl.col("gpu").is_in(pl.Series(sorted(safe.safe_gpus), dtype=pl.String).implode()))
    for gpu, holder, account in idle.select("gpu", "holder", "account").iter_rows():
        leaves = found[gpu].leaves if gpu in found else None
        found[gpu] = Freed(calendar.today, "idle", "", context.owners.team(holder, account), None, leaves)
    return found


def _hosts(context: Context, whole: pl.DataFrame, devices: Mapping[str, Device]) -> dict[Host, SupplyHost]:
    """The hosts by pool, model and name."""
    islands: dict[Host, list[str | None]] = defaultdict(list)
    for gpu, host in whole.select("gpu", "host").iter_rows():
        islands[context.inventory.pool(gpu), context.inventory.model(gpu), host].append(devices[gpu].nvlink_island)
    return {key: SupplyHost(*key, len(own), _narrower(own)) for key, own in sorted(islands.items())}


def _narrower(islands: Sequence[str | None]) -> Mapping[str, int]:
    counts = Counter(each for each in islands if each is not None)
    return dict(sorted(counts.items())) if counts.total() == len(islands) and len(counts) > 1 else {}


def _supplies(
    context: Context, whole: pl.DataFrame, hosts: Mapping[Host, SupplyHost], freed: Mapping[str, Freed]
) -> tuple[Supply, ...]:
    """What comes free, one for each host, island and way; by host, the first day first."""
    shared = pl.col("holder").str.contains(JOINER, literal=True).fill_null(value=False)
    groups: dict[tuple[Host, str | None, Freed], list[str]] = defaultdict(list)
    for gpu, host in whole.filter(~shared).select("gpu", "host").iter_rows():
        if gpu in freed:
            device = context.inventory.device(gpu, host)
            place = (context.inventory.pool(gpu), context.inventory.model(gpu), host)
            island = device.nvlink_island if hosts[place].islands else None
            groups[place, island, freed[gpu]].append(gpu)
    found = (
        Supply(**vars(how), pool=pool, model=model, host=host, island=island, gpus=tuple(gpus))
        for ((pool, model, host), island, how), gpus in groups.items()
    )
    return tuple(sorted(found, key=lambda each: (each.pool, each.model, each.host, each.free_from, each.gpus)))


def _models(devices: Iterable[Device]) -> dict[str, int | None]:
    """By model the memory of the least of its GPUs; None where that of any is not known."""
    found: dict[str, list[int | None]] = defaultdict(list)
    for each in devices:
        listed = card(each.model)
        known = each.mem_total_bytes or (None if listed is None else listed.memory_bytes)
        found[each.model or UNKNOWN_MODEL].append(None if known is None else round(known / 2**30))
    return {
        model: None if None in sizes else min(size for size in sizes if size is not None)
        for model, sizes in sorted(found.items())
    }


def _allocated(context: Context, rows: pl.DataFrame) -> dict[str, float]:
    """How many GPUs each team has."""
    found: dict[str, float] = defaultdict(float)
    held = rows.filter(pl.col("state").is_in(ALLOCATED))
    for holder, account, share in held.select("holder", "account", "gpu_share").iter_rows():
        names = (context.owners.team(holder, account) or "").split(JOINER)
        for name in filter(None, names):
            found[name] += share / len(names)
    return dict(sorted(found.items()))
