"""The GPUs of the host as the supervisor sees them: a worker that may hang, crash or lose the driver, and what then.

A GPU whose call never returns is `wedged`: its worker is left alone (killing it has frozen GPUs), and a new one watches
the others. A lost driver makes every GPU `driver_down` until a new worker can load it again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from agent.advice import driver_error
from agent.worker_client import WorkerClient, WorkerGoneError, WorkerHungError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("fallow.agent")

_LONGEST_BACKOFF = 6  # intervals between two tries to load the driver again
_END_PATIENCE_S = 2.0


class DriverDownError(Exception):
    """No answer for this interval; `Fleet.complete` says in which state each GPU was."""


class Fleet:
    """Asks the worker for all GPUs, and stands in for the ones that cannot answer."""

    def __init__(self, call_timeout_s: float, known: Mapping[str, int] | None = None) -> None:
        """`known` are positions of GPUs that an earlier run has seen, by UUID."""
        self._timeout_s = call_timeout_s
        self._worker: WorkerClient | None = None
        self._stuck: dict[WorkerClient, tuple[str, ...]] = {}
        """Workers that were set aside, with the GPUs that each blocks on."""
        self._incidents: list[dict[str, Any]] = []
        self._devices: list[dict[str, Any]] = []
        self._retry_in = 0
        self._backoff = 1
        self._worker_cpu_s = 0.0
        self._driver_down = False
        self.indexes: dict[str, int] = dict(known or {})
        """Position of every GPU that was ever seen here, by UUID."""
        self.uuids: tuple[str, ...] = ()
        self.down: dict[str, str] = {}
        """Health of the known GPUs that no worker watches."""
        self.drain_every_s = 4.0

    def start(self) -> None:
        """Starts the first worker; raises DriverError where the driver cannot be used.

        A GPU that blocks is left out, and the next worker watches the others.
        """
        while self._worker is None:
            worker = WorkerClient(self._skip())
            try:
                answer = worker.request("open", self._timeout_s)
            except WorkerHungError as hung:
                if not hung.uuid:
                    worker.end(_END_PATIENCE_S)
                    self.close()
                    raise driver_error(0, f"{hung} within {self._timeout_s:g} s") from hung
                self._set_aside(worker, hung)
                continue
            except WorkerGoneError as gone:
                worker.end(_END_PATIENCE_S)
                self.close()
                raise driver_error(0, str(gone)) from gone
            if lost := answer.get("driver_gone"):
                worker.end(_END_PATIENCE_S)
                self.close()
                raise driver_error(lost["code"], lost["message"])
            self._worker = worker
            self._take_opened(answer)
        if not self.uuids and not self._stuck:
            self.close()
            raise driver_error(0, "it is loaded and lists no GPU that can be opened")

    def drain(self) -> None:
        """Lets the worker take new samples; trouble is noted and dealt with, never raised."""
        if self._worker is not None:
            answer = self._ask(self._worker, "drain")
            if answer is not None:
                self.drain_every_s = answer["drain_every_s"]

    def rows(self, start_ms: int, end_ms: int, *, list_processes: bool, devices: str) -> dict[str, Any]:
        """The worker's answer for an interval, with `worker_cpu_ms` added; raises DriverDownError where there is none.

        `devices` says which inventory entries to look at: all, changed or none.
        """
        self._welcome_back()
        if self._worker is None:
            self._try_again()
        if self._worker is None:
            raise DriverDownError("the driver cannot be asked at present")
        answer = self._ask(
            self._worker,
            "row",
            start_ms=start_ms,
            end_ms=end_ms,
            list_processes=list_processes,
            devices=devices,
        )
        if answer is None:
            raise DriverDownError("no answer for this interval")
        self.drain_every_s = answer["drain_every_s"]
        self._devices += answer["devices"]
        self._know(answer["gpus"], answer["missing"])
        before_s = min(self._worker_cpu_s, answer["cpu_s"])  # a younger worker has used less than the one before it
        self._worker_cpu_s = answer["cpu_s"]
        return answer | {"worker_cpu_ms": round((answer["cpu_s"] - before_s) * 1000, 1)}

    def complete(self, answer: dict[str, Any] | None, start_ms: int, interval_ms: int) -> list[dict[str, Any]]:
        """The interval's gpu rows: the worker's, and one for each GPU that is known to be down."""
        rows: list[dict[str, Any]] = [] if answer is None else list(answer["gpu"])
        rows.extend(
            {
                "gpu": uuid, "time": start_ms, "interval_ms": interval_ms, "offset_ms": 0, "health": health,
                "util_source": "none",
            }
            for uuid, health in sorted(self.down.items())
        )  # fmt: skip
        return rows

    def take_incidents(self) -> list[dict[str, Any]]:
        """What happened since the last call, as columns of the `event` table without a time."""
        incidents, self._incidents = self._incidents, []
        return incidents

    def take_devices(self) -> list[dict[str, Any]]:
        """Inventory entries since the last call, as columns of the `device` table without a time."""
        devices, self._devices = self._devices, []
        return devices

    def close(self) -> None:
        """Ends every worker."""
        if self._worker is not None:
            self._worker.end(_END_PATIENCE_S)
            self._worker = None
        for stuck in self._stuck:
            stuck.end(_END_PATIENCE_S)
        self._stuck.clear()

    def _ask(self, worker: WorkerClient, operation: str, **arguments: Any) -> dict[str, Any] | None:
        """The answer, or None after putting things in order for the next try."""
        try:
            answer = worker.request(operation, self._timeout_s, **arguments)
        except WorkerHungError as hung:
            self._set_aside(worker, hung)
            return None
        except WorkerGoneError as gone:
            worker.end(_END_PATIENCE_S)
            self._worker = None
            self._note("worker_restart", f"{gone}; a new one is started")
            return None
        if lost := answer.get("driver_gone"):
            self._lose_driver(worker, lost["message"])
            return None
        self._incidents += answer.pop("incidents")
        return answer

    def _set_aside(self, worker: WorkerClient, hung: WorkerHungError) -> None:
        """Leaves a blocked worker alone and marks what it blocks on; the next try watches the rest."""
        self._worker = None
        if not hung.call:
            # the process itself did not run (stopped, starved): that says nothing of any GPU, so nothing is claimed
            self._stuck[worker] = ()
            self._note("worker_restart", f"the NVML worker did not run for {self._timeout_s:g} s; a new one is started")
            return
        blocked = (hung.uuid,) if hung.uuid else tuple(uuid for uuid in self.uuids if uuid not in self.down)
        self._stuck[worker] = blocked
        for target in blocked:
            known = _uuid(target)
            if known is not None:
                self.down[known] = "wedged"
                self.uuids = tuple(sorted({*self.uuids, known}))
            where = f"GPU {target[1:]}: " if known is None else ""
            self._note("gpu_wedged", f"{where}{hung.call} has not returned for {self._timeout_s:g} s", known)

    def _skip(self) -> frozenset[str]:
        """What a new worker must not touch: by position where that is known, so that not even its name is asked for."""
        targets = {target for blocked in self._stuck.values() for target in blocked}
        return frozenset(targets | {f"#{self.indexes[uuid]}" for uuid in targets if uuid in self.indexes})

    def _lose_driver(self, worker: WorkerClient, message: str) -> None:
        worker.end(_END_PATIENCE_S)
        self._worker = None
        self._driver_down = True
        self.down = dict.fromkeys(self.uuids, "driver_down") | {
            uuid: health for uuid, health in self.down.items() if health == "wedged"
        }
        self._retry_in = self._backoff
        self._note("driver_down", message)

    def _welcome_back(self) -> None:
        """A call that was given up has returned: its GPU is watched again, by a fresh worker."""
        for stuck in [each for each in self._stuck if each.answered_late()]:
            freed = self._stuck.pop(stuck)
            stuck.end(_END_PATIENCE_S)
            still = {target for blocked in self._stuck.values() for target in blocked}
            for target in freed:
                if target in still:
                    continue
                if self.down.get(target) == "wedged":
                    del self.down[target]
                    if self._driver_down:
                        self.down[target] = "driver_down"
                self._note("gpu_ok", "the call that had not returned came back", _uuid(target))
            if freed and self._worker is not None:
                self._worker.end(_END_PATIENCE_S)
                self._worker = None

    def _try_again(self) -> None:
        """Starts a new worker for the GPUs that are not wedged, with backoff while the driver is down."""
        if self._retry_in > 0:
            self._retry_in -= 1
            return
        wedged = {uuid for uuid, health in self.down.items() if health == "wedged"}
        if self.uuids and len(wedged) == len(self.uuids):
            return  # nothing is left to watch, and one more blocked process helps nobody
        self._worker = WorkerClient(self._skip())
        self._worker_cpu_s = 0.0
        answer = self._ask(self._worker, "open")
        if answer is None:
            self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
            self._retry_in = self._backoff
            return
        self._backoff = 1
        if self._driver_down:
            self._driver_down = False
            self._note("driver_up", "the driver answers again")
        self._take_opened(answer)

    def _take_opened(self, answer: dict[str, Any]) -> None:
        self._incidents += answer.pop("incidents", [])
        self._devices += answer["devices"]  # a new driver is a change
        self.drain_every_s = answer["drain_every_s"]
        self.indexes |= {device["gpu"]: device["gpu_index"] for device in answer["devices"]}
        self._know(answer["gpus"], answer["missing"])

    def _know(self, watched: list[str], missing: list[int]) -> None:
        """Every GPU that was ever seen is accounted for: watched, wedged, or lost because it cannot be opened.

        One that an earlier run saw counts as lost if the GPU at its position cannot be opened; if there is none, it has
        been taken out.
        """
        lost = {uuid for uuid, index in self.indexes.items() if index in missing and uuid not in watched}
        self.uuids = tuple(sorted({*self.uuids, *watched, *lost}))
        self.down = {
            uuid: "wedged" if self.down.get(uuid) == "wedged" else "lost" for uuid in self.uuids if uuid not in watched
        }

    def _note(self, kind: str, detail: str, gpu: str | None = None) -> None:
        self._incidents.append({"kind": kind, "detail": detail, "gpu": gpu})


def _uuid(target: str) -> str | None:
    """The UUID that a set-aside worker blocks on; None where only its position is known."""
    return None if target.startswith("#") else target
