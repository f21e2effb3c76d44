"""Says which GPU each line of nvidia-smi is about: by UUID, index, bus address, or else its position in the tick."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from fallow.errors import InputError

if TYPE_CHECKING:
    from analytics.importers.model import Tally

_LEAST_GAP_MS = 500
"""nvidia-smi reads the GPUs of one tick within milliseconds; loops are seconds long."""

_MOST_GPUS = 16


def by_position(path: str, rows: pl.DataFrame, interval_ms: int | None, *, cut_off: bool, tally: Tally) -> pl.DataFrame:
    """The rows (nr, block, true_ms, ...) with `position`: the place in the tick where the file has no column that names the GPU.

    A tick ends at a gap in time and at a header line. Ticks of another size than the file's usual one cannot be
    attributed and are dropped, except the last one of a file that was cut off: its leading rows are in their places.
    Raises InputError where ticks cannot be told apart.
    """
    if not rows["nameless"].any():
        return rows.with_columns(position=pl.lit(None, pl.UInt32))
    mine = rows.filter("nameless")
    mine, usual = _ticks(path, mine, interval_ms)
    last = mine["tick"][-1]
    good = pl.col("size") == usual
    if cut_off:
        good |= (pl.col("tick") == last) & (pl.col("size") < usual)
    kept = mine.filter(good)
    tally.drop(f"tick without {usual} rows and nothing that names its GPUs", mine.height - kept.height)
    others = rows.filter(~pl.col("nameless"))
    return pl.concat([others, kept.drop("tick", "size")], how="diagonal").sort("nr")


def _ticks(path: str, mine: pl.DataFrame, interval_ms: int | None) -> tuple[pl.DataFrame, int]:
    """The rows with tick, its size and the position in it, and the usual size: that which most rows are in.

    Which gap ends a tick is tried out; InputError where two gaps explain the file about as well and differ in size.
    """
    tried = []
    for gap_ms in _gaps(path, mine, interval_ms):
        apart = (pl.col("true_ms").diff().abs() > gap_ms) | (pl.col("block").diff() != 0)
        split = mine.with_columns(tick=apart.fill_null(value=False).cum_sum()).with_columns(size=pl.len().over("tick"))
        sizes = split["size"].value_counts().sort("count", "size", descending=[True, False])
        usual = _said(mine) or int(sizes["size"][0])
        tried.append((split.filter(pl.col("size") == usual).height / split.height, usual, split))
    best, usual, split = max(tried, key=lambda each: each[0])
    rivals = [size for share, size, _ in tried if size != usual and share >= 0.9 * best]
    if rivals or best <= 0.5:
        raise InputError(
            f"{path} does not say which GPU a line is about, and its ticks cannot be told apart for sure",
            "give --interval, or query index or uuid too",
        )
    return split.with_columns(position=pl.int_range(pl.len(), dtype=pl.UInt32).over("tick")), usual


def _gaps(path: str, mine: pl.DataFrame, interval_ms: int | None) -> list[float]:
    """Gaps beyond which a new tick may begin: half the interval, or half of what usual wide gaps are."""
    if interval_ms is not None:
        return [interval_ms / 2]
    between = mine["true_ms"].diff().abs().drop_nulls()
    wide = between.filter(between >= _LEAST_GAP_MS)
    if len(wide):
        quantiles = [wide.quantile(share, "nearest") for share in (0.0, 0.05, 0.25, 0.5, 0.75)]
        return sorted({each / 2 for each in quantiles if each is not None})
    if mine.height > _MOST_GPUS:
        raise InputError(
            f"{path} does not say which GPU a line is about, and its ticks cannot be told apart by time",
            "give --interval, or query index or uuid too",
        )
    return [_LEAST_GAP_MS]


def _said(mine: pl.DataFrame) -> int | None:
    """How many GPUs the field `count` names."""
    said = mine["count"].cast(pl.Int64, strict=False).drop_nulls().unique()
    return int(said[0]) if len(said) == 1 else None


def named(rows: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    """The rows in which something names the GPU."""
    kept = rows.filter(pl.any_horizontal(pl.col("uuid", "index", "pci_bus_id", "position").is_not_null()))
    tally.drop("nothing names the GPU", rows.height - kept.height)
    return kept


def name_gpus(rows: pl.DataFrame, host: str) -> pl.DataFrame:
    """The rows with `gpu`: the UUID where known, also from other lines of the same index.

    Else `<host>/<index>`, `<host>/<bus address>` or `<host>/<position>`; `named` has dropped the rest.
    """
    seen = rows.filter(pl.col("uuid").is_not_null() & pl.col("index").is_not_null()).select("index", "uuid").unique()
    # an index that stood for two GPUs (they change over reboots) says nothing
    sure = seen.filter(pl.len().over("index") == 1).rename({"uuid": "uuid_of_index"})
    place = pl.coalesce("index", "pci_bus_id", pl.col("position").cast(pl.String))
    return (
        rows.join(sure, on="index", how="left", maintain_order="left")
        .with_columns(gpu=pl.coalesce("uuid", "uuid_of_index", pl.format(f"{_escape(host)}/{{}}", place)))
        .with_columns(gpu_index=pl.coalesce("index", pl.col("position").cast(pl.String)).cast(pl.Int16, strict=False))
        .drop("uuid_of_index")
    )


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
