"""The rows in which kernels are reported and no work is done, by witnesses that agree.

Utilization says that a kernel is resident, not that it does anything. The kernel of a hung collective, a kernel whose
process is gone and the bursts of a keep-alive all read as work. Other witnesses tell them apart: the power against the
model's own draw, the activity of the card's units, its traffic, the process list, the other GPUs of the job
(analytics/ledger/day_siblings), the CPU time of the processes and what the host reads and writes. Utilization beside
memory in which no context fits is a wrong reading and no stall (analytics/contradictions).

One witness never decides. A row counts as *waiting* where at least two independent witnesses agree and none
contradicts; where one alone speaks it counts as *doubtful*, which figures state as a bound. When in doubt it is work:

- memory-bound decoding, FP64 solvers and any kernel with arithmetic keep a unit busy, or draw more power;
- tiny models that are bound by launch latency leave gaps between kernels, move bytes over PCIe, or show arithmetic;
- actors, loaders, compilers and evaluations that wait for the CPU run kernels for a part of the time only;
- ranks that wait for a checkpoint or for data are on a host that writes or reads, beside GPUs that rest;
- processes that compute on several CPUs prepare something;
- point samples further apart than a minute show too little;
- a card that is throttled draws little and works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analytics.ledger.columns import Codes, Columns, Floats, Mask, Places, run_starts
from analytics.ledger.day_owners import USE, Held
from analytics.ledger.day_processes import Lists
from analytics.ledger.day_rows import THROTTLED, DayRows
from analytics.ledger.day_siblings import ALONE, FELL, STILL, siblings
from analytics.ledger.settings import LedgerSettings
from fallow.clock import MINUTE_MS
from fallow.stall_evidence import ACTIVITY_MOST, ACTIVITY_NEEDED, HELD_DOWN_MOST, RESIDENT_PCT, RestingDraw

NO_SIGN, WAITING, KEPT_ALIVE, DOUBTFUL, CONTESTED, RESUMING = range(6)
"""What witnesses say of a row: nothing; its kernels only wait; it belongs to a keep-alive; one witness alone speaks
against work; some do, and the host, its processes or the distance of the samples leave room for work; or its kernels
only wait if they already did at midnight."""

POLLING_PCT = 50.0
"""Kernels that wait, time out and restart leave pauses; all GPUs of a job must have fallen to such a utilization."""
ONE_BLOCK_PCT, FEW_SMS_PCT = 2.0, 5.0
"""One spinning block keeps 1 to 2 % of the SMs active: no work has so few. A ring of a few channels keeps 5 %, as a
tiny model may."""
MOVED_BYTES_PER_S = 50e6
"""A checkpoint is written and data are read faster than this, on disk or network; logs are slower."""
BUSY_CPU_PCT = 200.0
"""A process that spins keeps one CPU busy; one that prepares data or evaluates keeps several."""
MOVED = ("disk_read_bytes_per_s", "disk_write_bytes_per_s", "net_receive_bytes_per_s", "net_transmit_bytes_per_s")

PIPES = ("tensor_active_pct", "fp64_active_pct", "fp32_active_pct", "fp16_active_pct")
UNITS = (*PIPES, "mem_util_pct", "encoder_util_pct", "decoder_util_pct")
"""Columns that are read only for days with rows in doubt."""

TINY_BYTES = 2 * 2**30
"""A keep-alive holds a context and little more (keep-gpu: 1 GiB by default); weights and caches of work are larger."""
BURSTS_MIN = 5
PERIOD_CV_MAX = 0.25
"""Requests come at random (near 1); a loop with a timer does not."""
DUTY_MAX_PCT = 20.0
QUIET_CPU_PCT = 20.0
"""A loop that sleeps needs next to no CPU; loading, compiling and simulating need one or more."""


@dataclass(frozen=True)
class OtherWitnesses:
    """What is beside the rows themselves; columns are read only where rows are in doubt."""

    draws: Mapping[tuple[str, str], RestingDraw]
    """By host and GPU, for cards of a known limit."""
    units: Callable[[Sequence[str]], Mapping[str, Floats]]
    """Returns columns of the same rows; without those that no row states."""
    moved: Callable[[], Columns]
    """Returns the columns MOVED of the `host` table."""


def stall_signs(
    rows: DayRows,
    held: Held,
    lists: Lists,
    others: OtherWitnesses,
    settings: LedgerSettings,
) -> Codes:
    """Return the sign of each row."""
    signs = np.zeros(len(rows), np.int32)
    if not len(rows):
        return signs
    running = (held.kind == USE) & held.measured & ~held.zero
    resident = running & (rows.floats["gpu_util_pct"] >= RESIDENT_PCT)
    draws = _Draws.of(rows, others.draws)
    at = np.flatnonzero(running & (rows.floats["gpu_util_pct"] >= POLLING_PCT))
    at = at[~(draws.drawn_w(at) > draws.spinning_w[rows.gpu[at]])]
    fallen_rows = siblings(rows, held, running, at, settings.stalled_after_ms)
    at = _lasting(rows, at[resident[at] | (fallen_rows[at] != ALONE)], settings.stalled_after_ms)
    if len(at):
        fallen = fallen_rows[at]
        of_card = np.sum(
            _witnesses(rows, at, draws, others, resident=resident[at], beside_fallen=fallen != ALONE), axis=0
        )
        agree = of_card + (fallen == FELL)
        contradicted = _shows_work(rows, at) | (agree == 0)
        cpu_util_pct = np.append(lists.cpu_util_pct, np.nan)[held.list_of_row[at]]
        doubted = (cpu_util_pct >= BUSY_CPU_PCT) | (rows.sampled[at] & (rows.weight[at] > MINUTE_MS))
        if not (contradicted | doubted).all():
            works = running.copy()
            works[at] = False
            doubted |= _is_moved(rows, at, others.moved()) & ~_beside_work(rows, at, np.flatnonzero(works))
        alone = np.where((fallen == STILL) & (of_card > 0), RESUMING, DOUBTFUL)
        spoken = np.where(doubted, CONTESTED, np.where(agree >= 2, WAITING, alone))
        signs[at] = np.where(contradicted, NO_SIGN, spoken)
    kept = _kept_alive(rows, held, lists, running & ~resident, draws, least_ms=settings.stalled_after_ms)
    signs[kept] = KEPT_ALIVE
    return signs


@dataclass(frozen=True)
class _Draws:
    """The draw of rows, and by GPU the most that its kernels draw without work; NaN where it is not known."""

    rows: DayRows
    context_w: Floats
    spinning_w: Floats
    least_w: Floats
    working_w: Floats

    @classmethod
    def of(cls, rows: DayRows, known: Mapping[tuple[str, str], RestingDraw]) -> _Draws:
        found = [known.get(name) for name in rows.names]
        nothing = RestingDraw(np.nan, np.nan, np.nan, np.nan)
        return cls(rows, *np.array([draw or nothing for draw in found], np.float64).T)

    def drawn_w(self, at: Places) -> Floats:
        """Return the larger of reading and energy counter, as either shows work; NaN where no card draws so little."""
        drawn_w = np.fmax(self.rows.floats["power_w"][at], self.rows.rates["energy_mj"][at])
        return np.where(drawn_w < self.least_w[self.rows.gpu[at]], np.nan, drawn_w)


def _lasting(rows: DayRows, at: Places, least_ms: int) -> Places:
    """Return the rows in long unbroken runs, or in runs at the edge of a GPU's day: no other row can stall."""
    if not len(at):
        return at
    start, end = rows.start[at], rows.start[at] + rows.weight[at]
    new = np.append(True, (np.diff(rows.gpu[at]) != 0) | (start[1:] != end[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(at)) - 1
    usable = np.flatnonzero(rows.usable)
    days = run_starts(rows.gpu[usable])
    at_edge = np.isin(at[first], usable[days]) | np.isin(at[last], usable[np.append(days[1:], len(usable)) - 1])
    found: Places = at[((end[last] - start[first] >= least_ms) | at_edge)[np.cumsum(new) - 1]]
    return found


def _witnesses(
    rows: DayRows, at: Places, draws: _Draws, others: OtherWitnesses, *, resident: Mask, beside_fallen: Mask
) -> tuple[Mask, ...]:
    """Return what power, units and process list say against work in these rows; none does where a unit works.

    Device memory at rest stands for the units where no process is listed, and beside other GPUs of the job that fell.
    A tiny model leaves it at rest, too, but its job did not fall, and its process is listed. Pauses between kernels
    lower the power as a stall does.
    """
    drawn_w, gpu = draws.drawn_w(at), rows.gpu[at]
    known = {name: rows.floats[name][at] for name in ("sm_active_pct", "dram_active_pct", "pcie_rx_bytes_per_s")}
    known |= {name: values[at] for name, values in others.units(UNITS).items()}
    works, unknown = np.zeros(len(at), bool), np.full(len(at), np.nan)
    for name, values in known.items():
        works |= values > ACTIVITY_MOST[name]

    def is_known(name: str) -> Mask:
        return ~np.isnan(known.get(name, unknown))

    sm = known["sm_active_pct"]
    every_unit = np.logical_and.reduce([is_known(name) for name in ACTIVITY_NEEDED])
    some_unit = np.logical_or.reduce([sm <= FEW_SMS_PCT, *(is_known(name) for name in (*PIPES, "dram_active_pct"))])
    # units that many kernels leave alone need a draw that arithmetic exceeds
    no_unit = every_unit | (sm <= ONE_BLOCK_PCT) | (some_unit & ~(drawn_w > draws.context_w[gpu]))
    low, unowned = drawn_w <= draws.spinning_w[gpu], rows.process_count[at] == 0
    memory_rests = (known.get("mem_util_pct", unknown) <= ACTIVITY_MOST["dram_active_pct"]) & (
        drawn_w <= draws.working_w[gpu]
    )
    no_unit |= memory_rests & (unowned | beside_fallen)
    return tuple(each & ~works for each in (low & resident, no_unit, unowned))


def _shows_work(rows: DayRows, at: Places) -> Mask:
    """Return the rows with traffic of the card, or with clocks that are held down: then low power says nothing."""
    found = np.zeros(len(at), bool)
    for kind in ("pcie", "nvlink"):
        found |= (_traffic(rows, kind) > _most_traffic(kind))[at]
    for name in (*THROTTLED["power"], *THROTTLED["thermal"]):
        found |= rows.rates[name][at] > HELD_DOWN_MOST
    return found


def _traffic(rows: DayRows, kind: str) -> Floats:
    """Return the larger of both directions; NaN where neither is known."""
    return np.fmax(rows.floats[f"{kind}_tx_bytes_per_s"], rows.floats[f"{kind}_rx_bytes_per_s"])


def _most_traffic(kind: str) -> float:
    return ACTIVITY_MOST[f"{kind}_rx_bytes_per_s"]


def _beside_work(rows: DayRows, at: Places, working: Places) -> Mask:
    """Return the rows at whose start another GPU of their host works: what the host moves then is that GPU's."""
    hosts = {name: code for code, name in enumerate(dict.fromkeys(host for host, _ in rows.names))}
    host = np.array([hosts[name] for name, _ in rows.names])
    found = np.zeros(len(at), bool)
    for code in np.unique(host[rows.gpu[at]]):
        mine = np.flatnonzero(host[rows.gpu[at]] == code)
        own = working[host[rows.gpu[working]] == code]
        own = own[np.argsort(rows.start[own], kind="stable")]
        ends = np.append(np.maximum.accumulate(rows.start[own] + rows.weight[own]), 0)
        start = rows.start[at[mine]]
        found[mine] = ends[np.searchsorted(rows.start[own], start, side="right") - 1] > start
    return found


def _is_moved(rows: DayRows, at: Places, host_rows: Columns) -> Mask:
    """Return the rows during which their host reads or writes much, on disk or network."""
    busy = np.zeros(len(at), bool)
    if not len(host_rows):
        return busy
    moved = np.fmax.reduce([host_rows.floats(name) for name in MOVED])
    time = host_rows.ints("time")
    hosts = {name: code for code, name in enumerate(host_rows.host.names)}
    of_unit = np.array([hosts.get(host, -1) for host, _ in rows.names])
    host_of_row = of_unit[rows.gpu[at]]
    for code in np.unique(host_of_row[host_of_row >= 0]):
        own = np.flatnonzero(host_rows.host.codes == code)
        own = own[np.argsort(time[own], kind="stable")]
        mine = np.flatnonzero(host_of_row == code)
        start = rows.start[at[mine]]
        last = np.searchsorted(time[own], start + rows.interval[at[mine]] // 2, side="right") - 1
        there = (last >= 0) & (start - time[own][last] <= MINUTE_MS)
        busy[mine] = there & (moved[own][last] > MOVED_BYTES_PER_S)
    return busy


def _kept_alive(rows: DayRows, held: Held, lists: Lists, ran: Mask, draws: _Draws, *, least_ms: int) -> Places:
    """Return the rows of keep-alives: unbroken time with tiny memory, little CPU and power, and bursts by a timer.

    The tool's name stands for the timer or for the CPU, and beside both for tiny memory. Without it servers and pods
    are left alone: their callers and probes may come by a timer, too. The rows between the bursts belong to it. Their
    draw is no curve of a card that was not measured: a model that scores a few requests by a timer draws little more
    than they do.
    """
    nothing = np.zeros(0, np.intp)
    small = rows.floats["mem_used_bytes"] <= TINY_BYTES
    if not (ran & small).any() and not lists.keeps_alive.any():
        return nothing
    ran &= ~(_traffic(rows, "pcie") > _most_traffic("pcie"))
    cpu = np.append(lists.cpu_util_pct, np.nan)[held.list_of_row] <= QUIET_CPU_PCT
    named, served = (np.append(each, False)[held.list_of_row] for each in (lists.keeps_alive, lists.serves))
    at = np.flatnonzero((ran | (held.zero & (held.kind == USE))) & ((small & cpu) | named))
    if not len(at):
        return nothing
    start, weight = rows.start[at], rows.weight[at]
    burst, cpu, named, served, small = ran[at], cpu[at], named[at], served[at], small[at]
    new = np.append(
        True, (np.diff(rows.gpu[at]) != 0) | (np.diff(held.owner[at]) != 0) | (start[1:] != start[:-1] + weight[:-1])
    )
    group = np.cumsum(new) - 1
    count = group[-1] + 1

    def total(values: Floats | Mask | Places) -> Floats:
        return np.bincount(group, values, count).astype(np.float64)

    span_ms, rows_of = total(weight), total(np.ones(len(at)))
    quiet, is_named, tiny = (total(each) == rows_of for each in (cpu, named, small))
    drawn_w = draws.drawn_w(at)
    powered = ~np.isnan(drawn_w)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_w = total(np.where(powered, drawn_w, 0.0) * weight) / total(powered * weight)
        duty = total(rows.floats["gpu_util_pct"][at] * weight) / span_ms
        begins = np.flatnonzero(burst & (new | ~np.append(False, burst[:-1])))
        of_burst = group[begins]
        same = of_burst[1:] == of_burst[:-1]
        periods = np.diff(start[begins])[same].astype(np.float64)
        number, first, second = (
            np.bincount(of_burst[1:][same], values, count) for values in (np.ones(len(periods)), periods, periods**2)
        )
        variation = np.sqrt(np.maximum(second / number / (first / number) ** 2 - 1, 0.0))
    spinning_w = draws.spinning_w[rows.gpu[at[new]]]
    regular = (number >= BURSTS_MIN - 1) & (variation <= PERIOD_CV_MAX)
    by_timer = regular & (duty <= DUTY_MAX_PCT)
    little_power, much_power = mean_w <= spinning_w, mean_w > spinning_w
    by_pattern = tiny & by_timer & quiet & little_power & (total(served) == 0)
    by_name = np.where(tiny, by_timer | quiet | little_power, by_timer & quiet)
    agreed = by_pattern | (is_named & by_name & ~much_power)
    long = (span_ms >= least_ms) & (total(burst) > 0)
    found: Places = at[(agreed & long)[group]]
    return found
