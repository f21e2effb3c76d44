"""Who paid for what: used, held, reserved, free, unavailable and unknown time add up to what was paid, to the cent.

In every table each state's cents add up to that state's total, and the states' totals to what was paid; see
`analytics.money.priced_segments` for how they are rounded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.inventory import UNKNOWN_MODEL, Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.summary import OPEN_FROM, Totals, ratio
from analytics.money.costs import Costs
from analytics.money.energy import Energy
from analytics.money.owners import Owners
from analytics.money.priced_segments import AMOUNT, UNNAMED, nested, pieces_of, share_out, unused_amount
from analytics.ranks import rank
from analytics.states import ALLOCATED, ALLOCATED_USED_FIRST, IDLE_ALLOCATED, IN_USE, UNUSED
from fallow.clock import HOUR_MS
from fallow.schema import STATES

COMPARED_FROM_MS = HOUR_MS
"""Who was given less of a model is not compared on it: a share of some minutes says nothing."""

_DECIMALS = 9
"""Sums of the same times in another order differ beyond them; such shares are equal."""


@dataclass(frozen=True)
class EfficiencyRank:
    """The place of one group among the `compared` ones that had GPUs of `model`; 1 is the most efficient.

    `allocated_ms` and `efficiency` are the group's own on that model, the one of which it had the most GPU time.
    """

    place: int
    compared: int
    model: str
    allocated_ms: float
    efficiency: float


def efficiency_ranks(pieces: pl.DataFrame, group: str) -> Mapping[str, EfficiencyRank]:
    """The rank of each group of priced segments; none for those who had their model to themselves."""
    name, model = pl.col(group).cast(pl.String), pl.col("model")
    by_model = (
        pieces.filter(pl.col("state").is_in(ALLOCATED) & ~name.is_in(UNNAMED) & (model != UNKNOWN_MODEL))
        .group_by(name.alias("name"), model.alias("card"))
        .agg(pl.col("gpu_ms").sum(), effective_ms=(pl.col("gpu_ms") * pl.col("used_share")).sum())
        .filter(pl.col("gpu_ms") >= COMPARED_FROM_MS)
        .with_columns(efficiency=(pl.col("effective_ms") / pl.col("gpu_ms")).clip(0, 1).round(_DECIMALS))
        .with_columns(place=rank(pl.col("efficiency")).over("card"), compared=pl.len().over("card"))
    )
    most = by_model.sort("gpu_ms", "card", descending=(True, False)).unique("name", keep="first", maintain_order=True)
    rows = most.filter(pl.col("compared") > 1).select("name", "place", "compared", "card", "gpu_ms", "efficiency")
    return {name: EfficiencyRank(*figures) for name, *figures in rows.iter_rows()}


GROUPS = ("pool", "team", "organisation", "model", "host", "holder", "account", "day")
"""What a table can have a row per."""

_LEVELS = {
    "host": ("pool", "host"),
    "team": ("organisation", "team"),
    "holder": ("organisation", "team", "holder"),
    "account": ("organisation", "team", "account"),
    "team_project": ("organisation", "team", "team_project"),
}
"""The levels through which cents go down to a group, so that teams add up to their organisation, and so on."""

_WHOLE_GPUS = ("pool", "host", "model", "day")
"""Groups that hold a split GPU together with its MIG instances: its counter stands for all of them."""


@dataclass(frozen=True)
class Account:
    """One row of a table: GPU time, whole cents and energy by state.

    `name` is None where the row stands for what has none, in the words of `label`. `cents` are of the time that has a price;
    `unpriced_ms` is the rest. Of time and cents, `open_ms` and `open_cents` are those that point samples alone call idle (see
    `analytics.ledger.sampled`). `low_unused_cents` are the unused part of those of low time. `effective_ms` is the active time and the low time by its activity, `low_by_sm_ms` the low time whose
    activity is SM activity. `rank_gpu_time` is 1 for the most GPU time; None for what has no name, as `efficiency_rank` is.
    """

    label: str
    name: str | None
    gpus: int
    state_ms: Mapping[str, float]
    state_cents: Mapping[str, int]
    unpriced_ms: float
    open_ms: Mapping[str, float]
    open_cents: Mapping[str, int]
    low_unused_cents: int
    energy: Energy
    effective_ms: float
    low_by_sm_ms: float
    rank_gpu_time: int | None = None
    efficiency_rank: EfficiencyRank | None = None

    @property
    def total_ms(self) -> float:
        """All of its GPU time."""
        return sum(self.state_ms.values())

    @property
    def paid_cents(self) -> int | None:
        """What was paid for the time that has a price; None where none of it has."""
        return None if self.unpriced_ms and self.unpriced_ms >= self.total_ms else sum(self.state_cents.values())

    @property
    def used_cents(self) -> int:
        """What was paid for time in which kernels ran."""
        return sum(self.state_cents[state] for state in IN_USE)

    @property
    def useful_cents(self) -> int:
        """The same without the unused part of low time."""
        return self.used_cents - self.low_unused_cents

    def unused_cents(self, totals: Totals) -> int:
        """What was paid for `Totals.wasted_ms` of the same time."""
        open_cents = self.open_cents if totals.leaves_open else {}
        return sum(max(0, self.state_cents[state] - open_cents.get(state, 0)) for state in UNUSED)

    def waste_cents(self, totals: Totals) -> int:
        """What was paid for the same, for time in which the GPUs could not work and for the unused part of low time."""
        return self.unused_cents(totals) + self.state_cents["unavailable"] + self.low_unused_cents

    @property
    def efficiency(self) -> float | None:
        """Effective share of the allocated time, from 0 to 1; None, and never 1, where nothing was allocated."""
        share = ratio(self.effective_ms, self.allocated_ms)
        return None if share is None else min(max(share, 0.0), 1.0)

    @property
    def low_by_sm(self) -> float | None:
        """The share of the low time that counts by its SM activity, the rest by utilization; None without low time."""
        return ratio(self.low_by_sm_ms, self.state_ms["low"])

    @property
    def allocated_open_ms(self) -> float:
        """GPU time that somebody held or claimed, and that point samples alone call idle."""
        return sum(self.open_ms[state] for state in IDLE_ALLOCATED)

    @property
    def leaves_open(self) -> bool:
        """Whether that is enough for figures to say so."""
        return 0 < self.allocated_open_ms >= OPEN_FROM * self.allocated_ms

    @property
    def allocated_ms(self) -> float:
        """GPU time that somebody held or claimed."""
        return sum(self.state_ms[state] for state in ALLOCATED_USED_FIRST)


OF_TEAM = "\x1f"
"""Stands between a team and its project in the labels of `Accounts.by("team_project")`: two teams may each have one of a name."""


class Accounts:
    """The tables of one window; those of `team_project` too where the ledger's rows have the `project` of their claim.

    `pieces` are the rows that all of them are sums of: those of `pieces_of`.
    """

    def __init__(self, ledger: Ledger, costs: Costs, inventory: Inventory, owners: Owners) -> None:
        """From a ledger that was clipped to the window."""
        open_amount = (pl.col("amount").cast(pl.Float64) * pl.col("open_share")).round().cast(AMOUNT)
        self.pieces = pieces_of(ledger.stretches, costs, inventory, owners).with_columns(open_amount=open_amount)
        if "project" in self.pieces.columns:
            self.pieces = self.pieces.with_columns(team_project=pl.concat_str("team", "project", separator=OF_TEAM))
        self.currency = costs.currency

    @cached_property
    def total(self) -> Account:
        """The whole window."""
        rows = self.pieces.with_columns(all=pl.lit(""))
        found = _accounts(rows, "all", ("state",), whole_gpus=True)
        return found[0] if found else _empty()

    @cached_property
    def energy_by_state(self) -> Mapping[str, Energy]:
        """The energy of each state."""
        return _energies(self.pieces, "state", whole_gpus=False)

    @cached_property
    def allocated(self) -> pl.DataFrame:
        """Who had how much of a GPU when: organisation, team, account, holder, pool, state, spell_ms, time, end, gpu_share, and team_project."""
        names = ("organisation", "team", "account", "holder", "pool", "state", "spell_ms", "time", "end")
        more = [name for name in ("team_project",) if name in self.pieces.columns]
        rows = self.pieces.filter(pl.col("state").is_in(ALLOCATED_USED_FIRST))
        return rows.select(*names, *more, gpu_share=pl.col("gpu_ms") / SPAN_MS)

    def by(self, group: str) -> tuple[Account, ...]:
        """One row per pool, team, ... (GROUPS): days by date, else the most paid, then the most time first."""
        keys = ("state", *_LEVELS.get(group, (group,)))
        rows = _accounts(self.pieces, group, keys, whole_gpus=group in _WHOLE_GPUS)
        found = _ranked(rows, efficiency_ranks(self.pieces, group))
        if group == "day":
            return tuple(sorted(found, key=lambda row: row.label))
        return tuple(sorted(found, key=lambda row: (-(row.paid_cents or 0), -row.total_ms, row.label)))


def _cents(pieces: pl.DataFrame, amount: str, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """Cents of an amount by the last of the keys and by state, the first of them, of the time that has a price."""
    sums = pieces.filter(pl.col("amount").is_not_null()).group_by(keys).agg(pl.col(amount).sum())
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for key, each in nested({tuple(row[:-1]): row[-1] for row in sums.sort(keys).iter_rows()}).items():
        found[key[-1] if len(key) > 1 else ""][key[0]] += each
    return found


def _accounts(pieces: pl.DataFrame, group: str, keys: Sequence[str], *, whole_gpus: bool) -> list[Account]:
    """One row per value of a column, its cents shared out down the keys, which begin with the state and end with that column."""
    state_ms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    open_ms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    state_cents, open_cents = (_cents(pieces, amount, keys) for amount in ("amount", "open_amount"))
    sums = pieces.group_by(group, "state").agg(
        pl.col("gpu_ms").sum(), open_ms=(pl.col("gpu_ms") * pl.col("open_share")).sum()
    )
    for label, state, gpu_ms, unconfirmed_ms in sums.sort(group, "state").iter_rows():
        state_ms[label][state], open_ms[label][state] = gpu_ms, unconfirmed_ms
    gpu_ms = pl.col("gpu_ms")
    unpriced = gpu_ms.filter(pl.col("amount").is_null()).sum()
    whole = pl.col("gpu").filter(~pl.col("instance")).n_unique()
    gpus = (
        pl.when(whole > 0).then(whole).otherwise(pl.col("gpu").n_unique()) if whole_gpus else pl.col("gpu").n_unique()
    )
    effective, low_by_sm = (gpu_ms * pl.col("used_share")).sum(), gpu_ms.filter("by_sm").sum()
    rest = pieces.group_by(group).agg(gpus=gpus, unpriced=unpriced, effective=effective, low_by_sm=low_by_sm)
    energies = _energies(pieces, group, whole_gpus=whole_gpus)
    low_unused = _low_unused(pieces, group)
    return [
        Account(
            label=label,
            name=None if label in UNNAMED else label,
            gpus=gpu_count,
            state_ms=state_ms[label],
            state_cents=state_cents[label],
            unpriced_ms=unpriced_ms,
            open_ms=open_ms[label],
            open_cents=open_cents[label],
            low_unused_cents=share_out(state_cents[label]["low"], low_unused[label])[("wasted",)]
            if label in low_unused
            else 0,
            energy=energies[label],
            effective_ms=effective_ms,
            low_by_sm_ms=low_by_sm_ms,
        )
        for label, gpu_count, unpriced_ms, effective_ms, low_by_sm_ms in rest.sort(group).iter_rows()
    ]


def _low_unused(pieces: pl.DataFrame, group: str) -> dict[str, dict[tuple[str, ...], int]]:
    """By a column what was paid for the used and the wasted part of low time, in microcents."""
    low = pieces.filter((pl.col("state") == "low") & pl.col("amount").is_not_null())
    wasted = unused_amount().sum()
    sums = low.group_by(group).agg((pl.col("amount").sum() - wasted).alias("used"), wasted.alias("wasted"))
    return {label: {("used",): used, ("wasted",): unused} for label, used, unused in sums.iter_rows()}


def _energies(pieces: pl.DataFrame, group: str, *, whole_gpus: bool) -> dict[str, Energy]:
    """Energy by a column.

    The counter of a GPU that is split says nothing of its instances: where the group has the whole GPU, its counter stands
    for all of them, else their time counts as time without a known energy.
    """
    rows = pieces.filter(~pl.col("instance")) if whole_gpus else pieces
    known, total = ("energy_ms", "span_ms") if whole_gpus else ("energy_known_ms", "gpu_ms")
    sums = rows.group_by(group).agg(pl.col("energy_mj").sum(), pl.col(known).sum(), pl.col(total).sum())
    found = {label: Energy(*map(float, numbers)) for label, *numbers in sums.iter_rows()}
    return {label: found.get(label, Energy(0.0, 0.0, 0.0)) for label in pieces[group].unique()}


def _ranked(rows: Sequence[Account], by_efficiency: Mapping[str, EfficiencyRank]) -> list[Account]:
    """The rows with the ranks of those that have a name and were given GPUs."""
    named = {row.label: row.allocated_ms for row in rows if row.name is not None and row.allocated_ms > 0}
    times = pl.Series(named.values(), dtype=pl.Float64)
    by_time = dict(zip(named, times.to_frame("time").select(rank(pl.col("time")))["time"], strict=True))
    return [
        replace(row, rank_gpu_time=by_time.get(row.label), efficiency_rank=by_efficiency.get(row.label)) for row in rows
    ]


def _empty() -> Account:
    no_time, no_cents = dict.fromkeys(STATES, 0.0), dict.fromkeys(STATES, 0)
    return Account("", None, 0, no_time, no_cents, 0.0, no_time, no_cents, 0, Energy(0.0, 0.0, 0.0), 0.0, 0.0)
