"""Rules that cannot have found anything yet: the lake knows too little time, and silence is no all-clear."""

from __future__ import annotations

from dataclasses import dataclass

from analytics.rules import RULES
from analytics.workloads.model import Context
from fallow.clock import format_ms


@dataclass(frozen=True)
class WaitingRule:
    """A rule, and the moment from which it can find something at the earliest."""

    rule: str
    from_ms: int

    def as_json(self) -> dict[str, object]:
        """The shape that `fallow findings --json` prints."""
        return {"rule": self.rule, "from": format_ms(self.from_ms)}


def waiting_rules(context: Context) -> tuple[WaitingRule, ...]:
    """The rules that need more history than there was at the end of the window, the first to speak first."""
    seen, first_ms = context.whole.lifetimes, context.whole.first_ms
    if seen.is_empty():
        return ()
    gpus = seen["gpu"].n_unique()
    found = (WaitingRule(rule.name, first_ms + rule.history.least_ms(context.settings, gpus)) for rule in RULES)
    return tuple(sorted((each for each in found if each.from_ms > context.until_ms), key=lambda each: each.from_ms))
