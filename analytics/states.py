"""Sets of the ledger's states, each named for what it means; all in the order of `fallow.schema.STATES`."""

from __future__ import annotations

from fallow.schema import STATES, UNUSED_STATES

UNUSED = UNUSED_STATES
"""Observed, in order and not computing."""

WASTED = ("unavailable", *UNUSED, "low")
"""States whose time is waste, as a whole or (`low`) for its unused part."""

IN_USE = ("low", "active")
"""The GPU computes, a little or a lot."""

IDLE_ALLOCATED = ("reserved", "held")
"""Somebody has the GPU, and it does not compute."""

OCCUPIED = ("held", *IN_USE)
"""A workload is on the GPU, whether it computes or not."""

UNOCCUPIED = ("free", "reserved")
"""No workload is on the GPU."""

ALLOCATED = (*IDLE_ALLOCATED, *IN_USE)
"""Somebody has the GPU: an allocation, or a workload without one."""

WITHOUT_EVIDENCE = ("unknown", "unavailable")
"""Tells nothing of what the GPU would be used for: it was not observed, or nobody could have used it."""

PERHAPS_FREE = ("unknown", "free")
"""Free, as far as anybody knows."""

UNALLOCATED = (*WITHOUT_EVIDENCE, "free")
"""Time that is nobody's."""

AT_REST = ("unavailable", *UNUSED)
"""Known not to compute."""

OBSERVED = (*AT_REST, *IN_USE)
"""The agent saw the GPU."""

USED_FIRST = STATES[::-1]
"""As tables and legends list them: from used, over wasted, to not known."""

ALLOCATED_USED_FIRST = ALLOCATED[::-1]
"""ALLOCATED as tables list it."""
