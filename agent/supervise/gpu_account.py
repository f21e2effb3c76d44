"""The account of a host's GPUs: each one that was ever seen, or that should be there, has a row or is counted as missed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agent.nvml.worker_protocol import OpenAnswer
    from agent.rows import DeviceRow, EventRow, GpuRow
    from agent.supervise.known_gpus import KnownGpus
    from agent.supervise.missing_gpus import MissingGpus


class GpuAccount:
    """Keeps the GPUs that have told their UUID and those that should be there in step with what workers say."""

    def __init__(self, known: KnownGpus, missing: MissingGpus) -> None:
        self.known = known
        self.missing = missing

    def begin(self, health: str) -> list[DeviceRow]:
        """Without a worker: what an earlier run saw and what should be there; returns inventory of GPUs without a UUID."""
        self.known.assume(health)
        self.missing.look(self.known, (), ())
        return self.missing.devices(all_of_them=False)

    def opened(self, answer: OpenAnswer, now_ms: int) -> list[EventRow]:
        """Takes up what a new worker lists; returns what has come or gone, as events."""
        watched, unopened = answer["gpus"], answer["missing"]
        self.known.locate(answer["device"])
        self.missing.look_at_bus()
        gone = self.known.gone(watched, unopened)
        others = len({*self.known.indexes, *watched} - {*gone}) + len(self._nameless(unopened))
        kept = self.missing.still_expected(gone, self.known, watched, others, now_ms)
        changes = self.known.opened(answer["device"], watched, gone, kept)
        return [{"kind": kind, "detail": detail, "gpu": uuid} for kind, detail, uuid in changes]

    def take(self, answer: OpenAnswer, blocked: Collection[str], now_ms: int) -> tuple[list[DeviceRow], list[EventRow]]:
        """Takes up an answer; returns the inventory of GPUs without a UUID that is new, and who is missing or back.

        `blocked` are the GPUs that a worker must not touch, by UUID or position (`#3`).
        """
        self.known.place(answer["device"])
        self.known.locate(answer["device"])
        self.known.watch(answer["gpus"], answer["missing"], answer["instances"])
        self.missing.learn(answer["device"])
        positions = [int(target[1:]) for target in blocked if target.startswith("#")]
        self.missing.look(self.known, self._nameless(answer["missing"]), self._nameless(positions))
        return self.missing.devices(all_of_them=False), self.missing.changes(self.known, now_ms)

    def rows(self, start_ms: int, interval_ms: int, for_all: str | None) -> list[GpuRow]:
        """One row for each GPU or MIG instance that is known to be down or missing.

        `for_all` is the health of those without a UUID where the driver as a whole has one.
        """
        down = [*self.known.rows_down(), *((each.name, for_all or each.health) for each in self.missing.found)]
        return [
            {
                "gpu": name,
                "time": start_ms,
                "interval_ms": interval_ms,
                "offset_ms": 0,
                "health": health,
                "util_source": "none",
            }
            for name, health in down
        ]

    def still_away(self) -> list[str]:
        """Names of those that a driver which is loaded afresh may list again."""
        return [*self.known.missing, *(each.name for each in self.missing.found if each.health == "missing")]

    def is_told(self, rows: Sequence[GpuRow]) -> bool:
        """Whether every known GPU has a row: of one that no worker could be asked about, nobody knows how it was."""
        return {row["gpu"] for row in rows}.issuperset(self.known.uuids)

    def _nameless(self, positions: Sequence[int]) -> list[int]:
        named = set(self.known.indexes.values())
        return [position for position in positions if position not in named]
