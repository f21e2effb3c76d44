"""What the lake has of a day from agents: their rows count, and what was scraped of the same GPU and time is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from analytics.frames import empty, read_frame
from fallow.lake import AGENT_FIRST_SEQ, Lake
from fallow.schema import DEVICE, GPU, LakeTable

_MOMENT = pl.col("time").cast(pl.Int64) + pl.col("offset_ms").cast(pl.Int64).fill_null(0)


@dataclass(frozen=True)
class AgentDay:
    """The GPUs that agents described on one UTC date, each with its host in the lake."""

    lake: Lake
    date: str
    hosts: Mapping[str, str]

    @classmethod
    def of(cls, lake: Lake, date: str) -> AgentDay:
        """Reads the inventories of the date. Raises LakeError."""
        frame = _agent_rows(lake, DEVICE, date, None, ("gpu",))
        return cls(lake, date, dict(zip(frame["gpu"], frame["host"], strict=True)))

    def host_of(self, host: str, gpus: Sequence[str]) -> str:
        """The name by which agents have the host of these GPUs; the given one where they do not know it."""
        known = Counter(self.hosts[gpu] for gpu in gpus if gpu in self.hosts)
        return known.most_common(1)[0][0] if known else host

    def without_known(self, host: str, rows: pl.DataFrame, table: LakeTable) -> pl.DataFrame:
        """The rows of `gpu` or `host` at moments that no row of an agent covers. Raises LakeError."""
        if rows.is_empty() or host not in set(self.hosts.values()):
            return rows
        by = [name for name in ("gpu",) if name in table.names]
        known = _agent_rows(self.lake, table, self.date, host, ("time", "interval_ms", *by))
        spans = known.select(
            *by, start=pl.col("time").cast(pl.Int64), _end=pl.col("time").cast(pl.Int64) + pl.col("interval_ms")
        )
        moment = _MOMENT if table is GPU else pl.col("time").cast(pl.Int64)
        met = (
            rows.with_columns(_at=moment)
            .sort("_at")
            .join_asof(
                spans.sort("start"),
                left_on="_at",
                right_on="start",
                by=by or None,
                strategy="backward",
                check_sortedness=False,
            )
        )
        return met.filter((pl.col("_end") <= pl.col("_at")).fill_null(value=True)).select(rows.columns)

    def without_known_gpus(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows (gpu, time) but those of the date of GPUs that agents described."""
        is_known = pl.col("gpu").is_in(list(self.hosts)) & (pl.col("time").dt.strftime("%Y-%m-%d") == self.date)
        return rows.filter(~is_known)


def _agent_rows(lake: Lake, table: LakeTable, date: str, host: str | None, columns: Sequence[str]) -> pl.DataFrame:
    if not lake.store.exists():
        return empty(table).select(columns).with_columns(host=pl.lit(None, pl.String))
    files = lake.files(table.name, dates=[date], hosts=None if host is None else [host])
    own = [file for file in files if file.last_seq >= AGENT_FIRST_SEQ]
    return read_frame(own, table, columns, lake.left_out.leave_out)
