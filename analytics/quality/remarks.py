"""Run every check of data quality on the data of a window."""

from __future__ import annotations

import polars as pl

from analytics.inventory import Inventory
from analytics.money.costs import Costs
from analytics.money.window_money import open_prices
from analytics.quality.checks import CHECKS
from analytics.quality.model import Data, Remark, seen_until
from analytics.small_tables import read_small
from analytics.window import Inputs, WindowLedger
from fallow import schema
from fallow.clock import DAY_MS, SystemClock, Window

_CARDS = ("time", "gpu", "parent_gpu", "pci_bus_id")
_EVENTS = ("time", "kind", "detail")


def data_quality(
    inputs: Inputs, ledger: WindowLedger, inventory: Inventory, now_ms: int | None = None
) -> tuple[Remark, ...]:
    """Return the problems with the data of the window, in the order of CHECKS. Raises LakeError and ConfigError.

    `now_ms` is the current time; by default that of this machine's clock.
    """
    data = load_data(inputs, ledger, inventory, SystemClock().now_ms() if now_ms is None else now_ms)
    return tuple(remark for check in CHECKS for remark in check(data))


def load_data(inputs: Inputs, ledger: WindowLedger, inventory: Inventory, now_ms: int) -> Data:
    """Return the data that the checks read. Raises LakeError and ConfigError."""
    # up to now only: no host is silent in the future
    seen = seen_until(ledger, now_ms)
    window = Window(ledger.summary.since_ms, min(seen.until_ms, now_ms))
    since_ms, until_ms = window.since_ms or 0, window.until_ms or 0
    rollups = ledger.whole.rollups.until(until_ms)
    steps = read_small(inputs.lake, schema.EVENT, _EVENTS, window).filter(pl.col("kind") == "clock_stepped")
    return Data(
        window=window,
        segments=ledger.inside.segments,
        inventory=inventory,
        values=rollups.quality(since_ms - DAY_MS).filter(pl.col("time") > since_ms - DAY_MS),
        hours=rollups.hourly("observed_ms", since_ms=since_ms).filter(pl.col("time") >= since_ms),
        allocations=rollups.allocations.filter(pl.col("time") < until_ms),
        cards=read_small(inputs.lake, schema.DEVICE, _CARDS, window).filter(pl.col("parent_gpu").is_null()),
        steps=steps,
        costs=Costs(open_prices(inputs.settings), inventory),
        seen=seen,
        left_out=(*inputs.lake.left_out.found, *inputs.lake.strays()),
    )
