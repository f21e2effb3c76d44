"""Observed share of the GPU time of a window, and hosts that were not observed up to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import polars as pl

from analytics.intervals import clip
from analytics.inventory import Inventory
from analytics.ledger.build import Ledger
from analytics.ledger.summary import SILENT_AFTER_MS, Summary, newest_row_ms, ratio, totals_of
from analytics.mig import MIG_PREFIX
from analytics.quality.model import seen_until
from analytics.window import WindowLedger
from fallow.clock import WEEK_MS, Window
from fallow.gpu_names import is_stand_in

WHOLLY_OBSERVED = 0.9995
"""From this share on, 100.0 % is shown."""

WHOLE_FROM = 0.9
"""From this observed share on, the sums of a week count for the whole week."""
LOOKED_BACK_MS = 4 * WEEK_MS
"""A GPU without data for this long before the end of a window is not part of the window: it was removed."""

_COLUMNS = ("gpu", "host", "time", "end", "state", "gpu_share", "user", "account", "user_shares")
_UNKNOWN = pl.col("state") == "unknown"


@dataclass(frozen=True)
class Silent:
    """GPUs of one host without data up to the end: their number, since when, and whether the whole host has none."""

    host: str
    gpus: int
    since_ms: int
    whole_host: bool


@dataclass(frozen=True)
class Seen:
    """A window up to now, and the observed share of its GPU time.

    Attributes:
        gpus: GPUs observed in the window or in the four weeks before its end.
        unseen_ms: GPU time without data.
        outside_ms: the part of `unseen_ms` before a host's first row or after its last, which is in no sum. The ledger
            has the other part as `unknown`.
        last_ms: the end of the newest row of these GPUs; None without one.
        silent: silent hosts, the most GPUs first.
    """

    since_ms: int
    until_ms: int
    gpus: int
    observed_ms: float
    unseen_ms: float
    outside_ms: float
    last_ms: int | None
    silent: tuple[Silent, ...]

    @property
    def share(self) -> float | None:
        """Return the observed share of the GPU time; None if no GPU is known."""
        return ratio(self.observed_ms, self.observed_ms + self.unseen_ms)

    def beside(self, summary: Summary) -> Summary:
        """Return the figures of the same window, with its observed share."""
        return replace(summary, seen_share=self.share, outside_ms=self.outside_ms)

    @property
    def is_whole(self) -> bool:
        """Return True if its sums can be compared with those of another fully observed window."""
        return self.share is not None and self.share >= WHOLE_FROM

    @property
    def to_the_end(self) -> bool:
        """Return True if a GPU was observed up to the end."""
        return self.last_ms is not None and self.last_ms >= self.until_ms - SILENT_AFTER_MS


class Watch:
    """When a lake has data of which GPUs; `now_ms` is the wall clock's time."""

    def __init__(self, ledger: WindowLedger, inventory: Inventory, now_ms: int) -> None:
        self._ledger = ledger
        # a stand-in ends when its GPU reports a UUID: that is no silence
        self._known = [gpu for gpu in inventory.devices if not gpu.startswith(MIG_PREFIX) and not is_stand_in(gpu)]
        until = seen_until(replace(ledger, inside=ledger.whole), now_ms)
        newest_ms, self._ahead = until.until_ms, until.ahead
        # rows come in with some delay: that is no silence, and the same lake gives the same report
        self._latest_ms = newest_ms if now_ms - newest_ms <= SILENT_AFTER_MS else now_ms
        self._now_ms = now_ms

    def seen(self, asked: Window, inside: Ledger, narrowed: Callable[[Ledger], Ledger]) -> Seen:
        """Return how much of a window was observed; `inside` is the ledger in it, narrowed by `narrowed`."""
        since_ms, until_ms = self._ends(asked)
        rows = _rows(self._ledger.whole.segments, min(since_ms, until_ms - LOOKED_BACK_MS), until_ms)
        if rows.is_empty():  # most of the quarter of a new lake
            return Seen(since_ms, until_ms, 0, 0, 0.0, 0.0, None, ())
        gpus = _gpus(rows, self._known).filter(pl.col("last") > until_ms - LOOKED_BACK_MS)
        early = _before(gpus, since_ms)  # without a start, the window begins with the lake's first row
        late = _after(gpus, since_ms, until_ms)
        between = _between(rows, gpus, since_ms)

        def own(spans: pl.DataFrame) -> pl.DataFrame:
            filled = rows[spans["like"]].with_columns(time=spans["time"], end=spans["end"]).drop("row", "like")
            return narrowed(
                replace(self._ledger.whole, segments=filled, idle_intervals=self._ledger.whole.idle_intervals.clear())
            ).segments

        unseen, ended = own(pl.concat([early, between, late])), own(late)
        silent = gpus.filter(
            pl.col("last") < until_ms - SILENT_AFTER_MS, pl.col("gpu").is_in(ended["gpu"].unique().to_list())
        )
        own_rows = inside.segments.select("gpu", "state", "time", "end", "gpu_share")
        observed = totals_of(own_rows)
        there = pl.concat([own_rows["gpu"], unseen["gpu"]]).unique()
        unseen_ms = unseen.select(((pl.col("end") - pl.col("time")) * pl.col("gpu_share")).sum()).item()
        return Seen(
            since_ms=since_ms,
            until_ms=until_ms,
            gpus=_count(there),
            observed_ms=observed.observed_ms,
            unseen_ms=unseen_ms,
            outside_ms=max(0.0, unseen_ms - observed.state_ms["unknown"]),
            last_ms=newest_row_ms(rows.filter(pl.col("gpu").is_in(there.implode())), self._ahead),
            silent=_by_host(silent, until_ms),
        )

    def _ends(self, asked: Window) -> tuple[int, int]:
        """Return the requested window up to now."""
        summary = self._ledger.summary
        since_ms = summary.since_ms if asked.since_ms is None else asked.since_ms
        if asked.until_ms is None:
            return since_ms, seen_until(self._ledger, self._now_ms).until_ms
        return since_ms, max(since_ms, min(asked.until_ms, self._latest_ms))


def _rows(segments: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Return the rows between two moments, with `row` (their number) and `like` (the last earlier row with data).

    Before the first row with data, `like` is this first row.
    """
    inside = clip(segments.select(_COLUMNS), since_ms, until_ms)
    rows = inside.sort("gpu", "time").with_row_index("row")
    known = pl.when(~_UNKNOWN).then("row")
    return rows.with_columns(
        like=pl.coalesce(known.forward_fill().over("gpu"), known.backward_fill().over("gpu"), "row")
    )


def _gpus(rows: pl.DataFrame, inventory: list[str]) -> pl.DataFrame:
    """Return each observed GPU: `first`, `last`, its rows with its identity, its hosts, and their observed times.

    MIG instances, stand-ins, and names of pods without an inventory entry are left out if they ended before their host.
    """
    known = rows.filter(~_UNKNOWN)
    hosts = known.group_by("host").agg(host_first=pl.col("time").min(), host_last=pl.col("end").max())
    last = pl.col("end").arg_max()
    gpus = known.group_by("gpu").agg(
        first=pl.col("time").min(),
        last=pl.col("end").max(),
        first_like=pl.col("row").first(),
        last_like=pl.col("row").get(last),
        first_host=pl.col("host").first(),
        host=pl.col("host").get(last),
    )
    ended = gpus.join(hosts.select("host", "host_last"), on="host")
    whole = ended.join(hosts.select("host_first", first_host="host"), on="first_host").sort("gpu")
    to_its_end = pl.col("last") >= pl.col("host_last") - SILENT_AFTER_MS
    return whole.filter(to_its_end | pl.col("gpu").is_in(inventory))


def _before(gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """Return the time before a host's first row. A GPU that came to an observed host was not there before."""
    first = pl.col("first") <= pl.col("host_first") + SILENT_AFTER_MS
    late = gpus.filter(first, pl.col("host_first") > since_ms)
    return late.select(like="first_like", time=pl.lit(since_ms), end="host_first")


def _after(gpus: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    late = gpus.filter(pl.col("last") < until_ms)
    return clip(late.select(like="last_like", time="last", end=pl.lit(until_ms)), since_ms)


def _between(rows: pl.DataFrame, gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """Return the time between two rows of a GPU that the ledger has as unknown."""
    unknown = clip(rows.filter(_UNKNOWN), since_ms).join(gpus.select("gpu", "last"), on="gpu", how="left")
    # what comes after the last row that knows anything is in `_after`
    inner = unknown.filter((pl.col("end") <= pl.col("last")).fill_null(value=True))
    return inner.select("like", "time", "end")


def _count(gpus: pl.Series) -> int:
    """Return the number of whole GPUs, or of MIG instances if there are no others."""
    whole = gpus.filter(~gpus.str.starts_with(MIG_PREFIX))
    return len(whole) or len(gpus)


def _by_host(silent: pl.DataFrame, until_ms: int) -> tuple[Silent, ...]:
    whole_host = pl.col("host_last") < until_ms - SILENT_AFTER_MS
    hosts = (
        silent.with_columns(whole_host=whole_host)
        .group_by("host", "whole_host")
        .agg(pl.col("gpu"), since=pl.col("last").max())
    )
    found = [
        Silent(row["host"], _count(pl.Series(row["gpu"])), row["since"], row["whole_host"])
        for row in hosts.iter_rows(named=True)
    ]
    return tuple(sorted(found, key=lambda each: (-each.gpus, each.since_ms, each.host)))
