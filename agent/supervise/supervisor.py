"""The supervisor: times the intervals, queries the worker, spools its rows and starts publishers.

Calls that may block in the driver run in the worker; work that needs much memory runs in the publisher.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.nvml.installation import NvidiaDevices
from agent.own_process import settle_memory
from agent.snapshot import SnapshotBoard
from agent.spool.installation import begin_run, settle_installation
from agent.spool.publishing import FINISH_S
from agent.spool.spool import read_fact
from agent.supervise.control import ControlServer, Orders
from agent.supervise.fleet import HostGpus
from agent.supervise.known_gpus import KnownGpus, MissingGpus
from agent.supervise.recorder import LanePlan, Recorder, Thinning
from agent.supervise.sources import Parts, boot_id
from agent.supervise.surfaces import Notifier, Surfaces
from agent.supervise.workers import StoppedError
from fallow import __version__
from fallow.bell import Bell
from fallow.clock import Clock, SystemClock, floor_ms, format_ms
from fallow.errors import FallowError, SpoolError
from fallow.host_identity import machine_hash

if TYPE_CHECKING:
    from agent.settings import AgentSettings
    from agent.spool.spool import Spool
    from fallow.config import Config

LAG_MS = 250
"""An interval is closed a little after its end, when the driver's newest sample is surely later."""

_LONGEST_SLEEP_S = 12.0  # a sign of life is due even where intervals are minutes long

_RING_MS = 10_000  # what the driver's rings hold: an interval that ended earlier is no longer in them
_CATCH_UP_MS = 3_000  # the rings hold ten seconds, but late readings belong to a later moment

_LONGEST_PUT_BACK_MS = 5 * 60_000
"""A clock that goes back further was set: rows continue at its new time, and readers see the overlap."""

_ENDED_WITHIN_S = 4.5  # an operator waits for five seconds

_EARLIEST_MS = 1_577_836_800_000  # 2020

_FLEET_FACTS = ("gpus", "gpu_addresses", "gpus_missing")
"""Facts of the spool about GPUs: positions and PCI addresses by UUID, and since when a missing GPU is missing."""

log = logging.getLogger("fallow.agent")

Load = Callable[[], tuple["Config", "AgentSettings"]]
"""Reads the settings. Raises UsageError and ConfigError."""


class Supervisor:
    def __init__(self, load: Load, spool: Spool, clock: Clock | None = None) -> None:
        """`load` reads the settings, now and at every `reload`; its UsageError and ConfigError pass."""
        self._load = load
        self._spool = spool
        self._clock = clock or SystemClock()
        loaded, self._settings = load()
        self._boot_id = boot_id(self._settings.proc)
        self._copied = self._begin_installation()
        self._bell = Bell()
        self._stopping = self._reloading = False
        self._stopped_s = 0.0
        self._failure = ""
        self._board = SnapshotBoard(self._settings.interval_ms)
        self._surfaces = Surfaces(loaded, self._board)
        self._notifier = Notifier.from_environment()
        self._fleet = self._new_fleet()
        self._parts = Parts.make(loaded, self._settings, spool)
        self._recorder = Recorder(self._settings, self._fleet, self._parts, self._board, self._clock)
        self._orders = Orders(self._settings, self._fleet, self._board, self._bell, self._clock)
        self._control: ControlServer | None = None
        self._plan = LanePlan(self._settings, self._clock.now_ms())
        self._thinning = Thinning(self._settings.interval_ms)
        self._devices = NvidiaDevices(self._settings.sys)

    def _new_fleet(self) -> HostGpus:
        """Return the host's GPUs, with an earlier run's facts about them from the spool."""
        settings = self._settings
        indexes, addresses, since_ms = (read_fact(self._spool, name, dict, {}) for name in _FLEET_FACTS)
        missing = MissingGpus(settings.host, expected=settings.expected_gpus, sys=settings.sys, since_ms=since_ms)
        return HostGpus(settings.call_timeout_s, missing, KnownGpus(indexes, addresses), self._alive, self._clock)

    def _begin_installation(self) -> str:
        """Note the installation and the run in the spool. Return a sentence about a spool from another machine.

        On a full disk the publisher does it later, and sampling begins.
        """
        try:
            done = settle_installation(self._spool, self._settings.host, machine_hash(self._settings.machine_id))
            begin_run(self._spool, self._clock.now_ms(), self._boot_id)
        except SpoolError as error:
            log.warning("the identity of this installation could not be written to the spool: %s", error)
            return ""
        return done

    def stop(self) -> None:
        """Ask the run to end after its current step; safe in a signal handler."""
        self._stopping = True
        self._stopped_s = time.monotonic()
        self._bell.ring()

    def reload(self) -> None:
        """Ask the run to read its settings again; safe in a signal handler."""
        self._reloading = True
        self._bell.ring()

    def run(self) -> None:
        """Sample until the time is over or `stop` is called; raises DriverError for an unusable driver at the start."""
        self._check_clock()
        self._note_killed()
        try:
            if self._orders.remember(self._spool, self._boot_id):
                self._fleet.start_released()
            else:
                self._fleet.start()
        except StoppedError:
            return  # the run had not begun
        try:
            self._begin()
            self._sample_until_stopped()
        except StoppedError:
            pass
        except BaseException as error:
            self._failure = f"{type(error).__name__}: {error}".splitlines()[0]
            raise
        finally:
            self._finish()

    def _alive(self) -> bool:
        """Send a sign of life. Return whether the loop should continue."""
        self._notifier.watchdog()
        return not self._stopping

    def _sample_until_stopped(self) -> None:
        start_ms = self._first_interval()
        self._note_gap(start_ms)
        span_ms = self._settings.run_for_ms
        interval_ms = self._settings.interval_ms
        last_ms = math.inf if span_ms is None else start_ms + math.ceil(span_ms / interval_ms) * interval_ms
        while start_ms < last_ms and self._wait_for(start_ms, end_ms := self._thinning.end_of(start_ms)):
            begun_ms, start_ms = start_ms, self._catch_up(start_ms, end_ms)
            if self._clock.now_ms() < start_ms:  # the clock was set back: begin again at its time
                start_ms = self._first_interval()
                continue
            if start_ms != begun_ms:
                continue  # intervals were skipped: wait for the end of this interval, which may be over
            # the interval of this wait, even if the settings have changed meanwhile
            self._close_interval(start_ms, end_ms)
            start_ms = end_ms

    def _check_clock(self) -> None:
        """Refuse an impossible date: a machine without a battery starts in 1970, which would make a gap of decades."""
        if self._clock.now_ms() < _EARLIEST_MS:
            raise FallowError(
                f"the clock of this host shows {format_ms(self._clock.now_ms())}",
                "set it (NTP) and start the agent again",
            )

    def _first_interval(self) -> int:
        """Return the interval after an earlier run's last if the rings reach back to its end, else the next whole one.

        So a restart costs no row: the driver's rings hold the samples of the gap, and the coverage shows how many.
        No interval begins before the end of the rows that are already written (the clock may have been set back).
        """
        interval_ms = self._settings.interval_ms
        start_ms = floor_ms(self._clock.now_ms(), interval_ms) + interval_ms
        last_ms = read_fact(self._spool, "last_row_ms", int, None)
        if last_ms is None or last_ms >= start_ms + _LONGEST_PUT_BACK_MS:
            return start_ms
        next_ms = floor_ms(last_ms, interval_ms) + interval_ms
        since_end_ms = self._clock.now_ms() - next_ms - interval_ms
        if next_ms > start_ms or (since_end_ms <= _RING_MS and self._late_intervals(next_ms + interval_ms) <= 0):
            return next_ms
        return start_ms

    def _note_gap(self, start_ms: int) -> None:
        """Log how many intervals the change from an earlier run to this run has cost."""
        last_ms = read_fact(self._spool, "last_row_ms", int, None)
        if last_ms is not None:
            missed_ms = start_ms - last_ms - self._settings.interval_ms
            self._orders.missed_at_start = max(0, -(-missed_ms // self._settings.interval_ms))

    def _note_killed(self) -> None:
        """Record an event if the previous run was killed, as the reason for the gap."""
        if self._spool.noted("running") == "yes":
            last_ms = read_fact(self._spool, "last_row_ms", int, None)
            until = "before its first row" if last_ms is None else f"after its row of {format_ms(last_ms)}"
            self._recorder.note("agent_killed", f"the previous agent ended without notice {until}")
        if self._copied:
            self._recorder.note("spool_copied", self._copied)

    def _begin(self) -> None:
        settings, watched = self._settings, len(self._fleet.known.uuids)
        missing = len(self._fleet.missing.found)
        self._control = ControlServer(settings.spool, self._orders.handle)
        self._control.start()
        if reason := self._surfaces.start():
            self._recorder.note("metrics_failed", reason)
        self._parts.host.row(0, settings.interval_ms)  # rates count from here
        self._recorder.note(
            "agent_start",
            f"fallow {__version__} watches {watched} GPUs every {settings.interval_ms} ms"
            + (f"; {missing} more expected" if missing else ""),
        )
        if not self._parts.owners.sees_all_processes:
            self._recorder.note(
                "pid_namespace",
                "processes outside this PID namespace are hidden: run in the host's PID namespace (hostPID)",
            )
        self._recorder.write_now({"running": "yes"} | self._fleet_facts())
        log.info("a row every %g s for %s into %s", settings.interval_ms / 1000, settings.host, settings.lake)
        settle_memory()
        self._notifier.ready(f"watches {watched} GPUs")
        self._parts.publishing.start_if_due(self._clock.monotonic_s())

    def _fleet_facts(self) -> dict[str, str]:
        fleet = self._fleet
        facts = (fleet.known.indexes, fleet.known.addresses, fleet.missing.since_ms)
        return {name: json.dumps(fact) for name, fact in zip(_FLEET_FACTS, facts, strict=True)}

    def _wait_for(self, start_ms: int, end_ms: int) -> bool:
        """Wait until an interval can be closed; False after a stop request. The worker drains the rings meanwhile.

        Returns early where the wall clock was set back to before the interval, which makes the wait pointless.
        """
        ahead_s = self._wall_ahead_s()
        while (left_s := (end_ms + LAG_MS - self._clock.now_ms()) / 1000) > 0:
            put_back_s = ahead_s - self._wall_ahead_s()
            if put_back_s > self._settings.interval_ms / 1000:
                self._recorder.note("clock_stepped", f"the wall clock was set back by about {put_back_s:.0f} s")
                if self._clock.now_ms() < start_ms:
                    break
                ahead_s -= put_back_s
            if self._bell.wait(min(left_s, _LONGEST_SLEEP_S)):
                if self._reloading:
                    self._reloading = False
                    self._reload()
                self._orders.obey(self._recorder, self._boot_id)
                if self._stopping:
                    return False
            self._notifier.watchdog()
        return not self._stopping

    def _wall_ahead_s(self) -> float:
        """Return how far the wall clock is ahead of the monotonic clock; less after the wall clock is set back."""
        return self._clock.now_ms() / 1000 - self._clock.monotonic_s()

    def _catch_up(self, start_ms: int, end_ms: int) -> int:
        """Skip missed intervals (suspended machine, blocked driver), which stay unknown. Return the next start."""
        late = self._late_intervals(end_ms)
        if late > 0:
            self._recorder.miss(late)
            self._recorder.note(
                "missed_intervals", f"{late} intervals from {format_ms(start_ms)} on ended without a row"
            )
            return start_ms + late * self._settings.interval_ms
        return start_ms

    def _late_intervals(self, end_ms: int) -> int:
        """Return the number of intervals, from the one with this end on, that the rings no longer reach back to."""
        interval_ms = self._settings.interval_ms
        late = (self._clock.now_ms() - LAG_MS - end_ms) // interval_ms
        return late - max(0, _CATCH_UP_MS - interval_ms) // interval_ms

    def _close_interval(self, start_ms: int, end_ms: int) -> None:
        due = self._plan.due(start_ms, end_ms)
        if due.errors:
            self._fleet.missing.look_at_bus()
            self._surfaces.start()
        self._orders.obey(self._recorder, self._boot_id)
        facts = self._fleet_facts()
        self._recorder.close_interval(start_ms, end_ms, due)
        if due.kernel and self._devices.changed():
            self._fleet.restart("the kernel's list of NVIDIA devices has changed")
        if self._fleet_facts() != facts:
            self._recorder.write_now(self._fleet_facts())
        for kind, detail in self._thinning.adapt(self._parts.backlog.pressure):
            self._recorder.note(kind, detail)
        self._parts.publishing.start_if_due(self._clock.monotonic_s())

    def _reload(self) -> None:
        """Take the current settings; where they are invalid, the old settings stay."""
        self._notifier.reloading()
        try:
            loaded, settings = self._load()
            self._check_same(settings)
            parts = self._parts.prepared(loaded, settings)
            self._surfaces.reload(loaded)
        except FallowError as error:
            self._recorder.note("config_rejected", f"the old settings stay in force: {error}")
        else:
            self._parts.retire(parts, settings)
            self._parts = parts
            self._settings = self._orders.settings = settings
            self._fleet.timeout_s = settings.call_timeout_s
            self._fleet.missing.expected = settings.expected_gpus
            self._recorder.configure(settings, self._parts)
            self._plan = LanePlan(settings, self._clock.now_ms())
            self._thinning = Thinning(settings.interval_ms)
            self._recorder.note("config_reloaded", "the settings were read again")
        self._notifier.ready("sampling")

    def _check_same(self, settings: AgentSettings) -> None:
        if (settings.spool, settings.host) != (self._settings.spool, self._settings.host):
            raise FallowError("agent.spool and agent.host cannot change while the agent runs", "restart it")

    def _finish(self) -> None:
        """End the workers and publish what is possible, within the five seconds that an operator waits."""
        self._notifier.stopping()
        try:
            if self._failure:
                self._recorder.note("agent_failed", f"the agent ended: {self._failure}")
            else:
                self._recorder.note("agent_stop", "the agent ended on request")
            self._recorder.write_now({"running": "no"})
            self._recorder.log_costs()
        finally:
            self._fleet.close()
            if self._control is not None:
                self._control.close()
            self._parts.close()
            spent_s = time.monotonic() - self._stopped_s if self._stopped_s else 0.0
            self._parts.publishing.finish(min(FINISH_S, max(0.5, _ENDED_WITHIN_S - spent_s)))
            self._surfaces.close()
            self._bell.close()
