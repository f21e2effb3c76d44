"""Values that cannot be true together: what stays, what is not observed, and which witness is not used, in one lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from analytics.contradictions import verdicts as kinds
from tests.lakes import made_lake
from tests.ledger.rows import T0, Row, fill, load

if TYPE_CHECKING:
    import polars as pl

    from analytics.ledger.build import Ledger

EVERY_S = 30
HOUR = 3600 // EVERY_S
HOURS = 3
COUNT = HOURS * HOUR
MIB, GB = 2**20, 10**9
UNLISTED = {"process_count": None}
Columns = dict[str, Any]


def noise(low: float, high: float, digits: int = 0, count: int = COUNT) -> np.ndarray[Any, Any]:
    """Values of a card at work."""
    return np.round(np.random.default_rng(4).uniform(low, high, count), digits)


def counter(watts: Any, factor: float = 1.0, step_mj: int = 1) -> np.ndarray[Any, Any]:
    """An energy counter that rises as this power does, times a factor, in steps."""
    risen = 5e6 + factor * np.cumsum(np.broadcast_to(np.asarray(watts, float), (COUNT,)) * EVERY_S * 1000)
    return (risen // step_mj * step_mj).astype(np.int64)


WATTS = noise(400, 440, 1)
BUSY: Columns = {
    "gpu_util_pct": noise(85, 100),
    "mem_used_bytes": 60 * GB,
    "power_w": WATTS,
    "temperature_c": noise(60, 64),
    "energy_mj": counter(WATTS),
}
REST: Columns = {
    "gpu_util_pct": 0.0,
    "mem_used_bytes": 4 * MIB,
    "power_w": 70.3,
    "temperature_c": 31,
    "energy_mj": counter(70.3),
}
PAGE = ("gpu_util_pct", "mem_used_bytes", "power_w", "temperature_c", "energy_mj", "sm_active_pct")


def without(columns: Columns, *names: str) -> Columns:
    return {name: values for name, values in columns.items() if name not in names}


def frozen(columns: Columns, first: int, last: int = COUNT, names: tuple[str, ...] = PAGE) -> Columns:
    """The columns as a page shows them that repeats the reading `first` up to `last`, exclusive."""
    found = dict(columns)
    for name in set(names) & columns.keys():
        values = np.array(np.broadcast_to(columns[name], COUNT))
        values[first:last] = values[first]
        found[name] = values
    return found


STUCK_UTIL: Columns = UNLISTED | {"gpu_util_pct": 100.0, "mem_used_bytes": 4 * MIB, "power_w": noise(55, 56, 1)}
MOVING = {"gpu_util_pct": noise(20, 100)}
PROFILED: Columns = BUSY | {"gpu_util_pct": noise(90, 95, 4), "sm_active_pct": noise(40, 45, 4)}

Case = tuple[dict[str, Columns], dict[str, tuple[float, set[str]]]]
"""Columns by GPU, and by GPU the hours that are not observed and the kinds of contradiction."""


def alone(columns: Columns, unobserved_h: float = 0.0, *found: str) -> Case:
    return {"a": columns}, {"a": (unobserved_h, set(found))}


FINE: dict[str, Case] = {
    "a card at work": alone(BUSY),
    "an idle card whose counter rises": alone(REST),
    "an idle card without a counter": alone(without(REST, "energy_mj")),
    "an idle card in whole watts": alone(without(REST, "energy_mj", "temperature_c") | {"power_w": 70.0}),
    "an idle card whose counter is not supported": alone(REST | {"energy_mj": 0}),
    "an idle card that holds a context": alone(without(REST, "energy_mj") | {"mem_used_bytes": 5 * GB}),
    "a thread that spins, in an agent's resolution": alone(
        BUSY | {"gpu_util_pct": 98.2, "power_w": noise(197.8, 198.2, 1), "temperature_c": 40, "energy_mj": counter(198)}
    ),
    "a card at its power limit": alone(BUSY | {"gpu_util_pct": 100.0, "power_w": 700.0, "energy_mj": counter(699.5)}),
    "values of a source without noise": alone(
        {"gpu_util_pct": 90.0, "power_w": 300.5, "mem_used_bytes": 60 * GB, "sm_active_pct": 14.25}
    ),
    "a card of which little is stated": alone(
        UNLISTED | {"gpu_util_pct": 90.0, "mem_used_bytes": 60 * GB, "temperature_c": 60}
    ),
    "a page that repeats for nine minutes": alone(frozen(BUSY, HOUR, HOUR + 18)),
    "work between the readings of a card that holds a context": alone(
        REST | {"mem_used_bytes": 5 * GB, "energy_mj": counter(210)}
    ),
    "a counter that counts 0.025 kWh": alone(
        REST | {"power_w": noise(69, 71, 1), "energy_mj": counter(70, step_mj=90_000_000)}
    ),
    "power that the readings rarely meet": alone(
        BUSY | {"power_w": np.where(noise(0, 4) > 2, 100.0, 700.0) + noise(0, 9, 1), "energy_mj": counter(400)}
    ),
    "kernels beside a small context": alone(STUCK_UTIL | {"mem_used_bytes": 500 * MIB}),
    "five minutes at 100 % as a driver scrubs memory": alone(
        STUCK_UTIL | {"gpu_util_pct": np.where(np.arange(COUNT) < 10, 100.0, 0.0)}
    ),
    "a card that is lost, whose page repeats": alone(frozen(BUSY, 0) | {"health": "lost"}),
    "a service that a monitor calls each minute at night": alone(
        BUSY
        | {"gpu_util_pct": np.where(np.arange(COUNT) < HOUR, noise(1, 9, 2), 1.67), "sm_active_pct": noise(1, 2, 2)}
    ),
    "kernels that only memory denies": alone(UNLISTED | MOVING | {"mem_used_bytes": 4 * MIB}),
}

FAULTY: dict[str, Case] = {
    "a page that stands still": alone(frozen(BUSY, HOUR), 2, kinds.READINGS_REPEAT),
    "a page that recovers": alone(frozen(BUSY, HOUR, 2 * HOUR), 1, kinds.READINGS_REPEAT),
    "a page that stood still before": alone(frozen(BUSY, 0), 3, kinds.READINGS_REPEAT),
    "a page of an idle card whose counter stands still": alone(frozen(REST, 0), 3, kinds.READINGS_REPEAT),
    "a page without a counter": alone(frozen(without(BUSY, "energy_mj"), HOUR), 2, kinds.READINGS_REPEAT),
    "a page in milliwatts, from the first row on": alone(
        frozen(without(BUSY, "energy_mj") | {"power_w": noise(400, 440, 3)}, 0), 3, kinds.READINGS_REPEAT
    ),
    "a log whose lines repeat": alone(
        frozen(without(BUSY, "energy_mj", "temperature_c") | {"util_source": "import"}, HOUR), 2, kinds.READINGS_REPEAT
    ),
    "utilization and power that repeat beside a counter of rest": alone(
        frozen(BUSY | {"energy_mj": counter(np.where(np.arange(COUNT) < HOUR, WATTS, 70.0))}, HOUR, names=PAGE[:3]),
        2,
        kinds.READINGS_REPEAT,
    ),
    "means of the profiling module that repeat": alone(
        frozen(PROFILED, HOUR, names=("gpu_util_pct", "sm_active_pct")), 2, kinds.READINGS_REPEAT
    ),
    "utilization alone that repeats": alone(frozen(PROFILED, HOUR, names=("gpu_util_pct",))),
    "SM activity that repeats beside a utilization that moves": alone(
        frozen(PROFILED, HOUR, names=("sm_active_pct",)), 0, kinds.ACTIVITY_REPEATS
    ),
    "power that repeats beside a utilization that moves": alone(
        frozen(without(BUSY, "energy_mj") | MOVING, HOUR, names=("power_w",)), 0, kinds.POWER_REPEATS
    ),
    "a counter that stands still beside work": alone(
        frozen(BUSY, HOUR, names=("energy_mj",)), 0, kinds.COUNTER_STANDS_STILL
    ),
    "a counter that never moves, of a card that rests at last": alone(
        frozen(BUSY | {"energy_mj": 7_000_000, "gpu_util_pct": np.where(np.arange(COUNT) < HOUR, 90.0, 0.0)}, HOUR),
        0,
        kinds.COUNTER_STANDS_STILL,
    ),
    "energy that rises three times as fast": alone(
        BUSY | {"energy_mj": counter(WATTS, 3)}, 0, kinds.ENERGY_AGAINST_POWER
    ),
    "energy of all GPUs of an idle host": alone(REST | {"energy_mj": counter(70.3, 8)}, 0, kinds.ENERGY_AGAINST_POWER),
    "energy in joules": alone(BUSY | {"energy_mj": counter(WATTS, 0.001)}, 0, kinds.ENERGY_AGAINST_POWER),
    "power in milliwatts": alone(BUSY | {"power_w": WATTS * 1000}, 0, kinds.POWER_AGAINST_ENERGY),
    "100 % beside 4 MiB and 55 W": alone(STUCK_UTIL, 3, kinds.UTIL_WITHOUT_CONTEXT),
    "utilization that moves beside an empty list": alone(
        MOVING | {"mem_used_bytes": 4 * MIB, "process_count": 0}, 3, kinds.UTIL_WITHOUT_CONTEXT
    ),
    "4 MiB of memory beside work": alone(
        BUSY | UNLISTED | {"mem_used_bytes": 4 * MIB}, 0, kinds.MEMORY_WITHOUT_CONTEXT
    ),
    "an idle card on a page that stands still": (
        {"a": frozen(without(BUSY, "energy_mj"), HOUR), "b": frozen(without(REST, "energy_mj"), 0)},
        {"a": (2, {kinds.READINGS_REPEAT}), "b": (2, {kinds.READINGS_REPEAT})},
    ),
    "an idle card beside one that the driver does not read": (
        {
            "a": frozen(without(BUSY, "energy_mj"), HOUR),
            "b": without(REST, "energy_mj") | {"power_w": noise(70, 71, 1)},
        },
        {"a": (2, {kinds.READINGS_REPEAT}), "b": (0, set())},
    ),
}

CASES = FINE | FAULTY
GPUS = [(name, gpu) for name, (gpus, _) in CASES.items() for gpu in gpus]


def rows_of(gpu: str, columns: Columns) -> list[Row]:
    base: Row = {
        "gpu": gpu,
        "interval_ms": EVERY_S * 1000,
        "health": "ok",
        "util_source": "scraped",
        "counters_since": T0,
    }
    every = {name: np.broadcast_to(np.asarray(values, object), COUNT) for name, values in columns.items()}
    return [
        base | {"time": T0 + number * EVERY_S * 1000} | {name: values[number] for name, values in every.items()}
        for number in range(COUNT)
    ]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """All cases, a host each."""
    lake = made_lake(tmp_path_factory.mktemp("contradictions") / "lake")
    for number, (gpus, _) in enumerate(CASES.values()):
        rows = [row for gpu, columns in gpus.items() for row in rows_of(f"{number}{gpu}", columns)]
        fill(lake, rows, host=f"h{number}")
    return load(lake)


def of_gpu(frame: pl.DataFrame, name: str, gpu: str) -> list[dict[str, Any]]:
    number = list(CASES).index(name)
    return [row for row in frame.iter_rows(named=True) if row["gpu"] == f"{number}{gpu}"]


@pytest.mark.parametrize(("name", "gpu"), GPUS)
def test_time_is_not_observed_only_where_values_prove_it(ledger: Ledger, name: str, gpu: str) -> None:
    unobserved_h, found = CASES[name][1][gpu]
    quality = of_gpu(ledger.rollups.quality(), name, gpu)
    assert {row["kind"] for row in quality} == found
    segments = of_gpu(ledger.segments, name, gpu)
    unknown_ms = sum(row["end"] - row["time"] for row in segments if row["state"] == "unknown")
    assert unknown_ms / 3_600_000 == pytest.approx(unobserved_h, abs=0.02)
    if unobserved_h:
        assert sum(row["affected_ms"] for row in quality) == unknown_ms
    columns = CASES[name][0][gpu]
    assert {row["source"] for row in quality} <= {columns.get("util_source", "scraped")}


def energy_kwh(ledger: Ledger, name: str) -> float:
    return sum(row["energy_mj"] or 0.0 for row in of_gpu(ledger.segments, name, "a")) / 3.6e9


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("a card at work", 3),
        ("a page that stands still", 1),
        ("a page that recovers", 2),
        ("a counter that stands still beside work", 3),
        ("energy that rises three times as fast", 3),
        ("energy in joules", 3),
        ("power in milliwatts", 3),
    ],
)
def test_the_energy_is_that_of_the_witness_that_is_right(ledger: Ledger, name: str, hours: float) -> None:
    assert energy_kwh(ledger, name) == pytest.approx(hours * 0.42, rel=0.02)


def use(ledger: Ledger, name: str) -> set[str]:
    return {row["state"] for row in of_gpu(ledger.segments, name, "a")} - {"unknown"}


def test_what_is_left_of_a_page_keeps_its_state(ledger: Ledger) -> None:
    assert use(ledger, "a page that stands still") == {"active"}
    assert use(ledger, "an idle card whose counter rises") == {"free"}
    assert use(ledger, "an idle card that holds a context") == {"held"}
    assert use(ledger, "100 % beside 4 MiB and 55 W") == set()
