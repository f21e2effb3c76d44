"""Files of hours as one of the day, once it is over: as agents do with theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from analytics.importers.publish import merge_day
from fallow.clock import DAY_MS, floor_ms, utc_day
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile, visible
from fallow.schema import GPU, HOST

_BACK_DAYS = 7


@dataclass
class DayMerging:
    """Of what was followed into one lake: days that ended `lateness_ms` ago; what was replaced goes after `grace_ms`."""

    lake: Lake
    grace_ms: int
    lateness_ms: int
    stopped: Callable[[], bool] = lambda: False
    _settled: str = ""
    """The newest date up to which nothing is left to do."""

    def run(self, position_ms: int, now_ms: int) -> int:
        """Merges the days before the position; returns how many days of hosts and tables became one file. Raises LakeError."""
        newest_ms = floor_ms(position_ms - self.lateness_ms, DAY_MS) - DAY_MS
        merged = 0
        for date in (utc_day(newest_ms - back * DAY_MS) for back in range(_BACK_DAYS, -1, -1)):
            if date > self._settled and not self.stopped():
                count, left = self._run_date(date, now_ms)
                merged += count
                if not left and not self.stopped():
                    self._settled = date
        return merged

    def _run_date(self, date: str, now_ms: int) -> tuple[int, int]:
        """How many were merged, and how many still have files to be merged or deleted."""
        merged = left = 0
        for table in (GPU, HOST):
            by_host: dict[str, list[LakeFile]] = defaultdict(list)
            for file in self.lake.all_files(table.name, dates=[date]):
                if file.last_seq < AGENT_FIRST_SEQ:
                    by_host[file.host].append(file)
            for host, files in by_host.items():
                if len(files) > 1 and not self.stopped():
                    done = merge_day(self.lake, table, host, date, grace_ms=self.grace_ms, now_ms=now_ms)
                    merged += bool(done)
                    left += bool(done) or len(visible(files)) < len(files)
        return merged, left
