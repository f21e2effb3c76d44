"""The places where claims are known: one source per kind, all of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.claims.csv_file import CsvFile
from analytics.claims.slurm import Slurm

if TYPE_CHECKING:
    from analytics.claims.model import ClaimSource

SOURCES: tuple[ClaimSource, ...] = (Slurm(), CsvFile())
"""Every source, in the order in which `fallow claims import --help` lists them."""
