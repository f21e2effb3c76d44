"""A fleet's days: time is skipped from one tick to the next, all agents do their work, and troubles befall them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from fallow.clock import DAY_MS, MINUTE_MS, format_ms
from tests.conftest import REPOSITORY, clean_environment
from tests.fakes.clock.flowing import FlowingClock
from tests.fakes.nvml import library_folder
from tests.fleet.hosts import FleetHost, busy_beside_clocks
from tests.fleet.judge import Judge
from tests.fleet.places import lake_of, place_of
from tests.fleet.troubles import Trouble, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_AFTER_END_MS = 1000
"""A tick's moment: when all agents close the interval, by far enough that nobody is a little too early."""

_IDLE_FOR_S = 0.5  # shorter waits are waited out: they are for another process
_SETTLES_WITHIN_S = 240.0
_PAUSE_S = 0.002
_FREED_EVERY = 24
_LAST_STEPS = 24
"""After the last midnight, so that its day is compacted."""


@dataclass(frozen=True)
class Size:
    """How large a fleet, for how long, with how much of it by which seed."""

    hosts: int = 50
    days: int = 10
    store: str = "folder"
    seed: int = 1
    interval_min: int = 10
    publish_every: str = "30min"
    keep_days: int = 14

    @property
    def sleep_days(self) -> int:
        """Days for which the whole site is off, so that expiry has something to remove."""
        return self.keep_days + 2 - self.days // 2

    @property
    def steps_a_day(self) -> int:
        return DAY_MS // self.interval_ms

    @property
    def steps(self) -> int:
        return self.days * self.steps_a_day + _LAST_STEPS

    @property
    def interval_ms(self) -> int:
        return self.interval_min * MINUTE_MS


@dataclass
class FleetDays:
    """One run. `told` is what was done to the fleet, and how often."""

    size: Size
    folder: Path
    say: Callable[[str], None] = print
    told: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def run(self) -> Judge:
        """All the days; what is wrong with the lake afterwards, and what there was to see, is the judge's to say."""
        size = self.size
        self.start_ms = (time.time_ns() // 1_000_000 // DAY_MS - size.days - size.sleep_days) * DAY_MS
        self.chance = Random(size.seed)  # noqa: S311  # nothing secret
        self.clock = FlowingClock(self.folder / "clock", library_folder(), self.start_ms, 5)
        # the server lives by the fleet's clock too: it refuses requests that are signed at another time
        with (
            _environment(self.clock.environment if size.store != "folder" else {}),
            place_of(size.store, self.folder / "store") as place,
        ):
            for name in self.clock.environment:
                os.environ.pop(name, None)
            self.place = place
            self.judge = Judge(lake_of(place), place)
            self._fallow("lake", "init")
            self.hosts = [self._host(number) for number in range(size.hosts)]
            self.judge.hosts = self.hosts
            self._live(planned(size.seed, size.hosts, size.steps, size.steps_a_day))
            self._end()
            self.judge.everything(self._fallow("lake", "check"), self.folder / "read")
        return self.judge

    def _host(self, number: int) -> FleetHost:
        size = self.size
        # every fifth publishes twice as often: its hours have files to merge whatever the others' have
        interval = f"{size.interval_min}min"
        agent = {"INTERVAL": interval, "PROCESS_INTERVAL": interval, "SLOW_INTERVAL": "1h", "CALL_TIMEOUT": "60s"}
        agent["PUBLISH_EVERY"] = interval if number % 5 == 4 else size.publish_every
        settings = {f"FALLOW_AGENT_{key}": value for key, value in agent.items()}
        settings |= {"FALLOW_LAKE_PATH": self.place.location, **self.place.environment}
        settings |= {"FALLOW_KUBERNETES_POD_RESOURCES": "", "FALLOW_SLURM_SCONTROL": ""}
        name = f"h{number + 1:02}"
        host = FleetHost.make(self.folder / name, name, self.clock.now_ms(), size.interval_ms, settings)
        host.clock.follow(self.clock)  # to the microsecond: making it took a while
        return host

    def _live(self, plan: Mapping[int, list[Trouble]]) -> None:
        down: dict[int, list[FleetHost]] = defaultdict(list)
        for host in self.hosts:
            self._start(host)
        self._settle()
        began_s = time.monotonic()
        for step in range(self.size.steps):
            troubles = plan.get(step, [])
            quiet = [each for each in troubles if each.kind in ("kill", "kill worker", "stop", "clock", "sleep")]
            for trouble in quiet:
                self._befall(trouble, down, step)
            self._skip()
            in_tick = [each for each in troubles if each not in quiet and each.kind != "read"]
            killed = self._during_tick(in_tick, down, step)
            for host in self.hosts:
                host.expected.woke(host.clock.now_ms(), killed=host in killed)
                if host in killed:
                    host.expected.ended()
            for _ in (each for each in troubles if each.kind == "read"):
                self._read()
            for host in down.pop(step, []):
                self._start(host)
            self._settle()
            self._look_after(step, began_s)

    def _skip(self) -> None:
        """To the next tick, for all clocks alike."""
        now_ms, interval_ms = self.clock.now_ms(), self.size.interval_ms
        next_ms = (now_ms - _AFTER_END_MS) // interval_ms * interval_ms + interval_ms + _AFTER_END_MS
        for clock in (self.clock, *(host.clock for host in self.hosts)):
            clock.skip((next_ms - now_ms) / 1000)

    def _befall(self, trouble: Trouble, down: dict[int, list[FleetHost]], step: int) -> None:
        """What happens while all agents wait."""
        if trouble.kind == "sleep":
            self.told["days that the whole site was off"] += self.size.sleep_days
            for clock in (self.clock, *(host.clock for host in self.hosts)):
                clock.skip(self.size.sleep_days * DAY_MS / 1000)
            return
        if trouble.kind == "clock":
            self.told["clocks set"] += 1
            for host in self.hosts if trouble.host < 0 else [self.hosts[trouble.host]]:
                by_ms = trouble.steps * self.size.interval_ms
                host.clock.step(by_ms / 1000)
                host.expected.stepped(by_ms)
            return
        host = self.hosts[trouble.host]
        if host.agent is None:
            return
        self.told[trouble.kind] += 1
        if trouble.kind == "kill worker":
            host.kill_child("agent.nvml.worker")
            return
        if trouble.kind == "kill":
            host.kill()
        else:
            host.ask_to_end()
            if code := host.wait_for_end():
                self.failures.append(f"{host.name}: exit code {code} when it was asked to end")
        host.expected.ended()
        down[step + trouble.steps].append(host)

    def _during_tick(self, troubles: list[Trouble], down: dict[int, list[FleetHost]], step: int) -> list[FleetHost]:
        """What happens while agents close an interval and publish; the hosts whose agent was killed."""
        killed = []
        for trouble in troubles:
            time.sleep(self.chance.uniform(0, 0.15))
            if trouble.kind == "vanish":
                self.place.vanish(self.chance)
            elif trouble.kind == "come back":
                self.place.come_back()
            elif trouble.kind in ("compact", "expire"):
                self._upkeep(trouble.kind)
            elif (host := self.hosts[trouble.host]).agent is None:
                continue
            elif trouble.kind == "kill in tick":
                host.kill()
                killed.append(host)
                down[step + trouble.steps].append(host)
            else:
                module = "agent.nvml.worker" if trouble.kind == "kill worker in tick" else "agent.spool.publisher"
                if not host.kill_child(module):
                    continue
            self.told[trouble.kind] += 1
        return killed

    def _read(self) -> None:
        """Looks at a day of a host while agents publish."""
        self.told["read"] += 1
        self.judge.look(self.chance, self.clock.now_ms())

    def _upkeep(self, verb: str) -> None:
        """What a site's upkeep does beside the agents, once what it removes has been compared."""
        if verb == "expire" and not self.place.is_away:
            self.judge.before_expiry(self.clock.now_ms(), self.size.keep_days)
            self._fallow("lake", "compact")
            self._fallow("ledger")  # only days go whose ledger is kept
            self._fallow("lake", "expire", "--yes", FALLOW_RETENTION_GPU=f"{self.size.keep_days}d")
        elif verb == "compact":
            self._fallow("lake", "compact")

    def _start(self, host: FleetHost) -> None:
        host.start()
        host.expected.started(host.clock.now_ms())

    def _settle(self) -> None:
        """Waits until nobody has anything to do at this moment."""
        deadline_s = time.monotonic() + _SETTLES_WITHIN_S
        while True:
            for host in self.hosts:
                while not host.clock.is_idle(_IDLE_FOR_S):
                    if time.monotonic() > deadline_s:
                        raise TimeoutError(f"{host.name} is never idle at {format_ms(host.clock.now_ms())}")
                    time.sleep(_PAUSE_S)
            if not busy_beside_clocks(self.hosts) and all(host.clock.is_idle(_IDLE_FOR_S) for host in self.hosts):
                return
            time.sleep(_PAUSE_S)

    def _look_after(self, step: int, began_s: float) -> None:
        for host in self.hosts:
            if host.agent is not None and (code := host.agent.poll()) is not None:
                self.failures.append(f"{host.name}: its agent ended with {code} at {format_ms(host.clock.now_ms())}")
                host.agent = None
                host.expected.ended()
        if step % _FREED_EVERY == 0:
            for host in self.hosts:
                host.clock.free_slots()
        if step and step % (self.size.steps_a_day // 4) == 0:
            self.say(
                f"{format_ms(self.clock.now_ms())}: {step} of {self.size.steps} steps in"
                f" {time.monotonic() - began_s:.0f} s"
            )

    def _end(self) -> None:
        """Every agent ends, after it has published; what is left is published by another start."""
        for _ in range(4):
            for host in self.hosts:
                host.ask_to_end()
            for host in self.hosts:
                if code := host.wait_for_end():
                    self.failures.append(f"{host.name}: exit code {code} at the end")
                host.expected.ended()
            waiting = [host for host in self.hosts if host.waiting_rows()]
            if not waiting:
                return
            for host in waiting:
                self._start(host)
            self._settle()
            for _ in range(7):
                self._skip()
                self._settle()
                for host in self.hosts:
                    host.expected.woke(host.clock.now_ms())
        self.failures.append(f"rows still wait on {', '.join(host.name for host in waiting)}")

    def _fallow(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """The command, by the fleet's clock."""
        own = {"FALLOW_LAKE_PATH": self.place.location, **self.clock.environment, **self.place.environment, **settings}
        command = [sys.executable, "-m", "fallow", *arguments]
        given = {"cwd": REPOSITORY, "env": clean_environment(own), "timeout": _SETTLES_WITHIN_S}
        done = subprocess.run(  # type: ignore[call-overload]
            command, capture_output=True, text=True, check=False, **given
        )
        if done.returncode:
            self.say(f"fallow {' '.join(arguments)}: {done.stderr.strip()}")
        self.told[f"fallow {' '.join(arguments[:2])}, exit code {done.returncode}"] += 1
        return done


@contextlib.contextmanager
def _environment(extra: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with some more, for what it starts meanwhile."""
    os.environ.update(extra)
    try:
        yield
    finally:
        for name in extra:
            os.environ.pop(name, None)
