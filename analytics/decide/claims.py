"""Which opportunity each piece of wasted time belongs to: the precedence of findings, by GPU, state and holder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.money.priced_segments import NOT_KNOWN
from analytics.names import JOINER
from analytics.workloads.model import Finding
from analytics.workloads.waste import WasteKind

ANY = ""
"""In a claim: whoever holds the GPU."""


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
