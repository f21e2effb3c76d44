"""Makes the files of a day and share of hosts: built host-days, and kept rows of hosts that need not be built.

A worker on another machine gets a `WorkOrder`, opens the lake itself and writes the files itself; names, sizes and
fingerprints go back. The files are the same bytes on any worker, so a task may run twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.decode import read_days
from analytics.frames import empty
from analytics.ledger.cache import HostShare, KeptDay, hosts_of
from analytics.ledger.day import PARTS, HostDay, build_day
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.unused_files import discarding, hosts_to_read_again
from fallow.lake import Lake, LakeFile
from fallow.lake_marker import read_marker

Built = dict[str, pl.DataFrame]


@dataclass(frozen=True)
class DayTask:
    """The hosts of a day whose rows share one file of each table."""

    date: str
    share: HostShare
    built: Sequence[HostDay]
    """The hosts that must be built."""
    staying: Sequence[HostDay]
    """The hosts whose kept rows are current."""
    kept: KeptDay | None
    """The files that have those rows."""
    prints: Mapping[str, str]
    """The fingerprint of each host."""


def with_incomplete(prints: Mapping[str, str], quality: pl.DataFrame) -> dict[str, str]:
    """Return the fingerprints. A host with a file that may become readable gets one that matches no other."""
    again = hosts_to_read_again(quality)
    return {host: secrets.token_hex(8) if host in again else of for host, of in prints.items()}


def joined_rows(lake: Lake, task: DayTask, built: Sequence[Built], settings: LedgerSettings) -> Built:
    """Return the rows of each table of PARTS. `built` are parts of built hosts, perhaps also of other shares."""
    frames = list(built)
    if task.share.total > 1:
        hosts = [day.host for day in task.built]
        frames = [{name: rows.filter(pl.col("host").is_in(hosts)) for name, rows in each.items()} for each in frames]
    if task.kept is not None and task.staying:
        frames.append(_kept_rows(lake, task.kept, task.staying, settings))
    return {table.name: pl.concat([empty(table), *(each[table.name] for each in frames)]) for table in PARTS}


def _kept_rows(lake: Lake, kept: KeptDay, staying: Sequence[HostDay], settings: LedgerSettings) -> Built:
    """Return the kept rows of hosts that need not be built; built after all if another command replaced them."""
    mine = pl.col("host").is_in([day.host for day in staying])
    frames = {
        table.name: read_days([kept.files[table.name]], table, table.names, discarding(lake.delete)).filter(mine)
        for table in PARTS
    }
    return frames if hosts_of(kept.files) == kept.hosts else build_day(staying, settings)


@dataclass(frozen=True)
class WorkOrder:
    """A task for a worker that shares nothing with this process but the lake."""

    task: DayTask
    settings: LedgerSettings
    location: str
    """Address of the lake."""
    lake_id: str | None
    """The id in the lake's marker."""
    maker: tuple[str, int]
    """Version and method of this process' fallow."""


@dataclass(frozen=True)
class WrittenDay:
    """The files of a task by table, and the fingerprint of each host in them."""

    files: Mapping[str, LakeFile]
    prints: Mapping[str, str]


def lake_id_of(lake: Lake) -> str | None:
    """Return the id of a lake; None without a marker. Raises LakeError."""
    marker = read_marker(lake.store)
    return None if marker is None else marker.id
