"""The rows in which kernels are reported and no work is done, by witnesses that agree.

Utilization says that a kernel is resident, not that it does anything. The kernel of a hung collective, a kernel whose process is
gone and the bursts of a keep-alive all read as work. Other witnesses tell them apart: the power against the model's own draw, the
activity of the card's units, its traffic, the process list, the CPU time of the processes and what the host writes. Utilization beside
memory in which no context fits is a wrong reading and no stall (analytics/contradictions).

One witness never decides. A row counts as *waiting* where at least two independent witnesses agree and none contradicts; where one
alone speaks it counts as *doubtful*, which figures state as a bound. When in doubt it is work:

- memory-bound decoding, FP64 solvers and any kernel with arithmetic keep a unit busy, or draw more power;
- tiny models that are bound by launch latency leave gaps between kernels, move bytes over PCIe, or show arithmetic;
- actors, loaders, compilers and evaluations that wait for the CPU run kernels for a part of the time only;
- ranks that wait for a checkpoint are on a host that writes it;
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
from analytics.ledger.settings import LedgerSettings
from fallow.clock import MINUTE_MS
from fallow.stall_evidence import ACTIVITY_MOST, RESIDENT_PCT, RestingDraw

NO_SIGN, WAITING, KEPT_ALIVE, DOUBTFUL = range(4)
"""What witnesses say of a row: nothing, its kernels only wait, it belongs to a keep-alive, or one witness alone speaks against work."""

FEW_SMS_PCT = 5.0
"""One spinning block keeps 1 to 2 % of the SMs active, a ring of a few channels 5 %: so few do no work by themselves."""
WRITTEN_BYTES_PER_S = 50e6
"""A checkpoint writes faster than this to disk or network; logs write less."""
THROTTLED_SHARE = 0.05

UNITS = ("tensor_active_pct", "fp64_active_pct", "fp32_active_pct", "fp16_active_pct")
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
    written: Callable[[], Columns]
    """Returns the `host` table's writes."""


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
    at = np.flatnonzero(resident)
    at = _lasting(rows, at[~(draws.drawn_w(at) > draws.spinning_w[rows.gpu[at]])], settings.stalled_after_ms)
    if len(at):
        agree = np.sum(_witnesses(rows, at, draws, others), axis=0)
        contradicted = _shows_work(rows, at) | (agree == 0)
        if not contradicted.all():
            contradicted |= _is_written(rows, at, others.written())
        signs[at] = np.where(contradicted, NO_SIGN, np.where(agree >= 2, WAITING, DOUBTFUL))
    kept = _kept_alive(rows, held, lists, running & ~resident, draws, least_ms=settings.stalled_after_ms)
    signs[kept] = KEPT_ALIVE
    return signs


@dataclass(frozen=True)
class _Draws:
    """The draw of rows, and by GPU the most that its kernels draw without work; NaN where it is not known."""

    rows: DayRows
    context_w: Floats
    spinning_w: Floats

    @classmethod
    def of(cls, rows: DayRows, known: Mapping[tuple[str, str], RestingDraw]) -> _Draws:
        found = [known.get(name) for name in rows.names]
        nothing = RestingDraw(np.nan, np.nan)
        context_w, spinning_w = np.array(
            [(each.context_w, each.spinning_w) for each in (draw or nothing for draw in found)]
        ).T
        return cls(rows, context_w, spinning_w)

    def drawn_w(self, at: Places) -> Floats:
        """Return the larger of reading and energy counter: either sensor alone shows work."""
        return np.fmax(self.rows.floats["power_w"][at], self.rows.rates["energy_mj"][at])


def _lasting(rows: DayRows, at: Places, least_ms: int) -> Places:
    """Return those of the rows that stand in long unbroken runs, or in runs at the edge of a GPU's day: no other row can stall."""
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


def _witnesses(rows: DayRows, at: Places, draws: _Draws, others: OtherWitnesses) -> tuple[Mask, ...]:
    """Return what power, units and process list say against work in these rows; none does where a unit works."""
    drawn_w, gpu = draws.drawn_w(at), rows.gpu[at]
    little_power, no_more_than_context = drawn_w <= draws.spinning_w[gpu], drawn_w <= draws.context_w[gpu]
    no_process = rows.process_count[at] == 0
    sm, dram = rows.floats["sm_active_pct"][at], rows.floats["dram_active_pct"][at]
    works = (sm > ACTIVITY_MOST["sm_active_pct"]) | (dram > ACTIVITY_MOST["dram_active_pct"])
    pipes = np.full(len(at), np.nan)
    if not works.all():
        for name, values in others.units(UNITS).items():
            pipes = np.fmax(pipes, values[at])
            works |= values[at] > ACTIVITY_MOST[name]
    # units that many kernels leave alone need a draw that arithmetic exceeds
    some_known = ~np.isnan(sm) | ~np.isnan(pipes)
    no_unit = (sm <= FEW_SMS_PCT) | (dram <= ACTIVITY_MOST["dram_active_pct"]) | (some_known & no_more_than_context)
    return tuple(each & ~works for each in (little_power, no_unit, no_process))


def _shows_work(rows: DayRows, at: Places) -> Mask:
    """Return the rows with traffic of the card, or with clocks that are held down: then low power says nothing."""
    found = np.zeros(len(at), bool)
    for kind in ("pcie", "nvlink"):
        found |= (_traffic(rows, kind) > _most_traffic(kind))[at]
    for name in (*THROTTLED["power"], *THROTTLED["thermal"]):
        found |= rows.rates[name][at] > THROTTLED_SHARE
    return found


def _traffic(rows: DayRows, kind: str) -> Floats:
    """Return the larger of both directions; NaN where neither is known."""
    return np.fmax(rows.floats[f"{kind}_tx_bytes_per_s"], rows.floats[f"{kind}_rx_bytes_per_s"])


def _most_traffic(kind: str) -> float:
    return ACTIVITY_MOST[f"{kind}_rx_bytes_per_s"]


def _is_written(rows: DayRows, at: Places, host_rows: Columns) -> Mask:
    """Return the rows during which their host writes much, to disk or network."""
    busy = np.zeros(len(at), bool)
    if not len(host_rows):
        return busy
    written = np.fmax(host_rows.floats("disk_write_bytes_per_s"), host_rows.floats("net_transmit_bytes_per_s"))
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
        busy[mine] = there & (written[own][last] > WRITTEN_BYTES_PER_S)
    return busy


def _kept_alive(rows: DayRows, held: Held, lists: Lists, ran: Mask, draws: _Draws, *, least_ms: int) -> Places:
    """Return the rows of keep-alives: unbroken time with tiny memory and next to no CPU, in which bursts come by a timer.

    The tool's name stands for the timer or for the CPU. The rows between the bursts belong to it.
    """
    nothing = np.zeros(0, np.intp)
    small = rows.floats["mem_used_bytes"] <= TINY_BYTES
    ran &= small
    if not ran.any():
        return nothing
    ran &= ~(_traffic(rows, "pcie") > _most_traffic("pcie"))
    cpu = np.append(lists.cpu_util_pct, np.nan)[held.list_of_row] <= QUIET_CPU_PCT
    named = np.append(lists.keeps_alive, False)[held.list_of_row]
    at = np.flatnonzero((ran | (held.zero & (held.kind == USE) & small)) & (cpu | named))
    if not len(at):
        return nothing
    start, weight, burst, cpu, named = rows.start[at], rows.weight[at], ran[at], cpu[at], named[at]
    new = np.append(
        True, (np.diff(rows.gpu[at]) != 0) | (np.diff(held.owner[at]) != 0) | (start[1:] != start[:-1] + weight[:-1])
    )
    group = np.cumsum(new) - 1
    count = group[-1] + 1

    def total(values: Floats | Mask | Places) -> Floats:
        return np.bincount(group, values, count).astype(np.float64)

    span_ms, rows_of = total(weight), total(np.ones(len(at)))
    quiet, is_named = total(cpu) == rows_of, total(named) == rows_of
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
    little_power = mean_w <= draws.spinning_w[rows.gpu[at[new]]]
    regular = (number >= BURSTS_MIN - 1) & (variation <= PERIOD_CV_MAX)
    by_timer = regular & (duty <= DUTY_MAX_PCT)
    agreed = (by_timer & quiet & little_power) | (is_named & (quiet | little_power))
    long = (span_ms >= least_ms) & (total(burst) > 0)
    found: Places = at[(agreed & long)[group]]
    return found
