"""Types of an import of allocations: its rows, its sources, and the hosts and GPUs that the lake knows."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from analytics.frames import empty, read_frame, shaped
from analytics.importers.model import FileReport, Kind
from fallow import schema
from fallow.config import Config
from fallow.errors import UnusableFileError
from fallow.lake import Lake, LakeFile
from fallow.schema import ALLOCATION, WITHHELD


@dataclass(frozen=True)
class ReadAllocations:
    """All data of one import, ready to be written. Times are integer milliseconds."""

    rows: pl.DataFrame
    """Allocations with ROW_SCHEMA."""
    requests: pl.DataFrame
    """Columns of the `request` table."""
    files: tuple[FileReport, ...]
    time_zone: str
    as_of_ms: int | None
    """The newest moment that the source describes. None if unknown."""
    notes: tuple[str, ...] = ()
    withheld: pl.DataFrame = field(default_factory=lambda: empty(WITHHELD))
    """Columns of the `withheld` table."""

    @property
    def zone(self) -> str:
        return self.time_zone.partition(" ")[0]


@dataclass(frozen=True)
class Surroundings:
    hosts: KnownHosts
    settings: Config


class AllocationSource(Kind, Protocol):
    @property
    def remedies(self) -> Sequence[tuple[str, str]]:
        """Return what to do about an import without rows: parts of reasons, and remedies; the last for all others."""
        ...

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadAllocations:
        """Return the data of the source; write nothing. Raises InputError or UsageError with the remedy."""
        ...


ROW_SCHEMA: dict[str, pl.DataType] = {"host": pl.String(), **empty(ALLOCATION).schema, "as_of": pl.Int64()}
"""Names and types of the columns of an allocation in memory.

`as_of` is the moment that its source describes, at which it ran if it has no end; null if unknown, and in the lake.
"""


def is_reported(suffix: str = "") -> pl.Expr:
    """Return whether a scheduler reported the allocation; one that only labels show has neither submission nor state.

    `suffix` follows the names of the columns.
    """
    return pl.any_horizontal(pl.col(f"submitted{suffix}", f"state{suffix}").is_not_null())


def is_running(suffix: str = "") -> pl.Expr:
    """Return whether the state is that of a running job or pod; beside an end, it was so before that end.

    A pod on a node is Pending until its containers run.
    """
    return pl.col(f"state{suffix}").is_in(["RUNNING", "SUSPENDED", "Pending", "Running"]).fill_null(value=False)


def conform(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with exactly these columns; missing columns are null."""
    return shaped(rows, ROW_SCHEMA)


_DAYS = 2  # the newest day may have started a moment ago, before every GPU was written


@dataclass(frozen=True)
class KnownHosts:
    """Hosts of the lake by name, and the positions of their GPUs."""

    names: frozenset[str] = frozenset()
    host_of_gpu: Mapping[str, str] = field(default_factory=dict)
    in_order: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Whole GPUs by the number of their device node. Left out: hosts with an unnumbered GPU or an unreadable file."""

    @staticmethod
    def of(lake: Lake) -> KnownHosts:
        """Return what the newest inventory states; nothing for a lake that does not exist yet."""
        if not lake.store.exists():
            return KnownHosts()
        files, unsure = _newest_files(lake.files("device")), set[str]()

        def leave_out(file: LakeFile, error: UnusableFileError) -> None:
            lake.left_out.leave_out(file, error)
            unsure.add(file.host)  # a missing GPU would shift the positions of the others

        columns = ("time", "gpu", "parent_gpu", "gpu_index", "minor_number")
        frame = read_frame(files, schema.DEVICE, columns, leave_out)
        newest = frame.sort("time", "host").unique("gpu", keep="last", maintain_order=True)
        whole = newest.filter(pl.col("parent_gpu").is_null()).sort("host", "minor_number", "gpu_index")
        in_order = {}
        for (host,), gpus in whole.group_by("host", maintain_order=True):
            numbers = next((gpus[name] for name in ("minor_number", "gpu_index") if not gpus[name].null_count()), None)
            if host not in unsure and numbers is not None and numbers.n_unique() == len(numbers):
                in_order[str(host)] = gpus.sort(numbers.name)["gpu"].to_list()
        return KnownHosts(
            frozenset(file.host for file in files), dict(zip(newest["gpu"], newest["host"], strict=True)), in_order
        )

    def named(self, node: str, suffix: str = "", cluster: str | None = None, scope: str | None = None) -> str:
        """Return the lake's name for a node: with the suffix, else the only host that differs by its domain alone.

        It is NODE@CLUSTER where the lake has that host, or where `scope` names the cluster: others have such a node.
        """
        if cluster is not None:
            tail = f"@{cluster}"
            there = KnownHosts(frozenset(host.removesuffix(tail) for host in self.names if host.endswith(tail)))
            found = there.named(node, suffix)
            if scope is not None or found in there.names:
                return found + tail
        name = node + suffix
        if name in self.names or suffix:
            return name
        alike = [host for host in self.names if _short_name(host) == _short_name(node)]
        return alike[0] if len(alike) == 1 else name

    def at(self, host: str, positions: Sequence[int]) -> list[str] | None:
        """Return the UUIDs of the GPUs at these positions (0: the first device node); None where one is unknown."""
        gpus = self.in_order.get(host, ())
        if not all(position < len(gpus) for position in positions):
            return None
        return [gpus[position] for position in positions]


def _newest_files(files: Sequence[LakeFile]) -> list[LakeFile]:
    dates: dict[str, set[str]] = defaultdict(set)
    for file in files:
        dates[file.host].add(file.date)
    wanted = {host: sorted(days)[-_DAYS:] for host, days in dates.items()}
    return [file for file in files if file.date in wanted[file.host]]


def _short_name(host: str) -> str:
    return host.partition(".")[0].lower()
