"""The inventory: the facts about each GPU beyond its samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import polars as pl

from analytics.language.sentences import Number, tr, tr_many
from analytics.mig import Instance, slices_of
from analytics.small_tables import read_small
from fallow import schema
from fallow.lake import Lake

NO_POOL = "(no pool)"
UNKNOWN_MODEL = "unknown model"

TERMS = {"gpu": pl.String, "since": pl.Int64, "model": pl.String, "pool": pl.String}
"""Columns of `Inventory.terms`."""


@dataclass(frozen=True)
class Device:
    """The newest inventory entry of one GPU; None is unknown."""

    gpu: str
    host: str
    model: str | None = None
    mem_total_bytes: int | None = None
    power_limit_w: float | None = None
    pool: str | None = None
    driver_version: str | None = None
    source: str | None = None
    parent_gpu: str | None = None
    mig_gpu_slices: int | None = None
    mig_enabled: bool | None = None
    gpu_index: int | None = None
    nvlink_island: str | None = None


@dataclass(frozen=True)
class Inventory:
    """The facts about each GPU."""

    devices: Mapping[str, Device]
    """By GPU."""
    hosts_of: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Every host that ever reported the GPU, in order."""
    terms: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=TERMS))
    """Model and pool of the GPUs that changed one of them, a row from each time (`since`, ms) on.

    Any other GPU has always been what its device states.
    """
    newest_ms: int | None = None
    """Time of the newest entry of all."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return every model of the GPUs, in order."""
        return tuple(sorted({each.model for each in self.devices.values() if each.model is not None}))

    def device(self, gpu: str, host: str) -> Device:
        """Return the GPU's entry; an entry without facts where the lake has none."""
        return self.devices.get(gpu) or Device(gpu, host)

    def model(self, gpu: str) -> str:
        """Return the model's name, or `unknown model`."""
        device = self.devices.get(gpu)
        return (device.model if device else None) or UNKNOWN_MODEL

    def pool(self, gpu: str) -> str:
        """Return the pool's name, or `(no pool)`."""
        device = self.devices.get(gpu)
        return (device.pool if device else None) or NO_POOL

    def card_of(self, gpu: str) -> str:
        """Return the GPU to which a MIG instance belongs; the GPU itself where it is none."""
        device = self.devices.get(gpu)
        return gpu if device is None or device.parent_gpu is None else device.parent_gpu

    def instances(self, host: str) -> Mapping[str, Instance]:
        """Return the MIG instances of a host whose GPU and size are known."""
        return self._instances.get(host, {})

    @property
    def parents(self) -> dict[tuple[str, str], str]:
        """Return the parent GPU of these instances, by host and UUID."""
        return {(host, uuid): each.parent for host, own in self._instances.items() for uuid, each in own.items()}

    @cached_property
    def _instances(self) -> dict[str, dict[str, Instance]]:
        found: dict[str, dict[str, Instance]] = {}
        for device in self.devices.values():
            if device.parent_gpu is not None and device.mig_gpu_slices:
                parent = self.devices.get(device.parent_gpu)
                share = device.mig_gpu_slices / slices_of(parent.model if parent else device.model)
                for host in self.hosts_of.get(device.gpu, (device.host,)):
                    found.setdefault(host, {})[device.gpu] = Instance(device.parent_gpu, share)
        return found

    def simulated(self, gpu: str) -> bool:
        """Return whether the GPU exists in a simulation only."""
        device = self.devices.get(gpu)
        return device is not None and device.source == "simulated"

    def is_scraped(self, host: str) -> bool:
        """Return whether all facts about the host's GPUs are from a metrics server: no agent runs there."""
        sources = {device.source for device in self.devices.values() if device.host == host}
        return sources == {"scraped"}

    def count_simulated(self, gpus: Iterable[str]) -> int:
        """Return how many of the GPUs exist in a simulation only."""
        return sum(self.simulated(gpu) for gpu in gpus)


def simulated_text(simulated: int, gpus: int) -> str:
    """Return the note on simulated GPUs; empty where there are none."""
    if not simulated:
        return ""
    if simulated == gpus:
        return tr(
            "SIMULATED FLEET: none of these GPUs exists; the figures show what fallow does, not what a site wastes."
        )
    return tr_many(
        "{number} of {gpus} GPUs {is|are} SIMULATED: {its|their} figures are no measurements.",
        simulated,
        gpus=Number(gpus),
    )


def load_inventory(lake: Lake, *, compare_all: bool = False) -> Inventory:
    """Return the inventory with the newest entry of every GPU in the `device` table; empty where the lake has none.

    `compare_all`: as in `read_small`.
    """
    columns = ["time", *(each.name for each in fields(Device) if each.name != "host")]
    frame = (
        read_small(lake, schema.DEVICE, columns, compare_all=compare_all)
        .filter(pl.col("gpu").is_not_null())
        .sort("time", "host")
    )
    rows = frame.unique("gpu", keep="last", maintain_order=True).drop("time")
    hosts: dict[str, list[str]] = {}
    for gpu, host in frame.select("gpu", "host").unique().sort("gpu", "host").iter_rows():
        hosts.setdefault(gpu, []).append(host)
    devices = {row["gpu"]: Device(**row) for row in rows.iter_rows(named=True)}
    return Inventory(devices, hosts, _terms(frame), frame.select(pl.col("time").max()).item())


def _terms(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the model and pool of each GPU that changed one of them, with the start of each term.

    The first entry also holds for the time before it. Where the first entries name no pool, the first pool applies to
    them, because it was not yet stated. A card keeps its model, so an entry without a model changes nothing.
    """
    entries = frame.select("gpu", "model", "pool", since="time").unique(
        ("gpu", "since"), keep="last", maintain_order=True
    )
    named = entries.sort("gpu", "since").with_columns(
        pl.col("model").forward_fill().backward_fill().over("gpu"),
        # only the time before the first name is filled: a later entry without a pool means that the GPU left its pool
        pool=pl.when(pl.col("pool").is_not_null().cum_sum().over("gpu") == 0)
        .then(pl.col("pool").drop_nulls().first().over("gpu"))
        .otherwise("pool"),
    )
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("gpu", "model", "pool"))
    changes = named.filter(~same.fill_null(value=False))
    return changes.filter(pl.len().over("gpu") > 1).select(*TERMS)
