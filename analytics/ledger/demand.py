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
        # a row's true start may lie a little outside its day
        during = (pl.col("start") < since_ms + 2 * DAY_MS) & (pl.col("end") > since_ms - DAY_MS)
        if mine:
            placed = pl.concat(mine).filter(during)
        if host in self.unplaced:
            unplaced = self.unplaced[host].filter(during)
        return placed, unplaced


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
