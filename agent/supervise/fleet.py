"""The GPUs of the host, for the supervisor: it handles a worker that hangs, crashes or loses the driver.

A GPU whose call never returns is `wedged`. Its worker is abandoned (killing it has frozen GPUs), and a new worker
watches the other GPUs. A GPU whose calls crash the driver's library repeatedly is `wedged` too. A lost driver makes
every GPU `driver_down` until a new worker loads it. A GPU is healthy again after the faulty call has returned.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from agent.collectors import UNKNOWN
from agent.nvml.installation import NOT_STARTED, REVOKED, driver_error, is_down_for_all
from agent.own_process import in_container
from agent.supervise.known_gpus import GpuAccount, KnownGpus
from agent.supervise.workers import (
    Crashes,
    DriverLostError,
    RestartBudget,
    StoppedError,
    Stuck,
    Trials,
    WorkerClient,
    WorkerGoneError,
    WorkerHungError,
)
from fallow.clock import Clock, SystemClock
from fallow.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agent.nvml.gpu import Entries, IntervalAnswer, IntervalRequest, OpenAnswer
    from agent.rows import DeviceRow, EventRow, GpuRow
    from agent.snapshot import GpuErrors
    from agent.supervise.known_gpus import MissingGpus

log = logging.getLogger("fallow.agent")

Answer = TypeVar("Answer", bound="OpenAnswer")

_LONGEST_BACKOFF = 6  # intervals between two tries to load the driver again
_END_PATIENCE_S = 1.0
_REVOKED = (4, 999)  # no permission, unknown: the codes in a container that lost its devices
_MOST_REFUSALS = 3
_TRIES = 6  # workers for one interval: only a second crash counts against a GPU


class DriverDownError(Exception):
    """There is no answer for this interval; `HostGpus.complete` adds the state of every GPU."""


class HostGpus:
    """Queries the worker for all GPUs, and adds rows for those that cannot answer."""

    def __init__(
        self,
        call_timeout_s: float,
        missing: MissingGpus,
        known: KnownGpus | None = None,
        alive: Callable[[], bool] = lambda: True,
        clock: Clock | None = None,
    ) -> None:
        """`missing` holds the expected GPUs, `known` the GPUs of an earlier run.

        `alive` is called while this waits for the driver; where it returns False, StoppedError ends the wait.
        """
        self._alive = alive
        self._clock = clock or SystemClock()
        self.timeout_s = call_timeout_s
        self._worker: WorkerClient | None = None
        self._stuck = Stuck()
        self._crashes = Crashes()
        self._trials = Trials()
        self._restarts = RestartBudget()
        self._owes_restart = self._ended = False
        self._incidents: list[EventRow] = []
        self._devices: list[DeviceRow] = []
        self._errors: list[GpuErrors] = []
        self.worker_cpu_ms = 0.0
        """The worker's resource use for the newest interval."""
        self._retry_in = 0
        self._backoff = 1
        self._worker_cpu_s = 0.0
        self._driver_down = False
        self._refusals = 0
        self._count = 0
        self.released = False
        self.account = GpuAccount(known or KnownGpus(), missing)
        self.known = self.account.known
        self.missing = self.account.missing

    def start_released(self) -> None:
        """Begin without the driver, which an earlier run released."""
        self.released = True
        self._devices += self.account.begin("released")

    def start(self, *, may_wait: bool = True) -> None:
        """Start the first worker; raises DriverError where the driver is unusable and no GPU is known.

        Where an earlier run saw GPUs, their state becomes driver_down, and the driver is tried again; also where GPUs
        are expected and no process on the host can use the driver. Without `may_wait` every such error is raised.
        """
        try:
            self._start()
        except DriverError as error:
            if not may_wait:
                raise
            self._devices += self.account.begin("driver_down")
            if not self.known.indexes and not (self.missing.found and is_down_for_all(error.code)):
                raise
            self._driver_down = True
            self._retry_in = self._backoff
            self._note("driver_down", error.message)

    def _start(self) -> None:
        """Start workers until one survives; the next worker skips a GPU that blocks or crashes the library."""
        while self._worker is None:
            try:
                worker = self._new_worker()
            except OSError as error:
                raise driver_error(0, f"no NVML worker can be started: {error.strerror}") from error
            try:
                answer = self._open(worker)
            except StoppedError:
                self._give_up(worker)
                raise
            except WorkerHungError as hung:
                if not hung.uuid:
                    self._give_up(worker)
                    raise driver_error(0, f"{hung} within {self.timeout_s:g} s") from hung
                self._quarantine(worker, hung)
                continue
            except WorkerGoneError as gone:
                self._crashed(worker, gone)
                if self._owes_restart and not self._may_restart():
                    self._give_up(worker)
                    raise driver_error(NOT_STARTED if gone.never_ran else 0, str(gone)) from gone
                continue
            except DriverLostError as lost:
                self._give_up(worker)
                raise driver_error(lost.code, str(lost)) from lost
            self._worker = worker
            self._incidents += answer["incidents"]
            self._take_opened(answer)
        if not self.known.uuids and not self._stuck.targets and not self.missing.found:
            self.close()
            raise driver_error(0, "the driver is loaded but lists no GPU that can be opened")

    def rows(
        self, start_ms: int, end_ms: int, *, list_processes: bool, devices: Entries, errors: bool
    ) -> IntervalAnswer:
        """Return the worker's rows for an interval; raises DriverDownError where there are none."""
        if self.released:
            raise DriverDownError("the driver is released")
        self._welcome_back()
        wanted: IntervalRequest = {
            "op": "row",
            "start_ms": start_ms,
            "end_ms": end_ms,
            "list_processes": list_processes,
            "devices": devices,
            "errors": errors,
        }
        answer: IntervalAnswer | None = None
        # a GPU that blocks or crashes the library costs the others no row: the next worker reads their rings
        for _ in range(_TRIES):
            if self._worker is None and not self._try_again():
                break
            if (worker := self._worker) is None:
                continue
            answer = self._ask(worker, partial(worker.interval, wanted, self.timeout_s))
            if answer is not None:
                break
        if answer is None:
            raise DriverDownError("the driver gives no answer for this interval")
        self._crashes.survived()
        rows = answer["gpu"]
        lost = [row["gpu"] for row in rows if row["health"] in ("lost", "reset_required")]
        if self.account.reload_is_due(lost):
            self._end_worker(f"a GPU is still {'lost' if lost else 'missing'}: the driver is loaded again")
        self._take(answer)
        self._settle_trials(answer["gpu"])
        if devices == "all":
            self._devices += self.missing.devices(all_of_them=True)
        before_s = min(self._worker_cpu_s, answer["cpu_s"])  # a new worker's counters start at 0
        self._worker_cpu_s = answer["cpu_s"]
        self.worker_cpu_ms = round((answer["cpu_s"] - before_s) * 1000, 1)
        return answer

    def complete(self, answer: IntervalAnswer | None, start_ms: int, interval_ms: int) -> list[GpuRow]:
        """Return the interval's gpu rows: the worker's, and one per GPU or MIG instance that is down or missing."""
        rows: list[GpuRow] = [] if answer is None else list(answer["gpu"])
        for_all = "released" if self.released else "driver_down" if self._driver_down else None
        return rows + self.account.rows(start_ms, interval_ms, for_all)

    def take_incidents(self) -> list[EventRow]:
        """Return the events since the last call, as columns of the `event` table."""
        incidents, self._incidents = self._incidents, []
        return incidents

    def take_devices(self) -> list[DeviceRow]:
        found, self._devices = self._devices, []
        return found

    def take_errors(self) -> list[GpuErrors]:
        found, self._errors = self._errors, []
        return found

    def release(self) -> list[tuple[int, str | None, str]]:
        """Release the driver by ending every worker.

        Return pid, GPU and call of the workers that a blocked call keeps alive.
        """
        self.released = True
        self.known.set_all("released")
        self._put_away()
        return [(pid, self.known.uuid(target), call) for pid, target, call in self._stuck.end(_END_PATIENCE_S)]

    def resume(self) -> None:
        """Use the driver again from the next interval on, with a new worker that tries every GPU."""
        self.released = False
        self._driver_down = False
        self._retry_in, self._backoff = 0, 1
        self._crashes = Crashes()
        self.known.down = dict.fromkeys(self.known.uuids, UNKNOWN)

    def restart(self, why: str) -> None:
        """Let a new worker load the driver between two intervals; it watches from the start of the next."""
        if self._worker is not None:
            self._end_worker(why)
            self._try_again()

    def _end_worker(self, why: str) -> None:
        if self._put_away():
            self._note("worker_restart", why)

    def _put_away(self) -> bool:
        """End the worker. Return whether there was one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end(_END_PATIENCE_S)
        return worker is not None

    def close(self) -> None:
        self._put_away()
        self._stuck.end(_END_PATIENCE_S / 2)

    def _new_worker(self) -> WorkerClient:
        self._worker_cpu_s = 0.0
        return WorkerClient(self._skip(), self.missing.sys, self._alive, self._clock)

    def _open(self, worker: WorkerClient) -> OpenAnswer:
        """Return the first answer of a new worker. It reports when calls on trial return."""
        on_trial = self._trials.open_calls(self._avoided())
        named = [
            (name, call) for gpu, call in on_trial for name in self.known.named_with_positions(frozenset({gpu}), 0)
        ]
        return worker.open(self.timeout_s, named)

    def _give_up(self, worker: WorkerClient) -> None:
        worker.end(_END_PATIENCE_S)
        self.close()

    def _ask(self, worker: WorkerClient, ask: Callable[[], Answer]) -> Answer | None:
        """Return the worker's answer; None after a fault, once the next try is prepared."""
        try:
            answer = ask()
        except WorkerHungError as hung:
            self._quarantine(worker, hung)
            return None
        except WorkerGoneError as gone:
            self._crashed(worker, gone)
            return None
        except DriverLostError as lost:
            self._incidents += lost.incidents
            self._lose_driver(worker, lost.code, str(lost))
            return None
        self._incidents += answer["incidents"]
        return answer

    def _quarantine(self, worker: WorkerClient, hung: WorkerHungError) -> None:
        """Abandon a blocked worker and mark the GPU of its call; the next try watches the other GPUs."""
        self._worker = None
        if not hung.call:
            # the process itself did not run (stopped, starved), which is no fault of a GPU, so no GPU is marked
            self._stuck.add(worker, ())
            self._note("worker_restart", f"the NVML worker did not run for {self.timeout_s:g} s; a new worker starts")
            return
        self._stuck.add(worker, (hung.uuid,))  # empty: the driver as a whole
        did = f"did not return for {self.timeout_s:g} s"
        if hung.uuid:
            self._wedge(hung.uuid, hung.call, did)
            return
        if self._trials.hold("", hung.call, did, "driver_down"):
            self._note("driver_down", f"{hung.call} {did}: no value is read until it does")
        for uuid in self.known.uuids:
            self.known.set(uuid, "wedged")

    def _crashed(self, worker: WorkerClient, gone: WorkerGoneError) -> None:
        """Clean up a worker that has ended, and skip a GPU whose call ended a worker again."""
        worker.end(_END_PATIENCE_S)
        self._worker, self._ended = None, True
        target, did = self.known.target(gone.uuid), f"ended the NVML worker with {gone.how}"
        if target and self._crashes.count(target):
            self._wedge(gone.uuid, gone.call, did)
            return
        self._owes_restart = not target
        if target:
            self._trials.hold(target, gone.call, did)
        self._note("worker_restart", f"{gone}; a new one is started", self.known.uuid(gone.uuid))

    def _may_restart(self) -> bool:
        """Return whether a new worker may start now after one that ended without a GPU's fault. The rate is limited."""
        if self._owes_restart and not self._restarts.take(self._clock.monotonic_s()):
            return False
        self._owes_restart = False
        return True

    def _wedge(self, target: str, call: str, did: str) -> None:
        """Mark a GPU, given by UUID or as `#index`, as one to skip, because of its call."""
        uuid = self.known.uuid(target)
        if uuid is not None:
            self.known.set(uuid, "wedged")
        where = f"GPU {target[1:]}: " if uuid is None else ""
        if self._trials.hold(self.known.target(target), call, did, "wedged"):
            self._note("gpu_wedged", f"{where}{call} {did}", uuid)
        else:  # the retry failed: the GPU's state is the same
            self._note("worker_restart", f"{where}tried again: {call} {did}; a new NVML worker starts", uuid)

    def _settle_trials(self, rows: Sequence[GpuRow]) -> None:
        """Update the GPUs' health after an answered interval: a call on trial makes a GPU degraded."""
        healthy = {row["gpu"] for row in rows if row["health"] in ("ok", UNKNOWN)}
        for target, health, why in self._trials.settle(self._avoided()):
            uuid = self.known.uuid(target)
            if not target and health == "ok":
                self._note("driver_up", f"the driver {why}")
            elif uuid in healthy:  # the worker has reported another state
                self._note(f"gpu_{health}", f"it {why}", uuid)
        on_trial = {self.known.target(gpu) for gpu, _ in self._trials.open_calls(self._avoided())}
        for row in rows:
            if row["health"] == "ok" and self.known.whole(row["gpu"]) in on_trial:
                row["health"] = "degraded"

    def _avoided(self) -> frozenset[str]:
        """Return the GPUs that no worker may query."""
        return frozenset(map(self.known.target, self._stuck.targets | self._crashes.avoided()))

    def _skip(self) -> frozenset[str]:
        """Return the GPUs that a new worker must skip, by position where known, so that it makes no call to them."""
        return self.known.named_with_positions(self._avoided(), self._count)

    def _lose_driver(self, worker: WorkerClient, code: int, message: str) -> None:
        worker.end(_END_PATIENCE_S)
        self._worker = None
        if code in _REVOKED and in_container():
            self._refusals += 1
            if self._refusals >= _MOST_REFUSALS:
                raise driver_error(REVOKED, message)
        self.known.set_all("driver_down")
        self._retry_in = self._backoff
        if not self._driver_down:
            self._note("driver_down", message)
        self._driver_down = True

    def _welcome_back(self) -> None:
        """Let a new worker try a GPU again whose abandoned call has returned, or whose last crash is long ago."""
        freed = self._stuck.freed(_END_PATIENCE_S) | self._crashes.due()
        if "" in freed:  # the driver as a whole answers again
            still = self._avoided()
            freed |= {uuid for uuid, health in self.known.down.items() if health == "wedged" and uuid not in still}
        for uuid in map(self.known.uuid, freed):
            if uuid is not None and self.known.down.get(uuid) == "wedged":
                self.known.set(uuid, "driver_down" if self._driver_down else UNKNOWN)
        if freed:
            self._put_away()

    def _try_again(self) -> bool:
        """Start a new worker for the GPUs that are not wedged, with increasing pauses while the driver is down.

        Return whether there is a worker, or an immediate further try makes sense.
        """
        if not self._is_try_due():
            return False
        avoided, self._ended = self._skip(), False
        try:
            self._worker = self._new_worker()
        except OSError as error:  # no memory, descriptors or processes left
            self._note("worker_restart", f"no NVML worker can be started: {error.strerror}")
            self._retry_in = self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
            return False
        answer = self._ask(self._worker, partial(self._open, self._worker))
        if answer is None:
            if self._ended or self._skip() != avoided:
                return True  # it is replaced at once, without the GPU that caused the fault
            self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
            self._retry_in = max(self._retry_in, self._backoff)
            return False
        self._backoff = 1
        self._refusals = 0
        if self._driver_down:
            self._driver_down = False
            self._note("driver_up", "the driver answers again")
        self._take_opened(answer)
        return True

    def _is_try_due(self) -> bool:
        if self._retry_in > 0:
            self._retry_in -= 1
            return False
        if self._stuck.driver_blocks or self.known.all_wedged():
            return False  # no GPU is left to watch, and another blocked process would be useless
        return self._may_restart()

    def _take_opened(self, answer: OpenAnswer) -> None:
        self._incidents += self.account.opened(answer, self._clock.now_ms())
        self._take(answer)

    def _take(self, answer: OpenAnswer) -> None:
        self._devices += answer["device"]
        self._errors += answer["errors"]
        self._count = answer["count"]
        for name, call in answer["returned"]:
            for target in {name, self.known.target(name)}:
                self._trials.returned(target, call)
        devices, changes = self.account.take(answer, self._avoided(), self._clock.now_ms())
        self._devices += devices
        # reported once, by the source with more detail
        back = {each.get("gpu") for each in changes if each["kind"] == "gpu_ok"}
        self._incidents = [each for each in self._incidents if each["kind"] != "gpu_ok" or each.get("gpu") not in back]
        self._incidents += changes

    def _note(self, kind: str, detail: str, gpu: str | None = None) -> None:
        self._incidents.append({"kind": kind, "detail": detail, "gpu": gpu})
