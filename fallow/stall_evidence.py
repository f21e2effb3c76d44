"""What a GPU shows while kernels are reported and no work is done: measured draws and limits, for the agent and the ledger.

Utilization says that a kernel is resident, not that it works. The witnesses here are independent of it: the power sensor, the
activity counters, the process list and the memory in use. One witness alone never decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class CardDraw:
    """The mean board power of one card, in W, under known work."""

    limit_w: float
    """The power limit of the measurement."""
    free_w: float
    """No process."""
    context_w: float
    """A process holds memory and runs no kernel."""
    spinning_w: float
    """One block spins all the time: the kernel that does the least."""
    memory_bound_w: float
    """Copies in device memory all the time."""
    compute_bound_w: float
    """Matrix products all the time."""


MEASURED: Mapping[str, CardDraw] = MappingProxyType(
    {"NVIDIA H200": CardDraw(700, free_w=80, context_w=126, spinning_w=198, memory_bound_w=434, compute_bound_w=659)}
)
"""By the column `model` of `device`; docs/measured-on-hardware.md has the measurement."""

SPINNING_SHARE = min(card.spinning_w / card.limit_w for card in MEASURED.values())
"""The share of its power limit that an unmeasured card is taken to draw while kernels only spin. On small cards an idle context
draws more (a T4: 26 of 70 W), so their power is no witness."""

_SLACK = 1.05
_CAPPED_SHARE = 0.5
"""A card near its limit may work as hard as the limit permits, so a low cap takes the witness away."""


def spinning_most_w(model: str | None, limit_w: float | None) -> float | None:
    """Return the highest draw (W) that power counts as a witness for spinning kernels; None where too little is known."""
    card = MEASURED.get(model or "")
    if card is None:
        return None if limit_w is None else _SLACK * SPINNING_SHARE * limit_w
    most_w = _SLACK * card.spinning_w
    return most_w if limit_w is None else min(most_w, _CAPPED_SHARE * limit_w)


KERNELS_FROM_PCT = 90.0
"""Utilization from which a kernel is resident all the time, as a waiting kernel is; one that spun always was measured at 98 %.
Shorter bursts are work until hours of them show a pattern."""

_PIPE_MOST_PCT = 0.2  # twice the resolution of the lake; 0.0 while a block spun
_LINK_MOST_BYTES_PER_S = 4 * 2**20  # at most 1.4 MiB/s at rest; 6.7 MiB/s came with 300 launches a second

ACTIVITY_MOST: Mapping[str, float] = MappingProxyType(
    {
        "sm_active_pct": 30.0,  # NCCL waits in at most 32 blocks, on cards of 108 SMs and more
        "tensor_active_pct": _PIPE_MOST_PCT,
        "fp64_active_pct": _PIPE_MOST_PCT,
        "fp32_active_pct": _PIPE_MOST_PCT,
        "fp16_active_pct": _PIPE_MOST_PCT,
        "dram_active_pct": 0.5,  # 0.0 while a block spun; 8 % beside matrix products for half of the time
        "mem_util_pct": 1.0,
        "encoder_util_pct": 0.0,
        "decoder_util_pct": 0.0,
        "pcie_tx_bytes_per_s": _LINK_MOST_BYTES_PER_S,
        "pcie_rx_bytes_per_s": _LINK_MOST_BYTES_PER_S,
        "nvlink_tx_bytes_per_s": _LINK_MOST_BYTES_PER_S,
        "nvlink_rx_bytes_per_s": _LINK_MOST_BYTES_PER_S,
    }
)
"""The largest value without work, by column of `gpu`. Any known value above its limit is work."""

ACTIVITY_NEEDED = ("tensor_active_pct", "fp32_active_pct", "dram_active_pct", "pcie_rx_bytes_per_s")
"""The columns that must be known before activity counts as a witness. Launches cross PCIe, so its traffic tells tiny kernels, which
leave the other counters near 0 as well, from one kernel that waits."""

CONTEXT_LEAST_BYTES = 100 * 2**20
"""Less memory in use than any CUDA context takes: no kernel can be resident."""
