"""Longer intervals while the disk is full: fewer rows that still cover all of the time."""

from __future__ import annotations

from fallow.clock import format_duration

_FACTORS = (1, 6, 30)  # by pressure: 10 s rows become rows of one minute, then of five


class Thinning:
    """How long the next interval is."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._factor = 1

    def end_of(self, start_ms: int) -> int:
        """The end of the interval that starts there, on the grid of the present length."""
        length_ms = self._interval_ms * self._factor
        return start_ms // length_ms * length_ms + length_ms

    def adapt(self, pressure: int) -> list[tuple[str, str]]:
        """Follows the spool's pressure (0 to 2); returns kind and detail of the event where that changes anything."""
        factor = _FACTORS[pressure]
        if factor == self._factor:
            return []
        before, self._factor = self._factor, factor
        length = format_duration(self._interval_ms * factor)
        if factor > before:
            return [("sampling_thinned", f"the spool has little room left: one row in {length}")]
        return [("sampling_restored", f"the spool has room again: one row in {length}")]
