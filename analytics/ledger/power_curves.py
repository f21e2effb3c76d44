"""The draw of a card that does no work, by model: what power says as one witness of several.

A kernel that only waits keeps a card near the draw of an open context: an H200 drew 80 W without a process, 126 W with an idle
one, 198 W with one spinning thread, and 434 W and more with memory-bound or compute-bound work (docs/measured-on-hardware.md).
Cards that nobody measured are taken to draw the same shares of their power limit. Small cards draw more of theirs at rest, so
power never speaks against them: their time stays work.
"""

from __future__ import annotations

from dataclasses import dataclass

from analytics.cards import card
from analytics.inventory import Device, Inventory

SLACK = 1.1
"""Cards of one model differ, and a warm card draws more than a cold one."""

_CONTEXT_SHARE, _SPINNING_SHARE = 126 / 700, 198 / 700
"""The measured H200's shares of its limit, for cards without a measurement of their own in `cards.csv`."""

_CAPPED_SHARE = 0.6
"""A card whose limit was lowered may work near that limit: power below it says nothing from this share on."""


@dataclass(frozen=True)
class RestingDraw:
    """The most that a card draws with an open context, and with kernels that only wait, in watts."""

    context_w: float
    spinning_w: float


def resting_draws(inventory: Inventory) -> dict[str, dict[str, RestingDraw]]:
    """Return by host and GPU the draw of each card that does no work; cards without a known limit are left out."""
    found: dict[str, dict[str, RestingDraw]] = {}
    of_model: dict[tuple[str | None, float | None], RestingDraw | None] = {}
    for device in inventory.devices.values():
        if device.parent_gpu is not None:
            continue  # the power of a MIG instance is that of its card
        key = (device.model, device.power_limit_w)
        if key not in of_model:
            of_model[key] = _resting_draw(device)
        if (draw := of_model[key]) is not None:
            for host in inventory.hosts_of.get(device.gpu, (device.host,)):
                found.setdefault(host, {})[device.gpu] = draw
    return found


def _resting_draw(device: Device) -> RestingDraw | None:
    known, limit_w = card(device.model), device.power_limit_w or None
    rated_w = (known and known.tdp_w) or limit_w
    if rated_w is None:
        return None
    context_w = (known and known.context_w) or _CONTEXT_SHARE * rated_w
    spinning_w = (known and known.spinning_w) or _SPINNING_SHARE * rated_w
    most_w = SLACK * spinning_w if limit_w is None else min(SLACK * spinning_w, _CAPPED_SHARE * limit_w)
    return RestingDraw(min(SLACK * context_w, most_w), most_w)
