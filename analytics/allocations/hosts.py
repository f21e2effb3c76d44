"""The lake's hosts and their GPUs, for sources of claims that name nodes and positions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from analytics.frames import read_frame
from fallow import schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fallow.lake import Lake, LakeFile

_DAYS = 2  # the newest day may have begun a moment ago, and not every GPU been written yet


@dataclass(frozen=True)
class Hosts:
    """Hosts of the lake by name, and which GPU lies where."""

    names: frozenset[str] = frozenset()
    host_of_gpu: Mapping[str, str] = field(default_factory=dict)
    in_order: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Whole GPUs of each host by the number of their device node; hosts where some GPU has none are left out."""

    @staticmethod
    def of(lake: Lake) -> Hosts:
        """What the newest inventory says; nothing for a lake that does not exist yet."""
        if not lake.store.exists():
            return Hosts()
        frame = read_frame(
            _newest(lake.files("device")), schema.DEVICE, ("time", "gpu", "parent_gpu", "gpu_index", "minor_number")
        )
        newest = frame.sort("time", "host").unique("gpu", keep="last", maintain_order=True)
        whole = newest.filter(pl.col("parent_gpu").is_null()).sort("host", "minor_number", "gpu_index")
        in_order = {}
        for (host,), gpus in whole.group_by("host", maintain_order=True):
            numbers = next((gpus[name] for name in ("minor_number", "gpu_index") if not gpus[name].null_count()), None)
            if numbers is not None and numbers.n_unique() == len(numbers):
                in_order[str(host)] = gpus.sort(numbers.name)["gpu"].to_list()
        return Hosts(frozenset(frame["host"].unique()), dict(zip(newest["gpu"], newest["host"], strict=True)), in_order)

    def named(self, node: str, suffix: str = "") -> str:
        """The lake's name for a node: itself with the suffix, else the only host that differs by its domain alone."""
        name = node + suffix
        if name in self.names or suffix:
            return name
        alike = [host for host in self.names if _short(host) == _short(node)]
        return alike[0] if len(alike) == 1 else name

    def at(self, host: str, positions: Sequence[int]) -> list[str] | None:
        """UUIDs of the GPUs at these positions (0 is the first device node); None where one of them is not known."""
        gpus = self.in_order.get(host, ())
        if not all(position < len(gpus) for position in positions):
            return None
        return [gpus[position] for position in positions]


def _newest(files: Sequence[LakeFile]) -> list[LakeFile]:
    """The files of each host's last days."""
    dates: dict[str, set[str]] = defaultdict(set)
    for file in files:
        dates[file.host].add(file.date)
    wanted = {host: sorted(days)[-_DAYS:] for host, days in dates.items()}
    return [file for file in files if file.date in wanted[file.host]]


def _short(host: str) -> str:
    return host.partition(".")[0].lower()
