"""Survival models of a fleet's idle intervals, from lifelines, scikit-survival and statsmodels where installed.

They learn from landmarks: at regular moments, each open idle interval is a row with its remaining time and whether use
ended it. So a row is like a question, and the time since the last use is a covariate like the others.
"""

from __future__ import annotations

import importlib
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from numpy.typing import NDArray

    Rows = NDArray[np.float64]
    Curve = Callable[[Rows, int], Rows]
    """Returns, for rows of covariates, the probability that each interval lasts for a time."""
    Fit = Callable[[Rows, Rows, Rows], Curve]
    """Fits a model from rows of covariates, their remaining times, and whether use ended them."""

KINDS = ("held", "reserved")
"""Kinds of holding with their own column; a free GPU has 0 in both."""
_USER_WEIGHT, _GPU_WEIGHT = 4.0, 1.0
_TREES, _LEAF = 40, 15
_CONSTANT = 1e-9


class Landmarks:
    """Rows of covariates of open idle intervals, at moments up to `until_ms`."""

    def __init__(self, intervals: pl.DataFrame, until_ms: int, step_ms: int) -> None:
        self._began, self._time, self._last, self._end = (
            intervals[name].to_numpy().astype(np.float64) for name in ("began", "time", "end", "stop")
        )
        self._ended, self._is_last = intervals["ended"].to_numpy(), intervals["is_last"].to_numpy()
        self._kind = np.array([[kind == own for own in KINDS] for kind in intervals["kind"]], np.float64)
        users, gpus = intervals["user"].to_numpy(), intervals["gpu"].to_numpy()
        self._users, self._gpus = ({name: at for at, name in enumerate(sorted(set(names)))} for names in (users, gpus))
        self._user = np.array([self._users[name] for name in users], np.int64)
        self._gpu = np.array([self._gpus[name] for name in gpus], np.int64)
        self.step_ms, self._until_ms = step_ms, until_ms

    def to_learn(self) -> tuple[Rows, Rows, Rows]:
        """Return the covariates, the remaining milliseconds, and whether use ended the interval, of all landmarks."""
        first = self._until_ms - (self._until_ms - self._time.min()) // self.step_ms * self.step_ms
        times = np.arange(first, self._until_ms, self.step_ms, dtype=np.float64)
        found = [(self._under_way(time_ms), time_ms) for time_ms in times]
        found = [(places, time_ms) for places, time_ms in found if len(places)]
        rows = [self._rows(places, time_ms) for places, time_ms in found]
        remaining = [self._end[places] - time_ms for places, time_ms in found]
        ended = [self._ended[places].astype(np.float64) for places, _ in found]
        return np.concatenate(rows), np.concatenate(remaining), np.concatenate(ended)

    def to_ask(self) -> dict[str, Rows]:
        """Return the covariates of the open idle intervals, by GPU."""
        places = np.flatnonzero(self._is_last)
        names = {at: name for name, at in self._gpus.items()}
        return {
            names[self._gpu[place]]: self._rows(places[at : at + 1], self._end[place])[0]
            for at, place in enumerate(places)
        }

    def _under_way(self, time_ms: float) -> NDArray[np.int64]:
        is_there = (self._time <= time_ms) & (self._last > time_ms)
        return np.flatnonzero(is_there & (self._began + 5 * MINUTE_MS <= time_ms))

    def _rows(self, places: NDArray[np.int64], time_ms: float) -> Rows:
        """Return age, the user's idle intervals (all, on this GPU), waves of day and week, weekend, and kind."""
        day, week = (2 * math.pi * (time_ms % span) / span for span in (DAY_MS, WEEK_MS))
        weekend = float((time_ms // DAY_MS + 3) % 7 >= 5)  # the epoch was a Thursday
        wave = [math.sin(day), math.cos(day), math.sin(week), math.cos(week), weekend]
        past = np.flatnonzero(self._ended & (self._end <= time_ms))
        lengths = np.log((self._end - self._began)[past] / HOUR_MS)
        overall = float(lengths.mean()) if len(past) else 0.0

        def mean(code: NDArray[np.int64], size: int, prior: Rows, weight: float) -> tuple[Rows, Rows]:
            total = np.bincount(code[past], weights=lengths, minlength=size)[code[places]]
            number = np.bincount(code[past], minlength=size)[code[places]]
            return (total + weight * prior) / (number + weight), np.log1p(number)

        own, user_returns = mean(self._user, len(self._users), np.full(len(places), overall), _USER_WEIGHT)
        here = self._user * len(self._gpus) + self._gpu
        alone, gpu_returns = mean(here, len(self._users) * len(self._gpus), own, _GPU_WEIGHT)
        age = np.log(np.maximum(time_ms - self._began[places], MINUTE_MS) / HOUR_MS)
        columns = [age, own, user_returns, alone, gpu_returns, *(np.full(len(places), each) for each in wave)]
        return np.column_stack([*columns, self._kind[places]])


def installed() -> dict[str, tuple[str, Fit]]:
    """Return the library's version and the fit by name of the model, for installed libraries."""
    found: dict[str, tuple[str, Fit]] = {}
    for name, (module, fit) in _MODELS.items():
        try:
            found[name] = (f"{module} {importlib.import_module(module).__version__}", _scaled(fit))
        except ImportError:
            continue
    return found


def _scaled(fit: Fit) -> Fit:
    """Return a fit without constant columns, and with the others scaled to mean 0 and variance 1."""

    def scaled(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
        if not ended.any():  # without an observed end no curve falls
            return lambda asked, _: np.ones(len(asked))
        spread = rows.std(axis=0)
        varies, middle = spread > _CONSTANT, rows.mean(axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            curve = fit(((rows - middle) / np.maximum(spread, _CONSTANT))[:, varies], rest_ms, ended)

        def ask(asked: Rows, horizon_ms: int) -> Rows:
            return curve(((asked - middle) / np.maximum(spread, _CONSTANT))[:, varies], horizon_ms)

        return ask

    return scaled


def _lifelines(name: str, **options: Any) -> Fit:
    def fit(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
        import lifelines
        import pandas as pd

        frame = pd.DataFrame(rows, columns=[f"c{at}" for at in range(rows.shape[1])])
        fitter = getattr(lifelines, name)(**options)
        fitter.fit(frame.assign(remaining=np.maximum(rest_ms, MINUTE_MS) / HOUR_MS, ended=ended), "remaining", "ended")

        def ask(asked: Rows, horizon_ms: int) -> Rows:
            table = pd.DataFrame(asked, columns=frame.columns)
            return np.asarray(fitter.predict_survival_function(table, times=[horizon_ms / HOUR_MS]).iloc[0], np.float64)

        return ask

    return fit


def _forest(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    # a forest keeps a curve over all different times in each leaf: 200 times are enough
    edges = np.unique(np.quantile(rest_ms, np.linspace(0, 1, 201)))
    remaining = edges[np.minimum(np.searchsorted(edges, rest_ms), len(edges) - 1)]
    forest = RandomSurvivalForest(_TREES, min_samples_leaf=_LEAF, max_features="sqrt", random_state=1, n_jobs=1)
    forest.fit(rows, Surv.from_arrays(ended > 0, remaining))

    def ask(asked: Rows, horizon_ms: int) -> Rows:
        curves = forest.predict_survival_function(asked, return_array=True)
        at = int(np.searchsorted(forest.unique_times_, horizon_ms, "right")) - 1
        return np.asarray(curves[:, at] if at >= 0 else np.ones(len(asked)), np.float64)

    return ask


def _logit(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
    def ask(asked: Rows, horizon_ms: int) -> Rows:
        import statsmodels.api as sm

        lasted = rest_ms >= horizon_ms
        observed = lasted | (ended > 0)
        if not observed.any():
            return np.full(len(asked), 0.5)
        model = sm.GLM(
            lasted[observed].astype(float),
            np.column_stack([np.ones(observed.sum()), rows[observed]]),
            sm.families.Binomial(),
        )
        fitted = model.fit_regularized(alpha=1e-3, L1_wt=0.0)
        return np.asarray(fitted.predict(np.column_stack([np.ones(len(asked)), asked])), np.float64)

    return ask


_MODELS: dict[str, tuple[str, Fit]] = {
    "Weibull AFT": ("lifelines", _lifelines("WeibullAFTFitter", penalizer=0.01)),
    "Cox": ("lifelines", _lifelines("CoxPHFitter", penalizer=0.01)),
    "random survival forest": ("sksurv", _forest),
    "logistic": ("statsmodels", _logit),
}
