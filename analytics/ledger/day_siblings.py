"""GPUs of one job that fall together from work to a flat draw: what the other cards' sensors say against work.

A collective that hangs stops every rank within seconds, and kernels that only wait draw the same power row after row.
The draw of work moves. At a power limit it may be flat, but then it has not fallen on every GPU of the job.
"""

from __future__ import annotations

import numpy as np

from analytics.ledger.columns import Codes, Ints, Mask, Places, run_starts
from analytics.ledger.day_owners import Held
from analytics.ledger.day_rows import DayRows
from analytics.names import JOINER
from fallow.clock import MINUTE_MS

ALONE, FELL, STILL = range(3)
"""What the other GPUs of a row's job say: nothing; all fell from work to a flat draw; all were flat since midnight."""

FLAT_STEP = 0.02
"""Largest change of the draw from one row to the next while kernels only wait."""
FELL_TO = 0.75
"""A flat draw up to this share of the highest mean of WORKED_MIN_MS before is a fall. A T4 or L4 that spins draws 0.6
of it, larger cards 0.3 to 0.5."""
WORKED_MIN_MS = 5 * MINUTE_MS
_FAR_W = 1e7
"""More than any card draws: it keeps the highest draws of GPUs and users apart in one pass."""


def siblings(rows: DayRows, held: Held, running: Mask, at: Places, least_ms: int) -> Codes:
    """Return what the other GPUs of the same job on the host say of each row: ALONE, FELL or STILL.

    `running` marks rows with reported kernels, `at` those that may wait. A job that works on any GPU has no witness.
    """
    found = np.full(len(rows), ALONE, np.int32)
    job = _jobs(rows, held)
    mine = running & (job >= 0)
    flat = np.zeros(len(rows), bool)
    flat[_flat(rows, at[mine[at]], least_ms)] = True
    if not flat.any():
        return found
    fell, still = _fallen(rows, held, np.flatnonzero(flat))
    minute = job * (1 << 32) + rows.start // MINUTE_MS
    for state, these in ((STILL, fell | still), (FELL, fell)) if still.any() else ((FELL, fell),):
        at = np.flatnonzero(these)
        moments, gpus = np.unique(minute[at[run_starts(minute[at], rows.gpu[at])]], return_counts=True)
        others = minute[mine & ~these]
        others = np.sort(others[run_starts(others)])  # setdiff1d is 40 times slower: it hashes
        together = moments[(gpus > 1) & ~_among(moments, others)]
        found[at[_among(minute[at], together)]] = state
    return found


def _among(values: Ints, wanted: Ints) -> Mask:
    """Return the values that are among some ascending ones."""
    if not len(wanted):
        return np.zeros(len(values), bool)
    return np.asarray(wanted[np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)] == values)


def _jobs(rows: DayRows, held: Held) -> Places:
    """Return a number for the job and host of each row; -1 for none and for several."""
    jobs = [owner.job for owner, _ in held.owners]
    named = {job: number for number, job in enumerate(dict.fromkeys(jobs)) if job and JOINER not in job}
    hosts = {host: number for number, host in enumerate(dict.fromkeys(host for host, _ in rows.names))}
    host = np.array([hosts[host] for host, _ in rows.names], np.int64)[rows.gpu]
    job = np.array([named.get(each or "", -1) for each in jobs], np.int64)[held.owner]
    return np.where(job >= 0, host * len(jobs) + job, -1)


def _flat(rows: DayRows, at: Places, least_ms: int) -> Places:
    """Return those of the rows that stand in long runs of one flat draw."""
    if not len(at):
        return at
    power, start, end = rows.floats["power_w"][at], rows.start[at], rows.start[at] + rows.weight[at]
    is_step = ~(np.abs(np.diff(power)) <= FLAT_STEP * np.fmax(power[1:], power[:-1]))
    first = np.flatnonzero(np.append(True, is_step | (np.diff(rows.gpu[at]) != 0) | (start[1:] != end[:-1])))
    lengths = np.diff(np.append(first, len(at)))
    lasts = end[first + lengths - 1] - start[first] >= least_ms
    found: Places = at[np.repeat(lasts & (lengths > 2), lengths)]
    return found


def _fallen(rows: DayRows, held: Held, flat: Places) -> tuple[Mask, Mask]:
    """Return the flat rows whose GPU drew much more under the same user before, and those flat since midnight."""
    new_gpu = np.append(True, np.diff(rows.gpu) != 0)
    new = new_gpu | np.append(True, np.diff(held.owner) != 0)
    number = np.cumsum(new) - 1
    first = np.flatnonzero(new)[number]
    end = rows.start + rows.weight
    drawn = np.append(0.0, np.cumsum(np.nan_to_num(rows.floats["power_w"]) * rows.weight))
    # one key in order for all GPUs and users finds the first row of each row's last minutes
    key = number * (1 << 32) + rows.start - rows.start.min()
    since = np.maximum(np.searchsorted(key, key + rows.weight - WORKED_MIN_MS), first)
    mean_w = np.where(end - rows.start[first] >= WORKED_MIN_MS, drawn[1:] - drawn[since], 0.0) / WORKED_MIN_MS
    highest_w = np.maximum.accumulate(mean_w + number * _FAR_W) - number * _FAR_W
    fell, still = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    fell[flat] = rows.floats["power_w"][flat] <= FELL_TO * highest_w[flat]
    still[flat] = new_gpu[first[flat]] & ~fell[flat]
    return fell, still
