"""A rule: its query and thresholds, the candidates for its findings, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from analytics.workloads.model import Context, EvidenceValue, Finding, FindingSettings, Label, Witness
from analytics.workloads.pool_demand import FleetDemand
from analytics.workloads.waste import WasteKind
from fallow.clock import HOUR_MS

UNASKED = "unasked"
"""The `source` of a finding that needs no known user."""


@dataclass(frozen=True)
class Candidate:
    """Ledger rows that a rule found, at least one, and their evidence; `finding_parts.findings_of` makes the finding.

    `failed` are the rule's own failed conditions. With a `source` of the user, a name is required: the user's, or the
    account's, whose owner can be asked. Unless `is_promised` is false, a finding with reclaimable GPUs has the
    probability that they stay unused. `since_ms`, `gpus` and `host` are by default those of the rows.
    """

    segments: pl.DataFrame
    """Rows of `context.inside.segments`, or parts of them."""
    subject: str
    numbers: Mapping[str, EvidenceValue]
    failed: Sequence[Sequence[str]] = ()
    source: str | None = UNASKED
    next_command: str = ""
    reclaimable_gpus: Sequence[str] = ()
    user: str | None = None
    since_ms: int | None = None
    gpus: Sequence[str] | None = None
    host: str | None = None
    notes: Sequence[str] = ()
    witnesses: tuple[Witness, ...] = ()
    is_promised: bool = True
    revised: Callable[[Finding], Finding] = lambda finding: finding
    """Returns the finding with what the rule knows better than the rows."""


def _nothing(_: Context) -> Iterable[Candidate]:
    return ()


@dataclass(frozen=True)
class HistoryNeed:
    """Data that a rule needs before it can find anything: a length of time, that of a setting, or GPU-hours."""

    span_ms: int = 0
    setting: Literal["held_min_ms", "never_used_min_ms"] | None = None
    gpu_hours: float = 0.0

    def least_ms(self, settings: FindingSettings, gpus: int) -> int:
        """Return the shortest time for which a fleet with this many GPUs must be observed."""
        by_setting = 0 if self.setting is None else getattr(settings, self.setting)
        return max(self.span_ms, by_setting, round(self.gpu_hours * HOUR_MS / max(gpus, 1)))


@dataclass(frozen=True)
class Rule:
    """A rule, in a file of its own: its findings and what follows from them. `name` is the name of its module."""

    name: str
    category: str
    sentence: str
    """Sentence about the finding's GPUs."""
    kinds: tuple[WasteKind, ...]
    """The kinds of wasted time that its findings claim, in the order of `waste.PRECEDENCE`."""
    precedence: int
    """If several rules claim the same time, the rule with the lowest number has it."""
    thresholds: Mapping[str, str]
    """The thresholds that it depends on, each with its source, for readers."""
    history: HistoryNeed
    """Data that the rule needs before it can find anything."""
    find: Callable[[Context], Iterable[Candidate]] = _nothing
    """The query that yields the candidates for its findings, in no order."""
    find_in_pools: Callable[[Context, FleetDemand], Iterable[Candidate]] | None = None
    """The query of a rule about demand of pools, run after the others. A single working GPU does not refute it."""
    per_host: bool = False
    """True if it looks at each host separately, so that a subject may have a finding on several hosts."""
    of_machine: bool = False
    """A fault of the machine: operators repair it. The user of the GPU cannot repair it and gets no message."""
    of_part: bool = False
    """About a part of a card: its user cannot split the card, nor find users for the rest."""
    advice: str = ""
    """The change that the user of running work, or a machine's operator, is asked for; empty to ask no user."""
    has_lost_user: Callable[[Finding], bool] = lambda _: False
    """Whether the work of a finding has lost the user who started it, so that operators end it."""
    labels: tuple[Label, ...] = ()
    """Labels of evidence that only this rule has; the others are `finding_parts.SHARED_LABELS`."""
