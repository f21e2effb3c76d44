"""How much of the GPU time of a window was observed, and which hosts were not seen to its end."""

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
"""From here on a share is written as 100.0 %."""

WHOLE_FROM = 0.9
"""From this observed share on the sums of a week stand for the whole week."""
LOOKED_BACK_MS = 4 * WEEK_MS
"""A GPU that was not seen for so long before the end of a window is no GPU of that window: it was taken away."""

_COLUMNS = ("gpu", "host", "time", "end", "state", "gpu_share", "holder", "account", "holder_shares")
_UNKNOWN = pl.col("state") == "unknown"


@dataclass(frozen=True)
class Silent:
    """GPUs of one host that were not seen to the end: how many, since when, and whether nothing of the host was."""

    host: str
    gpus: int
    since_ms: int
    whole_host: bool


@dataclass(frozen=True)
class Seen:
    """A window as it was asked for, up to now where it is not over, and what was observed of its GPU time.

    `gpus` were seen in it or in the four weeks before its end. `unseen_ms` is the GPU time of those of which nothing is
    known; `outside_ms` of it lies before a host's first row or after its last and is in no sum, the rest is `unknown` there. `last_ms` is the end of the newest row that observed any of them, None without one; `silent` are the most GPUs first.
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
        """Observed share of the GPU time; None where no GPU is known."""
        return ratio(self.observed_ms, self.observed_ms + self.unseen_ms)

    def beside(self, summary: Summary) -> Summary:
        """The numbers of the same window with how much of it was observed."""
        return replace(summary, seen_share=self.share, outside_ms=self.outside_ms)

    @property
    def is_whole(self) -> bool:
        """Whether sums over it can be set beside those of another such window."""
        return self.share is not None and self.share >= WHOLE_FROM

    @property
    def to_the_end(self) -> bool:
        """Whether any of its GPUs was seen to the end."""
        return self.last_ms is not None and self.last_ms >= self.until_ms - SILENT_AFTER_MS


class Watch:
    """What a lake knows of who was looked at when; `now_ms` is the wall clock's time."""

    def __init__(self, ledger: WindowLedger, inventory: Inventory, now_ms: int) -> None:
        self._ledger = ledger
        # a stand-in ends when its GPU tells its UUID: that is no silence
        self._known = [gpu for gpu in inventory.devices if not gpu.startswith(MIG_PREFIX) and not is_stand_in(gpu)]
        until = seen_until(replace(ledger, inside=ledger.whole), now_ms)
        newest_ms, self._ahead = until.until_ms, until.ahead
        # rows come in with some delay: that is no silence, and the same lake gives the same report
        self._latest_ms = newest_ms if now_ms - newest_ms <= SILENT_AFTER_MS else now_ms
        self._now_ms = now_ms

    def seen(self, asked: Window, inside: Ledger, narrowed: Callable[[Ledger], Ledger]) -> Seen:
        """What was observed of a window; `inside` is the ledger in it, narrowed as `narrowed` does it."""
        since_ms, until_ms = self._ends(asked)
        rows = _rows(self._ledger.whole.stretches, min(since_ms, until_ms - LOOKED_BACK_MS), until_ms)
        gpus = _gpus(rows, self._known).filter(pl.col("last") > until_ms - LOOKED_BACK_MS)
        # nobody asked for the time before the first row of a lake
        early = _before(gpus, since_ms) if asked.since_ms is not None else _before(gpus.clear(), since_ms)
        late = _after(gpus, since_ms, until_ms)
        between = _between(rows, gpus, since_ms)

        def own(spans: pl.DataFrame) -> pl.DataFrame:
            filled = rows[spans["like"]].with_columns(time=spans["time"], end=spans["end"]).drop("row", "like")
            return narrowed(
                replace(self._ledger.whole, stretches=filled, spells=self._ledger.whole.spells.clear())
            ).stretches

        unseen, ended = own(pl.concat([early, between, late])), own(late)
        silent = gpus.filter(
            pl.col("last") < until_ms - SILENT_AFTER_MS, pl.col("gpu").is_in(ended["gpu"].unique().to_list())
        )
        own_rows = inside.stretches.select("gpu", "state", "time", "end", "gpu_share")
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
        """The window that was asked for, as far as it has passed."""
        summary = self._ledger.summary
        since_ms = summary.since_ms if asked.since_ms is None else asked.since_ms
        if asked.until_ms is None:
            return since_ms, seen_until(self._ledger, self._now_ms).until_ms
        return since_ms, max(since_ms, min(asked.until_ms, self._latest_ms))


def _rows(stretches: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    """The rows between two moments, with `row`, their number, and `like`, that of the last row before them that knows anything.

    Before the first that does, it is that one.
    """
    inside = clip(stretches.select(_COLUMNS), since_ms, until_ms)
    rows = inside.sort("gpu", "time").with_row_index("row")
    known = pl.when(~_UNKNOWN).then("row")
    return rows.with_columns(
        like=pl.coalesce(known.forward_fill().over("gpu"), known.backward_fill().over("gpu"), "row")
    )


def _gpus(rows: pl.DataFrame, inventory: list[str]) -> pl.DataFrame:
    """Each GPU that was seen: `first`, `last`, the rows that say what it was then, its hosts, and when those were seen.

    Left out are MIG instances, stand-ins, and names of pods without an entry in the inventory, that ended before their host did.
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
    """From the beginning to the first row of a host; a GPU that came to a host that was seen was not there before."""
    first = pl.col("first") <= pl.col("host_first") + SILENT_AFTER_MS
    late = gpus.filter(first, pl.col("host_first") > since_ms)
    return late.select(like="first_like", time=pl.lit(since_ms), end="host_first")


def _after(gpus: pl.DataFrame, since_ms: int, until_ms: int) -> pl.DataFrame:
    late = gpus.filter(pl.col("last") < until_ms)
    return clip(late.select(like="last_like", time="last", end=pl.lit(until_ms)), since_ms)


def _between(rows: pl.DataFrame, gpus: pl.DataFrame, since_ms: int) -> pl.DataFrame:
    """The time between two rows of a GPU that the ledger has as unknown."""
    unknown = clip(rows.filter(_UNKNOWN), since_ms).join(gpus.select("gpu", "last"), on="gpu", how="left")
    # what comes after the last row that knows anything is in `_after`
    inner = unknown.filter((pl.col("end") <= pl.col("last")).fill_null(value=True))
    return inner.select("like", "time", "end")


def _count(gpus: pl.Series) -> int:
    """Whole GPUs; MIG instances where there is nothing else."""
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
