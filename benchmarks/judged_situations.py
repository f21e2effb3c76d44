"""Situations on GPUs whose truth is known because they were made: true cases of every rule, and others that look like them.

Nothing here was written with the rules at hand. Each situation draws its parameters from distributions; recordings reach a week
beyond the lake, so that what became of a GPU is known at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.recordings import (
    A100,
    H100,
    HOUR_TICKS,
    L40S,
    Card,
    Floats,
    Mask,
    Ticks,
    Work,
    requests,
    steps,
    work_of,
)  # fmt: skip
from fallow.clock import DAY_MS, HOUR_MS

ROW_MS = 120_000
HOUR, DAY = HOUR_MS // ROW_MS, DAY_MS // ROW_MS
"""In rows."""
WEEK = 7 * DAY
SEEN_DAYS, DAYS = 28, 35
ROWS, SEEN = DAYS * DAY, SEEN_DAYS * DAY

Rng = np.random.Generator
Builder = Callable[[Rng], "list[Recording]"]


@dataclass(frozen=True)
class Recording:
    """One GPU over five weeks, by row: who is on it, when it works, and at what.

    `facts` are those that no figure tells: why a process is there, and what it waits for.
    """

    kind: str
    card: Card
    work: Work
    active: Mask
    occupied: Mask
    claimed: Mask
    memory: Floats
    """Used, as a share of the card."""
    need: float | None
    """The most that is needed, as a share of the card; None where the program takes what there is."""
    choice: Floats
    """The hour of the work that each hour plays."""
    user: str = ""
    command: str = "python"
    facts: frozenset[str] = frozenset()
    slurm: bool = False
    pod: bool = False
    parent: int = 4000
    orphan_from: int | None = None
    seen: Mask | None = None
    host: str = ""
    """GPUs of one name share hosts, and what the hosts are busy with."""
    gang: str = ""

    def played(self, by_hour: Floats) -> Floats:
        """What the hours of the work are worth in each row; 0 while it does not work."""
        hour = self.choice.astype(np.int64)[np.arange(ROWS) // HOUR]
        rows: Floats = np.where(self.active, by_hour[hour, np.arange(ROWS) % HOUR], 0.0)
        return rows

    def busy(self) -> Floats:
        """The share of each row in which a kernel ran."""
        return self.played(self.work.columns["gpu_util_pct"]) / 100


def runs(mask: Mask) -> list[tuple[int, int]]:
    """The stretches in which it holds: first row, and the row after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(first), int(after)) for first, after in edges.reshape(-1, 2)]


def _all() -> Mask:
    return np.ones(ROWS, np.bool_)


def _none() -> Mask:
    return np.zeros(ROWS, np.bool_)


def _between(first_day: float, last_day: float) -> Mask:
    days = np.arange(ROWS) / DAY
    inside: Mask = (days >= first_day) & (days < last_day)
    return inside


def _jobs(rng: Rng, days: tuple[float, float], gap_h: tuple[float, float]) -> Mask:
    """Jobs that follow one another."""
    mask, row = _none(), int(rng.uniform(0, gap_h[1]) * HOUR)
    while row < ROWS:
        after = row + int(rng.uniform(*days) * DAY)
        mask[row:after] = True
        row = after + max(1, int(rng.uniform(*gap_h) * HOUR))
    return mask


def _daily(rng: Rng, at_h: float, length_h: tuple[float, float], chance: float = 1.0, weekend: float = 1.0) -> Mask:
    """A stretch at about the same time of day, on days by chance; the first day is a Monday."""
    mask = _none()
    for day in range(DAYS):
        if rng.random() < chance * (weekend if day % 7 > 4 else 1):
            row = day * DAY + max(0, int((at_h + rng.normal(0, 0.4)) * HOUR))
            mask[row : row + max(2, int(rng.uniform(*length_h) * HOUR))] = True
    return mask


def _pauses(rng: Rng, every_min: tuple[float, float], length_min: tuple[float, float]) -> Mask:
    mask, row = _none(), 0
    while row < ROWS:
        row += int(rng.uniform(*every_min) * HOUR / 60)
        after = row + max(1, round(rng.uniform(*length_min) * HOUR / 60))
        mask[row:after], row = True, after
    return mask


def recording(
    rng: Rng,
    kind: str,
    card: Card,
    ticks: Ticks,
    memory: float,
    *,
    occupied: Mask | None = None,
    active: Mask | None = None,
    by_hour_of_day: bool = False,
    need: float | None = -1.0,
    **rest: object,
) -> Recording:
    """A recording; without `need` the memory in use is what is needed, and a Slurm job or a pod has a claim on its GPU."""
    occupied = _all() if occupied is None else occupied
    active = occupied if active is None else active & occupied
    hours, work = np.arange(DAYS * 24), work_of(ticks, card, ROW_MS)
    choice = rng.integers(0, work.hours, len(hours)).astype(np.float64)
    if by_hour_of_day:
        choice = hours % 24 + 24.0 * rng.integers(0, work.hours // 24, len(hours))
    claimed = occupied if rest.get("slurm") or rest.get("pod") else _none()
    # the allocator reserves in steps, and a little more or less with every new shape
    used = memory * np.where(rng.random(ROWS) < 0.2, 1.0, 0.985) if need is not None else np.full(ROWS, memory)
    values = {
        "kind": kind, "card": card, "work": work, "active": active, "occupied": occupied, "claimed": claimed, "choice": choice,
        "memory": used, "need": memory if need == -1.0 else need,
    }  # fmt: skip
    return Recording(**(values | rest))  # type: ignore[arg-type]


def _kernels(rng: Rng, low: float = 0.72, high: float = 0.9) -> Ticks:
    """Training that keeps the card busy."""
    return steps(rng, (0.1, 0.3), (2, 20), (low, high))


def _offloading(rng: Rng) -> Ticks:
    """The optimizer runs on the host; the GPU works in bursts and needs the whole card in them."""
    work, share = rng.uniform(0.3, 3.0), rng.uniform(0.07, 0.18)
    pause = work * (1 - share) / share
    return steps(rng, (0.7 * pause, 1.3 * pause), (0.7 * work, 1.3 * work), (0.72, 0.92))


def _typing(rng: Rng, sm: tuple[float, float] = (0.3, 0.9)) -> Ticks:
    """A person tries things."""
    return replace(steps(rng, (2, 150), (0.3, 40), sm), waits_for=True)


def _card(rng: Rng) -> Card:
    return H100 if rng.random() < 0.6 else A100


def dense_training(rng: Rng) -> list[Recording]:
    on = _jobs(rng, (0.8, 4), (0.2, 8))
    return [
        recording(rng, "dense training", _card(rng), _kernels(rng), rng.uniform(0.62, 0.93), occupied=on, slurm=True)
    ]


def offloaded_training(rng: Rng) -> list[Recording]:
    on = _jobs(rng, (3, 9), (0.2, 5))
    return [
        recording(rng, "training with offload", H100, _offloading(rng), rng.uniform(0.2, 0.9), occupied=on, slurm=True)
    ]


def _starved_ticks(rng: Rng, busy: tuple[float, float]) -> Ticks:
    work, share = rng.uniform(0.15, 0.6), rng.uniform(*busy)
    pause = work * (1 - share) / share
    return steps(rng, (0.6 * pause, 1.4 * pause), (0.6 * work, 1.4 * work), (0.7, 0.9), overlapped=True)


def data_starved(rng: Rng) -> list[Recording]:
    """Every job of a host waits for its loaders: for the CPUs, or for the disks."""
    limit, name = ("cpu", "io")[rng.integers(2)], f"starved-{rng.integers(10**6)}"
    return [
        recording(
            rng, "data-starved training", H100, _starved_ticks(rng, (0.15, 0.5)), rng.uniform(0.3, 0.8),
            occupied=_jobs(rng, (2, 6), (0.3, 6)), slurm=True, facts=frozenset({"waits for input"}), host=f"{limit} {name}",
        )
        for _ in range(3)
    ]  # fmt: skip


def busy_host(rng: Rng) -> list[Recording]:
    """Somebody else's program takes the CPUs; the GPUs do not wait for them."""
    name = f"cpu noise-{rng.integers(10**6)}"
    rate = rng.uniform(0.02, 0.08, 48)
    server = requests(rng, rate, (0.5, 4), rng.uniform(0.55, 0.8), 0.6)
    return [
        recording(rng, "training on a busy host", H100, _kernels(rng), 0.8, occupied=_jobs(rng, (2, 6), (0.3, 6)), slurm=True, host=name),
        recording(rng, "server on a busy host", H100, server, 0.7, by_hour_of_day=True, pod=True, host=name, facts=frozenset({"server", "metrics"})),
    ]  # fmt: skip


def checkpoints(rng: Rng) -> list[Recording]:
    """The whole job writes its state, minutes long, and computes nothing meanwhile."""
    size = int(rng.choice([1, 4]))
    on, pauses = _jobs(rng, (3, 8), (0.3, 6)), _pauses(rng, (30, 60), (4, 9))
    return _gang(
        rng, "checkpoint pauses", size, [_kernels(rng)] * size, on, active=on & ~pauses, facts=frozenset({"stalls"})
    )


def hanging_gang(rng: Rng) -> list[Recording]:
    """A collective hangs for hours: every rank spins in a small kernel until the watchdog restarts the job."""
    on, dense = _jobs(rng, (4, 9), (0.3, 6)), _kernels(rng)
    spin = steps(rng, (0.1, 0.2), (50, 60), (0.04, 0.09), hours=1)
    both = Ticks(
        *(np.concatenate(pair) for pair in ((dense.busy, spin.busy), (dense.sm, spin.sm), (dense.dram, spin.dram)))
    )
    made = _gang(rng, "hanging collective", 4, [both] * 4, on, facts=frozenset({"hangs"}))
    hangs = np.zeros(DAYS * 24, np.bool_)
    for day in range(1, DAYS, 2):
        first = 24 * day + int(rng.integers(0, 16))
        hangs[first : first + int(rng.integers(3, 9))] = True
    choice = np.where(hangs, 3.0, rng.integers(0, 3, DAYS * 24))
    return [replace(each, choice=choice) for each in made]


def _gang(rng: Rng, kind: str, size: int, ticks: list[Ticks], on: Mask, **rest: object) -> list[Recording]:
    name, memory, user = f"gang-{rng.integers(10**9)}", rng.uniform(0.65, 0.92), f"team{rng.integers(10**6)}"
    return [
        recording(rng, kind, H100, each, memory, occupied=on, slurm=True, gang=name if size > 1 else "", user=user, **rest)
        for each in ticks
    ]  # fmt: skip


def balanced_gang(rng: Rng) -> list[Recording]:
    return _gang(rng, "balanced gang", 8, [_kernels(rng, 0.74, 0.86) for _ in range(8)], _jobs(rng, (2, 8), (0.3, 8)))


def offloaded_gang(rng: Rng) -> list[Recording]:
    return _gang(rng, "gang with offload", 8, [_offloading(rng)] * 8, _jobs(rng, (4, 9), (0.3, 8)))


def straggling_gang(rng: Rng) -> list[Recording]:
    """One or two ranks get a third of the work, or less, and wait without a kernel."""
    few = steps(rng, (4, 9), (1, 3), (0.7, 0.85))
    size, late = int(rng.choice([4, 8])), int(rng.integers(1, 3))
    return _gang(
        rng,
        "gang with little work on some",
        size,
        [_kernels(rng)] * (size - late) + [few] * late,
        _jobs(rng, (3, 8), (0.3, 8)),
    )


def spinning_gang(rng: Rng) -> list[Recording]:
    """One rank gets a quarter of the work and spins in its collective for the rest: always busy, with few SMs."""
    own = steps(rng, (6, 10), (1.5, 3.0), (0.75, 0.85))
    spun = Ticks(
        np.maximum(own.busy, 0.97), np.where(own.busy > 0, own.sm, 0.06), np.where(own.busy > 0, own.dram, 0.02)
    )
    return _gang(rng, "gang with a spinning rank", 4, [_kernels(rng)] * 3 + [spun], _jobs(rng, (3, 8), (0.3, 8)))


def half_used_gang(rng: Rng) -> list[Recording]:
    """The program was started for fewer GPUs than the job has; it opens a context on all of them."""
    size, idle = int(rng.choice([2, 4])), 1
    made = _gang(rng, "gang that uses some", size, [_kernels(rng)] * size, _jobs(rng, (3, 8), (0.3, 8)))
    return [
        *made[:-idle],
        *(replace(each, active=_none(), memory=np.full(ROWS, 0.006), need=0.006) for each in made[-idle:]),
    ]


def gang_with_evaluator(rng: Rng) -> list[Recording]:
    """One GPU of the job evaluates, for half an hour once or twice a day: it waits, but it is needed."""
    made, day = (
        _gang(rng, "gang with an evaluator", 4, [_kernels(rng)] * 4, _all()),
        _daily(rng, rng.uniform(2, 20), (0.3, 1.0)),
    )
    return [*made[:-1], replace(made[-1], active=day)]


def busy_server(rng: Rng) -> list[Recording]:
    """A model server with a daily rhythm that needs the card's bandwidth; it fills the memory with its cache."""
    hour = np.arange(24)
    rate = rng.uniform(0.1, 0.5) * np.clip(1 + 0.9 * np.sin((hour - rng.uniform(7, 10)) / 24 * 2 * np.pi), 0.08, 2)
    ticks = requests(rng, rate, (0.5, 4), rng.uniform(0.55, 0.8), rng.uniform(0.6, 0.75))
    return [recording(rng, "busy server", L40S, ticks, 0.9, by_hour_of_day=True, need=None, pod=True, command="vllm", facts=frozenset({"server", "metrics", "preallocated"}))]  # fmt: skip


def rare_requests(rng: Rng) -> list[Recording]:
    """A request every half an hour to every eight hours: idle for most of the time, and needed."""
    rate = np.full(24 * 4, 1 / (HOUR_MS / 1000 * rng.uniform(0.5, 8)))
    ticks = requests(rng, rate, (1, 8), rng.uniform(0.5, 0.8), 0.6)
    return [recording(rng, "server with rare requests", L40S, ticks, rng.uniform(0.3, 0.7), by_hour_of_day=True, pod=True, command="tritonserver", facts=frozenset({"server", "metrics"}))]  # fmt: skip


def no_requests(rng: Rng) -> list[Recording]:
    """A model was loaded, and nobody asks it; half of these servers tell fallow nothing."""
    facts = frozenset({"server", "metrics"} if rng.random() < 0.6 else {"server"})
    on = _between(rng.choice([0.0, rng.uniform(1, 6)]), DAYS)
    return [recording(rng, "server without requests", L40S, _kernels(rng), rng.uniform(0.3, 0.7), occupied=on, active=_none(), pod=True, command="sglang", facts=facts)]  # fmt: skip


def warm_standby(rng: Rng) -> list[Recording]:
    """Takes over when the other server fails, every few days for some hours."""
    active, row = _none(), int(rng.uniform(0, 6) * DAY)
    while row < ROWS:
        active[row : row + int(rng.uniform(0.3, 5) * HOUR)] = True
        row += int(rng.exponential(5) * DAY) + DAY
    ticks = requests(rng, np.full(24, 0.3), (0.5, 3), 0.7, 0.6)
    return [recording(rng, "warm standby", L40S, ticks, 0.6, active=active, by_hour_of_day=True, pod=True, command="vllm", facts=frozenset({"server", "metrics"}))]  # fmt: skip


def small_server(rng: Rng) -> list[Recording]:
    """A small model on a large card, with requests all day."""
    ticks = requests(rng, rng.uniform(0.3, 1.2, 24), (0.1, 0.6), rng.uniform(0.05, 0.2), rng.uniform(0.05, 0.2))
    return [recording(rng, "small server", H100, ticks, rng.uniform(0.05, 0.2), by_hour_of_day=True, pod=True, command="tritonserver", facts=frozenset({"server", "metrics"}))]  # fmt: skip


def nightly_batch(rng: Rng) -> list[Recording]:
    on = _daily(rng, rng.uniform(0, 3), (2, 5))
    return [recording(rng, "nightly batch", A100, _kernels(rng), rng.uniform(0.5, 0.9), occupied=on, slurm=True)]


def daily_use(rng: Rng) -> list[Recording]:
    """A process that waits all day for its ten minutes to an hour, at six in the morning."""
    active = _daily(rng, 6, (0.2, 1.0))
    return [
        recording(
            rng,
            "daily use",
            _card(rng),
            _kernels(rng),
            rng.uniform(0.2, 0.7),
            active=active,
            parent=int(rng.choice([1, 4000])),
        )
    ]


def notebook(rng: Rng) -> list[Recording]:
    """Somebody comes back to it, on most working days."""
    active = _daily(rng, rng.uniform(8, 15), (1, 5), rng.uniform(0.6, 1), 0.15)
    return [recording(rng, "notebook", _card(rng), _typing(rng), rng.uniform(0.15, 0.8), active=active)]


def forgotten_notebook(rng: Rng) -> list[Recording]:
    """Used on its first days, and never again."""
    first = rng.uniform(0, 14)
    on, worked = _between(first, DAYS), _between(first, first + rng.uniform(1, 4))
    active = _daily(rng, rng.uniform(8, 15), (2, 6)) & worked
    active[int(first * DAY) : int(first * DAY) + HOUR] = True
    return [
        recording(
            rng, "forgotten notebook", _card(rng), _typing(rng), rng.uniform(0.1, 0.6), occupied=on, active=active
        )
    ]


def holiday(rng: Rng) -> list[Recording]:
    """Looks forgotten for one or two weeks; then its user is back."""
    away = rng.uniform(5, 14)
    away_rows = _between(away, away + rng.uniform(8, 13))
    active = _daily(rng, rng.uniform(8, 15), (1, 5), 0.9, 0.2) & ~away_rows
    return [
        recording(
            rng,
            "notebook over a holiday",
            _card(rng),
            _typing(rng),
            rng.uniform(0.15, 0.7),
            active=active,
            facts=frozenset({"comes back"}),
        )
    ]


def orphan(rng: Rng) -> list[Recording]:
    """The job or the session has ended; its process is still there."""
    first, worked = rng.uniform(0, 12), rng.uniform(0.5, 5)
    on, active = _between(first, DAYS), _between(first, first + worked)
    ended, slurm = int((first + worked) * DAY), bool(rng.random() < 0.5)
    made = recording(
        rng,
        "orphan",
        _card(rng),
        _kernels(rng),
        rng.uniform(0.2, 0.9),
        occupied=on,
        active=active,
        slurm=slurm,
        orphan_from=ended,
    )
    return [replace(made, claimed=active if slurm else _none())]


def daemon(rng: Rng) -> list[Recording]:
    """Started by init, so that its parent is process 1, and rarely at work: nobody's left-over."""
    active = _daily(rng, rng.uniform(8, 18), (0.1, 0.5), 0.5)
    return [
        recording(
            rng,
            "daemon",
            _card(rng),
            _typing(rng),
            rng.uniform(0.1, 0.4),
            active=active,
            parent=1,
            command="transcribed",
        )
    ]


def detached_training(rng: Rng) -> list[Recording]:
    """`nohup`: the session is gone, and the work goes on."""
    on = _jobs(rng, (3, 10), (1, 20))
    return [
        recording(rng, "detached training", _card(rng), _kernels(rng), rng.uniform(0.4, 0.9), occupied=on, parent=1)
    ]


def reserved(rng: Rng) -> list[Recording]:
    """Reserved for something that does not come."""
    made = recording(rng, "reserved in vain", _card(rng), _kernels(rng), 0.5, occupied=_none(), slurm=True)
    return [replace(made, claimed=_between(rng.choice([0.0, rng.uniform(0, 8)]), DAYS))]


def workshop(rng: Rng) -> list[Recording]:
    """Reserved some days before it is used."""
    day = rng.uniform(8, 26)
    on = _between(day, day + 3) & _daily(rng, 9, (7, 8))
    made = recording(rng, "reserved for a workshop", _card(rng), _typing(rng), 0.4, occupied=on, slurm=True)
    return [replace(made, claimed=_between(day - rng.uniform(2, 6), day + 3))]


def never_used(rng: Rng) -> list[Recording]:
    return [recording(rng, "never used", _card(rng), _kernels(rng), 0.5, occupied=_none())]


def used_once(rng: Rng) -> list[Recording]:
    """Used on the first day, and free since."""
    return [
        recording(
            rng,
            "used on the first day",
            _card(rng),
            _kernels(rng),
            0.5,
            occupied=_between(0.1, 0.1 + rng.uniform(0.1, 1)),
            slurm=True,
        )
    ]


def new_host(rng: Rng) -> list[Recording]:
    """Four GPUs come; they are used at once, or after a week or more."""
    first, slow = rng.uniform(4, 9), bool(rng.random() < 0.5)
    begins = first + (rng.uniform(9, 14) if slow else rng.uniform(0.05, 0.4))
    name = f"new-{rng.integers(10**6)}"
    return [
        recording(
            rng, "new and slow" if slow else "new and used", H100, _kernels(rng), 0.7, occupied=_jobs(rng, (1, 4), (0.2, 4)) & _between(begins, DAYS), slurm=True,
            seen=_between(first, DAYS), host=name, facts=frozenset({"slow uptake" if slow else "new"}),
        )
        for _ in range(4)
    ]  # fmt: skip


def small_work(rng: Rng) -> list[Recording]:
    """Small kernels, one after the other or with pauses; little memory."""
    share = rng.uniform(0.05, 0.9)
    work = rng.uniform(0.5, 4)
    pause = max(0.1, work * (1 - share) / share)
    ticks = steps(rng, (0.7 * pause, 1.3 * pause), (0.7 * work, 1.3 * work), (0.04, 0.25))
    return [
        recording(
            rng,
            "small work",
            _card(rng),
            ticks,
            rng.uniform(0.04, 0.22),
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=bool(rng.random() < 0.7),
        )
    ]


def small_kernels_large_memory(rng: Rng) -> list[Recording]:
    ticks = steps(rng, (0.5, 9), (0.3, 2), (0.05, 0.25))
    return [
        recording(
            rng,
            "small kernels, large memory",
            H100,
            ticks,
            rng.uniform(0.65, 0.9),
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def large_kernels_small_memory(rng: Rng) -> list[Recording]:
    return [
        recording(
            rng,
            "large kernels, small memory",
            _card(rng),
            _kernels(rng),
            rng.uniform(0.08, 0.35),
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def memory_peaks(rng: Rng) -> list[Recording]:
    """Little memory for most of the time, and most of the card's for a few minutes once a day."""
    made = recording(rng, "memory peaks", _card(rng), _kernels(rng), rng.uniform(0.1, 0.3), slurm=True)
    peak, high = _daily(rng, rng.uniform(0, 23), (0.1, 0.6)), rng.uniform(0.7, 0.95)
    return [replace(made, memory=np.where(peak, high, made.memory), need=high)]


def inefficient(rng: Rng) -> list[Recording]:
    """Always busy, with kernels that fill a few SMs."""
    ticks = steps(rng, (0.1, 0.2), (5, 30), (0.05, 0.2))
    return [
        recording(
            rng,
            "busy with few SMs",
            H100,
            ticks,
            rng.uniform(0.3, 0.9),
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def preallocated(rng: Rng) -> list[Recording]:
    """JAX takes three quarters of the card at its start."""
    return [
        recording(
            rng,
            "preallocating",
            _card(rng),
            _kernels(rng),
            0.75,
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            need=None,
            slurm=True,
            facts=frozenset({"preallocated"}),
        )
    ]


def full_memory(rng: Rng) -> list[Recording]:
    """The batch was chosen to fill the card."""
    return [
        recording(
            rng,
            "full memory",
            _card(rng),
            _kernels(rng),
            rng.uniform(0.88, 0.95),
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def winding_down(rng: Rng) -> list[Recording]:
    """A project ends: its user works less and less, and keeps the GPUs."""
    day, user = rng.uniform(14, 17), f"leaving{rng.integers(10**6)}"
    made = []
    for _ in range(2):
        work = _jobs(rng, (0.5, 2), (1, 5)) & _between(0, day)
        last = _daily(rng, 11, (0.2, 0.8), 0.3) & _between(day, day + 8)
        made.append(
            recording(
                rng,
                "project that ends",
                _card(rng),
                _kernels(rng),
                rng.uniform(0.3, 0.8),
                active=work | last,
                user=user,
                facts=frozenset({f"winds down {day:.0f}"}),
            )
        )
    return made


def hot_card(rng: Rng) -> list[Recording]:
    """Cooling does not keep up: after some minutes of work the clock falls by a tenth to a half."""
    ticks, left = _kernels(rng), rng.uniform(0.5, 0.88)
    hot = np.cumsum(rng.random((3, HOUR_TICKS)) < 1 / 3000, axis=1) % 2 == 0
    return [
        recording(
            rng,
            "hot card",
            H100,
            replace(ticks, clock=np.where(hot, left, 1.0)),
            0.8,
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def warm_card(rng: Rng) -> list[Recording]:
    """The clock dips for seconds now and then: under 1 % of the work is lost."""
    ticks = _kernels(rng)
    dips = bool_noise(rng, rng.uniform(0.01, 0.04))
    return [
        recording(
            rng,
            "card with short dips",
            H100,
            replace(ticks, clock=np.where(dips, 0.8, 1.0)),
            0.8,
            occupied=_jobs(rng, (2, 7), (0.2, 5)),
            slurm=True,
        )
    ]


def bool_noise(rng: Rng, share: float) -> Mask:
    noise: Mask = np.repeat(rng.random((3, HOUR_TICKS // 20)) < share, 20, axis=1)
    return noise


def blind(rng: Rng) -> list[Recording]:
    """Its host's agent is down for a day or two a week."""
    made = recording(
        rng,
        "seldom seen",
        _card(rng),
        _kernels(rng),
        0.7,
        occupied=_jobs(rng, (2, 6), (0.3, 8)),
        slurm=True,
        host=f"blind-{rng.integers(10**6)}",
    )
    gaps = _none()
    for week in range(DAYS // 7):
        row = week * WEEK + int(rng.uniform(0, 4) * DAY)
        gaps[row : row + int(rng.uniform(1.7, 3) * DAY)] = True
    return [replace(made, seen=~gaps)]


def hoarders(rng: Rng) -> list[Recording]:
    """A team keeps six GPUs allocated, and works on one at a time."""
    name = f"hoard{rng.integers(10**6)}"
    turn = np.arange(ROWS) // (DAY // 2) % 6
    return [
        recording(rng, "team that hoards", H100, _kernels(rng), 0.6, occupied=_all(), active=turn == nth, pod=True, user=name, host=name, facts=frozenset({"hoards"}))
        for nth in range(6)
    ]  # fmt: skip


SITUATIONS: tuple[tuple[Builder, int], ...] = (
    (balanced_gang, 1), (offloaded_gang, 1), (straggling_gang, 1), (spinning_gang, 1), (half_used_gang, 2), (gang_with_evaluator, 1),
    (hanging_gang, 1), (checkpoints, 2), (hoarders, 1), (new_host, 2), (data_starved, 1), (busy_host, 1), (winding_down, 2),
    (dense_training, 3), (offloaded_training, 4), (busy_server, 3), (rare_requests, 3), (no_requests, 4), (warm_standby, 2), (small_server, 2),
    (nightly_batch, 2), (daily_use, 3), (notebook, 4), (forgotten_notebook, 5), (holiday, 3), (orphan, 4), (daemon, 2), (detached_training, 2),
    (reserved, 3), (workshop, 3), (never_used, 3), (used_once, 2), (small_work, 4), (small_kernels_large_memory, 2),
    (large_kernels_small_memory, 3), (memory_peaks, 2), (inefficient, 2), (preallocated, 2), (full_memory, 2), (hot_card, 2), (warm_card, 2),
    (blind, 2),
)  # fmt: skip
"""The kinds of situation, and how many of each a fleet has."""


def fleet_of(seed: int, situations: tuple[tuple[Builder, int], ...] = SITUATIONS) -> list[Recording]:
    """All recordings of a fleet; whoever no situation names has a user to itself."""
    made = []
    for number, (build, count) in enumerate(situations):
        for nth in range(count):
            own = build(np.random.default_rng([seed, number, nth]))
            made += [
                each if each.user else replace(each, user=f"u{seed}x{number}x{nth}x{part}")
                for part, each in enumerate(own)
            ]
    return made
