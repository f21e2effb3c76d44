"""The sources of rows besides the driver, and the epochs of counters: created at the start and at every reload."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from agent.attribution import AttributionSettings, ProcessOwners
from agent.attribution.kubelet import PodAllocations
from agent.host import HostMeter
from agent.kernel_files import read_text
from agent.spool.backlog import Backlog
from agent.spool.publishing import Publishing
from agent.spool.spool import read_fact
from fallow import schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.collectors import Collector
    from agent.rows import EventRow, GpuRow
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from fallow.config import Config

COUNTERS = tuple(
    column.name for column in schema.GPU.columns if column.name == "energy_mj" or column.name.startswith("throttled_")
)

_BREAKS = ("lost", "missing", "reset_required", "driver_down", "released")
_MOST_W = 5_000  # three times the card with the highest power: mJ per ms are watts
_SLACK = 10_000  # mJ or ms: the moments of reading differ from the grid


class KnownCounters(TypedDict):
    """A GPU's counters: the start of their epoch, and the newest values with the time of reading."""

    since_ms: int
    read_ms: int
    counters: dict[str, int]


class Epochs:
    """Keeps each GPU's newest counters, also across restarts of the agent within one boot of the machine."""

    def __init__(self, remembered: str | None, boot_id: str) -> None:
        """`remembered` is a text of `as_text` or None; an empty `boot_id` is unknown.

        GPUs in a damaged text begin a new epoch.
        """
        before_id, self._known = _parsed(remembered)
        same_boot = not before_id or not boot_id or before_id == boot_id
        self._boot_id = boot_id or before_id
        self._broken: dict[str, str] = {} if same_boot else dict.fromkeys(self._known, "the machine has rebooted")

    def mark(self, rows: Sequence[GpuRow]) -> list[EventRow]:
        """Set `counters_since` of the rows with a counter. Return the epochs that began, as events."""
        events: list[EventRow] = []
        for row in rows:
            if row["health"] in _BREAKS:
                self._broken.setdefault(row["gpu"], f"the GPU was {row['health'].replace('_', ' ')}")
            counters = {name: value for name in COUNTERS if isinstance(value := row.get(name), int)}
            if counters:
                reason = self._mark_one(row, counters)
                if reason:
                    detail = f"energy and throttle counters restarted: {reason}"
                    events.append({"kind": "counters_restarted", "gpu": row["gpu"], "detail": detail})
        return events

    def as_text(self) -> str:
        """Return the state to keep across a restart, as JSON."""
        return json.dumps({"boot_id": self._boot_id, "gpus": self._known})

    def _mark_one(self, row: GpuRow, counters: dict[str, int]) -> str | None:
        gpu = row["gpu"]
        known = self._known.get(gpu)
        read_ms = row["time"] + row["interval_ms"] + (row.get("read_delay_ms") or 0)
        reason = self._broken.pop(gpu, None)
        if reason is None and known is not None:
            reason = _contradiction(known, counters, read_ms)
        since_ms = row["time"] if known is None or reason else known["since_ms"]
        self._known[gpu] = {"since_ms": since_ms, "read_ms": read_ms, "counters": counters}
        row["counters_since"] = since_ms
        return None if known is None else reason


def _parsed(remembered: str | None) -> tuple[str, dict[str, KnownCounters]]:
    """Return the boot id and each GPU's newest counters from a stored text; empty where the text is unreadable."""
    try:
        known = json.loads(remembered or "{}")
    except ValueError:
        return "", {}
    boot_id, gpus = (known.get("boot_id"), known.get("gpus")) if isinstance(known, dict) else (None, None)
    whole = {gpu: each for gpu, each in gpus.items() if _is_whole(each)} if isinstance(gpus, dict) else {}
    return boot_id if isinstance(boot_id, str) else "", whole


def _is_whole(known: object) -> bool:
    if not isinstance(known, dict) or not isinstance(known.get("counters"), dict):
        return False
    numbers = [known.get("since_ms"), known.get("read_ms"), *known["counters"].values()]
    return all(isinstance(number, int) for number in numbers)


def _contradiction(known: KnownCounters, counters: dict[str, int], read_ms: int) -> str | None:
    """Return why the counters cannot have grown from their former values; None where they can."""
    elapsed_ms = read_ms - known["read_ms"]
    for name, value in counters.items():
        before = known["counters"].get(name)
        if before is None:
            continue
        if value < before:
            return f"{name} went back"
        most = elapsed_ms * (_MOST_W if name == "energy_mj" else 1) + _SLACK
        if elapsed_ms >= 0 and value - before > most:
            return f"{name} grew by more than is possible"
    return None


@dataclass
class Parts:
    """All sources of rows and events of an interval, besides the fleet."""

    owners: ProcessOwners
    allocations: PodAllocations
    host: HostMeter
    collectors: tuple[Collector, ...]
    """Every source of rows, in the order of collection."""
    epochs: Epochs
    publishing: Publishing
    backlog: Backlog

    @classmethod
    def make(cls, loaded: Config, settings: AgentSettings, spool: Spool) -> Parts:
        """Return the parts for these settings; raises UsageError for an invalid setting."""
        allocations = PodAllocations(read_fact(spool, "pod_allocations", list, []))
        return cls(
            *_sources(loaded, settings, allocations),
            epochs=Epochs(spool.noted("epochs"), boot_id(settings.proc)),
            publishing=Publishing(settings, spool),
            backlog=Backlog(spool, settings.spool_max_bytes),
        )

    def prepared(self, loaded: Config, settings: AgentSettings) -> Parts:
        """Return parts for new settings with the old parts' state. Raises as `make` does, and then changes nothing."""
        return Parts(
            *_sources(loaded, settings, self.allocations),
            epochs=self.epochs,
            publishing=self.publishing,
            backlog=self.backlog,
        )

    def retire(self, after: Parts, settings: AgentSettings) -> None:
        for each in self.collectors:
            each.close()
        after.publishing.configure(settings)
        after.backlog.spool_max_bytes = settings.spool_max_bytes

    def close(self) -> None:
        """End the threads besides the sampling, and write the rows in memory."""
        self.backlog.close()
        for each in self.collectors:
            each.close()


def _sources(
    loaded: Config, settings: AgentSettings, allocations: PodAllocations
) -> tuple[ProcessOwners, PodAllocations, HostMeter, tuple[Collector, ...]]:
    """Return the sources of rows for these settings, as the first fields of Parts. Add a new source here."""
    owners = ProcessOwners(AttributionSettings.from_config(loaded))
    host = HostMeter(settings.proc, settings.sys)
    allocations.allocation = owners.allocation
    collectors = (owners, host, *_serving(loaded, owners), allocations)
    return owners, allocations, host, collectors


def _serving(loaded: Config, owners: ProcessOwners) -> tuple[Collector, ...]:
    """Return the scraper of inference servers. Its code is loaded only where servers are configured.

    It comes after the other sources that may refuse their settings, because it starts a thread.
    """
    endpoints, pods = loaded.texts("serving.endpoints"), loaded.texts("serving.pod_namespaces")
    if not endpoints and not pods:
        return ()
    from agent.serving.scraper import ServingScraper

    interval_ms, proc = loaded.integer("serving.interval"), loaded.text("agent.proc")
    return (ServingScraper(endpoints, interval_ms, proc, owners.pod_servers if pods else None),)


def boot_id(proc: str) -> str:
    """Return the id of this boot of the machine; empty where the kernel has none."""
    return read_text(f"{proc}/sys/kernel/random/boot_id")
