"""GPUs on which several jobs run: by turns, or each in a MIG instance of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from analytics.workloads.mig_profiles import MigFit, first_fit
from analytics.workloads.sharing import BUSY_MAX_PCT, MEMORY_MAX_SHARE


@dataclass(frozen=True)
class Need:
    """What a job on one GPU needs of its memory, and uses of its SMs at its peak."""

    mem_bytes: int
    sm_pct: float


@dataclass(frozen=True)
class Part:
    """What a job has of a GPU: the share that it counts with; its need, or its memory slices as bits."""

    share: float
    need: Need
    slices: int = 0


class GpuSharing(Protocol):
    """A way to share a GPU."""

    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        """The part that a job gets beside others; None where it does not fit."""

    def is_full(self, parts: Collection[Part]) -> bool:
        """Whether no job at all fits beside these."""


@dataclass(frozen=True)
class TakingTurns:
    """Up to `most` jobs on one GPU, if what they need of its memory and use of its SMs fits together."""

    most: int
    card_bytes: int

    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        mem_bytes = need.mem_bytes + sum(each.need.mem_bytes for each in beside)
        sm_pct = need.sm_pct + sum(each.need.sm_pct for each in beside)
        fits = len(beside) < self.most and mem_bytes <= MEMORY_MAX_SHARE * self.card_bytes and sm_pct <= BUSY_MAX_PCT
        return Part(1 / self.most, need) if fits else None

    def is_full(self, parts: Collection[Part]) -> bool:
        return len(parts) == self.most


@dataclass(frozen=True)
class MigInstances:
    """The smallest MIG instance of the card in which a job fits; instances stay where they lie while they run."""

    model: str

    def part(self, need: Need, beside: Collection[Part] = ()) -> Part | None:
        fit = _profile(self.model, need)
        if fit is None:
            return None
        taken = _slices(beside)
        for start in reversed(fit.starts):  # those at the end of the card first: larger instances cannot use it
            slices = ((1 << fit.memory_slices) - 1) << start
            if not taken & slices:
                return Part(fit.sm_share, need, slices)
        return None

    def is_full(self, parts: Collection[Part]) -> bool:
        smallest = _profile(self.model, Need(0, 0.0))
        return smallest is None or self.part(Need(0, 0.0), parts) is None


@cache
def _profile(model: str, need: Need) -> MigFit | None:
    return first_fit(model, sm_share=need.sm_pct / 100, need_bytes=need.mem_bytes, bandwidth_share=None)


def _slices(parts: Iterable[Part]) -> int:
    return sum(part.slices for part in parts)


@dataclass(eq=False)
class SharedGpu:
    """A GPU of a host on which jobs have parts: which, and until when each may run by its time limit, by the job's number."""

    host: int
    parts: dict[int, Part] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)
    is_full: bool = False

    @property
    def planned_end(self) -> int:
        return max(self.until.values())
