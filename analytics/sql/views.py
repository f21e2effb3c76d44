"""The derived views: the meaning of a row and of each column, and how the rows are made.

The views of the lake's own tables are in `session`; their columns are those of `fallow.schema`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.decide.value import Value
from analytics.ledger.sampled import Basis
from analytics.money.priced_segments import MICROCENTS, UNNAMED, unused_amount
from analytics.money.window_money import gpus_at, in_force, newest_basis, open_prices
from analytics.report.report import Report
from analytics.states import UNUSED, WASTED
from analytics.tables.finding_list import FINDING_COLUMNS
from analytics.tables.recommendations import DECISION_COLUMNS
from analytics.tables.table import record
from analytics.workloads.model import Finding
from fallow import schema
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class DerivedView:
    """One view.

    Attributes:
        row: the meaning of a row.
        columns: type and meaning of each column, in the order of the columns.
        make: returns the rows; a missing column is null.
        is_personal: False where the rows of a team or a user cannot be separated from the others.
    """

    row: str
    columns: Mapping[str, tuple[pl.DataType | type[pl.DataType], str]]
    make: Callable[[Report], pl.DataFrame]
    is_personal: bool = True

    def frame(self, basis: Report) -> pl.DataFrame:
        """Return the rows with exactly the view's columns; times of integer milliseconds become timestamps."""
        rows = self.make(basis)
        return rows.select(
            (_moment(name) if kind == MOMENT else pl.col(name).cast(kind, strict=False))
            if name in rows.columns
            else pl.lit(None, kind).alias(name)
            for name, (kind, _) in self.columns.items()
        )


MOMENT = pl.Datetime("ms", "UTC")
MONEY = pl.Decimal(38, 8)
"""Whole microcents: sums are exact, and round to the ledger's cents."""
TEXTS = pl.List(pl.String)


def _moment(name: str) -> pl.Expr:
    return pl.from_epoch(pl.col(name).cast(pl.Int64), "ms").dt.replace_time_zone("UTC").alias(name)


def _money(microcents: pl.Expr) -> pl.Expr:
    # Python's own numbers, because a cast of 128 bits divides in 64
    return microcents.cast(pl.Decimal(38, 0)).cast(MONEY) / (100 * MICROCENTS)


def _ledger(basis: Report) -> pl.DataFrame:
    money = basis.money
    pieces = money.accounts.pieces
    named = {
        name
        for name, kind in pieces.schema.items()
        if kind == pl.String and name not in ("day", "state", "gpu", "host")
    }
    waste = pl.when(pl.col("state") == "low").then(unused_amount()).when(pl.col("state").is_in(WASTED)).then("amount")
    return pieces.with_columns(
        pl.when(~pl.col(name).is_in(UNNAMED)).then(name).alias(name) for name in sorted(named)
    ).with_columns(
        user="user",
        start="time",
        gpu_hours=pl.col("gpu_ms") / HOUR_MS,
        cost=_money(pl.col("amount")),
        wasted_cost=_money(waste.otherwise(pl.col("amount") * 0)),
        unconfirmed_cost=_money(pl.col("open_amount")),
        currency=pl.when(pl.col("amount").is_not_null()).then(pl.lit(money.currency)),
        sampled_ratio="open_share",
        basis=pl.when(pl.col("state").is_in(UNUSED)).then(Basis.in_frame(pl.col("open_share"), pl.col("likely_share"))),
    )


def _hourly(basis: Report) -> pl.DataFrame:
    gpus = basis.part.inside.segments["gpu"].unique()
    return basis.part.inside.rollups.hourly().filter(pl.col("gpu").is_in(gpus.implode()))


def _findings(found: Iterable[Finding]) -> pl.DataFrame:
    rows = [
        {**record(FINDING_COLUMNS, each), "id": each.finding_id, "user": each.user, "start": each.since_ms}
        for each in found
    ]
    return _frame(rows, FINDINGS)


def _recommendations(basis: Report) -> pl.DataFrame:
    rows = [
        {
            **record(DECISION_COLUMNS, each),
            "user": each.user,
            "deadline": each.deadline,
            **_value(each.value),
            "findings": [found.finding_id for found in each.evidence],
        }
        for each in basis.recommendations.listed
    ]
    return _frame(rows, RECOMMENDATIONS)


def _value(value: Value | None) -> dict[str, float | None]:
    estimates = {} if value is None else {"freed_gpu_hours": value.gpu_hours, "freed": value.freed, "cash": value.cash}
    found: dict[str, float | None] = {"list_price_share": None if value is None else value.list_price_share}
    for name, each in estimates.items():
        if each is not None:
            found |= {f"{name}_low": each.low, name: each.point, f"{name}_high": each.high}
    return found


def _allocations(basis: Report) -> pl.DataFrame:
    allocations, gpus = basis.part.inside.rollups.allocations, basis.part.inside.segments["gpu"].unique()
    allocations = allocations.with_columns(start="time")
    if basis.scope.is_all:
        return allocations
    return allocations.filter(pl.col("gpu").is_in(gpus.implode()))


def _prices(basis: Report) -> pl.DataFrame:
    whole = basis.whole
    book = open_prices(whole.inputs.settings)
    used = newest_basis(whole.inventory, whole.money.costs)
    rows = [
        {name: getattr(each, name) for name in ("model", "pool", "hourly", "currency", "origin", "kind", "source")}
        | {"date": None if each.date is None else each.date.isoformat(), "gpus": gpus_at(each, used)}
        for each in in_force(book)
    ]
    return _frame(rows, PRICES)


Columns = Mapping[str, tuple[pl.DataType | type[pl.DataType], str]]


def _frame(rows: Iterable[Mapping[str, object]], columns: Columns) -> pl.DataFrame:
    kinds = {name: pl.Int64 if kind == MOMENT else kind for name, (kind, _) in columns.items()}
    return pl.DataFrame([{name: row.get(name) for name in columns} for row in rows], schema=kinds)


def _columns(described: Mapping[str, str | tuple[pl.DataType | type[pl.DataType], str]]) -> Columns:
    """Return the columns by name; a meaning without a type is that of a text column."""
    return {name: (pl.String, each) if isinstance(each, str) else each for name, each in described.items()}


_WHERE = _columns({"host": "the host", "pool": "the pool at that time", "model": "the model of the GPU"})
LEDGER = _columns(
    {
        "gpu": "UUID of the GPU or MIG instance",
        **_WHERE,
        "state": f"one of {', '.join(schema.STATES)}",
        "user": "user of the GPU; null where no user had it, or the user is not known",
        "team": "the user's team, by the owners file",
        "organisation": "the team's organisation",
        "project": "the project of the allocation",
        "account": "the account or namespace of the allocation",
        "job": "the job of the allocation",
        "start": (MOMENT, "start of the segment"),
        "end": (MOMENT, "end of the segment"),
        "gpu_hours": (pl.Float64, "length of the segment times the user's share of the GPU, hours"),
        "cost": (MONEY, "cost of the segment; null without a price"),
        "wasted_cost": (MONEY, "the part of the cost that is waste; 0 where the segment is used"),
        "unconfirmed_cost": (MONEY, "the part of wasted_cost that only readings at single moments show"),
        "currency": "currency of all three",
        "sampled_ratio": (pl.Float64, "share of the segment that only readings at single moments call idle"),
        "basis": f"basis of an idle segment: {', '.join(Basis)}; null where it is not idle",
    }
)
FINDINGS = _columns(
    {
        "id": "the finding's id, the same from week to week",
        "rule": "the rule that found it",
        "sentence": "one-line summary of the finding",
        "status": "new, notified, acknowledged, standing or snoozed",
        "gpus": (TEXTS, "UUIDs of the GPUs"),
        "host": "hosts of the GPUs, joined by +",
        "user": "users of the GPUs, joined by +",
        "team": "the users' team",
        "start": (MOMENT, "start of the finding"),
        "gpu_hours": (pl.Float64, "GPU time inside the window, hours"),
        "basis": f"basis of the idle time: {', '.join(Basis)}",
        "energy_kwh": (pl.Float64, "energy of that time"),
        "cost": (pl.Float64, "cost of that time; null without a price"),
        "currency": "its currency",
        "confidence": "high, medium or low",
        "failed_conditions": (TEXTS, "reasons why the confidence is not higher"),
        "reclaimable": (pl.Boolean, "whether any of the GPUs can be reclaimed at the end of the window"),
        "reclaimable_gpus": (TEXTS, "UUIDs of the reclaimable GPUs"),
        "next_command": "next command",
    }
)
RECOMMENDATIONS = _columns(
    {
        "id": "the recommendation's id, the same from week to week",
        "kind": "the kind of waste",
        "action": "the action",
        "owner": "the person who must act",
        "user": "users of the GPUs",
        "team": "the user's team",
        "pool": "pools of the GPUs, joined by +",
        "host": "hosts of the GPUs, joined by +",
        "gpus": (TEXTS, "UUIDs of the GPUs"),
        "gpus_now": (TEXTS, "the GPUs to act on at the end of the window"),
        "gpu_hours": (pl.Float64, "waste inside the window, hours; each hour belongs to one recommendation"),
        "basis": f"basis of the waste: {', '.join(Basis)}",
        "cost": (pl.Float64, "cost of the waste; the rows add up to the ledger's waste"),
        "currency": "its currency",
        "freed_gpu_hours_low": (pl.Float64, "least GPU time freed in a year, hours"),
        "freed_gpu_hours": (pl.Float64, "expected GPU time freed in a year, hours; null where it is not known"),
        "freed_gpu_hours_high": (pl.Float64, "most GPU time freed in a year, hours"),
        "freed_low": (pl.Float64, "price of the least GPU time"),
        "freed": (pl.Float64, "price of the expected GPU time; null without a price. Never add it to cash"),
        "freed_high": (pl.Float64, "price of the most GPU time"),
        "cash_low": (pl.Float64, "least spending that ends, per year"),
        "cash": (pl.Float64, "expected spending that ends, per year: rent or running cost; null where it is not known"),
        "cash_high": (pl.Float64, "most spending that ends, per year"),
        "list_price_share": (pl.Float64, "share of freed that rests on public list prices"),
        "ranked": (pl.Boolean, "whether it counts in sums of yearly figures"),
        "confidence": "high, medium or low",
        "deadline": (pl.Date, "the last day on which acting is in time, in the site's time zone"),
        "horizon_days": (pl.Float64, "how long the action has to last"),
        "status": "open, notified, acknowledged or snoozed",
        "findings": (TEXTS, "ids of the findings that are its evidence"),
        "next": "next command",
    }
)
PRICES = _columns(
    {
        "model": "the model of the line; null for all",
        "pool": "the pool of the line; null for all",
        "hourly": (pl.Decimal(38, 10), "price of a GPU-hour"),
        "currency": "its currency",
        "origin": "site, or catalog: a public list price",
        "kind": "buy, reserved, on_demand or spot; null where the price table does not state it",
        "source": "source of the price",
        "date": "date of the price",
        "gpus": (pl.Int64, "GPUs of the lake that have this price"),
    }
)
_POLARS: Mapping[schema.Type, pl.DataType | type[pl.DataType]] = {
    schema.Type.TIMESTAMP: MOMENT,
    schema.Type.INT16: pl.Int16,
    schema.Type.INT32: pl.Int32,
    schema.Type.INT64: pl.Int64,
    schema.Type.FLOAT: pl.Float32,
    schema.Type.DOUBLE: pl.Float64,
    schema.Type.STRING: pl.String,
}


def _of_schema(table: schema.LakeTable) -> Columns:
    """Return the columns of a table of the lake that hold one value each."""
    return {each.name: (_POLARS[each.type], each.meaning) for each in table.columns if each.type in _POLARS}


_OF_ALLOCATION = ("gpu", "end", "allocation_id", "scheduler", "user", "account", "host_gpu_count", "planned_end")
_START = _columns({"start": (MOMENT, "start of the allocation"), "host": "the host"})
ALLOCATIONS = {
    **_START,
    **{name: each for name, each in _of_schema(schema.ALLOCATION).items() if name in _OF_ALLOCATION},
}

DERIVED: Mapping[str, DerivedView] = {
    "ledger": DerivedView("one segment of one GPU in one state under one user", LEDGER, _ledger),
    "hourly": DerivedView(
        "one GPU in one hour: utilization, memory, power", _of_schema(schema.HOURLY), _hourly, is_personal=False
    ),
    "findings": DerivedView(
        "one finding of high or medium confidence", FINDINGS, lambda basis: _findings(basis.review.sure)
    ),
    "all_findings": DerivedView(
        "one finding, of low confidence too", FINDINGS, lambda basis: _findings(basis.review.findings)
    ),
    "recommendations": DerivedView("one recommendation", RECOMMENDATIONS, _recommendations),
    "allocations": DerivedView(
        "one GPU, or some GPUs of a host, allocated for a time", ALLOCATIONS, _allocations, is_personal=False
    ),
    "prices": DerivedView("one price in force", PRICES, _prices),
}
