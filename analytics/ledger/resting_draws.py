"""The draw of a card that does no work, by model: what power says as one witness of several.

A kernel that only waits keeps a card near the draw of an open context: an H200 drew 80 W without a process, 126 W with
an idle one, 198 W with one spinning thread, and 434 W and more with memory-bound or compute-bound work
(docs/measured-on-hardware.md). Unmeasured cards are taken to draw the same shares of their power limit. Small cards
draw more of theirs at rest, so power never speaks against them: their time stays work.
"""

from __future__ import annotations

from analytics.cards import card
from analytics.inventory import Inventory
from fallow.stall_evidence import RestingDraw, resting_draw


def resting_draws(inventory: Inventory) -> dict[str, dict[str, RestingDraw]]:
    """Return by host and GPU the draw of each card that does no work; cards without a known limit are left out."""
    found: dict[str, dict[str, RestingDraw]] = {}
    of_model: dict[tuple[str | None, float | None], RestingDraw | None] = {}
    for device in inventory.devices.values():
        if device.parent_gpu is not None:
            continue  # the power of a MIG instance is that of its card
        key = (device.model, device.power_limit_w)
        if key not in of_model:
            known = card(device.model)
            of_model[key] = resting_draw(device.model, device.power_limit_w or None, known.tdp_w if known else None)
        if (draw := of_model[key]) is not None:
            for host in inventory.hosts_of.get(device.gpu, (device.host,)):
                found.setdefault(host, {})[device.gpu] = draw
    return found
