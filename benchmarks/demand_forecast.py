"""`python -m benchmarks forecast PATH...`: forecasts of demand on published traces, against last week again.

PATH are CSV files of the traces, which their licences keep out of this repository; docs/evaluate.md has their sources.
At the end of each day with enough days before it, every method forecasts the following days. The error is the mean
absolute scaled error (Hyndman & Koehler 2006, doi:10.1016/j.ijforecast.2006.03.001): scaled by the error of last week
again within the days that were learnt from. `fallow` is exponential smoothing with a week (ets) or last week again,
whichever was nearer in its own earlier test. Every forecast is out of sample. The model was chosen with all traces but
HELD_OUT in view, so only HELD_OUT compares the methods out of sample.

The other methods are those of statsforecast, which only this measurement needs (`pip install statsforecast`).
`AutoETS AZA` is the model of ets, fitted by that library. Stored in benchmarks/forecast.json; docs/evaluate.md has it
as a table.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analytics.capacity.forecast_models import (
    BAND,
    LEVELS,
    MODEL_MIN_DAYS,
    NAIVE_MIN_DAYS,
    SEASON_DAYS,
    filled,
    predicted,
    rolling_test,
)
from benchmarks.demand_traces import series_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from analytics.capacity.forecast_models import Days, Method

    Answer = tuple[Days, Days, Days]
    """The middle, and the lower and upper edge of the 80 % band."""

STORED = Path(__file__).parent / "forecast.json"
PAGE = Path(__file__).parent.parent / "docs" / "evaluate.md"
HORIZONS = (7, 14, 28, 91)
HELD_OUT = "Helios Venus"
"""The model was fixed before anybody looked at it."""
FALLOW, ETS, NAIVE = "fallow", "ets", "last week again"
_LEAST_SCALE = 0.5
"""Half a GPU: what never changed has no error to scale by."""


def main(paths: list[str]) -> int:
    """Measures, prints and stores."""
    if not paths:
        print("name the CSV files of traces: python -m benchmarks forecast PATH...", file=sys.stderr)
        return 2
    series = series_of([Path(each) for each in paths])
    stored = {
        "versions": {"statsforecast": version("statsforecast")},
        "traces": {name: _measured(own) for name, own in sorted(series.items())},
    }
    STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(_tables(stored))
    return 0


def page(text: str) -> str:
    """The page with the stored figures between its marks."""
    before, rest = text.split("<!-- forecasts -->\n", 1)
    _, after = rest.split("<!-- forecasts end -->", 1)
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    return f"{before}<!-- forecasts -->\n\n{_tables(stored)}\n<!-- forecasts end -->{after}"


def _measured(series: list[Days]) -> dict[str, Any]:
    """Days, and by horizon and method the mean over all series and origins."""
    scores: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for each in series:
        for horizon, name, score in _scores(each):
            scores.setdefault(horizon, {}).setdefault(name, []).append(score)
    horizons = {
        str(horizon): {
            name: {
                "forecasts": len(own),
                "mase": round(float(np.mean([error for error, _ in own])), 3),
                "inside_80_ratio": round(float(np.mean([inside for _, inside in own])), 3),
            }
            for name, own in methods.items()
        }
        for horizon, methods in scores.items()
    }
    return {"series": len(series), "days": max(map(len, series)), "horizons": horizons}


def _scores(values: Days) -> Iterator[tuple[int, str, tuple[float, float]]]:
    """Yield horizon, method, error and share of days in the band, of each origin with as many days after it."""
    least = NAIVE_MIN_DAYS if len(values) < 2 * MODEL_MIN_DAYS else MODEL_MIN_DAYS
    for origin in range(least, len(values) - HORIZONS[0] + 1):
        learnt = values[:origin]
        scale = max(_LEAST_SCALE, float(np.nanmean(np.abs(learnt[SEASON_DAYS:] - learnt[:-SEASON_DAYS]))))
        for name, answer in _methods().items():
            path = answer(learnt, HORIZONS[-1])
            for horizon in HORIZONS:
                then = values[origin : origin + horizon]
                known = np.isfinite(then)
                if len(then) == horizon:
                    middle, low, high = (each[:horizon] for each in path)
                    inside = float(np.mean(((low <= then) & (then <= high))[known]))
                    yield horizon, name, (float(np.mean(np.abs(middle - then)[known])) / scale, inside)


def _methods() -> Mapping[str, Callable[[Days, int], Answer]]:
    """Fallow's own, and models of the library with the same season."""
    return {
        FALLOW: _fallow,
        ETS: lambda learnt, horizon: _own("ets", learnt, horizon),
        NAIVE: lambda learnt, horizon: _own("seasonal_naive", learnt, horizon),
        **{
            name: lambda learnt, horizon, make=make: _of_library(make(SEASON_DAYS), learnt, horizon)
            for name, make in _others().items()
        },
    }


def _others() -> Mapping[str, Callable[[int], Any]]:
    from statsforecast import models

    classes = (models.AutoTheta, models.DynamicOptimizedTheta, models.AutoETS, models.AutoCES, models.MSTL)
    return {
        "AutoETS AZA": lambda season: models.AutoETS(season, model="AZA", damped=False),
        **{each.__name__: each for each in classes},
    }


def _fallow(learnt: Days, horizon: int) -> Answer:
    test = rolling_test(learnt) if np.isfinite(learnt).sum() >= MODEL_MIN_DAYS else None
    return _own("seasonal_naive" if test is None else test.method, learnt, horizon)


def _own(method: Method, learnt: Days, horizon: int) -> Answer:
    fan = predicted(method, learnt, horizon)
    return np.array(fan.middle), np.array(fan.low[BAND]), np.array(fan.high[BAND])


def _of_library(model: Any, learnt: Days, horizon: int) -> Answer:
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.forecast(filled(learnt), horizon, level=list(LEVELS))
    return found["mean"], found[f"lo-{BAND}"], found[f"hi-{BAND}"]


def _tables(stored: dict[str, Any]) -> str:
    """Return a table with a row for each trace at its shortest and at its longest horizon.

    It has the errors of fallow's methods and of the nearest other method, and the share of the days within the band.
    """
    own = (NAIVE, ETS, FALLOW)
    heads = ["trace", "days", "days ahead", *own, "nearest other", f"days in the {BAND} % band"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, trace in sorted(stored["traces"].items(), key=lambda item: item[0] != HELD_OUT):
        by_horizon = sorted(trace["horizons"].items(), key=lambda item: int(item[0]))
        for horizon, rows in (by_horizon[0], by_horizon[-1]):
            errors = [f"{rows[method]['mase']:.2f}" for method in own]
            error, other = min((found["mase"], method) for method, found in rows.items() if method not in own)
            inside = f"{rows[FALLOW]['inside_80_ratio']:.0%}"
            trace_name = f"{name} (held out)" if name == HELD_OUT else name
            cells = [trace_name, trace["days"], horizon, *errors, f"{error:.2f} {other}", inside]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"
