"""Joins the days of every host: segments in one state each, and idle intervals, both cut at UTC midnight.

This settles what one day could not know: how long a day's last row lasted, whether an idle interval without a kernel at
midnight is long enough to be `held`, and whether a segment of work is `low` or `active` by the mean over all of it.
The time of GPUs that several hosts have reported, such as moved cards and cloned machines, counts once.
Pure functions from frames to frames; integer milliseconds throughout.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

import polars as pl
from polars import selectors as cs

from analytics.intervals import SPAN_MS, clip, cut, islands
from analytics.ledger.settings import DRIVER_WINDOW_MS, SAMPLED_BELOW, LedgerSettings
from analytics.mig import MIG_PREFIX
from fallow import schema
from fallow.clock import DAY_MS


def counted_once(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the ledger's rows without the time of a GPU that another host's rows already have.

    Known time wins over time that no host knows (`unknown`), then a host that has the GPU over one that misses it
    (`unavailable`), then the host that observed the GPU last. Sums of rows that are cut are divided by time.
    """
    several = _rows_of_several_hosts(segments)
    if several.is_empty():
        return segments
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    parts = [_once_counted(rows) for _, rows in segments.filter(doubled).group_by("gpu", maintain_order=True)]
    return pl.concat([segments.filter(~doubled), *parts]).sort("gpu", "time", "host")


def _once_counted(rows: pl.DataFrame) -> pl.DataFrame:
    last = pl.col("end").max().over("host")
    worth = pl.col("state").replace_strict({"unknown": 2, "unavailable": 1}, default=0)
    ordered = rows.with_columns(worth=worth, last=last).sort(
        "worth", "last", "host", "time", descending=[False, True, False, False]
    )
    taken, parts = Taken(), []
    for number, (start, end) in enumerate(ordered.select("time", "end").iter_rows()):
        parts += [(number, left, right) for left, right in taken.free(start, end)]
        taken.add(start, end)
    return _parts(ordered.drop("worth", "last"), parts)


def _parts(rows: pl.DataFrame, parts: Sequence[tuple[int, int, int]]) -> pl.DataFrame:
    """Return parts of rows: for each part the number of its row, its start and its end."""
    spans = pl.DataFrame(parts, schema=dict.fromkeys(("row", "from_ms", "to_ms"), pl.Int64), orient="row")
    kept = pl.concat([rows[spans["row"]], spans.drop("row")], how="horizontal")
    return clip(kept, "from_ms", "to_ms").drop("from_ms", "to_ms")


def idle_intervals_counted_once(idle_intervals: pl.DataFrame, segments: pl.DataFrame) -> pl.DataFrame:
    """Return the idle intervals of GPUs that several hosts report, cut to the time for which each host's rows count.

    `segments` are those that `counted_once` returned.
    """
    several = idle_intervals.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1)
    several = pl.concat([several.select("gpu"), _rows_of_several_hosts(segments)]).unique()
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    if several.is_empty():
        return idle_intervals
    counted = segments.filter(doubled).select("host", "gpu", counts_from="time", counts_to="end")
    met = idle_intervals.filter(doubled).join(counted, on=("host", "gpu"))
    inside = clip(met, "counts_from", "counts_to").select(idle_intervals.columns)
    return pl.concat([idle_intervals.filter(~doubled), inside]).sort("gpu", "time", "host")


def put_in_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by GPU, time and host; `rows` itself loses its columns.

    Sorting whole rows would take twice the memory of a ledger, which is gigabytes for a large fleet.
    """
    keys = ("gpu", "time", "host")
    order = rows.select(keys).with_row_index("row").sort(keys, maintain_order=True)["row"]
    return pl.DataFrame([rows.drop_in_place(name).rechunk().gather(order) for name in rows.columns])


def on_several_hosts(rows: pl.DataFrame) -> bool:
    """Return whether several hosts have reported the same GPU."""
    return not _rows_of_several_hosts(rows).is_empty()


def _rows_of_several_hosts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1).select("gpu")


class Taken:
    """Times that are taken, as sorted intervals that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def free(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Return the parts of a time that are not taken."""
        at = max(bisect_right(self._ends, start) - 1, 0)
        for left, right in zip(self._starts[at:], self._ends[at:], strict=True):
            if left >= end:
                break
            if left > start:
                yield start, left
            start = max(start, right)
        if start < end:
            yield start, end

    def add(self, start: int, end: int) -> None:
        """Take a time, and merge it with the intervals that it touches."""
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]


_UNIT = ("host", "gpu")
_OWNER = ("user", "user_source", "account", "job", "gpu_share")
_MEANS = {
    "util": ("gpu_util_mean_pct", "last_util_pct"),
    "sm": ("sm_active_mean_pct", "last_sm_pct"),
    "power": ("power_mean_w", "last_power_w"),
    "watched": ("coverage_ratio", "last_watched_ratio"),
}
"""By the name of a sum over time and of its time, the ledger's mean and the column of the day's last row."""
_COUNTED = (
    "zero_ms",
    "energy_ms",
    "counter_ms",
    "sampled_ms",
    "perhaps_idle_ms",
    "perhaps_stalled_ms",
    "no_process_ms",
    "quiet_ms",
)
_SHARED = (*(f"{name}_{part}" for name in _MEANS for part in ("sum", "ms")), *_COUNTED, "energy_mj")
"""Columns that parts of a row divide by their time."""
_WHOLLY = ("idle_draw_max_w", "idle_power_max_w")
"""Largest values that are unknown where any of their values is unknown."""
_LEDGER_COLUMNS = (*schema.LEDGER.names, "segment_end")
_IDLE_INTERVAL_COLUMNS = (*schema.IDLE_INTERVAL.names, "idle_interval_end")


def stitch(
    parts: pl.DataFrame,
    idle_interval_parts: pl.DataFrame,
    settings: LedgerSettings,
    parents: Mapping[tuple[str, str], str] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the ledger and the idle intervals of any number of hosts and days.

    Args:
        parts: rows of `ledger_part`, times as integer ms, in any order.
        idle_interval_parts: rows of `idle_interval_part`, likewise.
        settings: the thresholds.
        parents: the GPU to which a MIG instance belongs, by host and UUID.

    Returns:
        Frames with the columns of `ledger` and `segment_end`, and of `idle_interval` and `idle_interval_end`.
    """
    # names as numbers, because comparing strings would take most of the time
    coded = parts.with_columns(pl.col(*_UNIT).cast(pl.Categorical), _as_text("user_shares")).sort(*_UNIT, "time", "end")
    known = _closed_parts(coded.filter(pl.col("label") != "unknown"))
    lengthened = known.select(*_UNIT, "end", "closed_end").filter(pl.col("end") != pl.col("closed_end"))
    labelled = _decided_parts(known.with_columns(end="closed_end").filter(pl.col("end") > pl.col("time")), settings)
    gaps = _gaps(labelled, coded.filter(pl.col("label") == "unknown"))
    if parents:
        gaps = _gaps_of_existing(gaps, labelled, parents)
    whole = pl.concat([labelled, gaps], how="diagonal").sort(*_UNIT, "time")
    ledger = _ledger_rows(whole, settings)
    idle_intervals = _idle_intervals(idle_interval_parts, lengthened)
    return (
        ledger.with_columns(pl.col(*_UNIT).cast(pl.String), _as_list("user_shares"))
        .select(_LEDGER_COLUMNS)
        .sort("gpu", "time", "host"),
        idle_intervals.select(_IDLE_INTERVAL_COLUMNS).sort("gpu", "time", "host"),
    )


def _as_text(name: str) -> pl.Expr:
    """Return a list of numbers as text: Polars 2.1 has crashed in filters of frames with a column of lists."""
    return pl.col(name).cast(pl.List(pl.String)).list.join(" ").alias(name)


def _as_list(name: str) -> pl.Expr:
    """Return the inverse of `_as_text`."""
    return pl.col(name).str.split(" ").cast(pl.List(pl.Float64)).alias(name)


def _closed_parts(parts: pl.DataFrame) -> pl.DataFrame:
    """Return the parts with the true length of each day's last row, in `closed_end`, and its sums for that length."""
    following = pl.col("time").shift(-1).over(*_UNIT)
    reach = pl.col("end") + pl.col("open_ms").fill_null(0)
    # a clock that was set back makes segments overlap: each moment counts once
    followed = pl.when(following.is_not_null()).then(pl.min_horizontal(following, reach))
    # an instance continues to its next row or ends with its last one, as its GPU's own rows show
    ended = pl.col("gpu").cast(pl.String).str.starts_with(MIG_PREFIX) & (following > reach)
    closed = pl.when(ended).then("end").otherwise(followed)
    longer = pl.col("closed_end") - pl.col("end")

    def known_ms(last: str) -> pl.Expr:
        return pl.when(pl.col(last).is_not_null()).then(longer).otherwise(0)

    def more(last: str) -> pl.Expr:
        return pl.col(last).fill_null(0) * longer

    # the next row, if there is one, has the counter's rise for the time after this
    counted = pl.when(pl.col("last_counted")).then(pl.min_horizontal(longer, 0)).otherwise(0)
    energy = pl.when(pl.col("energy_ms") + known_ms("last_energy_w") > 0).then(
        pl.col("energy_mj").fill_null(0) + more("last_energy_w")
    )
    silent = pl.col("last_watched_ratio").is_null() & (pl.col("open_ms") * SAMPLED_BELOW > DRIVER_WINDOW_MS)
    point = pl.col("last_util_pct").is_not_null() & (silent | (pl.col("last_watched_ratio") < SAMPLED_BELOW))
    return parts.with_columns(closed_end=pl.coalesce(closed, "end")).with_columns(
        *(pl.col(f"{name}_sum") + more(last) for name, (_, last) in _MEANS.items()),
        *(pl.col(f"{name}_ms") + known_ms(last) for name, (_, last) in _MEANS.items()),
        energy_mj=energy,
        energy_ms=pl.col("energy_ms") + known_ms("last_energy_w") + counted,
        counter_ms=pl.col("counter_ms") + counted,
        sampled_ms=pl.col("sampled_ms") + pl.when(point).then(longer).otherwise(0),
        zero_ms=pl.col("zero_ms") + pl.when(pl.col("last_zero")).then(longer).otherwise(0),
    )


_WITHOUT_WORK = {"zero": "held", "stalling": "stalled", "resumed": "stalled"}
"""What time without work at a day's edge is, by label, if it is long as a whole and does not start `resumed`."""


def _decided_parts(parts: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Return the parts with their final label, by the whole time over midnight.

    `zero` becomes `held` or `busy`; `stalling` and `resumed` become `stalled` or `busy`.
    """
    label = pl.col("label")
    least_ms = pl.when(label == "zero").then(settings.idle_after_ms).otherwise(settings.stalled_after_ms)
    long, doubtful = (pl.col("unworked_ms") >= least_ms) & pl.col("begun"), label.is_in(list(_WITHOUT_WORK))
    decided = pl.when(long).then(label.replace(_WITHOUT_WORK)).otherwise(pl.lit("busy"))
    return (
        parts.with_columns(unworked=label.replace(_WITHOUT_WORK))
        .with_columns(interval=islands((*_UNIT, "unworked", *_OWNER)))
        .with_columns(unworked_ms=SPAN_MS.sum().over("interval"), begun=(label.first() != "resumed").over("interval"))
        .with_columns(
            label=pl.when(doubtful).then(decided).otherwise(label.replace("unseen", "unknown")),
            perhaps_idle_ms=pl.col("perhaps_idle_ms") + pl.when((label == "zero") & ~long).then(SPAN_MS).otherwise(0),
            perhaps_stalled_ms=pl.when((label != "resumed") | ~long).then("perhaps_stalled_ms").otherwise(0),
        )
        .drop("unworked", "interval", "unworked_ms", "begun", "closed_end", "open_ms", cs.starts_with("last_"))
    )


def _gaps(known: pl.DataFrame, unknown: pl.DataFrame) -> pl.DataFrame:
    """Return the unobserved time: between segments, and between a GPU's first and last row and its segments."""
    columns = (*_UNIT, "time", "end", "gpu_share")
    bounds = pl.concat(
        [
            known.select(columns),
            # empty marks at both ends turn the time outside the segments into ordinary gaps
            unknown.select(*_UNIT, "time", pl.col("time").alias("end"), "gpu_share"),
            unknown.select(*_UNIT, pl.col("end").alias("time"), "end", "gpu_share"),
        ]
    ).sort(*_UNIT, "time", "end")
    before = pl.col("end").cum_max().shift(1).over(*_UNIT)
    return (
        bounds.with_columns(before=before)
        .filter(pl.col("before") < pl.col("time"))
        # the next segment shows how a split GPU was split: an instance that ended in the gap ended when the gap began
        .select(*_UNIT, "gpu_share", label=pl.lit("unknown"), time="before", end="time")
    )


def _gaps_of_existing(gaps: pl.DataFrame, known: pl.DataFrame, parents: Mapping[tuple[str, str], str]) -> pl.DataFrame:
    """Return the gaps without the time in which an instance did not exist: only its GPU was observed."""
    names = pl.concat_str(*_UNIT, separator="\0").cast(pl.String)
    of = {f"{host}\0{uuid}": f"{host}\0{parent}" for (host, uuid), parent in parents.items()}
    asked = gaps.with_columns(whole=names.replace_strict(of, default=None, return_dtype=pl.String))
    doubtful = asked.filter(pl.col("whole").is_not_null())
    if doubtful.is_empty():
        return gaps
    seen: dict[str, Taken] = {}
    wanted = known.with_columns(whole=names).filter(pl.col("whole").is_in(doubtful["whole"].unique().to_list()))
    for whole, start, end in wanted.select("whole", "time", "end").sort("time").iter_rows():
        seen.setdefault(whole, Taken()).add(start, end)
    parts = [
        (number, left, right)
        for number, (whole, start, end) in enumerate(doubtful.select("whole", "time", "end").iter_rows())
        for left, right in seen.get(whole, Taken()).free(start, end)
    ]
    return pl.concat([asked.filter(pl.col("whole").is_null()), _parts(doubtful, parts)]).drop("whole")


def _ledger_rows(segments: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Return the table's rows: group short segments into whole ones, decide low or active, and cut them at midnight."""
    grouped = segments.with_columns(segment=islands((*_UNIT, "label", *_OWNER)))
    judged = (
        grouped.filter(pl.col("gpu_share") > 0)
        .with_columns(
            segment_start=pl.col("time").min().over("segment"),
            segment_end=pl.col("end").max().over("segment"),
            segment_mean=(pl.col("util_sum").sum() / pl.col("util_ms").sum()).over("segment"),
        )
        .with_columns(
            state=pl.when(pl.col("label") != "busy")
            .then("label")
            .when(pl.col("segment_mean") < settings.low_below_pct)
            .then(pl.lit("low"))
            .otherwise(pl.lit("active"))
        )
    )
    single = cut_at_midnight(judged).with_columns(alone=pl.len().over("segment", "day") == 1)
    merged = _merged_segments(single.filter(~pl.col("alone")))
    return _evidence(pl.concat([single.filter("alone").drop("alone"), merged], how="diagonal_relaxed"))


_MERGED = ("segment", "day")


def _merged_segments(segments: pl.DataFrame) -> pl.DataFrame:
    """Return the segments of one whole segment and day merged; they are few, because a day's own are merged already."""
    energy = pl.col("energy_mj")
    rows = segments.group_by(*_MERGED, maintain_order=True).agg(
        pl.col("host", "gpu", "state", "segment_start", "segment_end", *_OWNER).first(),
        pl.col("time").min(),
        pl.col("end", "gpu_util_max_pct", "mem_used_max_bytes", "quiet_draw_max_w").max(),
        pl.col(*_SHARED[:-1], "sample_count").sum(),
        pl.when(energy.is_not_null().any()).then(energy.sum()),
        *(pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).max()) for name in _WHOLLY),
    )
    several = segments.filter(pl.col("user_shares").is_not_null()).with_columns(_as_list("user_shares"), span=SPAN_MS)
    shares = (
        several.select(*_MERGED, "span", "user_shares", place=pl.int_ranges(pl.col("user_shares").list.len()))
        .explode("user_shares", "place")
        .group_by(*_MERGED, "place")
        .agg(share=(pl.col("user_shares") * pl.col("span")).sum() / pl.col("span").sum())
        .sort(*_MERGED, "place")
        .group_by(*_MERGED, maintain_order=True)
        .agg(user_shares=pl.col("share"))
        .with_columns(_as_text("user_shares"))
    )
    return rows.join(shares, on=_MERGED, how="left")


def _evidence(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the ledger's means instead of sums."""
    means = {
        mean: pl.when(pl.col(f"{name}_ms") > 0).then(pl.col(f"{name}_sum") / pl.col(f"{name}_ms"))
        for name, (mean, _) in _MEANS.items()
    }
    return rows.with_columns(
        pl.col(*_COUNTED, "util_ms", "sample_count").fill_null(0),
        energy_mj=pl.when(pl.col("energy_ms") > 0).then("energy_mj"),
        **means,
    )


def cut_at_midnight(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows (time, end, ...) cut at every UTC midnight, with `day` (days since the epoch).

    Sums are divided by time. Only the last row of a day reaches over midnight, by at most three intervals, so no more
    evidence than that moves to the other side of the cut; durations and the whole segment's total are exact. Samples
    count where their row begins.
    """
    days = cut(frame.with_columns(first=pl.col("time") // DAY_MS), DAY_MS, "day", sums=_SHARED)
    if "sample_count" in frame.columns:
        days = days.with_columns(
            sample_count=pl.when(pl.col("day") == pl.col("first")).then("sample_count").otherwise(0)
        )
    return days.drop("first")


def _idle_intervals(parts: pl.DataFrame, lengthened: pl.DataFrame) -> pl.DataFrame:
    """Return unbroken idle intervals of measured zero, whatever the user of the GPU, over midnight."""
    longer = lengthened.with_columns(pl.col(*_UNIT).cast(pl.String))
    closed = (
        parts.join(longer, on=(*_UNIT, "end"), how="left")
        .with_columns(end=pl.coalesce("closed_end", "end"))
        .filter(pl.col("end") > pl.col("time"))
        .sort(*_UNIT, "time")
    )
    named = closed.with_columns(idle_interval=islands(_UNIT)).with_columns(
        idle_interval_start=pl.col("time").min().over("idle_interval"),
        idle_interval_end=pl.col("end").max().over("idle_interval"),
    )
    days = cut_at_midnight(
        named.select(*_UNIT, "time", "end", "idle_interval", "idle_interval_start", "idle_interval_end")
    )
    keys = ("idle_interval", "day", *_UNIT, "idle_interval_start", "idle_interval_end")
    return days.group_by(keys).agg(pl.col("time").min(), pl.col("end").max())
