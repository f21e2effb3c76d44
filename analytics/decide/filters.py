"""Which findings the filters of a command or the scope of a report leave."""

from __future__ import annotations

from analytics.inventory import Inventory
from analytics.money.owners import Owners
from analytics.names import JOINER
from analytics.scope import Scope
from analytics.workloads.model import Finding


def is_in_scope(finding: Finding, scope: Scope, inventory: Inventory) -> bool:
    """Whether a finding is about the scope, also beside others."""
    return (
        (scope.of_gpus.is_all or any(scope.has_gpu(gpu, inventory) for gpu in finding.gpus))
        and (scope.team is None or scope.team in (finding.team or "").split(JOINER))
        and (scope.holder is None or scope.holder in (finding.holder or "").split(JOINER))
    )


def names_others(finding: Finding, scope: Scope, owners: Owners) -> bool:
    """Whether a finding is also about people who are not asked for: its words and its command name them."""
    names = (finding.holder or "").split(JOINER)
    others = scope.holder is not None and names != [scope.holder]
    if scope.team is None:
        return others or finding.beside_unknown
    strangers = len(names) > 1 and any(owners.team(name, None) != scope.team for name in names)
    return others or strangers or finding.team != scope.team or finding.beside_unknown
