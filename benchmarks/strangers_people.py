"""Sixteen kinds of people and uses of GPUs, with human irregularity. Written without a look at any rule.

A use yields stays: a process or an allocation on some GPUs, and the minutes in which kernels run. Minutes come from
published recordings where they exist (`Recorded`), else from wide distributions. Time is counted in slots of ten
minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.labelled_trace import STEP_S, trace_folder

if TYPE_CHECKING:
    from benchmarks.recordings import Floats, Mask

SLOT_MS = 600_000
HOUR, DAY = 6, 144
"""In slots."""
WEEK = 7 * DAY
Rng = np.random.Generator
Spans = list[tuple[int, int]]
SERVERS = ("VLLM::EngineCor", "tritonserver", "python3")


@dataclass(frozen=True)
class Recorded:
    """Recordings: `days` by pod and slot (% of time with a kernel), busiest pod first, and `levels` of work in %."""

    days: Floats
    levels: Floats
    is_real: bool


@cache
def recorded() -> Recorded:
    """Return genai26 by slot and Acme's utilization above 0; wide distributions where the traces are missing."""
    folder, rng = trace_folder(), np.random.default_rng(0)
    if folder is None:
        rates = np.sort(rng.beta(0.25, 1.5, 143))[::-1]
        hours = 0.4 + 0.6 * np.clip(np.sin((np.arange(DAY) / DAY - 0.3) * 2 * np.pi), -0.6, 1)
        busy = rng.random((143, DAY)) < np.minimum(1, rates[:, None] * hours * 2)
        return Recorded(busy * rng.beta(0.6, 3, (143, DAY)) * 100, 100 * rng.beta(0.8, 0.5, 4000), is_real=False)
    rows = pl.read_csv(folder / "duty.csv.gz").with_columns(
        slot=((pl.col("timestamp_anon") - pl.col("timestamp_anon").min()) * 1000 // SLOT_MS).cast(pl.Int64)
    )
    by_slot = rows.group_by("container_ip", "slot").agg(pl.col("value").sum() * STEP_S * 1000 / SLOT_MS)
    days = np.zeros((rows["container_ip"].n_unique(), DAY))
    pods = by_slot["container_ip"].rank("dense").to_numpy() - 1
    days[pods, by_slot["slot"].to_numpy() % DAY] = np.minimum(by_slot["value"].to_numpy(), 100)
    levels = (
        pl.read_parquet(folder.parent / "acme" / "cdf_quantiles.parquet")
        .filter(pl.col("series").str.contains("util"), pl.col("x").is_between(1, 100))["x"]
        .to_numpy()
    )
    return Recorded(days[np.argsort(-(days > 0).mean(axis=1))], levels, is_real=True)


@dataclass(frozen=True)
class Stay:
    """A user's stay on GPUs from slot `first` to before `last`. `util_pct` is by slot; 0 is no kernel.

    `over_from` is the slot from which the work is over for ever, although the stay continues; `idle_gpus` of the stay
    never run a kernel. Without `process` it is only an allocation.
    """

    gpus: tuple[int, ...]
    first: int
    last: int
    user: str
    util_pct: Floats
    kind: str
    command: str = "python"
    scheduler: str = ""
    process: bool = True
    mem_ratio: float = 0.4
    server: bool = False
    over_from: int | None = None
    orphan_from: int | None = None
    idle_gpus: tuple[int, ...] = ()
    submitted: int | None = None


@dataclass(frozen=True)
class Person:
    """The user of a block of GPUs from a slot on; `off` are the days on which the whole site is closed."""

    rng: Rng
    gpus: tuple[int, ...]
    since: int
    until: int
    name: str
    off: Mask
    kind: str = ""

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def about(self, median: float, sigma: float, most: float = np.inf) -> int:
        """Return a log-normal number of slots, at least one."""
        return max(1, int(min(self.rng.lognormal(np.log(median), sigma), most)))

    def days(self, low: float, high: float) -> int:
        return int(self.rng.uniform(low, high) * DAY)

    def there(self, weekday: float, weekend: float) -> Mask:
        """Return the days on which the person works, without the site's closed days and the person's own leaves."""
        number = np.arange(len(self.off))
        come = self.rng.random(len(self.off)) < np.where(number % 7 < 5, weekday, weekend)
        for _ in range(self.rng.poisson(0.5)):
            first = self.rng.integers(0, len(self.off))
            come[first : first + self.rng.integers(2, 11)] = False
        return come & ~(self.off & (self.rng.random() < 0.85))

    def away(self, come: Mask, low: int, high: int) -> int:
        """Remove a long leave from the days, and return its first day."""
        first = self.since // DAY + int(self.rng.integers(5, 40))
        come[first : first + int(self.rng.integers(low, high))] = False
        return first

    def morning(self, slot: int, share: float = 0.7) -> int:
        """Return the slot, or the next working morning if the slot is in a night or on a weekend."""
        hour, day = slot % DAY // HOUR, slot // DAY
        if (8 <= hour < 21 and day % 7 < 5) or not self.chance(share):
            return slot
        day += hour >= 8
        day += (7 - day % 7) % 7 if day % 7 >= 5 else 0
        return day * DAY + int(self.rng.normal(9.5, 1) * HOUR)

    def session(self, day: int, from_hour: float, hours: float, pause: float = 5.0) -> Spans:
        """Return bursts of work between pauses within some hours of a day."""
        at = day * DAY + max(0, int(self.rng.normal(from_hour, 1) * HOUR))
        end, spans = at + max(1, int(self.rng.normal(hours, hours / 4) * HOUR)), []
        while at < end:
            after = at + self.about(2.5, 0.9, 8 * HOUR)
            spans.append((at, after))
            at = after + self.about(pause, 1.0, 10 * HOUR)
        return spans

    def stay(self, first: int, last: int, work: Spans, **facts: object) -> Iterator[Stay]:
        """Yield the stay with kernels in the spans, cut to the person's time."""
        first, last = max(first, self.since), min(last, self.until)
        if first >= last:
            return
        util = np.zeros(last - first)
        for since, until in work:
            inside = slice(max(since - first, 0), max(until - first, 0))
            level = self.rng.choice(recorded().levels)
            util[inside] = np.clip(level * self.rng.normal(1, 0.1, len(util[inside])), 1, 100)
        mem = float(self.rng.uniform(0.05, 0.95))
        made = Stay(self.gpus, first, last, self.name, util, self.kind, mem_ratio=mem)
        yield replace(made, **facts)  # type: ignore[arg-type]

    def runs(self, since: int, until: int, median: float, gap: float, **facts: object) -> Iterator[Stay]:
        """Yield runs in sequence, some of which fail soon; between runs the user looks at the results."""
        at = self.morning(since)
        while at < until:
            length = self.about(1.5, 0.7) if self.chance(0.12) else self.about(median, 1.0, 6 * DAY)
            tail = self.about(2 * HOUR, 1.0) if self.chance(0.4) else 0
            yield from self.stay(at, at + length + tail, [(at, at + length)], **facts)
            at = self.morning(at + length + tail + self.about(gap, 1.0))


Use = Callable[[Person], Iterator[Stay]]


def campaign(p: Person) -> Iterator[Stay]:
    """Train for some weeks, and then no more."""
    scheduler = str(p.rng.choice(["", "slurm"]))
    yield from p.runs(p.since, p.since + p.days(5, 35), 14 * HOUR, 8 * HOUR, scheduler=scheduler)


def nightly(p: Person) -> Iterator[Stay]:
    """Run on most nights. Some processes stay; some jobs are switched off one day."""
    hour, length, resident = p.rng.uniform(0, 24), p.about(2 * HOUR, 0.6), p.chance(0.3)
    until = p.until if p.chance(0.7) else min(p.until, p.since + p.days(10, 50))
    nights = [
        day * DAY + int(p.rng.normal(hour, 0.3) * HOUR)
        for day in range(p.since // DAY, until // DAY)
        if p.chance(0.94) and not (p.off[day] and p.chance(0.3))
    ]
    work = [(at, at + p.about(length, 0.25)) for at in nights]
    if resident:
        yield from p.stay(p.since, p.until, work, over_from=None if until == p.until else until)
    for first, last in [] if resident else work:
        yield from p.stay(first, last, [(first, last)])


def kernels(p: Person, come: Mask, from_hour: float, hours: float, left: Mask | None = None) -> Iterator[Stay]:
    """Yield notebooks: a process for some days with bursts of work; it ends before days off, unless `left` is set."""
    first, work = 0, Spans()
    days = [int(day) for day in np.flatnonzero(come) if p.since <= day * DAY < p.until]
    for day, following in pairwise([*days, p.until // DAY + 1]):
        bursts = p.session(day, from_hour, hours)
        first, work = first if work else bursts[0][0], work + bursts
        away = following - day > 4 and (left is None or not left[day])
        if following * DAY >= p.until or p.chance(0.75 if away else 0.2):
            lost = p.chance(0.15 if away else 0.6)  # a night, or a whole leave
            end = following * DAY if lost else work[-1][1] + p.about(HOUR, 1.0)
            yield from p.stay(first, min(end, following * DAY), work)
            work = Spans()


def notebook(p: Person) -> Iterator[Stay]:
    """Work in a notebook on weekdays."""
    yield from kernels(p, p.there(p.rng.uniform(0.5, 0.95), p.rng.uniform(0, 0.2)), 10, p.rng.uniform(3, 9))


def left_notebook(p: Person) -> Iterator[Stay]:
    """Work in a notebook, and leave it open over a holiday of one to two and a half weeks."""
    come = p.there(p.rng.uniform(0.6, 0.95), 0.05)
    p.away(come, 6, 18)
    yield from kernels(p, come, 10, p.rng.uniform(3, 8), left=np.ones(len(come), np.bool_))


def vacation(p: Person) -> Iterator[Stay]:
    """Run programs every weekday, and go away for two weeks; usually the process ends before."""
    come, left = p.there(0.9, 0.1), np.full(len(p.off), p.chance(0.3))
    p.away(come, 10, 19)
    if left[0]:
        yield from kernels(p, come, 9.5, 8, left)
        return
    for day in np.flatnonzero(come):
        for first, last in p.session(int(day), 9.5, 8):
            yield from p.stay(first, last, [(first, last)])


def student(p: Person) -> Iterator[Stay]:
    """Come at irregular hours, also on weekends, with a semester break of three to six weeks."""
    come = p.there(p.rng.uniform(0.25, 0.6), p.rng.uniform(0.1, 0.5))
    p.away(come, 20, 42)
    yield from kernels(p, come, p.rng.uniform(12, 18), p.rng.uniform(2, 6), np.full(len(come), p.chance(0.4)))


def sweep(p: Person) -> Iterator[Stay]:
    """Try parameters for a day or two on all GPUs, then think for days or weeks."""
    at, until = p.since + p.days(0, 6), p.since + p.days(25, 80)
    if p.chance(0.25):
        yield from p.stay(p.since, until, [], process=False, scheduler="slurm")
    while at < min(until, p.until):
        end = at + p.about(20 * HOUR, 0.7, 4 * DAY)
        for gpu in p.gpus:
            yield from replace(p, gpus=(gpu,), until=min(end, p.until)).runs(at, end, 1.2 * HOUR, 2)
        at = p.morning(end + p.about(6 * DAY, 0.8))


def deadline(p: Person) -> Iterator[Stay]:
    """Work more and more until a deadline, then not at all; some return once for the last version."""
    first, length = p.since + p.days(0, 8), p.days(14, 35)
    for day in range(first // DAY, (first + length) // DAY):
        if p.chance(0.25 + 0.75 * (day * DAY - first) / length):
            at = day * DAY + int(p.rng.uniform(7, 20) * HOUR)
            yield from p.stay(
                at, at + p.about(6 * HOUR, 0.8, 20 * HOUR), [(at, at + p.about(6 * HOUR, 0.8, 20 * HOUR))]
            )
    end = first + length + p.about(6 * HOUR, 0.5)
    if p.chance(0.25):
        yield from p.stay(end, end + p.days(5, 60), [(end, end + 3)], over_from=end + 3)
    elif p.chance(0.3):
        again = end + p.days(18, 35)
        yield from p.runs(again, again + p.days(1, 4), 8 * HOUR, 3 * HOUR)


def serving(p: Person) -> Iterator[Stay]:
    """Serve recorded days of traffic, quieter at weekends; some services lose their users and stay loaded."""
    days, place, quiet = recorded().days, p.rng.integers(0, len(recorded().days)), p.rng.uniform(0, 0.7)
    end = p.since + p.days(8, 45) if p.chance(0.2) else p.until
    command, at, scheduler = str(p.rng.choice(SERVERS)), p.since, str(p.rng.choice(["", "kubernetes"]))
    while at < p.until:
        last = min(p.until, at + p.about(12 * DAY, 0.7))
        util = np.concatenate(
            [
                days[np.clip(place + p.rng.integers(-4, 5), 0, len(days) - 1)]
                * (p.rng.random(DAY) >= (quiet if day % 7 >= 5 else 0))
                for day in range(at // DAY, last // DAY + 1)
            ]
        )[at % DAY :][: last - at]
        util[max(0, end - at) :] = 0
        over = None if end >= last else max(end, at)
        for stay in p.stay(at, last, [], command=command, scheduler=scheduler, server=True, over_from=over):
            yield replace(stay, util_pct=util[: stay.last - stay.first], mem_ratio=float(p.rng.uniform(0.3, 0.92)))
        at = last + int(p.rng.integers(1, 4))


def standby(p: Person) -> Iterator[Stay]:
    """Keep a server warm for an incident, about once a month."""
    at, work = p.since, Spans()
    while at < p.until:
        at += max(DAY // 2, int(p.rng.exponential(26) * DAY))
        work.append((at, at + p.about(3 * HOUR, 0.7)))
    yield from p.stay(
        p.since, p.until, work, command=str(p.rng.choice(SERVERS)), server=True, scheduler="kubernetes", mem_ratio=0.8
    )


def ended_project(p: Person) -> Iterator[Stay]:
    """Work for weeks until the project ends; process or allocation stay until an operator ends them. Few come back."""
    end = p.since + p.days(6, 30)
    yield from replace(p, until=min(end, p.until)).runs(p.since, end, 10 * HOUR, 6 * HOUR)
    gone = end + max(3 * DAY, int(p.rng.exponential(50) * DAY))
    work: Spans = []
    if p.chance(0.12):
        back = end + p.about(13 * DAY, 0.5)
        work = [(back, back + p.about(8 * HOUR, 0.8))]
    over = None if work else end
    if p.chance(0.35):
        yield from p.stay(end, gone, [], process=False, scheduler="slurm", over_from=over)
    else:
        yield from p.stay(end, gone, work, over_from=over)


def newcomer(p: Person) -> Iterator[Stay]:
    """Get GPUs, begin late and try for one to three days; half of the users never return."""
    first = p.since // DAY + int(p.rng.integers(2, 30))
    for day in range(first, first + int(p.rng.integers(1, 4))):
        spans = p.session(day, 13, 3)
        yield from p.stay(spans[0][0], spans[-1][1] + p.about(HOUR, 1), spans)
    if p.chance(0.5):
        later = replace(p, since=(first + int(p.rng.integers(4, 9))) * DAY)
        yield from (campaign if p.chance(0.5) else notebook)(later)


def retraining(p: Person) -> Iterator[Stay]:
    """Train a model again every month; between trainings the GPUs are free, allocated or held."""
    between, at, work = p.rng.choice(["free", "allocated", "held"], p=[0.5, 0.3, 0.2]), p.since + p.days(0, 28), Spans()
    while at < p.until:
        work.append((at, at + p.about(18 * HOUR, 0.5, 4 * DAY)))
        at += 30 * DAY + int(p.rng.normal(0, 1.2) * DAY)
    if between == "held":
        yield from p.stay(p.since, p.until, work)
        return
    if between == "allocated":
        yield from p.stay(p.since, p.until, [], process=False, scheduler="slurm")
    for first, last in work:
        yield from p.stay(first, last, [(first, last)])


def monday(p: Person) -> Iterator[Stay]:
    """Evaluate on Mondays, at times once more on Tuesday."""
    resident, work = p.chance(0.4), Spans()
    for day in range(p.since // DAY, p.until // DAY):
        if p.chance({0: 0.9, 1: 0.15}.get(day % 7, 0.01)) and not (p.off[day] and p.chance(0.5)):
            work += p.session(day, p.rng.uniform(7, 12), 4, pause=2)
    if resident:
        yield from p.stay(p.since, p.until, work)
    for first, last in [] if resident else work:
        yield from p.stay(first, last, [(first, last)])


def forgotten(p: Person) -> Iterator[Stay]:
    """Work for one to twenty days and forget the process, which runs until the host is restarted."""
    first, work = p.since + p.days(0, 10), Spans()
    for day in range(first // DAY, first // DAY + int(p.rng.integers(1, 21))):
        work += p.session(day, 10, 6) if day % 7 < 5 and p.chance(0.8) else []
    work = work or p.session(first // DAY, 10, 6)
    over = work[-1][1]
    orphan = over + p.about(2 * HOUR, 1.0) if p.chance(0.3) else None
    gone = over + max(2 * DAY, int(p.rng.exponential(55) * DAY))
    yield from p.stay(work[0][0], gone, work, over_from=over, orphan_from=orphan)


USES: dict[str, tuple[Use, tuple[int, ...]]] = {
    "campaign": (campaign, (1, 2, 4, 8)),
    "nightly": (nightly, (1, 1, 2, 4)),
    "notebook": (notebook, (1,)),
    "left notebook": (left_notebook, (1, 1, 2)),
    "sweep": (sweep, (4, 8)),
    "deadline": (deadline, (2, 4, 8)),
    "serving": (serving, (1, 1, 2, 4)),
    "standby": (standby, (1, 2)),
    "ended project": (ended_project, (1, 2, 4, 8)),
    "newcomer": (newcomer, (1, 2, 4)),
    "vacation": (vacation, (1, 1, 2)),
    "retraining": (retraining, (1, 2, 4, 8)),
    "monday": (monday, (1, 2, 4)),
    "student": (student, (1,)),
    "forgotten": (forgotten, (1, 1, 2)),
}
"""Each use and the sizes of its blocks; the sixteenth is the shared queue (`queue_stays`)."""


def queue_stays(rng: Rng, gpus: NDArray[np.int64], until: int, off: Mask) -> Iterator[Stay]:
    """Yield the jobs of a shared queue on hosts (rows of `gpus`): free GPUs are assigned first come, first served."""
    free, waiting = np.zeros(gpus.shape, np.int64), list[tuple[int, int, int]]()
    users, lowest = 4 + int(rng.integers(0, 10)), rng.random() < 0.6
    share, load = rng.dirichlet(np.full(users, 0.6)), rng.uniform(0.3, 0.9)
    on = rng.random((users, until // WEEK + 2)) < 0.6  # weeks in which a user has something to run
    per_slot = (
        load * gpus.size / (2.4 * 5.3 * HOUR * 0.5)
    )  # jobs are of 2.4 GPUs and 5.3 h on average; half of the asked come
    for slot in range(until):
        day, hour = slot // DAY, slot % DAY // HOUR
        rhythm = (0.4 + 1.2 * (9 <= hour < 20)) * (0.5 if day % 7 >= 5 else 1) * (0.4 if off[day] else 1)
        for _ in range(rng.poisson(per_slot * rhythm)):
            user = int(rng.choice(users, p=share))
            if on[user, slot // WEEK]:
                waiting.append((user, int(rng.choice([1, 2, 4, 8], p=[0.55, 0.15, 0.2, 0.1])), slot))
        while waiting:
            user, size, asked = waiting[0]
            fits = np.flatnonzero((free <= slot).sum(axis=1) >= size)
            if not len(fits):
                break
            waiting.pop(0)
            row = int(fits[0] if lowest else rng.choice(fits))
            own = np.flatnonzero(free[row] <= slot)[:size]
            job = _job(rng, tuple(int(gpu) for gpu in gpus[row, own]), slot, until, f"queue-user-{user}")
            free[row, own] = job.last
            yield replace(job, submitted=asked)


def _job(rng: Rng, gpus: tuple[int, ...], first: int, until: int, user: str) -> Stay:
    """Return a job of ten minutes to four days; some wait for input, hold GPUs after their work, or leave GPUs idle."""
    length = max(1, int(min(rng.lognormal(np.log(2 * HOUR), 1.4), 4 * DAY)))
    held = int(rng.uniform(2, 20) * HOUR) if rng.random() < 0.08 else 0
    last = min(until, first + length + held)
    util = np.zeros(last - first)
    level = rng.choice(recorded().levels)
    util[:length] = np.clip(level * rng.normal(1, 0.1, len(util[:length])), 1, 100)
    if rng.random() < 0.3:
        util[rng.random(len(util)) < rng.uniform(0.05, 0.6)] = 0
    idle = gpus[1:] if rng.random() < 0.06 else ()
    memory = float(rng.uniform(0.05, 0.95))
    return Stay(gpus, first, last, user, util, "queue", scheduler="slurm", mem_ratio=memory, idle_gpus=idle)
