"""The physics of a simulated card: power, energy, temperature and clocks that fit what runs on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytics.simulation.catalog import SimulatedCard

_GPU_IDLE, _SW_POWER_CAP = 0x1, 0x4  # nvmlClocksEventReasonGpuIdle, nvmlClocksEventReasonSwPowerCap
_SW_THERMAL = 0x20  # nvmlClocksEventReasonSwThermalSlowdown
_HOT_RISE, _HOT_FROM_C, _HOT_MAX_C, _HOT_CLOCK = 2.7, 83.0, 87.0, 0.78
"""How many times as far a card without air warms up, from where on the driver holds it down, where it then stays, and the
share of its clock that is left."""


@dataclass(frozen=True)
class Readings:
    """What the board's sensors say in each row: W, mJ, degC, MHz and NVML's bit mask of clock reasons.

    `power_capped_ms` and `overheated_ms` are how long clocks were held down in each row.
    """

    power_w: NDArray[np.float64]
    energy_mj: NDArray[np.int64]
    temperature_c: NDArray[np.int16]
    sm_clock_mhz: NDArray[np.int16]
    throttle_reasons: NDArray[np.int64]
    power_capped_ms: NDArray[np.int64]
    overheated_ms: NDArray[np.int64]


def readings(
    card: SimulatedCard,
    parked: NDArray[np.bool_],
    intensity_ratio: NDArray[np.float64],
    *,
    bare_w: float,
    interval_ms: int,
    energy_mj: int,
    inlet_c: float,
    rng: np.random.Generator,
    hot: NDArray[np.bool_],
) -> Readings:
    """The sensors of one GPU, given where a context is open, how hard it works and the energy counter before.

    Power is `bare_w` (the card's idle_w, give or take) without a process; an open context adds parking_w (facts: arXiv 2605.23918); from there the
    intensity leads to the limit. The counter adds each row's power for the whole interval, so the two always agree. In rows
    that are `hot` no air comes through: under load the driver holds the clocks down.
    """
    count = len(parked)
    floor = bare_w + np.where(parked, card.parking_w, 0.0)
    power = floor + (card.power_limit_w - bare_w - card.parking_w) * intensity_ratio
    power = np.round(power * (1.0 + 0.015 * np.clip(rng.standard_normal(count), -3, 3)), 1)
    spent = np.cumsum(np.rint(power * interval_ms).astype(np.int64))
    load = (power - card.idle_w) / (card.power_limit_w - card.idle_w)
    temperature = inlet_c + 3.0 + card.rise_c * np.clip(load, 0.0, 1.1) + rng.uniform(-0.8, 0.8, count)
    without_air = np.minimum(temperature + (_HOT_RISE - 1) * card.rise_c * np.clip(load, 0.0, 1.1), _HOT_MAX_C)
    temperature = np.where(hot, without_air, temperature)
    overheated = hot & (temperature >= _HOT_FROM_C)
    working = intensity_ratio > 0
    capped = power > 0.97 * card.power_limit_w
    clock = np.where(parked, card.boost_clock_mhz, card.idle_clock_mhz)
    clock = np.where(capped, card.boost_clock_mhz - 15 * rng.integers(1, 12, count), clock)
    reasons = np.where(capped, _SW_POWER_CAP, np.where(working, 0, _GPU_IDLE))
    clock = np.where(overheated, _HOT_CLOCK * card.boost_clock_mhz, clock)
    reasons = np.where(overheated, reasons | _SW_THERMAL, reasons)
    return Readings(
        power,
        energy_mj + spent,
        np.rint(temperature).astype(np.int16),
        clock.astype(np.int16),
        reasons.astype(np.int64),
        interval_ms * capped.astype(np.int64),
        interval_ms * overheated.astype(np.int64),
    )
