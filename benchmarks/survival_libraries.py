"""What libraries for survival analysis make of a fleet's idle spells: lifelines, scikit-survival and statsmodels, where installed.

They are taught by landmarks: every so often in the five weeks before, each spell under way is a row with how long it still lasted
and whether use ended it. So one row is like one question, and time since last use is a covariate as the others are.
"""

from __future__ import annotations

import importlib
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from analytics.workloads.persistence import ANYBODY, HISTORY_MS
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from numpy.typing import NDArray

    Rows = NDArray[np.float64]
    Curve = Callable[[Rows, int], Rows]
    """Of rows of covariates, the probability that each lasts for so long."""
    Fit = Callable[[Rows, Rows, Rows], Curve]
    """From rows of covariates, how long each lasted on, and whether use ended it."""

KINDS = ("service", "pod", "slurm")
"""Kinds of work with a column of their own; what has no job, as notebooks have none, has 0 in all of them."""
_USER_WEIGHT, _GPU_WEIGHT = 4.0, 1.0
_TREES, _LEAF = 40, 15
_CONSTANT = 1e-9


class Landmarks:
    """Rows of covariates of spells under way, at any moment up to `until_ms`."""

    def __init__(self, spells: pl.DataFrame, ended: str, until_ms: int, step_ms: int) -> None:
        self._began = spells["time"].to_numpy().astype(np.float64)
        self._end = self._began + spells["length_ms"].to_numpy()
        self._ended = spells[ended].to_numpy()
        self._kind = np.array([[kind == own for own in KINDS] for kind in spells["kind"]], np.float64).reshape(-1, 3)
        self._told = spells["asked"].is_not_null().to_numpy()
        users, gpus = spells["asked"].fill_null(ANYBODY).to_numpy(), spells["gpu"].to_numpy()
        self._users, self._gpus = ({name: at for at, name in enumerate(sorted(set(names)))} for names in (users, gpus))
        self._user = np.array([self._users[name] for name in users], np.int64)
        self._gpu = np.array([self._gpus[name] for name in gpus], np.int64)
        self.step_ms, self._until_ms = step_ms, until_ms

    def to_learn(self) -> tuple[Rows, Rows, Rows]:
        """Covariates, remaining milliseconds, and whether use ended each, of all landmarks."""
        times = np.arange(self._until_ms - HISTORY_MS, self._until_ms, self.step_ms, dtype=np.float64)
        found = [(self._under_way(time_ms), time_ms) for time_ms in times]
        found = [(places, time_ms) for places, time_ms in found if len(places)]
        rows = [self._rows(places, time_ms) for places, time_ms in found]
        rest = [self._end[places] - time_ms for places, time_ms in found]
        ended = [self._ended[places].astype(np.float64) for places, _ in found]
        return np.concatenate(rows), np.concatenate(rest), np.concatenate(ended)

    def to_ask(self) -> dict[str, Rows]:
        """By GPU the covariates of the spells that still run."""
        places = np.flatnonzero((self._end == self._until_ms) & ~self._ended)
        names = {at: name for name, at in self._gpus.items()}
        return {
            names[self._gpu[place]]: self._rows(places[at : at + 1], self._until_ms)[0]
            for at, place in enumerate(places)
        }

    def _under_way(self, time_ms: float) -> NDArray[np.int64]:
        return np.flatnonzero(self._told & (self._began + 5 * MINUTE_MS <= time_ms) & (self._end > time_ms))

    def _rows(self, places: NDArray[np.int64], time_ms: float) -> Rows:
        """Age, hour of the week in waves of a day and a week, weekend, how long the user's and the GPU's rests were, kind of work."""
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
    """By name of the model the library's version and how it is fitted; of what is not installed nothing."""
    found: dict[str, tuple[str, Fit]] = {}
    for name, (module, fit) in _MODELS.items():
        try:
            found[name] = (f"{module} {importlib.import_module(module).__version__}", _scaled(fit))
        except ImportError:
            continue
    return found


def _scaled(fit: Fit) -> Fit:
    """With columns that do not vary left out, and the others scaled to mean 0 and variance 1."""

    def scaled(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
        if not ended.any():  # no curve falls where no end was seen
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
        fitter.fit(frame.assign(rest=np.maximum(rest_ms, MINUTE_MS) / HOUR_MS, ended=ended), "rest", "ended")

        def ask(asked: Rows, horizon_ms: int) -> Rows:
            table = pd.DataFrame(asked, columns=frame.columns)
            return np.asarray(fitter.predict_survival_function(table, times=[horizon_ms / HOUR_MS]).iloc[0], np.float64)

        return ask

    return fit


def _forest(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
    from sksurv.ensemble import RandomSurvivalForest
    from sksurv.util import Surv

    # a forest keeps a curve over all different times in each leaf: 200 of them are enough
    edges = np.unique(np.quantile(rest_ms, np.linspace(0, 1, 201)))
    rest = edges[np.minimum(np.searchsorted(edges, rest_ms), len(edges) - 1)]
    forest = RandomSurvivalForest(_TREES, min_samples_leaf=_LEAF, max_features="sqrt", random_state=1, n_jobs=1)
    forest.fit(rows, Surv.from_arrays(ended > 0, rest))

    def ask(asked: Rows, horizon_ms: int) -> Rows:
        curves = forest.predict_survival_function(asked, return_array=True)
        at = int(np.searchsorted(forest.unique_times_, horizon_ms, "right")) - 1
        return np.asarray(curves[:, at] if at >= 0 else np.ones(len(asked)), np.float64)

    return ask


def _logit(rows: Rows, rest_ms: Rows, ended: Rows) -> Curve:
    def ask(asked: Rows, horizon_ms: int) -> Rows:
        import statsmodels.api as sm

        lasted = rest_ms >= horizon_ms
        told = lasted | (ended > 0)
        if not told.any():
            return np.full(len(asked), 0.5)
        model = sm.GLM(
            lasted[told].astype(float), np.column_stack([np.ones(told.sum()), rows[told]]), sm.families.Binomial()
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
