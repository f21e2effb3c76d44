"""The inventory: what is known of each GPU beyond its samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from analytics.ledger.day_mig import Instance, slices_of
from analytics.small_tables import read_small
from fallow import schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fallow.lake import Lake

_COLUMNS = (
    "time", "gpu", "model", "mem_total_bytes", "power_limit_w", "pool", "driver_version", "source",
    "parent_gpu", "mig_gpu_slices", "mig_enabled", "gpu_index", "nvlink_island", "gpm_supported",
)  # fmt: skip


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
    gpm_supported: bool | None = None


@dataclass(frozen=True)
class Inventory:
    """Device per GPU, and in `hosts_of` every host that ever reported the GPU, in order."""

    devices: Mapping[str, Device]
    hosts_of: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def device(self, gpu: str, host: str) -> Device:
        """The GPU's entry; one with nothing known where the lake has none."""
        return self.devices.get(gpu) or Device(gpu, host)

    def model(self, gpu: str) -> str:
        """The model's name, or `unknown model`."""
        device = self.devices.get(gpu)
        return (device.model if device else None) or "unknown model"

    def pool(self, gpu: str) -> str:
        """The pool's name, or `no pool`."""
        device = self.devices.get(gpu)
        return (device.pool if device else None) or "no pool"

    def instances(self, host: str) -> Mapping[str, Instance]:
        """The MIG instances of a host whose GPU and size are known."""
        return self._instances.get(host, {})

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
        """Whether the GPU exists in a simulation only."""
        device = self.devices.get(gpu)
        return device is not None and device.source == "simulated"

    def count_simulated(self, gpus: Iterable[str]) -> int:
        """How many of the GPUs exist in a simulation only."""
        return sum(self.simulated(gpu) for gpu in gpus)


def load_inventory(lake: Lake) -> Inventory:
    """The newest entry of every GPU in the `device` table; empty where the lake has none."""
    frame = read_small(lake, schema.DEVICE, _COLUMNS).filter(pl.col("gpu").is_not_null()).sort("time", "host")
    rows = frame.unique("gpu", keep="last", maintain_order=True).drop("time")
    hosts: dict[str, list[str]] = {}
    for gpu, host in frame.select("gpu", "host").unique().sort("gpu", "host").iter_rows():
        hosts.setdefault(gpu, []).append(host)
    return Inventory({row["gpu"]: Device(**row) for row in rows.iter_rows(named=True)}, hosts)
