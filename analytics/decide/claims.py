"""Which opportunity each piece of wasted time belongs to: the precedence of findings, by GPU, state and holder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.money.priced_segments import NOT_KNOWN
from analytics.names import JOINER
from analytics.states import IN_USE, UNOCCUPIED
from analytics.workloads.model import Finding

ANY = ""
"""In a claim: whoever holds the GPU."""

WASTED = ("unavailable", "free", "reserved", "held", "low")
"""States whose time is waste, as a whole or (`low`) for its unused part."""


@dataclass(frozen=True)
class Kind:
    """One step of the precedence: what is wrong, the time that it is about, and the rules whose findings say so.

    A piece of time goes to the first kind, and in it to the first rule, that claims it. `of_holder`: only time of the holder
    whom the finding names. `spelled`: only intervals that last `findings.held_min`; shorter ones are pauses.
    """

    name: str
    states: tuple[str, ...]
    rules: tuple[str, ...] = ()
    of_holder: bool = False
    spelled: bool = False


FAULTY = Kind("faulty", ("unavailable",), spelled=True)
NEVER_USED = Kind("never_used", UNOCCUPIED, ("never_used",))
SURPLUS = Kind("surplus", ("free",), ("standing_surplus", "slow_uptake"))
ALLOCATED_IDLE = Kind(
    "allocated_idle",
    ("reserved",),
    ("reserved_unused", "partial_use", "wind_down", "hoarding"),
    of_holder=True,
    spelled=True,
)
HELD_IDLE = Kind(
    "held_idle",
    ("held",),
    ("zombie_holder", "loaded_no_traffic", "held", "partial_use", "wind_down", "hoarding"),
    of_holder=True,
    spelled=True,
)
OVERSIZED = Kind(
    "oversized",
    IN_USE,
    ("compute_oversized", "memory_oversized", "mig_fit", "co_location"),
    of_holder=True,
)
INEFFICIENT = Kind(
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

PRECEDENCE = (FAULTY, NEVER_USED, SURPLUS, ALLOCATED_IDLE, HELD_IDLE, OVERSIZED, INEFFICIENT)
"""Faulty > never used > unallocated surplus > allocated and idle > held idle > oversized > inefficient."""


def kind_of(finding: Finding) -> Kind:
    """The first kind that a finding can be of."""
    return next(kind for kind in PRECEDENCE if finding.rule in kind.rules)


def opportunity_id(finding: Finding) -> str:
    """That of the opportunity which a finding leads: its own with another letter."""
    return "O" + finding.finding_id[1:]


_SCHEMA = {"gpu": pl.String, "state": pl.String, "holder": pl.String, "least_ms": pl.Int64, "place": pl.Int64, "opportunity": pl.String}  # fmt: skip


@dataclass(frozen=True)
class Claims:
    """What every opportunity claims: gpu, state, holder (ANY for whoever), least_ms, place (the lower first) and opportunity.

    `faulty` are the hosts with GPUs out of order by their opportunity, `kinds` the kind at each place.
    """

    frame: pl.DataFrame
    kinds: Mapping[int, Kind]

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


def claims_of(
    findings: Sequence[Finding], faulty: Mapping[str, str], spare: Mapping[str, str], held_min_ms: int
) -> Claims:
    """The claims of findings, of GPUs that are out of order, and of free ones that are safe to give back.

    Args:
        findings: in their order, which decides between those of one rule.
        faulty: by GPU the opportunity to repair it.
        spare: by GPU the opportunity to give it back.
        held_min_ms: `findings.held_min`.
    """
    rows: list[tuple[str, str, str, int, int, str]] = []
    kinds: dict[int, Kind] = {0: FAULTY}
    rows += [(gpu, state, ANY, held_min_ms, 0, of) for gpu, of in faulty.items() for state in FAULTY.states]
    place = 0
    for kind in PRECEDENCE:
        if kind is SURPLUS:
            place += 1
            kinds[place] = kind
            rows += [(gpu, state, ANY, 0, place, of) for gpu, of in spare.items() for state in kind.states]
        for rule in kind.rules:
            for finding in findings:
                if finding.rule == rule:
                    place += 1
                    kinds[place] = kind
                    rows += _rows(finding, kind, place, held_min_ms)
    return Claims(pl.DataFrame(rows, schema=_SCHEMA, orient="row"), kinds)


def _rows(finding: Finding, kind: Kind, place: int, held_min_ms: int) -> Iterator[tuple[str, str, str, int, int, str]]:
    holders: Sequence[str] = (ANY,)
    if kind.of_holder:
        holders = finding.holder.split(JOINER) if finding.holder else (NOT_KNOWN,)
    least_ms = held_min_ms if kind.spelled else 0
    for gpu in finding.gpus:
        for state in kind.states:
            for holder in holders:
                yield gpu, state, holder, least_ms, place, opportunity_id(finding)
