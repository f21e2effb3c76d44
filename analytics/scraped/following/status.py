"""What a follower says of itself: how far it is behind, what it has read, and whether somebody has to look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from analytics.scraped.totals import ReadTotals
from fallow.clock import DAY_MS, MINUTE_MS, SECOND_MS, Clock, format_ms
from fallow.exposition import ExposedSamples, Family

_PATIENCE_MS = 15 * MINUTE_MS
_PATIENCE_ROUNDS = 3

_FAMILIES: Mapping[str, Family] = {
    "lag_ms": Family("fallow_follow_lag_seconds", "s", "time since the end of the newest window that is in the lake", "", 0.001),
    "position_ms": Family("fallow_follow_position_timestamp_seconds", "s", "up to when everything is in the lake, since the epoch", "", 0.001),
    "offset_ms": Family("fallow_follow_clock_offset_seconds", "s", "how far the server's clock is ahead of this host's", "", 0.001),
    "targets": Family("fallow_follow_targets", "1", "targets with samples in the newest window", ""),
    "gpus": Family("fallow_follow_gpus", "1", "GPUs with samples in the newest window", ""),
    "silent_gpus": Family("fallow_follow_silent_gpus", "1", "GPUs of the last 24 hours without samples in the newest window", ""),
    "windows": Family("fallow_follow_windows_total", "1", "windows that are in the lake", "", kind="counter"),
    "samples": Family("fallow_follow_samples_total", "1", "samples read, those of overlaps again", "", kind="counter"),
    "new_rows": Family("fallow_follow_new_rows_total", "1", "rows written that were not there", "", kind="counter"),
    "changed_rows": Family("fallow_follow_changed_rows_total", "1", "rows that got other values", "", kind="counter"),
    "agent_rows": Family("fallow_follow_agent_rows_total", "1", "rows left out because agents have them", "", kind="counter"),
    "dropped": Family("fallow_follow_dropped_total", "1", "samples and values that make nothing", "", kind="counter"),
    "refusals": Family("fallow_follow_refusals_total", "1", "rounds that ended with an error", "", kind="counter"),
    "merged_days": Family("fallow_follow_merged_days_total", "1", "days of hosts and tables made one file", "", kind="counter"),
}  # fmt: skip


@dataclass(frozen=True)
class FollowStatus:
    """Counts since the start; None where nothing is known yet."""

    position_ms: int | None = None
    worked_at_ms: int | None = None
    """When the newest piece of a window was finished, by this host's clock."""

    offset_ms: int | None = None
    targets: int | None = None
    gpus: int | None = None
    silent_gpus: int | None = None
    windows: int = 0
    samples: int = 0
    new_rows: int = 0
    changed_rows: int = 0
    agent_rows: int = 0
    dropped: int = 0
    refusals: int = 0
    merged_days: int = 0
    failing: str = ""
    """What kind of thing goes wrong, without names and addresses, for everybody may ask."""

    last_seen_ms: Mapping[str, int] = field(default_factory=dict)
    """When each GPU of the last 24 hours last had samples."""

    def after(self, totals: ReadTotals, end_ms: int, targets: int, at_ms: int) -> FollowStatus:
        """After a window that ended at `end_ms` and is in the lake."""
        seen = {gpu: last for gpu, last in self.last_seen_ms.items() if last > end_ms - DAY_MS}
        seen |= dict.fromkeys(totals.gpus, end_ms)
        published = totals.published.values()
        return replace(
            self,
            position_ms=end_ms,
            worked_at_ms=at_ms,
            targets=targets,
            gpus=len(totals.gpus),
            silent_gpus=len(seen) - len(totals.gpus),
            windows=self.windows + 1,
            samples=self.samples + totals.samples,
            new_rows=self.new_rows + sum(each.new for each in published),
            changed_rows=self.changed_rows + sum(each.replaced for each in published),
            agent_rows=self.agent_rows + totals.of_agents,
            dropped=self.dropped + totals.dropped.total(),
            failing="",
            last_seen_ms=seen,
        )


class StatusBoard:
    """The newest status, written by one thread and read by others."""

    def __init__(self, clock: Clock, every_ms: int) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._patience_ms = max(_PATIENCE_MS, _PATIENCE_ROUNDS * every_ms)
        self.status = FollowStatus()

    def metrics(self) -> ExposedSamples:
        status, samples = self.status, ExposedSamples()
        now_ms = self._clock.now_ms() + (status.offset_ms or 0)
        values = vars(status) | {"lag_ms": None if status.position_ms is None else max(0, now_ms - status.position_ms)}
        for name, family in _FAMILIES.items():
            value = values[name]
            samples.add(family, value if value is None or family.factor == 1 else round(value * family.factor, 3))
        return samples

    def health(self) -> tuple[int, dict[str, object]]:
        """503 where nothing was finished for a while: a restart may help, or the log says what is wrong."""
        status = self.status
        quiet_ms = self._clock.now_ms() - (status.worked_at_ms or self._began_ms)
        told: dict[str, object] = {"status": "starting" if status.position_ms is None else "ok"}
        if status.position_ms is not None:
            told["position"] = format_ms(status.position_ms)
        if status.failing:
            told |= {"status": "failing", "reason": status.failing}
        if quiet_ms > self._patience_ms:
            told |= {"status": "stale", "quiet_seconds": quiet_ms // SECOND_MS}
            return 503, told
        return 200, told
