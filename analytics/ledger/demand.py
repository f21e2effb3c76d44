"""Allocations by host and day, as a host-day's part needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from analytics.allocations.spans import ALLOCATION_COLUMNS, SPAN_SCHEMA, UNPLACED_SCHEMA, allocation_spans
from analytics.intervals import clip
from analytics.inventory import Inventory
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import DAY_MS, parse_day_ms
from fallow.lake import Lake


@dataclass(frozen=True)
class HostAllocations:
    """Allocation spans once for each `host` that ever had their GPU (null: one that no inventory lists), and unplaced allocations.

    So they stand by a GPU's past when it moves, and a host's day is built from the same allocations before and after.
    """

    placed: pl.DataFrame
    unplaced: pl.DataFrame
    rows: pl.DataFrame
    _days: dict[str, tuple[_ByHost, _ByHost]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, host: str, date: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The spans and the unplaced claims that touch a host's day."""
        if date not in self._days:
            day_ms = parse_day_ms(date)
            self._days[date] = (
                _by_host(_during(self.placed, day_ms), include_key=False),
                _by_host(_during(self.unplaced, day_ms), include_key=True),
            )
        placed, unplaced = self._days[date]
        mine = [placed[key] for key in (host, None) if key in placed]
        return pl.concat(mine) if mine else _NO_SPANS, unplaced.get(host, _NO_CLAIMS)


_ByHost = dict[str | None, pl.DataFrame]
_NO_SPANS, _NO_CLAIMS = (pl.DataFrame(schema=columns) for columns in (SPAN_SCHEMA, UNPLACED_SCHEMA))


def _by_host(claims: pl.DataFrame, *, include_key: bool) -> _ByHost:
    return {host: rows for (host,), rows in claims.partition_by("host", as_dict=True, include_key=include_key).items()}


def _during(claims: pl.DataFrame, day_ms: int) -> pl.DataFrame:
    """The claims cut to the day and those beside it, for a row's true start may lie a little outside its day.

    What happens to a claim later must not show, or every day that it touched would have to be built again.
    """
    return clip(claims, day_ms - DAY_MS, day_ms + 2 * DAY_MS, start="start")


def load_allocations(lake: Lake, inventory: Inventory) -> HostAllocations:
    """All claims of a lake; raises LakeError and its kinds."""
    claims = read_small(lake, schema.CLAIM, ALLOCATION_COLUMNS)
    if claims.is_empty():
        return HostAllocations(_NO_SPANS.with_columns(host=pl.lit(None, pl.String)), _NO_CLAIMS, claims)
    spans = allocation_spans(claims, {})  # on which GPUs of its host a claim was is for each day's own rows to say
    hosts = pl.DataFrame(
        [(gpu, host) for gpu, hosts in inventory.hosts_of.items() for host in hosts],
        schema={"gpu": pl.String, "host": pl.String},
        orient="row",
    )
    placed = spans.placed.join(hosts, on="gpu", how="left", maintain_order="left_right")
    return HostAllocations(placed, spans.unplaced, claims)
