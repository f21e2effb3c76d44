"""One try after the other to bring into the lake what was received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from analytics.scraped.following.day_merging import DayMerging
from analytics.scraped.lake_writer import LakeWriter, WriterSettings
from analytics.scraped.mapping.model import Exporter
from analytics.scraped.otlp.self_metrics import DeliveryState
from analytics.scraped.otlp.spool import RequestSpool
from analytics.scraped.otlp.spool_delivery import SpoolDelivery
from analytics.scraped.totals import ReadTotals
from fallow.clock import Clock
from fallow.errors import LakeError, SpoolError
from fallow.lake import Lake
from fallow.lake_init import require_marker
from fallow.pseudonyms import Pseudonyms


@dataclass
class DeliveryRounds:
    """`tell` is told what is new: that the lake takes nothing, or takes rows again."""

    spool: RequestSpool
    exporters: tuple[Exporter, ...]
    lake: Lake
    pseudonyms: Pseudonyms | None
    merging: DayMerging
    clock: Clock
    tell: Callable[[str], None]
    state: DeliveryState = field(init=False)
    _delivery: SpoolDelivery | None = None

    def __post_init__(self) -> None:
        self.state = DeliveryState(self.clock.now_ms())

    def run(self) -> None:
        """Does what can be done now."""
        state = self.state
        try:
            self._deliver()
        except (LakeError, SpoolError) as error:
            if str(error) != state.trouble:
                self.tell(f"{error}; what comes meanwhile is kept in the spool")
            state.trouble = str(error)
        else:
            if state.trouble:
                self.tell("the lake takes rows again")
            state.trouble, state.last_success_ms = "", self.clock.now_ms()
        state.round_ms = self.clock.now_ms()

    def _deliver(self) -> None:
        require_marker(self.lake)  # an empty mount point must not become a lake
        if self._delivery is None:
            writer = LakeWriter(self.lake, WriterSettings(hourly=True, pseudonyms=self.pseudonyms), ReadTotals())
            self._delivery = SpoolDelivery(self.spool, self.exporters, writer)
        now_ms = self.clock.now_ms()
        totals = ReadTotals()
        try:
            self._delivery.run(now_ms, totals)
        finally:
            self.state.agent_rows += totals.of_agents
            self.state.dropped += totals.dropped.total()
        self.merging.run(now_ms, now_ms)
