"""Generated situations on GPUs, whose truth is known: true cases of every rule, and look-alikes.

They were written without the rules at hand. Each situation draws its parameters from distributions. Recordings reach a
week beyond the lake, so that the later use of a GPU is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
SPINNING = 3
"""The hour of the work in which a hanging collective spins."""
SEEN_DAYS, DAYS = 28, 35
ROWS, SEEN = DAYS * DAY, SEEN_DAYS * DAY

Rng = np.random.Generator
Builder = Callable[[Rng], "list[Recording]"]


@dataclass(frozen=True)
class Recording:
    """One GPU over five weeks, by row: its user, its active time, and its work.

    `facts` are not visible in figures: why a process is there, and what it waits for.
    """

    kind: str
    card: Card
    work: Work
    active: Mask
    occupied: Mask
    allocated: Mask
    memory: Floats
    """Used, as a share of the card."""
    need: float | None
    """The peak demand, as a share of the card; None where the program takes all that there is."""
    choice: NDArray[np.int64]
    """The recorded hour of the work that each hour plays."""
    user: str = ""
    command: str = "python"
    facts: frozenset[str] = frozenset()
    slurm: bool = False
    pod: bool = False
    parent: int = 4000
    orphan_from: int | None = None
    seen: Mask | None = None
    host: str = ""
    """GPUs with the same name share hosts and the hosts' load."""
    gang: str = ""

    def played(self, by_hour: Floats) -> Floats:
        """Return the values of the work's hours in each row; 0 while it is not active."""
        hour = self.choice[np.arange(ROWS) // HOUR]
        rows: Floats = np.where(self.active, by_hour[hour, np.arange(ROWS) % HOUR], 0.0)
        return rows

    def busy(self) -> Floats:
        """Return the share of each row in which a kernel ran."""
        return self.played(self.work.columns["gpu_util_pct"]) / 100


def runs(mask: Mask) -> list[tuple[int, int]]:
    """Return the segments in which the mask is true: first row, and the row after the last."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(first), int(after)) for first, after in edges.reshape(-1, 2)]


def _between(first_day: float = 0, last_day: float = DAYS) -> Mask:
    days = np.arange(ROWS) / DAY
    inside: Mask = (days >= first_day) & (days < last_day)
    return inside


def _jobs(rng: Rng, days: tuple[float, float], gap_h: tuple[float, float]) -> Mask:
    """Return the mask of jobs in sequence."""
    mask, row = ~_between(), int(rng.uniform(0, gap_h[1]) * HOUR)
    while row < ROWS:
        after = row + int(rng.uniform(*days) * DAY)
        mask[row:after] = True
        row = after + max(1, int(rng.uniform(*gap_h) * HOUR))
    return mask


def _daily(rng: Rng, at_h: float, length_h: tuple[float, float], chance: float = 1.0, weekend: float = 1.0) -> Mask:
    """Return the mask of a segment at about the same time on random days; the first day is a Monday."""
    mask = ~_between()
    for day in range(DAYS):
        if rng.random() < chance * (weekend if day % 7 > 4 else 1):
            row = day * DAY + max(0, int((at_h + rng.normal(0, 0.4)) * HOUR))
            mask[row : row + max(2, int(rng.uniform(*length_h) * HOUR))] = True
    return mask


def _pauses(rng: Rng, every_min: tuple[float, float], length_min: tuple[float, float]) -> Mask:
    mask, row = ~_between(), 0
    while row < ROWS:
        row += int(rng.uniform(*every_min) * HOUR / 60)
        after = row + max(1, round(rng.uniform(*length_min) * HOUR / 60))
        mask[row:after], row = True, after
    return mask


def recording(rng: Rng, kind: str, card: Card, ticks: Ticks, memory: float, **traits: Any) -> Recording:
    """Return a GPU that a user always holds and uses, unless `traits` differ; Slurm jobs and pods allocate it then.

    `memory` is the memory that is used and needed, as a share of the card.
    """
    occupied, hours, work = traits.get("occupied", _between()), np.arange(DAYS * 24), work_of(ticks, card, ROW_MS)
    daily = ticks.requests is not None  # requests come at their hours of the day, other hours of work in any order
    choice = (
        hours % 24 + 24 * rng.integers(0, work.hours // 24, len(hours))
        if daily
        else rng.integers(0, work.hours, len(hours))
    )
    used = np.full(ROWS, memory) if traits.get("need", 0) is None else _allocated(rng, occupied, memory)
    given = {
        "active": occupied,
        "allocated": occupied if traits.get("slurm") or traits.get("pod") else ~_between(),
        "need": memory,
    } | traits
    given["active"] = given["active"] & occupied
    return Recording(kind=kind, card=card, work=work, memory=used, choice=choice, **{"occupied": occupied} | given)


def _allocated(rng: Rng, occupied: Mask, memory: float) -> Floats:
    """Return an allocator's memory: it grows in the first minutes of a process, and slightly with every new shape."""
    used: Floats = memory * np.where(rng.random(ROWS) < 0.2, 1.0, 0.985)
    for first, after in runs(occupied):
        grows = min(after - first, int(rng.integers(1, 6)))
        used[first : first + grows] *= np.linspace(rng.uniform(0.1, 0.5), 1, grows, endpoint=False)
    return used


def _in_jobs(rng: Rng, kind: str, card: Card, ticks: Ticks, memory: float, **traits: Any) -> Recording:
    """Return Slurm jobs of some days in sequence."""
    return recording(
        rng, kind, card, ticks, memory, **{"occupied": _jobs(rng, (2, 7), (0.2, 6)), "slurm": True} | traits
    )


def _serving(rng: Rng, kind: str, card: Card, ticks: Ticks, memory: float, **traits: Any) -> Recording:
    """Return an inference server in a pod, which reports its requests to fallow."""
    given = {"pod": True, "command": "tritonserver", "facts": frozenset({"server", "metrics"})}
    return recording(rng, kind, card, ticks, memory, **given | traits)


def _gang(rng: Rng, kind: str, ticks: Sequence[Ticks], **traits: Any) -> list[Recording]:
    """Return the GPUs of jobs in sequence, with separate ticks per GPU."""
    name, user, memory = f"gang-{rng.integers(10**9)}", f"group{rng.integers(10**6)}", rng.uniform(0.62, 0.92)
    given = {"occupied": _jobs(rng, (3, 8), (0.3, 8)), "gang": name, "user": user} | traits
    return [_in_jobs(rng, kind, H100, each, memory, **given) for each in ticks]


def _kernels(rng: Rng, low: float = 0.72, high: float = 0.9) -> Ticks:
    """Training that keeps the card busy."""
    return steps(rng, (0.1, 0.3), (2, 20), (low, high))


def _bursts(rng: Rng, share: tuple[float, float], work_s: tuple[float, float], sm: tuple[float, float]) -> Ticks:
    """Return work and pauses of similar lengths, with a given share of work."""
    work, part = rng.uniform(*work_s), rng.uniform(*share)
    pause = max(0.1, work * (1 - part) / part)
    return steps(rng, (0.7 * pause, 1.3 * pause), (0.7 * work, 1.3 * work), sm)


def _offloading(rng: Rng) -> Ticks:
    """The optimizer runs on the host; the GPU works in bursts and needs the whole card in them."""
    return _bursts(rng, (0.07, 0.18), (0.3, 3.0), (0.72, 0.92))


def _typing(rng: Rng) -> Ticks:
    """A person tries things, and waits for them."""
    return replace(steps(rng, (2, 150), (0.3, 40), (0.3, 0.9)), waits_for=True)


def _card(rng: Rng) -> Card:
    return H100 if rng.random() < 0.6 else A100


# training


def dense_training(rng: Rng) -> list[Recording]:
    return [_in_jobs(rng, "dense training", _card(rng), _kernels(rng), rng.uniform(0.62, 0.93))]


def offloaded_training(rng: Rng) -> list[Recording]:
    return [_in_jobs(rng, "training with offload", H100, _offloading(rng), rng.uniform(0.2, 0.9))]


def data_starved(rng: Rng) -> list[Recording]:
    """Every job of a host waits for its data loaders: for the CPUs, or for the disks."""
    host, facts = f"{('cpu', 'io')[rng.integers(2)]} starved-{rng.integers(10**6)}", frozenset({"waits for input"})
    ticks = [replace(_bursts(rng, (0.15, 0.5), (0.15, 0.6), (0.7, 0.9)), overlapped=True) for _ in range(3)]
    return [
        _in_jobs(rng, "data-starved training", H100, each, rng.uniform(0.3, 0.8), facts=facts, host=host)
        for each in ticks
    ]


def busy_host(rng: Rng) -> list[Recording]:
    """Another user's program takes the CPUs, but the GPUs do not wait for them."""
    host = f"cpu noise-{rng.integers(10**6)}"
    asked = requests(rng, rng.uniform(0.02, 0.08, 48), (0.5, 4), rng.uniform(0.55, 0.8), 0.6)
    return [
        _in_jobs(rng, "training on a busy host", H100, _kernels(rng), 0.8, host=host),
        _serving(rng, "server on a busy host", H100, asked, 0.7, host=host),
    ]


def checkpoints(rng: Rng) -> list[Recording]:
    """The whole job writes its state for minutes, and does not compute meanwhile."""
    size, on = int(rng.choice([1, 4])), _jobs(rng, (3, 8), (0.3, 6))
    traits = {"occupied": on, "active": on & ~_pauses(rng, (30, 60), (4, 9)), "facts": frozenset({"stalls"})}
    return _gang(rng, "checkpoint pauses", [_kernels(rng)] * size, **traits | ({} if size > 1 else {"gang": ""}))


def hanging_gang(rng: Rng) -> list[Recording]:
    """A collective hangs for hours: every rank spins in a small kernel until the watchdog restarts the job."""
    dense, spin = _kernels(rng), steps(rng, (0.1, 0.2), (50, 60), (0.04, 0.09), hours=1)
    pairs = ((dense.busy, spin.busy), (dense.sm, spin.sm), (dense.dram, spin.dram))
    both, choice = Ticks(*(np.concatenate(pair) for pair in pairs)), rng.integers(0, 3, DAYS * 24)
    for day in range(1, DAYS, 2):
        first = 24 * day + int(rng.integers(0, 16))
        choice[first : first + int(rng.integers(3, 9))] = SPINNING
    return [
        replace(each, choice=choice)
        for each in _gang(rng, "hanging collective", [both] * 4, facts=frozenset({"hangs"}))
    ]


def balanced_gang(rng: Rng) -> list[Recording]:
    return _gang(rng, "balanced gang", [_kernels(rng, 0.74, 0.86) for _ in range(8)])


def offloaded_gang(rng: Rng) -> list[Recording]:
    return _gang(rng, "gang with offload", [_offloading(rng)] * 8)


def straggling_gang(rng: Rng) -> list[Recording]:
    """One or two ranks get a third of the work, or less, and wait without a kernel."""
    few, size, late = steps(rng, (4, 9), (1, 3), (0.7, 0.85)), int(rng.choice([4, 8])), int(rng.integers(1, 3))
    return _gang(rng, "gang with little work on some", [_kernels(rng)] * (size - late) + [few] * late)


def spinning_gang(rng: Rng) -> list[Recording]:
    """One rank gets a quarter of the work and otherwise spins in its collective: always busy, with few SMs."""
    own = steps(rng, (6, 10), (1.5, 3.0), (0.75, 0.85))
    active = own.busy > 0
    spun = Ticks(np.maximum(own.busy, 0.97), np.where(active, own.sm, 0.06), np.where(active, own.dram, 0.02))
    return _gang(rng, "gang with a spinning rank", [_kernels(rng)] * 3 + [spun])


def half_used_gang(rng: Rng) -> list[Recording]:
    """The program was started for one GPU fewer than the job has, but opens a context on all GPUs."""
    *made, last = _gang(rng, "gang that uses some", [_kernels(rng)] * int(rng.choice([2, 4])))
    return [*made, replace(last, active=~_between(), memory=np.full(ROWS, 0.006), need=0.006)]


def gang_with_evaluator(rng: Rng) -> list[Recording]:
    """One GPU of the job evaluates for half an hour once a day: it waits, but is needed."""
    *made, last = _gang(rng, "gang with an evaluator", [_kernels(rng)] * 4, occupied=_between())
    return [*made, replace(last, active=_daily(rng, rng.uniform(2, 20), (0.3, 1.0)))]


def detached_training(rng: Rng) -> list[Recording]:
    """`nohup`: the session has ended, but the work continues."""
    return [_in_jobs(rng, "detached training", _card(rng), _kernels(rng), rng.uniform(0.4, 0.9), slurm=False, parent=1)]


# servers


def busy_server(rng: Rng) -> list[Recording]:
    """The server has a daily rhythm and needs the card's bandwidth; its cache fills the memory."""
    rhythm = np.clip(1 + 0.9 * np.sin((np.arange(24) - rng.uniform(7, 10)) / 24 * 2 * np.pi), 0.08, 2)
    asked = requests(rng, rng.uniform(0.1, 0.5) * rhythm, (0.5, 4), rng.uniform(0.55, 0.8), rng.uniform(0.6, 0.75))
    traits = {"command": "vllm", "facts": frozenset({"server", "metrics", "preallocated"}), "need": None}
    return [_serving(rng, "busy server", L40S, asked, 0.9, **traits)]


def rare_requests(rng: Rng) -> list[Recording]:
    """Requests come every half hour to eight hours: the server is mostly idle, but needed."""
    asked = requests(rng, np.full(96, 1 / (3600 * rng.uniform(0.5, 8))), (1, 8), rng.uniform(0.5, 0.8), 0.6)
    return [_serving(rng, "server with rare requests", L40S, asked, rng.uniform(0.3, 0.7))]


def no_requests(rng: Rng) -> list[Recording]:
    """A model was loaded and gets no requests; four of ten of these servers report nothing to fallow."""
    traits = {"facts": frozenset({"server"})} if rng.random() < 0.4 else {}
    on, asked = _between(rng.choice([0.0, rng.uniform(1, 6)])), requests(rng, np.zeros(24), (1, 2), 0.5, 0.5)
    return [_serving(rng, "server without requests", L40S, asked, rng.uniform(0.3, 0.7), occupied=on, **traits)]


def warm_standby(rng: Rng) -> list[Recording]:
    """The server takes over when another server fails, every few days for some hours."""
    active, row = ~_between(), int(rng.uniform(0, 6) * DAY)
    while row < ROWS:
        active[row : row + int(rng.uniform(0.3, 5) * HOUR)] = True
        row += int(rng.exponential(5) * DAY) + DAY
    asked = requests(rng, np.full(24, 0.3), (0.5, 3), 0.7, 0.6)
    return [_serving(rng, "warm standby", L40S, asked, 0.6, active=active)]


def small_server(rng: Rng) -> list[Recording]:
    """A small model on a large card, with requests all day."""
    asked = requests(rng, rng.uniform(0.3, 1.2, 24), (0.1, 0.6), rng.uniform(0.05, 0.2), rng.uniform(0.05, 0.2))
    return [_serving(rng, "small server", H100, asked, rng.uniform(0.05, 0.2))]


# people, and the processes that they leave behind


def nightly_batch(rng: Rng) -> list[Recording]:
    on = _daily(rng, rng.uniform(0, 3), (2, 5))
    return [_in_jobs(rng, "nightly batch", A100, _kernels(rng), rng.uniform(0.5, 0.9), occupied=on)]


def daily_use(rng: Rng) -> list[Recording]:
    """A process waits all day for its ten minutes to an hour, at six in the morning."""
    active, parent = _daily(rng, 6, (0.2, 1.0)), int(rng.choice([1, 4000]))
    return [recording(rng, "daily use", _card(rng), _kernels(rng), rng.uniform(0.2, 0.7), active=active, parent=parent)]


def notebook(rng: Rng) -> list[Recording]:
    """Its user returns on most working days."""
    active = _daily(rng, rng.uniform(8, 15), (1, 5), rng.uniform(0.6, 1), 0.15)
    return [recording(rng, "notebook", _card(rng), _typing(rng), rng.uniform(0.15, 0.8), active=active)]


def forgotten_notebook(rng: Rng) -> list[Recording]:
    """The notebook is used on its first days, and never again."""
    first = rng.uniform(0, 14)
    active = _between(first, first + 0.05) | _daily(rng, rng.uniform(8, 15), (2, 6)) & _between(
        first, first + rng.uniform(1, 4)
    )
    traits = {"occupied": _between(first), "active": active}
    return [recording(rng, "forgotten notebook", _card(rng), _typing(rng), rng.uniform(0.1, 0.6), **traits)]


def holiday(rng: Rng) -> list[Recording]:
    """The notebook looks forgotten for one or two weeks; then its user returns."""
    away = rng.uniform(5, 14)
    active = _daily(rng, rng.uniform(8, 15), (1, 5), 0.9, 0.2) & ~_between(away, away + rng.uniform(8, 13))
    traits = {"active": active, "facts": frozenset({"comes back"})}
    return [recording(rng, "notebook over a holiday", _card(rng), _typing(rng), rng.uniform(0.15, 0.7), **traits)]


def ending(rng: Rng) -> list[Recording]:
    """A project ends: its user works less and less, and keeps two GPUs."""
    day, user = rng.uniform(14, 17), f"leaving{rng.integers(10**6)}"
    last = _between(0, day), _between(day, day + 8)
    active = [_jobs(rng, (0.5, 2), (1, 5)) & last[0] | _daily(rng, 11, (0.2, 0.8), 0.3) & last[1] for _ in range(2)]
    traits = {"user": user, "facts": frozenset({f"winds down {day:.0f}"})}
    return [
        recording(rng, "project that ends", _card(rng), _kernels(rng), rng.uniform(0.3, 0.7), active=each, **traits)
        for each in active
    ]


def orphan(rng: Rng) -> list[Recording]:
    """The job or the session has ended, but its process still runs."""
    first, slurm = rng.uniform(0, 12), bool(rng.random() < 0.5)
    ended = first + rng.uniform(0.5, 5)
    worked = _between(first, ended)
    traits = {"occupied": _between(first), "active": worked, "allocated": worked & slurm, "slurm": slurm}
    return [
        recording(
            rng, "orphan", _card(rng), _kernels(rng), rng.uniform(0.2, 0.9), orphan_from=int(ended * DAY), **traits
        )
    ]


def daemon(rng: Rng) -> list[Recording]:
    """A rarely active service: init started it, so its parent is process 1, and it is not an orphan."""
    traits = {"active": _daily(rng, rng.uniform(8, 18), (0.1, 0.5), 0.5), "parent": 1, "command": "transcribed"}
    return [recording(rng, "daemon", _card(rng), _typing(rng), rng.uniform(0.1, 0.4), **traits)]


# allocations and inventory


def reserved(rng: Rng) -> list[Recording]:
    """The GPU is reserved for work that never starts."""
    allocated = _between(rng.choice([0.0, rng.uniform(0, 8)]))
    return [
        _in_jobs(rng, "reserved in vain", _card(rng), _kernels(rng), 0.5, occupied=~_between(), allocated=allocated)
    ]


def workshop(rng: Rng) -> list[Recording]:
    """The GPU is reserved some days before it is used."""
    day = rng.uniform(8, 26)
    traits = {
        "occupied": _between(day, day + 3) & _daily(rng, 9, (7, 8)),
        "allocated": _between(day - rng.uniform(2, 6), day + 3),
    }
    return [_in_jobs(rng, "reserved for a workshop", _card(rng), _typing(rng), 0.4, **traits)]


def never_used(rng: Rng) -> list[Recording]:
    return [recording(rng, "never used", _card(rng), _kernels(rng), 0.5, occupied=~_between())]


def used_once(rng: Rng) -> list[Recording]:
    """The GPU is used on the first day, and free since."""
    on = _between(0.1, 0.1 + rng.uniform(0.1, 1))
    return [_in_jobs(rng, "used on the first day", _card(rng), _kernels(rng), 0.5, occupied=on)]


def new_hosts(rng: Rng) -> list[Recording]:
    """Four new GPUs are used at once, and four are used after a week or more."""
    made = []
    for kind, after_days in (("new and used", (0.05, 0.4)), ("new and slow", (9, 14))):
        first, host = rng.uniform(4, 9), f"new-{rng.integers(10**6)}"
        traits = {"seen": _between(first), "host": host, "facts": frozenset({kind})}
        begins = _between(first + rng.uniform(*after_days))
        on = [_jobs(rng, (1, 4), (0.2, 4)) & begins for _ in range(4)]
        made += [_in_jobs(rng, kind, H100, _kernels(rng), 0.7, occupied=each, **traits) for each in on]
    return made


def hoarders(rng: Rng) -> list[Recording]:
    """A team keeps six GPUs allocated, and uses one at a time."""
    traits = {"pod": True, "user": f"hoard{rng.integers(10**6)}", "facts": frozenset({"hoards"})}
    turn = np.arange(ROWS) // (DAY // 2) % 6
    return [
        recording(rng, "team that hoards", H100, _kernels(rng), 0.6, active=turn == nth, **traits) for nth in range(6)
    ]


def weekly_peak(rng: Rng) -> list[Recording]:
    """A team needs its whole quota of four GPUs on one or two days of each week."""
    traits = {"pod": True, "user": f"peak{rng.integers(10**6)}", "facts": frozenset({"uses its quota"})}
    on = (np.arange(ROWS) / DAY + rng.uniform(0, 5)) % 7 < rng.uniform(1, 2)
    return [
        recording(rng, "team with a weekly peak", H100, _kernels(rng), 0.65, occupied=on, **traits) for _ in range(4)
    ]


def blind(rng: Rng) -> list[Recording]:
    """Its host's agent is down for two or three days a week."""
    seen, host = _between(), f"blind-{rng.integers(10**6)}"
    for week in range(DAYS // 7):
        row = week * WEEK + int(rng.uniform(0, 4) * DAY)
        seen[row : row + int(rng.uniform(1.7, 3) * DAY)] = False
    return [_in_jobs(rng, "seldom seen", _card(rng), _kernels(rng), 0.7, host=host, seen=seen)]


# what the work needs of its card


def small_work(rng: Rng) -> list[Recording]:
    """The work has small kernels, in sequence or with pauses, and little memory."""
    ticks, slurm = _bursts(rng, (0.05, 0.9), (0.5, 4), (0.04, 0.25)), bool(rng.random() < 0.7)
    return [_in_jobs(rng, "small work", _card(rng), ticks, rng.uniform(0.04, 0.22), slurm=slurm)]


def launch_bound(rng: Rng) -> list[Recording]:
    """A loop on the host starts a kernel of 1 ms about every 10 ms: never idle, and never fully busy."""
    sm, share = rng.choice([rng.uniform(0.05, 0.4), rng.uniform(0.85, 0.97)]), rng.uniform(0.05, 0.17)
    ticks = steps(rng, (0.1, 0.2), (2, 20), (sm, sm))
    return [_in_jobs(rng, "launch-bound loop", H100, replace(ticks, busy=ticks.busy * share), rng.uniform(0.05, 0.4))]


def small_kernels_large_memory(rng: Rng) -> list[Recording]:
    ticks = steps(rng, (0.5, 9), (0.3, 2), (0.05, 0.25))
    return [_in_jobs(rng, "small kernels, large memory", H100, ticks, rng.uniform(0.65, 0.9))]


def large_kernels_small_memory(rng: Rng) -> list[Recording]:
    return [_in_jobs(rng, "large kernels, small memory", _card(rng), _kernels(rng), rng.uniform(0.08, 0.35))]


def memory_peaks(rng: Rng) -> list[Recording]:
    """The work uses little memory, but most of the card's memory for a few minutes once a day."""
    made, high = (
        recording(rng, "memory peaks", _card(rng), _kernels(rng), rng.uniform(0.1, 0.3), slurm=True),
        rng.uniform(0.7, 0.95),
    )
    return [replace(made, memory=np.where(_daily(rng, rng.uniform(0, 23), (0.1, 0.6)), high, made.memory), need=high)]


def inefficient(rng: Rng) -> list[Recording]:
    """Always busy, with kernels that fill a few SMs."""
    return [
        _in_jobs(rng, "busy with few SMs", H100, steps(rng, (0.1, 0.2), (5, 30), (0.05, 0.2)), rng.uniform(0.3, 0.9))
    ]


def preallocated(rng: Rng) -> list[Recording]:
    """JAX takes three quarters of the card at its start."""
    traits = {"need": None, "facts": frozenset({"preallocated"})}
    return [_in_jobs(rng, "preallocating", _card(rng), _kernels(rng), 0.75, **traits)]


def full_memory(rng: Rng) -> list[Recording]:
    """The batch was chosen to fill the card."""
    return [_in_jobs(rng, "full memory", _card(rng), _kernels(rng), rng.uniform(0.88, 0.95))]


def hot_card(rng: Rng) -> list[Recording]:
    """The cooling is too weak: after some minutes of work the clock falls by a tenth to a half for some minutes."""
    hot = np.cumsum(rng.random((3, HOUR_TICKS)) < 1 / 3000, axis=1) % 2 == 0
    return [
        _in_jobs(rng, "hot card", H100, replace(_kernels(rng), clock=np.where(hot, rng.uniform(0.5, 0.88), 1.0)), 0.8)
    ]


def warm_card(rng: Rng) -> list[Recording]:
    """The clock dips for two seconds occasionally, which loses under 1 % of the work."""
    dips = np.repeat(rng.random((3, HOUR_TICKS // 20)) < rng.uniform(0.01, 0.04), 20, axis=1)
    return [_in_jobs(rng, "card with short dips", H100, replace(_kernels(rng), clock=np.where(dips, 0.8, 1.0)), 0.8)]


SITUATIONS: tuple[tuple[Builder, int], ...] = (
    *((build, 1) for build in (
        balanced_gang, offloaded_gang, straggling_gang, spinning_gang, gang_with_evaluator, hanging_gang, hoarders,
        weekly_peak, data_starved, busy_host, preallocated, new_hosts,
    )),
    *((build, 2) for build in (
        half_used_gang, checkpoints, ending, warm_standby, small_server, nightly_batch, daemon, detached_training,
        used_once, small_kernels_large_memory, memory_peaks, inefficient, full_memory, hot_card, warm_card, blind,
    )),
    *((build, 3) for build in (
        dense_training, busy_server, rare_requests, daily_use, holiday, reserved, workshop, never_used,
        large_kernels_small_memory,
    )),
    *((build, 4) for build in (offloaded_training, no_requests, notebook, orphan, small_work, launch_bound)),
    (forgotten_notebook, 5),
)  # fmt: skip
"""The kinds of situations, and their number in a fleet."""


def fleet_of(seed: int, situations: Sequence[tuple[Builder, int]] = SITUATIONS) -> list[Recording]:
    """Return all recordings of a fleet. A recording without a named user gets its own user."""
    made: list[Recording] = []
    for number, (build, count) in enumerate(situations):
        for nth in range(count):
            for each in build(np.random.default_rng([seed, number, nth])):
                made.append(each if each.user else replace(each, user=f"u{seed}x{len(made)}"))
    return made
