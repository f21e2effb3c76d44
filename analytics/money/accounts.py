"""Accounts: used, stalled, held, reserved, free, unavailable and unknown time add up to the amount paid, to the cent.

In every table each state's cents add up to that state's total, and the states' totals to the amount paid.
`analytics.money.priced_segments` explains the rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import cached_property

import polars as pl

from analytics.intervals import SPAN_MS
from analytics.inventory import UNKNOWN_MODEL, Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.card_use import HOURLY_COLUMNS, CardUse, busy_hours, card_uses
from analytics.ledger.sampled import Basis
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
"""Least allocated time on a model for a comparison: a share of some minutes is not meaningful."""

_DECIMALS = 9
"""Greatest difference of equal shares: sums of the same times in another order differ by less."""


@dataclass(frozen=True)
class EfficiencyRank:
    """The rank of one group among the `compared` ones with GPUs of `model`; 1 is the most efficient.

    `allocated_ms`, `efficiency` and its bounds are the group's own on this model, which is the model with its most GPU
    time. The rank is `unconfirmed` if the efficiency of any compared group has bounds.
    """

    place: int
    compared: int
    model: str
    allocated_ms: float
    efficiency: float
    efficiency_bound: tuple[float, float] | None = None
    unconfirmed: bool = False


def efficiency_bound(
    allocated_ms: float, effective_ms: float, open_ms: float, doubtful_ms: float
) -> tuple[float, float] | None:
    """Return the bounds of an efficiency; None where samples and single witnesses leave next to nothing open."""
    if allocated_ms <= 0 or open_ms + doubtful_ms < OPEN_FROM * allocated_ms:
        return None
    low_ms, high_ms = effective_ms - doubtful_ms, effective_ms + open_ms
    return max(0.0, low_ms / allocated_ms), min(1.0, high_ms / allocated_ms)


def efficiency_ranks(pieces: pl.DataFrame, group: str) -> Mapping[str, EfficiencyRank]:
    """Return the rank of each group of priced segments; a group without others on its model has none."""
    name, model, gpu_ms = pl.col(group).cast(pl.String), pl.col("model"), pl.col("gpu_ms")
    effective = gpu_ms * pl.col("used_share")
    idle = pl.col("state").is_in(IDLE_ALLOCATED)
    by_model = (
        pieces.filter(pl.col("state").is_in(ALLOCATED) & ~name.is_in(UNNAMED) & (model != UNKNOWN_MODEL))
        .group_by(name.alias("name"), model.alias("card"))
        .agg(
            gpu_ms.sum(),
            effective_ms=effective.sum(),
            open_ms=(gpu_ms * pl.col("open_share")).filter(idle).sum(),
            doubtful_ms=(effective * pl.col("doubt_share")).sum(),
        )
        .filter(pl.col("gpu_ms") >= COMPARED_FROM_MS)
        .with_columns(efficiency=(pl.col("effective_ms") / pl.col("gpu_ms")).clip(0, 1).round(_DECIMALS))
        .with_columns(place=rank(pl.col("efficiency")).over("card"), compared=pl.len().over("card"))
    )
    sums = by_model.select("name", "card", "gpu_ms", "effective_ms", "open_ms", "doubtful_ms")
    bounds = {(name, card): efficiency_bound(*figures) for name, card, *figures in sums.iter_rows()}
    unconfirmed = {card for (_, card), bound in bounds.items() if bound is not None}
    most = by_model.sort("gpu_ms", "card", descending=(True, False)).unique("name", keep="first", maintain_order=True)
    rows = most.filter(pl.col("compared") > 1).select("name", "place", "compared", "card", "gpu_ms", "efficiency")
    return {
        name: EfficiencyRank(place, compared, card, own_ms, efficiency, bounds[name, card], card in unconfirmed)
        for name, place, compared, card, own_ms, efficiency in rows.iter_rows()
    }


GROUPS = ("pool", "team", "organisation", "model", "host", "user", "account", "day")
ALLOCATION_GROUPS = ("partition", "qos", "job")
"""Groups of the rows of a ledger `with_allocation_facts`."""
COLUMN_OF = {"day": "local_day", "job": "job_name"}
"""Columns of `pieces_of` whose name differs from the group."""

_LEVELS = {
    "host": ("pool", "host"),
    "team": ("organisation", "team"),
    "user": ("organisation", "team", "user"),
    "account": ("organisation", "team", "account"),
    "team_project": ("organisation", "team", "team_project"),
}
"""Levels from the whole to a group, through which cents are divided, so that teams add up to their organisation, and so
on."""

_WHOLE_GPUS = ("pool", "host", "model", "day")
"""Groups that contain a split GPU together with its MIG instances: the GPU's counter covers all of them."""


@dataclass(frozen=True)
class Account:
    """One row of a table: GPU time, whole cents and energy by state.

    Attributes:
        name: None for the row without a name, whose words are `label`.
        cents: cost of the time with a price; `unpriced_ms` is the other time.
        open_ms: the part that only point samples show as idle (see `analytics.ledger.sampled`); `open_cents` is its
            cost.
        likely_ms: the part of `open_ms` that power readings support as well.
        low_unused_cents: the cost of the unused part of low use.
        effective_ms: busy time, and low-use time by its activity. `doubtful_ms` is its part that may have been held
            (between samples) or stalled. `low_by_sm_ms` is the low-use time with SM activity.
        rank_gpu_time: 1 for the most GPU time; None for a row without a name, as is `efficiency_rank`.
    """

    label: str
    name: str | None
    gpus: int
    state_ms: Mapping[str, float]
    state_cents: Mapping[str, int]
    unpriced_ms: float
    open_ms: Mapping[str, float]
    open_cents: Mapping[str, int]
    likely_ms: Mapping[str, float]
    low_unused_cents: int
    energy: Energy
    effective_ms: float
    doubtful_ms: float
    low_by_sm_ms: float
    rank_gpu_time: int | None = None
    efficiency_rank: EfficiencyRank | None = None

    @property
    def total_ms(self) -> float:
        return sum(self.state_ms.values())

    @property
    def paid_cents(self) -> int | None:
        """Return the amount paid for time with a price; None without such time."""
        return None if self.unpriced_ms and self.unpriced_ms >= self.total_ms else sum(self.state_cents.values())

    @property
    def used_cents(self) -> int:
        """Return the amount paid for time with running kernels."""
        return sum(self.state_cents[state] for state in IN_USE)

    @property
    def effective_cents(self) -> int:
        """Return the same without the unused part of low use."""
        return self.used_cents - self.low_unused_cents

    def unused_cents(self, totals: Totals) -> int:
        """Return the amount paid for `Totals.wasted_ms`."""
        open_cents = self.open_cents if totals.leaves_open else {}
        return sum(max(0, self.state_cents[state] - open_cents.get(state, 0)) for state in UNUSED)

    def waste_cents(self, totals: Totals) -> int:
        """Return the same plus the amount paid for down time and for the unused part of low use."""
        return self.unused_cents(totals) + self.state_cents["unavailable"] + self.low_unused_cents

    @property
    def efficiency(self) -> float | None:
        """Return the effective share of the allocated time, from 0 to 1; None, and never 1, without allocated time."""
        share = ratio(self.effective_ms, self.allocated_ms)
        return None if share is None else min(max(share, 0.0), 1.0)

    @property
    def efficiency_bound(self) -> tuple[float, float] | None:
        return efficiency_bound(self.allocated_ms, self.effective_ms, self.allocated_open_ms, self.doubtful_ms)

    @property
    def low_by_sm(self) -> float | None:
        """Return the share of low-use time that counts by SM activity; None without low use.

        Utilization counts for the others.
        """
        return ratio(self.low_by_sm_ms, self.state_ms["low"])

    def unconfirmed(self, state: str) -> float:
        """Return the share of the state's time that only point samples show as idle."""
        return ratio(self.open_ms[state], self.state_ms[state]) or 0.0

    def basis(self, state: str) -> Basis | None:
        """Return the evidence of the state's idle time; None without any."""
        likely = ratio(self.likely_ms[state], self.state_ms[state])
        return None if likely is None else Basis.of(self.unconfirmed(state), likely)

    @property
    def allocated_open_ms(self) -> float:
        """Return the allocated GPU time that only point samples show as idle."""
        return sum(self.open_ms[state] for state in IDLE_ALLOCATED)

    @property
    def idle_allocated_ms(self) -> float:
        """Return the allocated GPU time in which nothing was computed."""
        return sum(self.state_ms[state] for state in IDLE_ALLOCATED)

    @property
    def leaves_open(self) -> bool:
        """Return True if this is enough to mention beside figures."""
        return 0 < self.allocated_open_ms >= OPEN_FROM * self.allocated_ms

    @property
    def allocated_ms(self) -> float:
        """Return the GPU time with a user or an allocation."""
        return sum(self.state_ms[state] for state in ALLOCATED_USED_FIRST)


OF_TEAM = "\x1f"
"""Separator between a team and its project in the labels of `Accounts.by("team_project")`: two teams may use the same
name."""


class Accounts:
    """The tables of one window; also by `team_project` if the ledger's rows have the `project` of their allocation.

    `pieces` are the rows of `pieces_of`, which all tables sum up. `rollups` are the hourly tables of the same time.
    """

    def __init__(self, ledger: Ledger, costs: Costs, inventory: Inventory, owners: Owners, zone: tzinfo = UTC) -> None:
        """Take a ledger that is clipped to the window; `zone` is the time zone of the days."""
        self.zone = zone
        open_amount = (pl.col("amount").cast(pl.Float64) * pl.col("open_share")).round().cast(AMOUNT)
        self.pieces = pieces_of(ledger.segments, costs, inventory, owners, zone).with_columns(open_amount=open_amount)
        if "project" in self.pieces.columns:
            self.pieces = self.pieces.with_columns(team_project=pl.concat_str("team", "project", separator=OF_TEAM))
        self.currency = costs.currency
        self.rollups = ledger.rollups
        self._by: dict[str, tuple[Account, ...]] = {}

    @cached_property
    def total(self) -> Account:
        rows = self.pieces.with_columns(all=pl.lit(""))
        found = _accounts(rows, "all", ("state",), whole_gpus=True)
        return found[0] if found else _empty()

    @cached_property
    def energy_by_state(self) -> Mapping[str, Energy]:
        return _energies(self.pieces, "state", whole_gpus=False)

    @cached_property
    def allocated(self) -> pl.DataFrame:
        """Return the allocated GPU time by row.

        Columns: organisation, team, account, user, pool, state, segment_ms, time, end, gpu_share, and team_project.
        """
        names = ("organisation", "team", "account", "user", "pool", "state", "segment_ms", "time", "end")
        more = [name for name in ("team_project",) if name in self.pieces.columns]
        rows = self.pieces.filter(pl.col("state").is_in(ALLOCATED_USED_FIRST))
        return rows.select(*names, *more, gpu_share=pl.col("gpu_ms") / SPAN_MS)

    @cached_property
    def _busy_hours(self) -> pl.DataFrame:
        return busy_hours(self.pieces, self.rollups.hourly(*HOURLY_COLUMNS)).with_columns(all=pl.lit(""))

    def card_use(self, group: str) -> Mapping[str, CardUse]:
        """Return what the busy time of each pool, team, `gpu` or other group used of its cards, by label."""
        return card_uses(self._busy_hours, COLUMN_OF.get(group, group))

    @cached_property
    def total_card_use(self) -> CardUse | None:
        """Return the same of the whole window; None without busy time or measures."""
        return self.card_use("all").get("")

    def by(self, group: str) -> tuple[Account, ...]:
        """Return a row per pool, team or other group (GROUPS): days by date, others by amount paid, then by time."""
        if group not in self._by:
            self._by[group] = self._rows_by(group)
        return self._by[group]

    def _rows_by(self, group: str) -> tuple[Account, ...]:
        column = COLUMN_OF.get(group, group)
        keys = ("state", *_LEVELS.get(group, (column,)))
        rows = _accounts(self.pieces, column, keys, whole_gpus=group in _WHOLE_GPUS)
        found = _ranked(rows, efficiency_ranks(self.pieces, column))
        if group == "day":
            return tuple(sorted(found, key=lambda row: row.label))
        return tuple(sorted(found, key=lambda row: (-(row.paid_cents or 0), -row.total_ms, row.label)))


def _cents(pieces: pl.DataFrame, amount: str, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return cents of the time with a price, by the last key and by state, which is the first key."""
    sums = pieces.filter(pl.col("amount").is_not_null()).group_by(keys).agg(pl.col(amount).sum())
    found: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
    for key, each in nested({tuple(row[:-1]): row[-1] for row in sums.sort(keys).iter_rows()}).items():
        found[key[-1] if len(key) > 1 else ""][key[0]] += each
    return found


def _accounts(pieces: pl.DataFrame, group: str, keys: Sequence[str], *, whole_gpus: bool) -> list[Account]:
    """Return a row per value of a column. Cents are divided down the keys, from the state to this column."""
    state_ms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    open_ms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    likely_ms: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(STATES, 0.0))
    state_cents, open_cents = (_cents(pieces, amount, keys) for amount in ("amount", "open_amount"))
    sums = pieces.group_by(group, "state").agg(
        pl.col("gpu_ms").sum(),
        open_ms=(pl.col("gpu_ms") * pl.col("open_share")).sum(),
        likely_ms=(pl.col("gpu_ms") * pl.col("likely_share")).sum(),
    )
    for label, state, *spent in sums.sort(group, "state").iter_rows():
        state_ms[label][state], open_ms[label][state], likely_ms[label][state] = spent
    gpu_ms = pl.col("gpu_ms")
    unpriced = gpu_ms.filter(pl.col("amount").is_null()).sum()
    whole = pl.col("gpu").filter(~pl.col("instance")).n_unique()
    gpus = (
        pl.when(whole > 0).then(whole).otherwise(pl.col("gpu").n_unique()) if whole_gpus else pl.col("gpu").n_unique()
    )
    effective = gpu_ms * pl.col("used_share")
    rest = pieces.group_by(group).agg(
        gpus=gpus,
        unpriced=unpriced,
        effective=effective.sum(),
        doubtful=(effective * pl.col("doubt_share")).sum(),
        low_by_sm=gpu_ms.filter("by_sm").sum(),
    )
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
            likely_ms=likely_ms[label],
            low_unused_cents=share_out(state_cents[label]["low"], low_unused[label])[("wasted",)]
            if label in low_unused
            else 0,
            energy=energies[label],
            effective_ms=effective_ms,
            doubtful_ms=doubtful_ms,
            low_by_sm_ms=low_by_sm_ms,
        )
        for label, gpu_count, unpriced_ms, effective_ms, doubtful_ms, low_by_sm_ms in rest.sort(group).iter_rows()
    ]


def _low_unused(pieces: pl.DataFrame, group: str) -> dict[str, dict[tuple[str, ...], int]]:
    """Return by a column the amounts paid for the used and the wasted part of low use, in microcents."""
    low = pieces.filter((pl.col("state") == "low") & pl.col("amount").is_not_null())
    wasted = unused_amount().sum()
    sums = low.group_by(group).agg((pl.col("amount").sum() - wasted).alias("used"), wasted.alias("wasted"))
    return {label: {("used",): used, ("wasted",): unused} for label, used, unused in sums.iter_rows()}


def _energies(pieces: pl.DataFrame, group: str, *, whole_gpus: bool) -> dict[str, Energy]:
    """Return the energy by a column.

    The counter of a split GPU does not divide into its instances. A group with the whole GPU gets the counter's energy.
    In other groups the instances' time has no known energy.
    """
    rows = pieces.filter(~pl.col("instance")) if whole_gpus else pieces
    known, total = ("energy_ms", "span_ms") if whole_gpus else ("energy_known_ms", "gpu_ms")
    sums = rows.group_by(group).agg(pl.col("energy_mj").sum(), pl.col(known).sum(), pl.col(total).sum())
    found = {label: Energy(*map(float, numbers)) for label, *numbers in sums.iter_rows()}
    return {label: found.get(label, Energy(0.0, 0.0, 0.0)) for label in pieces[group].unique()}


def _ranked(rows: Sequence[Account], by_efficiency: Mapping[str, EfficiencyRank]) -> list[Account]:
    """Return the rows with the ranks of named groups with GPUs."""
    named = {row.label: row.allocated_ms for row in rows if row.name is not None and row.allocated_ms > 0}
    times = pl.Series(named.values(), dtype=pl.Float64)
    by_time = dict(zip(named, times.to_frame("time").select(rank(pl.col("time")))["time"], strict=True))
    return [
        replace(row, rank_gpu_time=by_time.get(row.label), efficiency_rank=by_efficiency.get(row.label)) for row in rows
    ]


def _empty() -> Account:
    no_time, no_cents = dict.fromkeys(STATES, 0.0), dict.fromkeys(STATES, 0)
    no_energy = Energy(0.0, 0.0, 0.0)
    return Account("", None, 0, no_time, no_cents, 0.0, no_time, no_cents, no_time, 0, no_energy, 0.0, 0.0, 0.0)
