"""The places where claims are known: one source per kind, all of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.allocations.csv_file import CsvFile
from analytics.allocations.slurm import Slurm

if TYPE_CHECKING:
    from analytics.allocations.model import ClaimSource

SOURCES: tuple[ClaimSource, ...] = (Slurm(), CsvFile())
"""Every source, in the order in which `fallow claims import --help` lists them."""
