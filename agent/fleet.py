"""The GPUs of the host as the supervisor sees them: a worker that may hang, crash or lose the driver, and what then.

A GPU whose call never returns is `wedged`: its worker is left alone (killing it has frozen GPUs), and a new one watches
the others. A lost driver makes every GPU `driver_down` until a new worker can load it again.
"""

from __future__ import annotations

import logging
from typing import Any

from agent.advice import driver_error
from agent.worker_client import WorkerClient, WorkerGoneError, WorkerHungError

log = logging.getLogger("fallow.agent")

_LONGEST_BACKOFF = 6  # intervals between two tries to load the driver again
_END_PATIENCE_S = 2.0


class DriverDownError(Exception):
    """No answer for this interval; `Fleet.complete` says in which state each GPU was."""


class Fleet:
    """Asks the worker for all GPUs, and stands in for the ones that cannot answer."""

    def __init__(self, call_timeout_s: float) -> None:
        self._timeout_s = call_timeout_s
        self._worker: WorkerClient | None = None
        self._stuck: list[tuple[WorkerClient, str]] = []
        self._incidents: list[dict[str, Any]] = []
        self._devices: list[dict[str, Any]] = []
        self._retry_in = 0
        self._backoff = 1
        self._worker_cpu_s = 0.0
        self.uuids: tuple[str, ...] = ()
        self.down: dict[str, str] = {}
        """Health of the GPUs that no worker watches."""
        self.drain_every_s = 4.0

    def start(self) -> None:
        """Starts the first worker; raises DriverError where the driver cannot be used."""
        worker = WorkerClient()
        try:
            answer = worker.request("open", self._timeout_s)
        except WorkerHungError as hung:
            worker.end(_END_PATIENCE_S)
            raise driver_error(0, f"{hung} within {self._timeout_s:g} s") from hung
        except WorkerGoneError as gone:
            worker.end(_END_PATIENCE_S)
            raise driver_error(0, str(gone)) from gone
        if lost := answer.get("driver_gone"):
            worker.end(_END_PATIENCE_S)
            raise driver_error(lost["code"], lost["message"])
        self._worker = worker
        self._incidents += answer["incidents"]
        self.uuids = tuple(answer["gpus"])
        if not self.uuids:
            self.close()
            raise driver_error(0, "it is loaded and lists no GPU")
        self._devices += answer["devices"]

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
        for stuck, _ in self._stuck:
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
        self._incidents += answer["incidents"]
        return answer

    def _set_aside(self, worker: WorkerClient, hung: WorkerHungError) -> None:
        """Leaves a blocked worker alone and marks what it blocks on; the next try watches the rest."""
        self._stuck.append((worker, hung.uuid))
        self._worker = None
        wedged = [hung.uuid] if hung.uuid else [uuid for uuid in self.uuids if uuid not in self.down]
        for uuid in wedged:
            self.down[uuid] = "wedged"
            self._note("gpu_wedged", f"{hung.call or 'the worker'} has not returned for {self._timeout_s:g} s", uuid)

    def _lose_driver(self, worker: WorkerClient, message: str) -> None:
        worker.end(_END_PATIENCE_S)
        self._worker = None
        self.down = dict.fromkeys(self.uuids, "driver_down") | {
            uuid: health for uuid, health in self.down.items() if health == "wedged"
        }
        self._retry_in = self._backoff
        self._note("driver_down", message)

    def _welcome_back(self) -> None:
        """A call that was given up has returned: its GPU is watched again, by a fresh worker."""
        for entry in list(self._stuck):
            stuck, uuid = entry
            if not stuck.answered_late():
                continue
            stuck.end(_END_PATIENCE_S)
            self._stuck.remove(entry)
            if self._worker is not None:
                self._worker.end(_END_PATIENCE_S)
                self._worker = None
            freed = [uuid] if uuid else list(self.down)
            for each in freed:
                self.down.pop(each, None)
                self._note("gpu_ok", "the call that had not returned came back", each)

    def _try_again(self) -> None:
        """Starts a new worker for the GPUs that are not wedged, with backoff while the driver is down."""
        if self._retry_in > 0:
            self._retry_in -= 1
            return
        wedged = frozenset(uuid for uuid, health in self.down.items() if health == "wedged")
        if len(wedged) == len(self.uuids):
            return  # nothing is left to watch, and one more blocked process helps nobody
        worker = WorkerClient(wedged)
        self._worker = worker
        self._worker_cpu_s = 0.0
        answer = self._ask(worker, "open")
        if answer is None:
            self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
            self._retry_in = self._backoff
            return
        self._backoff = 1
        self._devices += answer["devices"]  # a new driver is a change
        if "driver_down" in self.down.values():
            self._note("driver_up", "the driver answers again")
        self.uuids = tuple(sorted({*wedged, *answer["gpus"]}))
        self.down = dict.fromkeys(wedged, "wedged")

    def _note(self, kind: str, detail: str, gpu: str | None = None) -> None:
        self._incidents.append({"kind": kind, "detail": detail, "gpu": gpu})
