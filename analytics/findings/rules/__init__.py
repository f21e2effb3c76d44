"""The rules, one file each, in the order in which they are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.rules.held import Held
from analytics.findings.rules.never_used import NeverUsed

if TYPE_CHECKING:
    from analytics.findings.model import Rule

RULES: tuple[Rule, ...] = (Held(), NeverUsed())
