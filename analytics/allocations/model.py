"""What every source of claims hands over, and how one is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import argparse

    import polars as pl

    from analytics.allocations.hosts import Hosts
    from analytics.importers.model import FileReport, Progress
    from fallow.config import Config


@dataclass(frozen=True)
class ReadClaims:
    """Everything that one import read, ready to be written.

    `rows` has the columns of the `claim` table and `host`, times as integer milliseconds.
    """

    rows: pl.DataFrame
    files: tuple[FileReport, ...]
    time_zone: str
    as_of_ms: int | None
    """When the source knew what it says; claims without an end ran at that moment. None where nothing tells."""
    notes: tuple[str, ...] = ()

    @property
    def zone(self) -> str:
        """The zone's name alone, without how it became known."""
        return self.time_zone.partition(" ")[0]


@dataclass(frozen=True)
class Surroundings:
    """What a source may look at beside its own flags."""

    hosts: Hosts
    settings: Config
    progress: Progress


class ClaimSource(Protocol):
    """One kind of place where claims are known."""

    name: str
    summary: str
    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the source's own flags."""
        ...

    def read(self, args: argparse.Namespace, around: Surroundings) -> ReadClaims:
        """Reads everything and writes nothing; raises InputError or UsageError with the remedy."""
        ...
