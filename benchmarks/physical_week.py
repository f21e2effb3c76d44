"""One physical week as 100 ms samples, as the agent's rows and as scrapes: the stated bounds, and the truth.

A recording has every 100 ms whether a kernel ran and the card's power. fallow's observations of it go through a lake;
the truth is the recording itself. `python -m benchmarks physical-week` prints the table of a full week.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from analytics.simulation.tables import table_of
from analytics.window import load_window_ledger, open_inputs
from benchmarks.measure import Figure
from benchmarks.recordings import TICK_MS, bursts
from fallow import parquet
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, WEEK_MS, utc_day
from fallow.lake import Lake, LakeFile
from fallow.schema import DEVICE, GPU
from tests.lakes import made_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from analytics.ledger.summary import Summary

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

IDLE_AFTER_MS = 5 * MINUTE_MS
_START_MS = 1_795_132_800_000  # 2026-11-20 00:00 UTC
_IDLE_W, _PAUSE_W, _WORK_W = 70.0, 115.0, 420.0
_FREE_GPUS = 3
"""Enough idle cards for the fleet to learn their power."""


@dataclass(frozen=True)
class Load:
    """One GPU, tick by tick: whether a kernel ran, its power, and whether it had a user."""

    name: str
    busy: Mask
    power_w: Floats
    occupied: bool = True


@dataclass(frozen=True)
class View:
    """One way of observation: its interval, by the agent (means of the whole time) or at moments, and its evidence."""

    name: str
    every_ms: int
    watched: bool = False
    power: bool = False
    energy: bool = False


VIEWS = (
    View("100 ms samples", 100),
    View("agent, 1 s rows", SECOND_MS, watched=True, power=True, energy=True),
    View("agent, 10 s rows", 10 * SECOND_MS, watched=True, power=True, energy=True),
    *(View(f"{every} s scrapes", every * SECOND_MS) for every in (15, 30, 60)),
    *(View(f"{every} s scrapes, power", every * SECOND_MS, power=True) for every in (15, 30, 60)),
    *(View(f"{every} s scrapes, energy", every * SECOND_MS, power=True, energy=True) for every in (15, 30, 60)),
)


@dataclass(frozen=True)
class Seen:
    """A view's figures of a recording, and the truth; all in shares of the time."""

    view: View
    held: float
    held_between: tuple[float, float]
    true_held: float
    idle: float
    idle_between: tuple[float, float]
    true_idle: float

    @property
    def holds(self) -> bool:
        """Return whether both truths are inside the stated bounds, to a millionth."""
        pairs = ((self.held_between, self.true_held), (self.idle_between, self.true_idle))
        return all(low - 1e-6 <= truth <= high + 1e-6 for (low, high), truth in pairs)


def record(length_ms: int, seed: int = 1) -> tuple[Load, ...]:
    """Return bursty training, a GPU held idle, rare requests, training in the first half of each day, and free GPUs."""
    rng, ticks = np.random.default_rng(seed), length_ms // TICK_MS
    trained = bursts(rng, ticks, pause=(1.0, 3.3), work=(0.2, 1.0))
    until_noon = bursts(rng, ticks, pause=(0.5, 3.3), work=(0.5, 20.0))
    until_noon &= np.arange(ticks) * TICK_MS % DAY_MS < min(DAY_MS, length_ms) // 2
    requests = bursts(rng, ticks, pause=(5.0, 170.0), work=(0.3, 1.5))
    nothing = np.zeros(ticks, np.bool_)
    return (
        Load("bursty training", trained, drawn_w(rng, trained)),
        Load("held, idle", nothing, drawn_w(rng, nothing)),
        Load("rare requests", requests, drawn_w(rng, requests)),
        Load("idle at night", until_noon, drawn_w(rng, until_noon)),
        *(Load(f"free {number}", nothing, drawn_w(rng, nothing), occupied=False) for number in range(_FREE_GPUS)),
    )


def drawn_w(rng: np.random.Generator, busy: Mask, resting_w: float | Floats = _IDLE_W) -> Floats:
    """Return what a card draws in each tick: clocks stay up for some seconds after work, and fall over some more."""
    tick = np.arange(len(busy))
    since_s = (tick - np.maximum.accumulate(np.where(busy, tick, -(10**9)))) * TICK_MS / SECOND_MS
    idle = resting_w + np.maximum(_PAUSE_W - resting_w, 0) * np.clip((10 - since_s) / 5, 0, 1)
    drawn: Floats = np.where(busy, _WORK_W, idle) + rng.normal(0, 0.5, len(busy))
    return drawn


def truth(loads: tuple[Load, ...]) -> tuple[float, float]:
    """Return the share of time held idle (five minutes without a kernel on a GPU with a user), and of all idle time."""
    ticks = sum(len(load.busy) for load in loads)
    held = sum(_held_ticks(load.busy) for load in loads if load.occupied)
    return held / ticks, sum(int((~load.busy).sum()) for load in loads) / ticks


def _held_ticks(busy: Mask) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([True], busy, [True])).astype(np.int8)))
    lengths = edges[1::2] - edges[::2]
    return int(lengths[lengths * TICK_MS >= IDLE_AFTER_MS].sum())


def look(loads: tuple[Load, ...], view: View, folder: Path) -> Seen:
    """Return fallow's figures of a recording observed in one way."""
    lake = made_lake(folder)
    for number, load in enumerate(loads):
        _write(lake, f"GPU-{number}", load, view)
    _write_devices(lake, len(loads))
    inputs = open_inputs(argparse.Namespace(lake=lake.root, since=None, until=None, config=None))
    return _seen(view, load_window_ledger(inputs).summary, truth(loads))


def _seen(view: View, summary: Summary, true: tuple[float, float]) -> Seen:
    totals, idle = summary.totals, summary.samples.idle
    whole, held = totals.observed_ms, totals.bound("held")
    return Seen(
        view=view,
        held=totals.state_ms["held"] / whole,
        held_between=(held.low_ms / whole, held.high_ms / whole),
        true_held=true[0],
        idle=summary.idle.zero_ms / whole,
        idle_between=(idle.low_ms / whole, idle.high_ms / whole),
        true_idle=true[1],
    )


def _write(lake: Lake, gpu: str, load: Load, view: View) -> None:
    """Write the rows of one GPU, a file per day; each GPU has its own host."""
    columns = _rows(load, view)
    times = columns["time"]
    for number, day_ms in enumerate(range(_START_MS, int(times[-1]) + 1, DAY_MS)):
        own = (times >= day_ms) & (times < day_ms + DAY_MS)
        rows = table_of(
            GPU, {name: _of_rows(values, own) for name, values in columns.items()} | {"gpu": gpu}, int(own.sum())
        )
        file = LakeFile(GPU.name, utc_day(day_ms), f"host-{gpu}", number + 1, number + 1)
        lake.put(file, parquet.encode(GPU, rows))


def _of_rows(values: Any, own: Mask) -> Any:
    return pa.array(values[own]) if isinstance(values, np.ndarray) else values


def _rows(load: Load, view: View) -> dict[str, Any]:
    step = view.every_ms // TICK_MS
    count = len(load.busy) // step
    energy_mj = np.concatenate(([0.0], np.cumsum(load.power_w * TICK_MS)))
    whole = load.busy[: count * step].reshape(count, step)
    columns: dict[str, Any] = {
        "time": _START_MS + np.arange(count, dtype=np.int64) * view.every_ms,
        "interval_ms": view.every_ms,
        "health": "ok",
        "mem_used_bytes": 20_000_000_000 if load.occupied else 0,
    }
    if view.watched:
        read = (np.arange(count) + 1) * step
        columns |= {
            "gpu_util_pct": 100.0 * whole.mean(axis=1),
            "gpu_util_max_pct": 100.0 * whole.max(axis=1),
            "gpu_util_coverage_ratio": 1.0,
            "process_count": int(load.occupied),
        }
    else:
        read = np.arange(count) * step
        # the driver's window: the sixth of a second before the reading
        before = np.concatenate(([False, False], load.busy))
        columns["gpu_util_pct"] = 50.0 * (before[read].astype(np.float64) + before[read + 1])
    if view.power:
        # the reading is the mean of the second before
        first = np.maximum(read - SECOND_MS // TICK_MS, 0)
        drawn = (energy_mj[np.maximum(read, 1)] - energy_mj[first]) / np.maximum((read - first) * TICK_MS, TICK_MS)
        columns["power_w"] = np.round(drawn, 1)
    if view.energy:
        columns |= {"energy_mj": energy_mj[read].astype(np.int64), "counters_since": _START_MS - HOUR_MS}
    return columns


def _write_devices(lake: Lake, count: int) -> None:
    for number in range(count):
        row: dict[str, object] = {
            "time": _START_MS,
            "gpu": f"GPU-{number}",
            "model": "NVIDIA H100 80GB HBM3",
            "source": "nvml",
        }
        host = f"host-GPU-{number}"
        lake.put(
            LakeFile(DEVICE.name, utc_day(_START_MS), host, 1, 1), parquet.encode(DEVICE, table_of(DEVICE, row, 1))
        )


def looks(length_ms: int, views: tuple[View, ...] = VIEWS, say: Callable[[Seen], None] = lambda _: None) -> list[Seen]:
    """Return the figures of one recording for several ways of observation."""
    loads, found = record(length_ms), []
    for view in views:
        with tempfile.TemporaryDirectory() as folder:
            found.append(look(loads, view, Path(folder) / "lake"))
        say(found[-1])
    return found


def measure() -> Iterator[Figure]:
    """Print the table of a week; yield the number of bounds that hold, and their width."""
    print(f"{'seen by':<24} {'held':>7} {'between':>17} {'truth':>7} {'idle':>7} {'between':>17} {'truth':>7}")
    found = looks(WEEK_MS, say=lambda each: print(_line(each), flush=True))
    yield Figure(
        "physical_week_bounds_held", 100 * sum(each.holds for each in found) / len(found), "%",
        f"{len(found)} ways to see one week of {4 + _FREE_GPUS} GPUs: held and idle time lie inside the stated bounds",
    )  # fmt: skip


def _line(seen: Seen) -> str:
    held, idle = ((f"{100 * low:6.2f} - {100 * high:6.2f}") for low, high in (seen.held_between, seen.idle_between))
    return (
        f"{seen.view.name:<24} {100 * seen.held:6.2f}  {held:>17} {100 * seen.true_held:6.2f}  {100 * seen.idle:6.2f}  "
        f"{idle:>17} {100 * seen.true_idle:6.2f}  {'' if seen.holds else 'OUTSIDE'}"
    )
