"""The ledger's states against labelled ones, in GPU time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from analytics.evaluation.labels import STATES_MEANT
from analytics.intervals import SPAN_MS


@dataclass(frozen=True)
class StateAgreement:
    """GPU time by label and by the ledger's state, in milliseconds; `total_ms` and `observed_ms` are those of the whole ledger."""

    total_ms: int
    observed_ms: int
    time_ms: Mapping[tuple[str, str], int]

    @property
    def labelled_ms(self) -> int:
        """Time of the ledger that a label names a state of, observed or not."""
        return sum(self.time_ms.values())

    @property
    def judged_ms(self) -> int:
        """That of it which was observed."""
        return sum(ms for (_, state), ms in self.time_ms.items() if state != "unknown")

    @property
    def agreed_ms(self) -> int:
        return sum(ms for (label, state), ms in self.time_ms.items() if state in STATES_MEANT[label])

    @property
    def labels(self) -> tuple[str, ...]:
        """Those that there are, in the order in which they are explained."""
        there = {label for label, _ in self.time_ms}
        return tuple(label for label in STATES_MEANT if label in there)

    def recorded(self, state: str) -> tuple[int, int]:
        """Of the labelled time that the ledger has in a state: how much a label agrees with, and all of it."""
        own = {label: ms for (label, each), ms in self.time_ms.items() if each == state}
        return sum(ms for label, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())

    def labelled(self, label: str) -> tuple[int, int]:
        """Of the time with a label that was observed: how much the ledger has in a state that agrees, and all of it."""
        own = {state: ms for (each, state), ms in self.time_ms.items() if each == label and state != "unknown"}
        return sum(ms for state, ms in own.items() if state in STATES_MEANT[label]), sum(own.values())


def state_agreement(stretches: pl.DataFrame, states: pl.DataFrame) -> StateAgreement:
    """How the ledger's rows agree with labels (`gpu`, `time`, `end`, `state`), which do not overlap."""
    rows = stretches.select("gpu", "time", "end", "state")
    both = rows.join(states.rename({"state": "label"}), on="gpu", suffix="_said").with_columns(
        time=pl.max_horizontal("time", "time_said"), end=pl.min_horizontal("end", "end_said")
    )
    found = both.filter(SPAN_MS > 0).group_by("label", "state").agg(ms=SPAN_MS.sum())
    total, unknown = rows.select(total=SPAN_MS.sum(), unknown=SPAN_MS.filter(pl.col("state") == "unknown").sum()).row(0)
    return StateAgreement(total, total - unknown, {(label, state): ms for label, state, ms in found.iter_rows()})
