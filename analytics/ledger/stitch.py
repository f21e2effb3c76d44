"""The days of every host put together: stretches in one state each, and spells at zero, both cut at UTC midnight.

What one day could not know is settled here: how long a day's last row stood for, whether a spell without a kernel at
midnight is long enough to be `held`, and whether a stretch of work is `low` or `active` by the mean of the whole of it.
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


def counted_once(stretches: pl.DataFrame) -> pl.DataFrame:
    """The ledger's rows without the time of a GPU that another host's rows hold already.

    What a host knows goes before what none knows (`unknown`), then a host that has the GPU before one that misses it
    (`unavailable`), then the host that saw the GPU last. Sums of rows that are cut are shared by time.
    """
    several = _of_several_hosts(stretches)
    if several.is_empty():
        return stretches
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    parts = [_once(rows) for _, rows in stretches.filter(doubled).group_by("gpu", maintain_order=True)]
    return pl.concat([stretches.filter(~doubled), *parts]).sort("gpu", "time", "host")


def _once(rows: pl.DataFrame) -> pl.DataFrame:
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
    """Parts of rows: the number of each part's row, from when and until when."""
    spans = pl.DataFrame(parts, schema=dict.fromkeys(("row", "from_ms", "to_ms"), pl.Int64), orient="row")
    kept = pl.concat([rows[spans["row"]], spans.drop("row")], how="horizontal")
    return clip(kept, "from_ms", "to_ms").drop("from_ms", "to_ms")


def spells_counted_once(spells: pl.DataFrame, stretches: pl.DataFrame) -> pl.DataFrame:
    """The spells of GPUs that several hosts report, cut to the time for which each host's rows count.

    `stretches` are those that `counted_once` gave back.
    """
    several = spells.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1)
    several = pl.concat([several.select("gpu"), _of_several_hosts(stretches)]).unique()
    doubled = pl.col("gpu").is_in(several["gpu"].to_list())
    if several.is_empty():
        return spells
    counted = stretches.filter(doubled).select("host", "gpu", counts_from="time", counts_to="end")
    met = spells.filter(doubled).join(counted, on=("host", "gpu"))
    inside = clip(met, "counts_from", "counts_to").select(spells.columns)
    return pl.concat([spells.filter(~doubled), inside]).sort("gpu", "time", "host")


def on_several_hosts(rows: pl.DataFrame) -> bool:
    """Whether several hosts have reported the same GPU."""
    return not _of_several_hosts(rows).is_empty()


def _of_several_hosts(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select("gpu", "host").unique().group_by("gpu").len().filter(pl.col("len") > 1).select("gpu")


class Taken:
    """Times that are spoken for, as sorted spans that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def free(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The parts of a time that nothing has taken."""
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
        """Takes a time, together with the spans that it touches."""
        first = bisect_right(self._ends, start - 1)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]


_UNIT = ("host", "gpu")
_OWNER = ("holder", "holder_source", "account", "job", "gpu_share")
_MEANS = {
    "util": ("gpu_util_mean_pct", "last_util_pct"),
    "sm": ("sm_active_mean_pct", "last_sm_pct"),
    "power": ("power_mean_w", "last_power_w"),
    "watched": ("coverage_ratio", "last_watched_ratio"),
}
"""By the name of a sum over time and of its time the mean that the ledger has, and the column of the day's last row."""
_COUNTED = ("zero_ms", "energy_ms", "counter_ms", "sampled_ms", "perhaps_idle_ms")
_SHARED = (*(f"{name}_{part}" for name in _MEANS for part in ("sum", "ms")), *_COUNTED, "energy_mj")
"""What parts of a row share by their time."""
_WHOLLY = ("idle_draw_max_w", "idle_power_max_w")
"""Largest values that are unknown where any of theirs is."""
_LEDGER_COLUMNS = (*schema.LEDGER.names, "stretch_end")
_SPELL_COLUMNS = (*schema.SPELL.names, "spell_end")


def stitch(
    parts: pl.DataFrame,
    spell_parts: pl.DataFrame,
    settings: LedgerSettings,
    parents: Mapping[tuple[str, str], str] | None = None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The ledger and the spells of any number of hosts and days.

    Args:
        parts: rows of `ledger_part`, times as integer ms, in any order.
        spell_parts: rows of `spell_part`, likewise.
        settings: the thresholds.
        parents: of MIG instances, by host and UUID, the GPU that they are a part of.

    Returns:
        Frames with the columns of `ledger` and `stretch_end`, and of `spell` and `spell_end`.
    """
    # names as numbers: comparing strings would be most of the work
    coded = parts.with_columns(pl.col(*_UNIT).cast(pl.Categorical), _as_text("holder_shares")).sort(
        *_UNIT, "time", "end"
    )
    known = _closed(coded.filter(pl.col("label") != "unknown"))
    lengthened = known.select(*_UNIT, "end", "closed_end").filter(pl.col("end") != pl.col("closed_end"))
    labelled = _decided(known.with_columns(end="closed_end").filter(pl.col("end") > pl.col("time")), settings)
    gaps = _gaps(labelled, coded.filter(pl.col("label") == "unknown"))
    if parents:
        gaps = _existing(gaps, labelled, parents)
    whole = pl.concat([labelled, gaps], how="diagonal").sort(*_UNIT, "time")
    ledger = _ledger(whole, settings)
    spells = _spells(spell_parts, lengthened)
    return (
        ledger.with_columns(pl.col(*_UNIT).cast(pl.String), _as_list("holder_shares"))
        .select(_LEDGER_COLUMNS)
        .sort("gpu", "time", "host"),
        spells.select(_SPELL_COLUMNS).sort("gpu", "time", "host"),
    )


def _as_text(name: str) -> pl.Expr:
    """A list of numbers as text: Polars 2.1 has crashed in filters of frames with a column of lists."""
    return pl.col(name).cast(pl.List(pl.String)).list.join(" ").alias(name)


def _as_list(name: str) -> pl.Expr:
    """The inverse of `_as_text`."""
    return pl.col(name).str.split(" ").cast(pl.List(pl.Float64)).alias(name)


def _closed(parts: pl.DataFrame) -> pl.DataFrame:
    """Gives each day's last row the time that it really stood for, in `closed_end`, and its sums along with it."""
    following = pl.col("time").shift(-1).over(*_UNIT)
    reach = pl.col("end") + pl.col("open_ms").fill_null(0)
    # a clock that was set back makes pieces overlap: each moment counts once
    followed = pl.when(following.is_not_null()).then(pl.min_horizontal(following, reach))
    # an instance goes on to its next row or ends with its last one, as its GPU's own rows have it
    ended = pl.col("gpu").cast(pl.String).str.starts_with(MIG_PREFIX) & (following > reach)
    closed = pl.when(ended).then("end").otherwise(followed)
    longer = pl.col("closed_end") - pl.col("end")

    def known_ms(last: str) -> pl.Expr:
        return pl.when(pl.col(last).is_not_null()).then(longer).otherwise(0)

    def more(last: str) -> pl.Expr:
        return pl.col(last).fill_null(0) * longer

    # what a counter says of the time beyond is in the next row, if there is one
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


def _decided(parts: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Turns `zero` into `held` or `busy` by the length of the whole spell, over midnight."""
    idle = pl.col("label").is_in(["held", "zero"])
    long = pl.col("spell_ms") >= settings.idle_after_ms
    doubtful = pl.col("label") == "zero"
    decided = pl.when(long).then(pl.lit("held")).otherwise(pl.lit("busy"))
    return (
        parts.with_columns(idle=idle)
        .with_columns(spell=islands((*_UNIT, "idle", *_OWNER)))
        .with_columns(spell_ms=SPAN_MS.sum().over("spell"))
        .with_columns(
            label=pl.when(doubtful).then(decided).otherwise(pl.col("label").replace("unseen", "unknown")),
            perhaps_idle_ms=pl.col("perhaps_idle_ms") + pl.when(doubtful & ~long).then(SPAN_MS).otherwise(0),
        )
        .drop("idle", "spell", "spell_ms", "closed_end", "open_ms", cs.starts_with("last_"))
    )


def _gaps(known: pl.DataFrame, unknown: pl.DataFrame) -> pl.DataFrame:
    """The time between pieces, and between a GPU's first and last row and its pieces: not observed."""
    columns = (*_UNIT, "time", "end", "gpu_share")
    bounds = pl.concat(
        [
            known.select(columns),
            # empty marks at both ends turn what lies outside the pieces into ordinary gaps
            unknown.select(*_UNIT, "time", pl.col("time").alias("end"), "gpu_share"),
            unknown.select(*_UNIT, pl.col("end").alias("time"), "end", "gpu_share"),
        ]
    ).sort(*_UNIT, "time", "end")
    before = pl.col("end").cum_max().shift(1).over(*_UNIT)
    return (
        bounds.with_columns(before=before)
        .filter(pl.col("before") < pl.col("time"))
        # what follows says how a split GPU was split: an instance that ended in the gap ended when it began
        .select(*_UNIT, "gpu_share", label=pl.lit("unknown"), time="before", end="time")
    )


def _existing(gaps: pl.DataFrame, known: pl.DataFrame, parents: Mapping[tuple[str, str], str]) -> pl.DataFrame:
    """The gaps without the time in which an instance was not there: while its GPU was seen, but not it."""
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


def _ledger(pieces: pl.DataFrame, settings: LedgerSettings) -> pl.DataFrame:
    """Groups pieces into stretches, decides low or active, cuts at midnight and gives the table its columns."""
    grouped = pieces.with_columns(stretch=islands((*_UNIT, "label", *_OWNER)))
    judged = (
        grouped.filter(pl.col("gpu_share") > 0)
        .with_columns(
            stretch_start=pl.col("time").min().over("stretch"),
            stretch_end=pl.col("end").max().over("stretch"),
            stretch_mean=(pl.col("util_sum").sum() / pl.col("util_ms").sum()).over("stretch"),
        )
        .with_columns(
            state=pl.when(pl.col("label") != "busy")
            .then("label")
            .when(pl.col("stretch_mean") < settings.low_below_pct)
            .then(pl.lit("low"))
            .otherwise(pl.lit("active"))
        )
    )
    single = cut_at_midnight(judged).with_columns(alone=pl.len().over("stretch", "day") == 1)
    merged = _merged(single.filter(~pl.col("alone")))
    return _evidence(pl.concat([single.filter("alone").drop("alone"), merged], how="diagonal_relaxed"))


_MERGED = ("stretch", "day")


def _merged(pieces: pl.DataFrame) -> pl.DataFrame:
    """Pieces of one stretch and day as one; few, for a day's own are merged already."""
    energy = pl.col("energy_mj")
    rows = pieces.group_by(*_MERGED, maintain_order=True).agg(
        pl.col("host", "gpu", "state", "stretch_start", "stretch_end", *_OWNER).first(),
        pl.col("time").min(),
        pl.col("end", "gpu_util_max_pct", "mem_used_max_bytes").max(),
        pl.col(*_SHARED[:-1], "sample_count").sum(),
        pl.when(energy.is_not_null().any()).then(energy.sum()),
        *(pl.when(pl.col(name).is_not_null().all()).then(pl.col(name).max()) for name in _WHOLLY),
    )
    several = pieces.filter(pl.col("holder_shares").is_not_null()).with_columns(_as_list("holder_shares"), span=SPAN_MS)
    shares = (
        several.select(*_MERGED, "span", "holder_shares", place=pl.int_ranges(pl.col("holder_shares").list.len()))
        .explode("holder_shares", "place")
        .group_by(*_MERGED, "place")
        .agg(share=(pl.col("holder_shares") * pl.col("span")).sum() / pl.col("span").sum())
        .sort(*_MERGED, "place")
        .group_by(*_MERGED, maintain_order=True)
        .agg(holder_shares=pl.col("share"))
        .with_columns(_as_text("holder_shares"))
    )
    return rows.join(shares, on=_MERGED, how="left")


def _evidence(rows: pl.DataFrame) -> pl.DataFrame:
    """Sums as the ledger's means."""
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
    """The rows (time, end, ...) cut at every UTC midnight, with `day` (days since the epoch); sums are shared by time.

    Only the last row of a day reaches over midnight, by at most three intervals, so that sharing sums by time moves at
    most that much evidence to the other side of the cut; durations are exact, and so is the whole stretch's total. Samples
    count where their row begins.
    """
    days = cut(frame.with_columns(first=pl.col("time") // DAY_MS), DAY_MS, "day", sums=_SHARED)
    if "sample_count" in frame.columns:
        days = days.with_columns(
            sample_count=pl.when(pl.col("day") == pl.col("first")).then("sample_count").otherwise(0)
        )
    return days.drop("first")


def _spells(parts: pl.DataFrame, lengthened: pl.DataFrame) -> pl.DataFrame:
    """Unbroken spells of measured zero, whoever held the GPU, over midnight."""
    longer = lengthened.with_columns(pl.col(*_UNIT).cast(pl.String))
    closed = (
        parts.join(longer, on=(*_UNIT, "end"), how="left")
        .with_columns(end=pl.coalesce("closed_end", "end"))
        .filter(pl.col("end") > pl.col("time"))
        .sort(*_UNIT, "time")
    )
    named = closed.with_columns(spell=islands(_UNIT)).with_columns(
        spell_start=pl.col("time").min().over("spell"), spell_end=pl.col("end").max().over("spell")
    )
    days = cut_at_midnight(named.select(*_UNIT, "time", "end", "spell", "spell_start", "spell_end"))
    keys = ("spell", "day", *_UNIT, "spell_start", "spell_end")
    return days.group_by(keys).agg(pl.col("time").min(), pl.col("end").max())
