"""Brings history into the lake from files: one importer per kind of file, all of the same shape."""

from __future__ import annotations

from analytics.importers.gpustat import Gpustat
from analytics.importers.model import Importer
from analytics.importers.nvidia_smi import NvidiaSmi
from analytics.importers.nvitop import Nvitop
from analytics.importers.series import ImportedSeries

IMPORTERS: tuple[Importer, ...] = (NvidiaSmi(), Gpustat(), Nvitop(), ImportedSeries())
"""Every importer, in the order in which `fallow import --help` lists them."""
