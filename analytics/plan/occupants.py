"""Who is on the GPUs of each host at the end of the window, in pieces that would move or let go as one."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.states import ALLOCATED, IDLE_ALLOCATED
from fallow.clock import HOUR_MS


@dataclass(frozen=True)
class Occupant:
    """The GPUs that one job, or one holder without a known job, has on one host.

    `is_idle` is whether none of them has computed for long, `is_movable` whether it can be asked or started again elsewhere: it is known who
    it is, all of it is on this host and it is no part of a card. `ran_ms` is the GPU time since it began, as far as the window and
    the stretch before it show; `ran_cost` what that costs, None where a price is missing.
    """

    host: str
    holder: str | None
    job: str | None
    gpus: int
    is_idle: bool
    is_movable: bool
    ran_ms: int
    ran_cost: float | None = None


@dataclass(frozen=True)
class OccupiedHost:
    """A host: `width` GPUs in all, those that are free, and who has the others; what is not seen or not in order is nobody's."""

    name: str
    width: int
    free: int
    occupants: tuple[Occupant, ...]


_PIECE = ("host", "job", "holder")


def occupied_hosts(placed: pl.DataFrame, until_ms: int, idle_min_ms: int) -> dict[tuple[str, str], list[OccupiedHost]]:
    """The hosts of each pool and model at the end of the window.

    Args:
        placed: the ledger's rows of the window with `pool`, `model` and `rate` (a GPU-hour's price, null where it has none).
        until_ms: its end.
        idle_min_ms: how long a GPU has to be without work before its holder is asked for it.
    """
    now = placed.filter(pl.col("end") >= until_ms)
    is_part = (pl.col("gpu_share") < 1) | pl.col("instance")
    cards = now.group_by("pool", "model", "host").agg(
        width=pl.col("gpu").filter(~is_part).n_unique(),
        free=pl.col("gpu").filter((pl.col("state") == "free") & ~is_part).n_unique(),
    )
    pieces = _pieces(placed, now.with_columns(is_part=is_part), until_ms, idle_min_ms)
    hosts: dict[tuple[str, str], list[OccupiedHost]] = {}
    for row in cards.filter(pl.col("width") > 0).sort("pool", "model", "host").iter_rows(named=True):
        there = tuple(pieces.get((row["pool"], row["model"], row["host"]), ()))
        hosts.setdefault((row["pool"], row["model"]), []).append(
            OccupiedHost(row["host"], row["width"], row["free"], there)
        )
    return hosts


def _pieces(
    placed: pl.DataFrame, now: pl.DataFrame, until_ms: int, idle_min_ms: int
) -> dict[tuple[str, str, str], list[Occupant]]:
    taken = now.filter(pl.col("state").is_in(ALLOCATED))
    began = placed.group_by("gpu", "job", "holder").agg(began=pl.col("stretch_start").min())
    spread = taken.filter(pl.col("job").is_not_null()).group_by("job").agg(job_hosts=pl.col("host").n_unique())
    found = (
        taken.join(began, on=("gpu", "job", "holder"), how="left", nulls_equal=True)
        .join(spread, on="job", how="left")
        .group_by("pool", "model", *_PIECE)
        .agg(
            gpus=pl.col("gpu").n_unique(),
            is_idle=(pl.col("state").is_in(IDLE_ALLOCATED) & (until_ms - pl.col("stretch_start") >= idle_min_ms)).all(),
            is_part=pl.col("is_part").any(),
            job_hosts=pl.col("job_hosts").max(),
            ran_ms=(until_ms - pl.col("began")).sum(),
            ran_cost=((until_ms - pl.col("began")) / HOUR_MS * pl.col("rate")).sum(),
            is_priced=pl.col("rate").is_not_null().all(),
        )
        .sort("pool", "model", *_PIECE, nulls_last=True)
    )
    pieces: dict[tuple[str, str, str], list[Occupant]] = {}
    for row in found.iter_rows(named=True):
        is_known = row["job"] is not None or row["holder"] is not None
        on_one_host = row["job_hosts"] is None or row["job_hosts"] == 1
        pieces.setdefault((row["pool"], row["model"], row["host"]), []).append(
            Occupant(
                row["host"],
                row["holder"],
                row["job"],
                row["gpus"],
                row["is_idle"],
                is_movable=is_known and on_one_host and not row["is_part"],
                ran_ms=row["ran_ms"],
                ran_cost=row["ran_cost"] if row["is_priced"] else None,
            )
        )
    return pieces
