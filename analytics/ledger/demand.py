"""Claims by host and day, as a host-day's part needs them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from analytics.claims.spans import CLAIM_COLUMNS, SPAN_SCHEMA, UNPLACED_SCHEMA, claim_spans
from analytics.small_tables import read_small
from fallow import schema
from fallow.clock import DAY_MS, parse_day_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from analytics.devices import Inventory
    from fallow.lake import Lake


@dataclass(frozen=True)
class Claims:
    """Claim spans by the host of their GPU (None: a GPU that no inventory lists), and unplaced claims by their host."""

    placed: Mapping[str | None, pl.DataFrame]
    unplaced: Mapping[str, pl.DataFrame]
    _none: tuple[pl.DataFrame, pl.DataFrame] = field(
        default_factory=lambda: (pl.DataFrame(schema=SPAN_SCHEMA), pl.DataFrame(schema=UNPLACED_SCHEMA))
    )

    def of(self, host: str, date: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The spans and the unplaced claims that touch a host's day."""
        placed, unplaced = self._none
        mine = [self.placed[key] for key in (host, None) if key in self.placed]
        since_ms = parse_day_ms(date)
        if mine:
            placed = _during(pl.concat(mine), since_ms)
        if host in self.unplaced:
            unplaced = _during(self.unplaced[host], since_ms)
        return placed, unplaced


def _during(claims: pl.DataFrame, day_ms: int) -> pl.DataFrame:
    """The claims cut to the day and those beside it, for a row's true start may lie a little outside its day.

    What happens to a claim later must not show, or every day that it touched would have to be built again.
    """
    first, last = day_ms - DAY_MS, day_ms + 2 * DAY_MS
    inside = claims.filter((pl.col("start") < last) & (pl.col("end") > first))
    return inside.with_columns(pl.col("start").clip(lower_bound=first), pl.col("end").clip(upper_bound=last))


def load_claims(lake: Lake, inventory: Inventory) -> Claims:
    """All claims of a lake; raises LakeError and its kinds."""
    claims = read_small(lake, schema.CLAIM, CLAIM_COLUMNS)
    if claims.is_empty():
        return Claims({}, {})
    spans = claim_spans(claims, inventory.gpus_of_host())
    hosts = pl.DataFrame(
        [(device.gpu, device.host) for device in inventory.devices.values()],
        schema={"gpu": pl.String, "host": pl.String},
        orient="row",
    )
    by_host = spans.placed.join(hosts, on="gpu", how="left").partition_by("host", as_dict=True, include_key=False)
    return Claims(
        {key[0]: rows for key, rows in by_host.items()},
        {str(key[0]): rows for key, rows in spans.unplaced.partition_by("host", as_dict=True).items()},
    )
