"""Times of allocations: epoch seconds, ISO 8601 with or without an offset, and the hour repeated after summer time."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analytics.importers.times import both_passes, split_times

EARLIEST_MS = 946_684_800_000
"""The year 2000: an older allocation of a GPU is a mistake."""
END_OF_YEAR_9999_MS = 253_402_300_800_000

UNKNOWN = ("", "unknown", "none", "n/a", "invalid", "null")
"""Texts by which sources mark a missing time."""


@dataclass(frozen=True)
class Moments:
    """A column of times in epoch milliseconds, as the first and as the second pass through a repeated hour.

    Both are null in three cases: the text is empty (`absent`); it is not a time, or a time that summer time skips
    (`wrong`); or the time is not in the years 2000 to 9999 (`outside`).
    """

    first: pl.Series
    second: pl.Series
    absent: pl.Series
    outside: pl.Series
    local: bool = False
    """Whether some of the times state no offset."""

    @property
    def wrong(self) -> pl.Series:
        return self.first.is_null() & ~self.absent & ~self.outside

    @property
    def ambiguous(self) -> pl.Series:
        return (self.first != self.second).fill_null(value=False)


def read_moments(text: pl.Series, zone: str) -> Moments:
    """Return the moments in a column of text; times without an offset are the zone's local time.

    Whole numbers are epoch seconds, or milliseconds from 13 digits on.
    """
    plain = text.cast(pl.String).fill_null("").str.strip_chars()
    absent = plain.str.to_lowercase().is_in(UNKNOWN)
    if absent.all():  # such as a column that the file lacks
        none = pl.Series(text.name, [None] * len(text), dtype=pl.Int64)
        return Moments(none, none, absent, outside=~absent)
    local, sure_ms = split_times(plain)
    first, second = (sure_ms.zip_with(sure_ms.is_not_null(), passed) for passed in both_passes(local, zone))
    inside = (first >= EARLIEST_MS) & (second < END_OF_YEAR_9999_MS)
    outside = ~inside.fill_null(value=True)
    some_local = local.null_count() < len(local)
    return Moments(first.set(outside, None), second.set(outside, None), absent, outside, some_local)


def start_and_end(start: Moments, end: Moments, elapsed_ms: pl.Series | None = None) -> tuple[pl.Series, pl.Series]:
    """Return start and end of allocations, by the passes through a repeated hour that fit a known elapsed time.

    Else the first pass counts, and for an end that would lie before its start the second.
    """
    began, ended = start.first, end.first
    later = (ended < began).fill_null(value=False)
    ended = end.second.zip_with(later, ended)
    if elapsed_ms is not None and (start.ambiguous | end.ambiguous).any():
        for first, last in ((start.first, end.second), (start.second, end.second), (start.first, end.first)):
            fits = (last - first == elapsed_ms).fill_null(value=False)
            began, ended = first.zip_with(fits, began), last.zip_with(fits, ended)
    return began, ended
