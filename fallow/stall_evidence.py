"""What a GPU shows while it reports kernels and does no work: measured draws and limits, for agent and ledger.

Utilization says that a kernel is resident, not that it works. The witnesses here are independent of it: the power
sensor, the activity counters, the process list and the memory in use. One witness alone never decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

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

_SCALED = re.compile(r"(?:NVIDIA |Tesla )(?:V100|A100|A800|H\d+|GH200|G?B\d{3})\b")
"""Models whose draw is assumed to be the measured share of their limit. Small cards and display cards draw more of
theirs at rest (an idle context on a T4: 26 of 70 W), and other makers' cards were never measured: their power is no
witness."""

_LEAST = min(MEASURED.values(), key=lambda card: card.spinning_w / card.limit_w)
"""The card whose shares of the limit count for _SCALED."""

_SLACK = 1.25
"""Cards of one model differ, and a warm card draws more than a cold one."""

_LEAST_SHARE = 0.5
"""Less than this share of a free card's draw is no reading: a sensor that answers 0, or the second die of a board."""

_CAPPED_SHARE = 0.6
"""A card with a lowered limit may work as hard as the limit permits: from this share on, low power says nothing."""


class RestingDraw(NamedTuple):
    """The draws of a card between no work and work, in W; NaN where the model was not measured."""

    context_w: float
    """The most with an open context."""
    spinning_w: float
    """The most with kernels that only wait."""
    least_w: float
    """The least that any card draws."""
    working_w: float
    """From here on low power says nothing of any card: it may work as hard as a lowered limit permits."""


def resting_draw(model: str | None, limit_w: float | None, rated_w: float | None = None) -> RestingDraw | None:
    """Return what a card draws that does no work; None without a limit.

    Args:
        model: the column `model` of `device`.
        limit_w: its power limit as it is set.
        rated_w: the limit that its maker states; without it the set limit counts.
    """
    card, scale = MEASURED.get(model or ""), 1.0
    if card is None:
        of_limit_w = rated_w or limit_w
        if of_limit_w is None:
            return None
        if _SCALED.match(model or "") is None:
            return RestingDraw(nan, nan, nan, _CAPPED_SHARE * (limit_w or of_limit_w))
        card, scale = _LEAST, of_limit_w / _LEAST.limit_w
    most_w = _SLACK * scale * card.spinning_w
    most_w = most_w if limit_w is None else min(most_w, _CAPPED_SHARE * limit_w)
    working_w = nan if limit_w is None else _CAPPED_SHARE * limit_w
    return RestingDraw(
        min(_SLACK * scale * card.context_w, most_w), most_w, _LEAST_SHARE * scale * card.free_w, working_w
    )


RESIDENT_PCT = 97.0
"""Utilization from which a kernel is resident all the time, as a waiting kernel is: one that spun read 98 % where it
was started again and again. Shorter bursts are work until hours of them show a pattern."""

_PIPE_MOST_PCT = 0.05  # GPM resolves 0.1 %; 0.0 while a block spun, and 0.1 is arithmetic
_DRAM_MOST_PCT = 0.2
_LINK_MOST_BYTES_PER_S = 4 * 2**20  # at most 1.4 MiB/s at rest; 6.7 MiB/s came with 300 launches a second

ACTIVITY_MOST: Mapping[str, float] = MappingProxyType(
    {
        "sm_active_pct": 30.0,  # NCCL waits in at most 32 blocks, on cards of 108 SMs and more
        "tensor_active_pct": _PIPE_MOST_PCT,
        "fp64_active_pct": _PIPE_MOST_PCT,
        "fp32_active_pct": _PIPE_MOST_PCT,
        "fp16_active_pct": _PIPE_MOST_PCT,
        "dram_active_pct": _DRAM_MOST_PCT,
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

ACTIVITY_NEEDED = ("tensor_active_pct", "dram_active_pct", "pcie_rx_bytes_per_s")
"""The columns that must be known before activity counts as a witness. Launches cross PCIe, so its traffic tells one
waiting kernel from tiny kernels, which leave the other counters near 0 as well."""

HELD_DOWN_MOST = 0.05
"""The largest share of time with clocks held down in which low power is evidence: such a card works at little power."""

NO_CONTEXT_BYTES = 64 * 2**20
"""Less memory in use than any CUDA context takes: no process was on the GPU at that moment."""
