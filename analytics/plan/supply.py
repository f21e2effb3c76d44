"""Whole GPUs that can be reallocated: from which day, from which team and with what certainty. A GPU is listed once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

import polars as pl

from analytics.cards import card
from analytics.inventory import UNKNOWN_MODEL, Device
from analytics.ledger.usage import SEVERAL_HOLD
from analytics.names import JOINER
from analytics.plan.endings import Chance, Endings
from analytics.states import ALLOCATED
from analytics.workloads.model import Context
from analytics.workloads.pool_demand import FleetDemand
from analytics.workloads.window_end import last_rows

SupplySource = Literal["idle", "time_limit", "project_end", "fading"]
"""Idle and releasable now, or an ending (`analytics.plan.endings`)."""


Host = tuple[str, str, str]
"""The pool, the model and the name of a host."""


@dataclass(frozen=True)
class Freed:
    """How GPUs become free from a day."""

    free_from: date
    source: SupplySource
    name: str
    """The job, project or user that ends; empty for idle GPUs."""
    team: str | None
    """The team that frees the GPUs; several are joined by `+`; None if there is none or it is unknown."""
    chance: Chance | None
    leaves: date | None
    """The day from which the team no longer has the GPUs, reallocated or not; None for idle GPUs that do not end."""


@dataclass(frozen=True)
class Supply(Freed):
    """GPUs of a host, and of a single NVLink island where known, that become free in the same way."""

    pool: str
    model: str
    host: str
    island: str | None
    gpus: tuple[str, ...]

    @property
    def host_key(self) -> Host:
        return self.pool, self.model, self.host

    @property
    def doubt(self) -> float:
        """Return the probability that a GPU does not become free: 0 for idle GPUs, 1 if unknown."""
        if self.source == "idle":
            return 0.0
        return 1.0 if self.chance is None else 1 - self.chance.point


@dataclass(frozen=True)
class SupplyHost:
    """A host of the fleet with its whole GPUs of a pool and model, whether or not any can be reallocated."""

    pool: str
    model: str
    name: str
    width: int
    islands: Mapping[str, int]
    """GPUs of each NVLink island, if all are known and narrower than the host."""

    @property
    def key(self) -> Host:
        return self.pool, self.model, self.name


@dataclass(frozen=True)
class FleetSupply:
    """The GPUs that can be reallocated from `today`, as known `days` ahead."""

    supplies: tuple[Supply, ...]
    hosts: tuple[SupplyHost, ...]
    models: Mapping[str, int | None]
    """Models of the fleet with the memory of a GPU in GiB, rounded; the smallest if GPUs differ."""
    allocated: Mapping[str, float]
    """GPUs of each team at the end of the window. Shares of several teams count in equal parts."""
    today: date
    days: int

    @property
    def last_day(self) -> date:
        return self.today + timedelta(self.days + 1)


def find_supply(context: Context, fleet: FleetDemand, calendar: Endings) -> FleetSupply:
    """Return the GPUs that pools can release, and the GPUs of endings. A GPU that is both counts from today.

    Parts of cards and shared cards are left out.
    """
    rows = last_rows(context)
    inventory = context.inventory
    parts = [gpu for gpu in rows["gpu"] if inventory.card_of(gpu) != gpu]
    whole = rows.filter((pl.col("gpu_share") == 1) & ~pl.col("gpu").is_in(parts)).sort("host", "gpu")
    devices = {gpu: inventory.device(gpu, host) for gpu, host in whole.select("gpu", "host").iter_rows()}
    hosts = _hosts(context, whole, devices)
    return FleetSupply(
        supplies=_supplies(context, whole, hosts, _freed_gpus(context, whole, fleet, calendar)),
        hosts=tuple(hosts.values()),
        models=_models(devices.values()),
        allocated=_allocated_gpus(context, rows),
        today=calendar.today,
        days=calendar.days,
    )


def _freed_gpus(context: Context, whole: pl.DataFrame, fleet: FleetDemand, calendar: Endings) -> dict[str, Freed]:
    """Return by GPU how it becomes free."""
    found: dict[str, Freed] = {}
    for each in calendar.rows:
        after = each.day + timedelta(1)
        found |= dict.fromkeys(each.gpus, Freed(after, each.source, each.name, each.team, each.chance, after))
    idle = whole.filter(pl.col("gpu").is_in(pl.Series(sorted(fleet.releasable_gpus), dtype=pl.String).implode()))
    for gpu, user, account in idle.select("gpu", "user", "account").iter_rows():
        leaves = found[gpu].leaves if gpu in found else None
        found[gpu] = Freed(calendar.today, "idle", "", context.owners.team(user, account), None, leaves)
    return found


def _hosts(context: Context, whole: pl.DataFrame, devices: Mapping[str, Device]) -> dict[Host, SupplyHost]:
    """Return the hosts by pool, model and name."""
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
    """Return the supplies: a row per host, island and way of becoming free; by host, the first day first."""
    groups: dict[tuple[Host, str | None, Freed], list[str]] = defaultdict(list)
    for gpu, host in whole.filter(~SEVERAL_HOLD).select("gpu", "host").iter_rows():
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
    """Return by model the smallest memory of its GPUs; None if any is unknown."""
    found: dict[str, list[int | None]] = defaultdict(list)
    for each in devices:
        listed = card(each.model)
        known = each.mem_total_bytes or (None if listed is None else listed.memory_bytes)
        found[each.model or UNKNOWN_MODEL].append(None if known is None else round(known / 2**30))
    return {
        model: None if None in sizes else min(size for size in sizes if size is not None)
        for model, sizes in sorted(found.items())
    }


def _allocated_gpus(context: Context, rows: pl.DataFrame) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    held = rows.filter(pl.col("state").is_in(ALLOCATED))
    for user, account, share in held.select("user", "account", "gpu_share").iter_rows():
        names = (context.owners.team(user, account) or "").split(JOINER)
        for name in filter(None, names):
            found[name] += share / len(names)
    return dict(sorted(found.items()))
