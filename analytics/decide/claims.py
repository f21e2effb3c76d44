"""Which opportunity each piece of wasted time belongs to: the precedence of findings, by GPU, state and holder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.money.priced_segments import NOT_KNOWN
from analytics.names import JOINER
from analytics.states import IN_USE
from analytics.workloads.model import Finding

ANY = ""
"""In a claim: whoever holds the GPU."""


@dataclass(frozen=True)
class WasteKind:
    """One step of the precedence: what is wrong, the time that it is about, and the rules whose findings say so.

    A piece of time goes to the first kind, and in it to the first rule, that claims it. `of_holder`: only time of the holder
    whom the finding names. `spelled`: only intervals that last `findings.held_min`; shorter ones are pauses.
    """

    name: str
    states: tuple[str, ...]
    rules: tuple[str, ...] = ()
    of_holder: bool = False
    spelled: bool = False


FAULTY = WasteKind("faulty", ("unavailable",), spelled=True)
NEVER_USED = WasteKind("never_used", ("free",), ("never_used",))
SURPLUS = WasteKind("surplus", ("free",), ("standing_surplus", "slow_uptake"))
ALLOCATED_IDLE = WasteKind(
    "allocated_idle",
    ("reserved",),
    ("reserved_unused", "partial_use", "wind_down", "hoarding"),
    of_holder=True,
    spelled=True,
)
HELD_IDLE = WasteKind(
    "held_idle",
    ("held",),
    ("zombie_holder", "loaded_no_traffic", "held", "partial_use", "wind_down", "hoarding"),
    of_holder=True,
    spelled=True,
)
OVERSIZED = WasteKind(
    "oversized",
    IN_USE,
    ("compute_oversized", "memory_oversized", "mig_fit", "co_location"),
    of_holder=True,
)
INEFFICIENT = WasteKind(
    "inefficient",
    IN_USE,
    (
        "throttled",
        "input_starved",
        "imbalance",
        "stalls",
        "inefficient",
        "low_efficiency",
        "preallocated",
        "wind_down",
        "hoarding",
        "blind_spot",
    ),
    of_holder=True,
)
OFF_PEAK = WasteKind("off_peak", ("free",))
"""Free time that nothing above claims, in hours of the week in which its pool is not needed."""

PRECEDENCE = (FAULTY, NEVER_USED, SURPLUS, ALLOCATED_IDLE, HELD_IDLE, OVERSIZED, INEFFICIENT)
"""Faulty > never used > unallocated surplus > allocated and idle > held idle > oversized > inefficient."""


def kind_of(finding: Finding) -> WasteKind:
    """The first kind that a finding can be of."""
    return next(kind for kind in PRECEDENCE if finding.rule in kind.rules)


def opportunity_id(finding: Finding) -> str:
    """That of the opportunity which a finding leads: its own with another letter."""
    return "O" + finding.finding_id[1:]


_SCHEMA = {
    "gpu": pl.String,
    "state": pl.String,
    "holder": pl.String,
    "least_ms": pl.Int64,
    "place": pl.Int64,
    "opportunity": pl.String,
}


@dataclass(frozen=True)
class Claims:
    """What every opportunity claims: gpu, state, holder (ANY for whoever), least_ms, place (the lower first) and opportunity."""

    frame: pl.DataFrame

    def assigned(self, pieces: pl.DataFrame) -> pl.DataFrame:
        """The pieces with `opportunity`, null where nothing claims them, and `place`.

        Args:
            pieces: gpu, state, holder (as in `pieces_of`) and spell_ms, how long their whole interval lasts.
        """
        keyed = pieces.with_row_index("piece")
        named = keyed.select("piece", "gpu", "state", "holder", "spell_ms")
        anybody = named.with_columns(holder=pl.lit(ANY))
        met = pl.concat([named, anybody]).join(self.frame, on=("gpu", "state", "holder"))
        first = (
            met.filter(pl.col("spell_ms") >= pl.col("least_ms")).sort("piece", "place").unique("piece", keep="first")
        )
        return keyed.join(
            first.select("piece", "opportunity", "place"), on="piece", how="left", maintain_order="left"
        ).drop("piece")


@dataclass(frozen=True)
class TimeClaim:
    """What one opportunity claims as one kind: time of these GPUs, of these holders or (None) of whoever."""

    opportunity: str
    kind: WasteKind
    gpus: Sequence[str]
    holders: Sequence[str] | None


def claims_of(claims: Iterable[TimeClaim], held_min_ms: int) -> Claims:
    """Claims in their precedence, the first first; `held_min_ms` is `findings.held_min`."""
    rows = [
        (gpu, state, holder, held_min_ms if each.kind.spelled else 0, place, each.opportunity)
        for place, each in enumerate(claims)
        for gpu in each.gpus
        for state in each.kind.states
        for holder in ((ANY,) if each.holders is None else each.holders)
    ]
    return Claims(pl.DataFrame(rows, schema=_SCHEMA, orient="row"))


def holders_of(finding: Finding, kind: WasteKind) -> tuple[str, ...] | None:
    """Whose time a finding claims; None for anybody's."""
    if not kind.of_holder:
        return None
    return tuple(finding.holder.split(JOINER)) if finding.holder else (NOT_KNOWN,)
