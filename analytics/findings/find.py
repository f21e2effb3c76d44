"""Runs every rule over a window and ranks what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.devices import Inventory, load_inventory
from analytics.findings.holders import load_holders
from analytics.findings.model import Context, Finding, FindingSettings
from analytics.findings.rules import RULES
from analytics.ledger.summary import clip
from fallow.clock import Window

if TYPE_CHECKING:
    from analytics.inputs import Inputs, WindowLedger


def find_all(inputs: Inputs, ledger: WindowLedger, inventory: Inventory | None = None) -> tuple[Finding, ...]:
    """Every finding of the window: what can be taken back before what has ended, then the most GPU-hours first."""
    settings = FindingSettings(
        inputs.settings.integer("findings.held_min"), inputs.settings.integer("findings.never_used_min")
    )
    until_ms = ledger.summary.until_ms
    context = Context(
        whole=clip(ledger.whole, Window(None, until_ms)),
        inside=ledger.inside,
        window=inputs.window,
        inventory=inventory or load_inventory(inputs.lake),
        holders=load_holders(inputs.lake, until_ms),
        settings=settings,
        latest=all(end_ms <= until_ms for end_ms in ledger.whole.stretches["end"].top_k(1)),
    )
    found = [finding for rule in RULES for finding in rule.find(context)]
    return tuple(sorted(found, key=lambda finding: (not finding.reclaimable, -finding.gpu_ms, finding.finding_id)))
