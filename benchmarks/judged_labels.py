"""Labels of situations by their own truth, per week: what every rule should find, by the plain meaning of its words.

Each rule has a function that returns yes, no, or None where physics does not decide or the words are ambiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.judged_situations import DAY, HOUR, ROW_MS, ROWS, SEEN, SPINNING, WEEK, Recording, runs
from benchmarks.recordings import A100, Floats, Mask
from fallow.clock import MINUTE_MS

IDLE_ROWS = 5 * MINUTE_MS // ROW_MS + 1
"""Number of rows at zero that surely cover five minutes."""


@dataclass(frozen=True)
class Case:
    """One GPU in one week, with the other GPUs of its job."""

    recording: Recording
    whole_busy: Floats
    """The share of each row in which a kernel ran."""
    week: int
    siblings: Sequence[Case] = ()

    @property
    def until(self) -> int:
        return (self.week + 1) * WEEK

    @property
    def span(self) -> slice:
        return slice(self.week * WEEK, self.until)

    @property
    def facts(self) -> frozenset[str]:
        return self.recording.facts

    @cached_property
    def whole_ran(self) -> Mask:
        return self.whole_busy > 0

    @cached_property
    def busy(self) -> Floats:
        return self.whole_busy[self.span]

    @cached_property
    def ran(self) -> Mask:
        return self.whole_ran[self.span]

    @cached_property
    def occupied(self) -> Mask:
        return self.recording.occupied[self.span]

    @cached_property
    def seen(self) -> Mask:
        seen = self.recording.seen
        return np.ones(WEEK, np.bool_) if seen is None else seen[self.span]

    @cached_property
    def has_enough_work(self) -> bool:
        """Whether the GPU was active long enough to show its needs: two hours, on more than one day."""
        return int(self.ran.sum()) >= 2 * HOUR and int(self.ran.reshape(7, DAY).any(axis=1).sum()) > 1

    @cached_property
    def stays_unused(self) -> bool:
        """Whether the GPU stays unused for seven days after the week, and no running work depends on it."""
        running = any(case.whole_ran[case.until - HOUR : case.until].any() for case in self.siblings)
        return not running and not self.whole_ran[self.until : self.until + WEEK].any()

    def quiet_to_the_end(self, there: Mask) -> bool:
        """Return whether the condition held without a kernel for at least the last day."""
        return (
            bool(there[self.until - DAY : self.until].all()) and not self.whole_ran[self.until - DAY : self.until].any()
        )


Answer = bool | None


def between(value: float, no: float, yes: float) -> Answer:
    """Return True beyond `yes`, False beyond `no`, and None between; `yes` may be the lower value."""
    if (value >= yes) if yes > no else (value <= yes):
        return True
    return False if ((value <= no) if yes > no else (value >= no)) else None


def held(case: Case) -> Answer:
    idle = sum(after - first for first, after in runs(case.occupied & ~case.ran) if after - first >= IDLE_ROWS)
    if idle < 0.01 * WEEK:
        return False
    others = case.recording.orphan_from is not None or "server" in case.facts or bool(case.siblings)
    sure = not others and case.quiet_to_the_end(case.recording.occupied) and case.stays_unused
    return True if sure else None


def reserved_unused(case: Case) -> Answer:
    alone = case.recording.allocated & ~case.recording.occupied
    if alone[case.span].sum() < 0.01 * WEEK:
        return False
    return True if case.quiet_to_the_end(alone) and case.stays_unused else None


def never_used(case: Case) -> Answer:
    if case.recording.occupied[: case.until].any():
        return False
    there = np.ones(ROWS, np.bool_) if case.recording.seen is None else case.recording.seen
    return True if there[: case.until].sum() >= WEEK and not case.recording.allocated[: case.until].any() else None


def left_free(case: Case) -> Answer:
    """Return whether the GPU was free for two weeks; None within a day of two weeks."""
    taken = np.flatnonzero((case.recording.occupied | case.recording.allocated)[: case.until])
    return between(float(case.until - taken[-1]), 13 * DAY, 15 * DAY) if taken.size else False


def partial_use(case: Case) -> Answer:
    if not case.siblings or case.ran.any():
        return False
    return between(float(max(each.ran.sum() for each in case.siblings)), 0, DAY)


def imbalance(case: Case) -> Answer:
    if not case.siblings:
        return False
    if not case.ran.any():
        return None
    work = [float(each.busy.sum()) * each.recording.work.sm_mean for each in (case, *case.siblings)]
    return between(work[0] / max(work), 0.7, 0.42) if max(work) > 0 else None


def input_starved(case: Case) -> Answer:
    if "waits for input" in case.facts:
        return between(float(case.ran.sum()), 0, DAY)
    return None if "offload" in case.recording.kind else False


def throttled(case: Case) -> Answer:
    return between(case.recording.work.clock_lost, 0.02, 0.06) if case.has_enough_work or not case.ran.any() else None


def inefficient(case: Case) -> Answer:
    work = case.recording.work
    if not case.ran.any() or work.busy_mean < 0.4 or work.sm_mean > 0.55:
        return None if case.facts & {"hangs"} or work.clock_lost > 0.02 else False
    return True if case.has_enough_work and work.busy_mean > 0.8 and work.sm_mean < 0.25 else None


def stalls(case: Case) -> Answer:
    if case.facts & {"stalls", "hangs"}:
        still = (case.occupied & ~case.ran) if "stalls" in case.facts else case.occupied & _spins(case)
        return between(float(still.sum()) / max(1.0, float(case.occupied.sum())), 0.0, 0.04)
    return None if case.siblings else False


def _spins(case: Case) -> Mask:
    spins: Mask = np.repeat(case.recording.choice == SPINNING, HOUR)[case.span]
    return spins


def compute_oversized(case: Case) -> Answer:
    return between(case.recording.work.slower_on_half, 0.15, 0.05) if case.has_enough_work else None


def memory_oversized(case: Case) -> Answer:
    """Return whether half of the memory suffices. Only the A100 exists with half the memory and the same compute."""
    need, work = case.recording.need, case.recording.work
    if need is None or not case.has_enough_work:
        return None
    smaller = between(need, 0.6, 0.4)
    return None if smaller and case.recording.card != A100 and work.slower_on_half > 0.05 else smaller


def mig_fit(case: Case) -> Answer:
    work, need = case.recording.work, case.recording.need
    if not case.has_enough_work:
        return None
    if not case.recording.card.mig or case.siblings or work.slower_on_4g > 0.15 or (need or 0) > 0.6:
        return False
    return True if need is not None and need <= 0.45 and work.slower_on_3g <= 0.05 else None


def preallocated(case: Case) -> Answer:
    return ("preallocated" in case.facts) if case.occupied.sum() >= DAY else None


def ending(case: Case) -> Answer:
    ends = [int(fact.rpartition(" ")[2]) for fact in case.facts if fact.startswith("winds down")]
    if ends:
        return True if case.until >= (ends[0] + 5) * DAY else None
    steady = int(case.ran.reshape(7, DAY).any(axis=1).sum()) >= 4
    return False if steady or "comes back" in case.facts else None


def slow_uptake(case: Case) -> Answer:
    if not case.facts & {"new and slow", "new and used"}:
        return False if case.recording.seen is None else None
    first, used = runs(case.recording.seen)[0][0], int(np.flatnonzero(case.whole_ran)[0])
    if "new and used" in case.facts:
        return False
    return True if first + 5 * DAY <= case.until and used > case.until - WEEK else None


def hoarding(case: Case) -> Answer:
    if "hoards" in case.facts:
        return True
    return False if "uses its quota" in case.facts or (case.has_enough_work and case.ran.mean() > 0.6) else None


def blind_spot(case: Case) -> Answer:
    return (
        between(float(case.seen.mean()), 0.99, 0.8)
        if case.recording.seen is None or "new" not in case.recording.host
        else None
    )


RULES: Mapping[str, Callable[[Case], Answer]] = {
    rule.__name__: rule
    for rule in (
        held, reserved_unused, never_used, left_free, partial_use, imbalance, input_starved, throttled, inefficient,
        stalls, compute_oversized, memory_oversized, mig_fit, preallocated, ending, slow_uptake, hoarding, blind_spot,
    )
}  # fmt: skip


def low_efficiency(cases: Sequence[Case]) -> Iterator[Answer]:
    """Yield per case whether its user is large (5 % of the hours, not under 2 %) with a low mean over all held time."""
    there: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = defaultdict(float)
    for case in cases:
        there[case.recording.user] += float((case.occupied & case.seen).sum())
        busy[case.recording.user] += float(case.busy[case.seen].sum())
    whole = sum(there.values())
    for case in cases:
        user = case.recording.user
        if there[user] == 0:
            yield False
            continue
        large = between(there[user] / whole, 0.02, 0.05)
        low = between(busy[user] / there[user], 0.28, 0.22)
        yield False if large is False or low is False else True if large and low else None


def co_location(cases: Sequence[Case], hosts: Sequence[str]) -> Iterator[Answer]:
    """Yield True where a workload of the host could share the card at up to 10 % slowdown, False where none could."""
    single = [number for number, case in enumerate(cases) if case.recording.need is not None and not case.siblings]
    partners = [number for number in single if cases[number].ran.any()]
    for number, case in enumerate(cases):
        if number not in single or not case.has_enough_work:
            yield False if case.siblings else None
            continue
        fits = [
            (*_together(case, cases[other]), hosts[other] == hosts[number])
            for other in partners
            if other != number and cases[other].recording.card == case.recording.card
        ]
        if any(slower <= 0.10 and memory <= 0.85 and near for slower, memory, near in fits):
            yield True
        else:
            yield None if any(slower <= 0.25 and memory <= 1 for slower, memory, _ in fits) else False


def _together(one: Case, other: Case) -> tuple[float, float]:
    """Return the larger slowdown of two workloads on a shared card in that week, and the memory that both need.

    Kernels of two programs take turns: while both have kernels, each program waits for half of the time.
    """
    waits = float((one.busy * other.busy).sum()) / 2
    return waits / min(one.busy.sum(), other.busy.sum()), (one.recording.need or 1) + (other.recording.need or 1)


@dataclass(frozen=True)
class Label:
    """One line of the file of labels; times in rows."""

    gpu: str
    since: int
    until: int
    state: str = ""
    takeable: str = ""
    rules: str = ""
    not_rules: str = ""
    note: str = ""


def labels_of(fleet: Sequence[Recording], names: Sequence[str], hosts: Sequence[str]) -> Iterator[Label]:
    """Yield a fleet's labels: states of the whole time, rules of each week, and reclaimable GPUs at each week's end."""
    busy = [each.busy() for each in fleet]
    for name, recording, worked in zip(names, fleet, busy, strict=True):
        yield from _states(name, recording, worked > 0)
    for week in range(SEEN // WEEK):
        alone = [Case(recording, worked, week) for recording, worked in zip(fleet, busy, strict=True)]
        gangs: dict[str, list[Case]] = defaultdict(list)
        for case in alone:
            gangs[case.recording.gang].append(case)
        cases = [
            Case(
                case.recording,
                case.whole_busy,
                week,
                [other for other in gangs[case.recording.gang] if other is not case],
            )
            if case.recording.gang
            else case
            for case in alone
        ]
        of_fleet = {"low_efficiency": list(low_efficiency(cases)), "co_location": list(co_location(cases, hosts))}
        for number, (name, case) in enumerate(zip(names, cases, strict=True)):
            answers = {rule: judge(case) for rule, judge in RULES.items()} | {
                rule: answer[number] for rule, answer in of_fleet.items()
            }
            yes, no = (
                "+".join(rule for rule, answer in answers.items() if answer is wanted) for wanted in (True, False)
            )
            yield Label(name, week * WEEK, case.until, rules=yes, not_rules=no, note=case.recording.kind)
            if (
                case.recording.occupied[case.until - 1]
                or case.recording.allocated[case.until - 1]
                or answers["never_used"]
                or answers["left_free"]
            ):
                takeable = "true" if case.stays_unused else "false"
                yield Label(name, case.until - HOUR, case.until, takeable=takeable, note=case.recording.kind)


def _states(name: str, recording: Recording, ran: Mask) -> Iterator[Label]:
    """Yield the labels of used time, and of unused time of at least five minutes, where the GPU was observed."""
    there = recording.occupied[:SEEN]
    seen = np.ones(SEEN, np.bool_) if recording.seen is None else recording.seen[:SEEN]
    unused = {
        "held": there & ~ran[:SEEN],
        "reserved": recording.allocated[:SEEN] & ~there,
        "free": ~recording.allocated[:SEEN] & ~there,
    }
    used = seen.copy()
    for state, mask in unused.items():
        for first, after in runs(mask & seen):
            if after - first >= IDLE_ROWS or state != "held":
                used[first:after] = False
                yield Label(name, first, after, state=state, note=recording.kind)
    for first, after in runs(used):
        yield Label(name, first, after, state="used", note=recording.kind)
