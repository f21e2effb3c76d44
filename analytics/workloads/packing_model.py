"""What a packing is: which works would lie on which card of a pool, and what that frees."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

from analytics.workloads.model import Confidence
from analytics.workloads.slowdown import Slowdown

MIG, SHARING = "mig", "sharing"
"""Kinds of packings: instances of split cards, and whole cards that several take turns on."""

BUSY_TIME, SM_ACTIVITY = "busy time", "sm"
"""What says how much of a card some work needs: SM activity, or the time with any kernel, which is never less."""


@dataclass(frozen=True)
class PackedWork:
    """A work of a holder on one GPU, and the place that it would have.

    `memory_bytes` is what it needs (MIG: the larger of the peak and the 98th percentile with its margin; sharing: the 98th
    percentile). `sm_pct` and `busy_pct` are what SM activity (None: not measured) and the time with any kernel stay within for
    95 % of the time. `profile` and `start` are the instance; works of one GPU follow one another in the same one.
    """

    holder: str | None
    account: str | None
    job: str | None
    host: str
    gpu: str
    gpu_ms: float
    memory_bytes: int
    busy_pct: float
    sm_pct: float | None
    slowdown: Slowdown
    profile: str | None = None
    start: int | None = None


@dataclass(frozen=True)
class PackedCard:
    """A card of the fleet, the works that it would hold, and the command that prepares it."""

    host: str
    gpu: str
    works: tuple[PackedWork, ...]
    command: str

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that its works are on now."""
        return tuple(sorted({each.gpu for each in self.works}))


@dataclass(frozen=True)
class Packing:
    """What would be freed in one pool of one model, and how.

    `saving` is the price of the time that the moved works spent on the freed GPUs in the window, None while a price is missing; what
    that is worth a year its opportunity says. Time in which those GPUs were idle is not in it. `at_most` is what no packing
    of these works could free more than: the same number where the best is proven.
    """

    kind: str
    pool: str
    model: str
    cards: tuple[PackedCard, ...]
    freed_gpus: tuple[str, ...]
    freed_hosts: tuple[str, ...]
    at_most: int
    measured_by: str
    saving: float | None
    currency: str
    confidence: Confidence
    simulated: bool

    @property
    def packing_id(self) -> str:
        """Stable over weeks: from kind, pool and model."""
        return "P-" + hashlib.sha256(f"{self.kind}\0{self.pool}\0{self.model}".encode()).hexdigest()[:10]

    @property
    def opportunity_id(self) -> str:
        """That of the decision to pack, which has the same digits."""
        return "O" + self.packing_id[1:]

    @property
    def works(self) -> tuple[PackedWork, ...]:
        return tuple(work for each in self.cards for work in each.works)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that its works are on now: those that stay and those that come free."""
        return tuple(sorted({gpu for each in self.cards for gpu in each.gpus}))

    @property
    def holders(self) -> frozenset[str | None]:
        return frozenset(each.holder for each in self.works)

    def as_json(self) -> dict[str, object]:
        """The packing as JSON values; money is null while a price is missing."""
        return {
            "packing_id": self.packing_id,
            "opportunity_id": self.opportunity_id,
            "kind": self.kind,
            "pool": self.pool,
            "model": self.model,
            "freed_gpus": list(self.freed_gpus),
            "freed_hosts": list(self.freed_hosts),
            "freed_at_most": self.at_most,
            "measured_by": self.measured_by,
            "saving": self.saving,
            "currency": None if self.saving is None else self.currency,
            "confidence": self.confidence.grade,
            "failed_conditions": [str(each) for each in self.confidence.failed],
            "simulated": self.simulated,
            "cards": [
                {
                    "host": card.host,
                    "gpu": card.gpu,
                    "command": card.command,
                    "works": [asdict(work) for work in card.works],
                }
                for card in self.cards
            ],
        }
