"""Placement of planted situations: the GPUs of a fleet that are already taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from analytics.simulation.catalog import MEASURED, NOTEBOOK, POOLS, TAUGHT, TRAINING, Habits, Pool, SimulatedHost
from analytics.simulation.stays import NOTEBOOK_ARGUMENTS, Stay, host_stays
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from fallow.errors import UsageError

_SHORTEST_MS = 5 * MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class SimulatedFleet:
    """The fleet to simulate: GPUs, whole days, the seed, the row interval and the UTC midnight (ms) at which it ends.

    In a `showcase` fleet most users have tuned their work, and every kind of problem occurs.
    """

    until_ms: int
    gpus: int = 64
    days: int = 14
    seed: int = 1
    interval_ms: int = 30_000
    showcase: bool = False

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools; small fleets may have pools without a GPU."""
        return POOLS

    @property
    def habits(self) -> Habits:
        return TAUGHT if self.showcase else MEASURED

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.days < 1 or self.seed < 0:
            raise UsageError(
                f"cannot simulate {self.gpus} GPUs over {self.days} days from seed {self.seed}",
                "give at least one GPU, at least one day and a seed of 0 or more",
            )
        if self.interval_ms < 1000 or DAY_MS % self.interval_ms or self.interval_ms > HOUR_MS:
            raise UsageError(
                f"an interval of {self.interval_ms} ms does not divide a day", "give 10s, 30s or 60s, at most an hour"
            )
        if self.since_ms < 0 or self.until_ms % DAY_MS:
            raise UsageError("a simulated fleet ends at a UTC midnight", "give a day such as 2026-11-20")

    @property
    def since_ms(self) -> int:
        return self.until_ms - self.days * DAY_MS


@dataclass(frozen=True)
class Planted:
    """A planted situation that an analysis has to find.

    The situation lasts over [start_ms, end_ms), at every moment of it.
    """

    kind: str
    """never_used, held_notebook, reserved_block, lost_gpu or agent_outage."""
    host: str
    gpus: tuple[str, ...]
    user: str | None
    """A login; None without a user."""
    start_ms: int
    end_ms: int


@dataclass(frozen=True)
class Reservation:
    """An allocation without any process: positions on the host, user and name."""

    start_ms: int
    gpus: tuple[int, ...]
    user: str
    account: str
    name: str
    allocation_id: str


@dataclass(frozen=True)
class HostPlan:
    host: SimulatedHost
    stays: tuple[Stay, ...]
    reservations: tuple[Reservation, ...] = ()
    lost_ms: dict[int, int] = field(default_factory=dict)
    """By position, the time from which the GPU is lost."""
    outage_ms: tuple[int, int] | None = None
    hot_ms: dict[int, int] = field(default_factory=dict)
    """By position, the time from which the GPU gets no air."""
    added_ms: int = 0
    booted_ms: int = 0
    """Time at which its drivers were loaded."""


class PlacementBoard:
    """The GPUs of the fleet that are already taken while situations are placed."""

    def __init__(self, fleet: SimulatedFleet, hosts: tuple[SimulatedHost, ...], habits: Habits) -> None:
        self.fleet = fleet
        self.habits = habits
        self.hosts = hosts
        self.planted: list[Planted] = []
        self.taken: dict[str, set[int]] = {host.name: set() for host in hosts}
        self.stays: dict[str, list[Stay]] = {host.name: [] for host in hosts}
        self.reservations: dict[str, list[Reservation]] = {host.name: [] for host in hosts}
        self.lost: dict[str, dict[int, int]] = {host.name: {} for host in hosts}
        self.outages: dict[str, tuple[int, int]] = {}
        self.staged: dict[str, list[Stay]] = {host.name: [] for host in hosts}
        self.hot: dict[str, dict[int, int]] = {host.name: {} for host in hosts}
        self.added: dict[str, int] = {}

    def at(self, share: float) -> int:
        """Return the row time at a share of the period."""
        offset_ms = share * self.fleet.days * DAY_MS
        return self.fleet.since_ms + int(offset_ms // self.fleet.interval_ms) * self.fleet.interval_ms

    def take(self, pools: Iterable[str], counts: Iterable[int]) -> tuple[SimulatedHost, tuple[int, ...]] | None:
        """Return the first block of these sizes, in order, that leaves half of its pool or more to ordinary work."""
        named = [pool for pool in pools if any(host.pool.name == pool for host in self.hosts)]
        for count in counts:
            for pool in named or sorted({host.pool.name for host in self.hosts}):
                mine = [host for host in self.hosts if host.pool.name == pool]
                size = sum(len(host.gpus) for host in mine)
                if 2 * (sum(len(self.taken[host.name]) for host in mine) + count) > size:
                    continue
                for host in reversed(mine):
                    left = tuple(gpu.index for gpu in host.gpus if gpu.index not in self.taken[host.name])
                    if len(left) >= count:
                        self.taken[host.name] |= set(left[-count:])
                        return host, left[-count:]
        return None

    def stage(self, pool: str, count: int, span: tuple[int, int]) -> tuple[SimulatedHost, tuple[int, ...]] | None:
        """Return GPUs without a situation or scene in that time, of the host with the most of them; None if too few."""
        found: list[tuple[SimulatedHost, tuple[int, ...]]] = []
        for host in (host for host in self.hosts if host.pool.name == pool):
            scenes = [each for each in self.staged[host.name] if each.start_ms < span[1] and each.end_ms > span[0]]
            busy = self.taken[host.name].union(*(each.gpus for each in scenes))
            left = tuple(gpu.index for gpu in host.gpus if gpu.index not in busy)
            if len(left) >= count:
                found.append((host, left))
        if not found:
            return None
        host, left = max(found, key=lambda each: len(each[1]))
        return host, left[:count]

    def note(
        self, kind: str, host: SimulatedHost, gpus: Iterable[int], user: str | None, span: tuple[int, int]
    ) -> None:
        self.planted.append(Planted(kind, host.name, tuple(host.gpus[at].uuid for at in gpus), user, *span))

    def held_notebook(self, nth: int) -> None:
        """Plant a Jupyter kernel that worked for an hour or two and has held its memory ever since."""
        found = self.take(("train-old", "legacy", "train", "serving"), (1,))
        if found is None:
            return
        host, gpus = found
        start_ms, idle_ms = self.at(0.1), self.at(0.1) + min(2 * HOUR_MS, self.fleet.days * HOUR_MS)
        user, account = (("hiro", "vision"), ("chloe", "language"), ("pavel", "robotics"))[nth % 3]
        self.stays[host.name].append(
            Stay(
                start_ms,
                self.fleet.until_ms,
                gpus,
                NOTEBOOK,
                "notebook",
                user,
                account,
                name="jupyter",
                seed=self.fleet.seed * 1000 + nth,
                idle_from_ms=idle_ms,
                arguments=NOTEBOOK_ARGUMENTS if self.habits.records_arguments else None,
            )
        )
        self.note("held_notebook", host, gpus, user, (idle_ms, self.fleet.until_ms))

    def never_used(self) -> None:
        """Plant a defensive purchase: bought, racked, and never used by a process."""
        if found := self.take(("train", "train-old", "serving", "legacy"), (8, 4, 2, 1)):
            self.note("never_used", *found, None, (self.fleet.since_ms, self.fleet.until_ms))

    def lost_gpu(self, nth: int) -> None:
        """Plant a card that falls off the bus (XID 79) and stays away."""
        if found := self.take(("train-old", "serving", "legacy", "train"), (1,)):
            host, (position,) = found
            since_ms = self.at(0.6 + 0.05 * (nth % 4))
            self.lost[host.name][position] = since_ms
            self.note("lost_gpu", host, (position,), None, (since_ms, self.fleet.until_ms))

    def reserved_block(self, nth: int) -> None:
        """Plant GPUs reserved just in case: a job ran there once; since then an allocation without a process."""
        found = self.take(("train-old", "train", "serving", "legacy"), (4, 2, 1))
        if found is None:
            return
        host, gpus = found
        start_ms = self.at(0.15)
        self.stays[host.name].append(
            Stay(
                self.fleet.since_ms,
                self.at(0.13),
                gpus,
                TRAINING,
                "training",
                "greta",
                "vision",
                name="vision-finetune",
                job_id=str(900_000 + nth),
                seed=self.fleet.seed * 1000 + 500 + nth,
                allocated=True,
            )
        )
        reserved = Reservation(start_ms, gpus, "greta", "vision", "deadline-buffer", f"resv-{nth + 1}")
        self.reservations[host.name].append(reserved)
        self.note("reserved_block", host, gpus, reserved.user, (start_ms, self.fleet.until_ms))

    def agent_outage(self, nth: int) -> None:
        """Plant hours in which the agent of a host was dead: no rows at all."""
        order = sorted(self.hosts, key=lambda host: host.pool.work != "serving")
        host = order[nth % len(order)]
        if host.name in self.outages:
            return
        start_ms = self.at(0.4)
        span = (start_ms, start_ms + min(7 * HOUR_MS + 20 * MINUTE_MS, self.fleet.days * 3 * HOUR_MS))
        self.outages[host.name] = span
        self.note("agent_outage", host, (gpu.index for gpu in host.gpus), None, span)

    def host_plan(self, host: SimulatedHost) -> HostPlan:
        """Return a host's plan: planted situations first, ordinary stays on remaining GPUs and on GPUs lost later."""
        lost = self.lost[host.name]
        free = tuple(gpu.index for gpu in host.gpus if gpu.index not in self.taken[host.name])
        fleet = self.fleet
        drawn = host_stays(
            host,
            free,
            tuple(lost),
            seed=fleet.seed,
            since_ms=fleet.since_ms,
            until_ms=fleet.until_ms,
            grid_ms=fleet.interval_ms,
            habits=self.habits,
        )
        scenes = self.staged[host.name]
        kept = [stay for each in drawn if (stay := _stay_beside_scenes(each, scenes)) is not None]
        stays = [stay for each in kept if (stay := _stay_before_loss(each, lost)) is not None]
        added_ms = self.added.get(host.name, 0)
        return HostPlan(
            host,
            (*self.stays[host.name], *scenes, *stays),
            tuple(self.reservations[host.name]),
            lost,
            self.outages.get(host.name),
            self.hot[host.name],
            added_ms,
            max(added_ms, fleet.since_ms) - DAY_MS,
        )


def _stay_beside_scenes(stay: Stay, scenes: Iterable[Stay]) -> Stay | None:
    """Return an ordinary stay beside the scenes: on other GPUs, or ending before or beginning after them."""
    for scene in sorted(scenes, key=lambda each: each.start_ms):
        if set(scene.gpus).isdisjoint(stay.gpus) or stay.end_ms <= scene.start_ms or stay.start_ms >= scene.end_ms:
            continue
        if left := tuple(gpu for gpu in stay.gpus if gpu not in scene.gpus):
            stay = replace(stay, gpus=left, unused=tuple(gpu for gpu in stay.unused if gpu in left))
        elif stay.start_ms < scene.start_ms:
            stay = replace(stay, end_ms=scene.start_ms)
        elif stay.end_ms > scene.end_ms:
            stay = replace(stay, start_ms=scene.end_ms)
        else:
            return None
    return stay if stay.end_ms - stay.start_ms >= _SHORTEST_MS else None


def _stay_before_loss(stay: Stay, lost: dict[int, int]) -> Stay | None:
    """Return the stay with lost GPUs considered: it ends with the card, and never starts on a GPU lost earlier."""
    ends = [lost[gpu] for gpu in stay.gpus if gpu in lost]
    if not ends or stay.end_ms <= min(ends):
        return stay
    return None if stay.start_ms >= min(ends) else replace(stay, end_ms=min(ends))
