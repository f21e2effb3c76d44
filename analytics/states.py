"""Sets of the ledger's states, each named for its meaning; all in the order of `fallow.schema.STATES`."""

from __future__ import annotations

from fallow.schema import STATES, UNUSED_STATES

UNUSED = UNUSED_STATES
"""Observed, in order and not computing."""

WASTED = ("unavailable", *UNUSED, "low")
"""States whose time is waste, as a whole or (`low`) for its unused part."""

IN_USE = ("low", "active")
"""The GPU computes, a little or a lot."""

WITH_KERNELS = ("stalled", *IN_USE)
"""The driver reports kernels, whether they work or only wait."""

IDLE_ALLOCATED = ("reserved", "held", "stalled")
"""The GPU has a user, and it does not compute: its kernels, if any, do no work."""

OCCUPIED = ("held", "stalled", *IN_USE)
"""A workload is on the GPU, whether it computes or not."""

UNOCCUPIED = ("free", "reserved")
"""No workload is on the GPU."""

ALLOCATED = (*IDLE_ALLOCATED, *IN_USE)
"""The GPU has a user: an allocation, or a workload without one."""

WITHOUT_EVIDENCE = ("unknown", "unavailable")
"""Shows nothing about the use of the GPU: it was not observed, or could not be used."""

PERHAPS_FREE = ("unknown", "free")
"""Free, by all that is known."""

UNALLOCATED = (*WITHOUT_EVIDENCE, "free")
"""Time without a user."""

AT_REST = ("unavailable", *UNUSED)
"""Known not to compute."""

OBSERVED = (*AT_REST, *IN_USE)
"""The agent observed the GPU."""

USED_FIRST = STATES[::-1]
"""The order in tables and legends: from used, over wasted, to not known."""

ALLOCATED_USED_FIRST = ALLOCATED[::-1]
"""ALLOCATED in the order of tables."""
