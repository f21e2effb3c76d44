"""`python -m benchmarks persistence`: fallow's model of how long GPUs stay unused, against survival-analysis libraries.

It uses simulated fleets of every kind, from seeds without influence on any constant, and a published trace. At moments
of the last weeks every model learns from the facts known then, and is judged by later facts. All figures are out of
sample. Figures of libraries that are not installed stay unchanged. Stored in benchmarks/persistence.json;
docs/calibration.md has the result.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from analytics.workloads.lifetables import Lifetables
from analytics.workloads.model import HIGH_MIN, MEDIUM_MIN
from benchmarks.calibration_page import write_page
from benchmarks.idle_moments import Moment, Plan, simulated, trace
from benchmarks.measure import Figure
from benchmarks.survival_libraries import Landmarks, installed
from fallow.clock import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Ask = Callable[[str, int], float]
    """Returns the probability that a GPU stays unused for a horizon in milliseconds."""

STORED = Path(__file__).parent / "persistence.json"
PRESENT, BY_TABLES = "fallow", "without recalibration"
CLIPPED = 0.001
"""Upper bound of a promise's certainty, because the logarithm of an impossible event would dominate the mean."""


def answers(moment: Moment, horizons_ms: Iterable[int], step_ms: int) -> Iterator[tuple[str, int, float, float]]:
    """Yield for every observed case and horizon the model, the horizon, the promise, and 1 where it was kept."""
    if moment.cases.is_empty():
        return
    libraries = _libraries(moment, step_ms)
    for horizon_ms in horizons_ms:
        asked = moment.cases.filter(pl.col(str(horizon_ms)).is_not_null())
        kept = asked[str(horizon_ms)].to_list()
        for model, ask in (_ours(moment, horizon_ms) | libraries).items():
            for gpu, outcome in zip(asked["gpu"], kept, strict=True):
                yield model, horizon_ms, ask(gpu, horizon_ms), outcome


def _ours(moment: Moment, horizon_ms: int) -> dict[str, Ask]:
    tables = Lifetables(moment.intervals)
    asked = tables.newest(moment.until_ms)
    gpus = moment.intervals[asked.places]["gpu"].to_list()
    (shares,) = tables.shares([asked], horizon_ms)
    found = {PRESENT: tables.promised(asked, horizon_ms), BY_TABLES: shares}
    return {name: _known_answers(dict(zip(gpus, each.tolist(), strict=True))) for name, each in found.items()}


def _known_answers(by_gpu: dict[str, float]) -> Ask:
    return lambda gpu, _: by_gpu[gpu]


def _libraries(moment: Moment, step_ms: int) -> dict[str, Ask]:
    models = installed()
    if not models:
        return {}
    landmarks = Landmarks(moment.intervals, moment.until_ms, step_ms)
    known, rows = landmarks.to_learn(), landmarks.to_ask()
    return {name: _asking(fit(*known), rows) for name, (_, fit) in models.items()}


def _asking(
    curve: Callable[[NDArray[np.float64], int], NDArray[np.float64]], rows: dict[str, NDArray[np.float64]]
) -> Ask:
    gpus, table = {gpu: at for at, gpu in enumerate(rows)}, np.array(list(rows.values()))
    answered: dict[int, NDArray[np.float64]] = {}

    def ask(gpu: str, horizon_ms: int) -> float:
        if horizon_ms not in answered:
            answered[horizon_ms] = curve(table, horizon_ms)
        return float(answered[horizon_ms][gpus[gpu]])

    return ask


def score(promised: NDArray[np.float64], kept: NDArray[np.float64]) -> dict[str, Any]:
    """Return Brier score, log loss, and per grade the number of promises, their mean and the share that was kept."""
    clipped = np.clip(promised, CLIPPED, 1 - CLIPPED)
    log_loss = -np.mean(kept * np.log(clipped) + (1 - kept) * np.log(1 - clipped))

    def grade(inside: NDArray[np.bool_]) -> dict[str, Any]:
        promised_ratio, kept_ratio = (
            round(float(each[inside].mean()), 4) if inside.any() else None for each in (promised, kept)
        )
        return {"gpus": int(inside.sum()), "promised_ratio": promised_ratio, "kept_ratio": kept_ratio}

    return {
        "cases": len(kept),
        "brier": round(float(np.mean((promised - kept) ** 2)), 4),
        "log_loss": round(float(log_loss), 4),
        "high": grade(promised >= HIGH_MIN),
        "medium": grade((promised >= MEDIUM_MIN) & (promised < HIGH_MIN)),
    }


def scores(asked: Iterable[tuple[Iterable[Moment], Plan]]) -> dict[str, dict[str, Any]]:
    """Return the scores by horizon and model."""
    found: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for when, plan in asked:
        for moment in when:
            for model, horizon_ms, promised, kept in answers(moment, plan.horizons_ms, plan.landmarks_ms):
                found[horizon_ms, model].append((promised, kept))
    table: dict[str, dict[str, Any]] = defaultdict(dict)
    for (horizon_ms, model), pairs in sorted(found.items(), key=lambda item: item[0][0]):
        promised, kept = np.array(pairs).T
        table[format_duration(horizon_ms)][model] = score(promised, kept)
    return table


def measure() -> Iterator[Figure]:
    """Store all figures, write the page, and yield the Brier scores of fallow's own model."""
    os.environ["FALLOW_LEDGER_WORKERS"] = "1"
    models = installed()
    if not models:
        print(
            "lifelines, scikit-survival and statsmodels are not installed: fallow's own figures only", file=sys.stderr
        )
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {"versions": {}}
    stored["versions"] |= {name: version for name, (version, _) in models.items()}
    for name, asked in (("simulated", simulated()), ("genai26", trace())):
        for horizon, rows in scores(asked).items():
            stored.setdefault(name, {}).setdefault(horizon, {}).update(rows)
            for model in (PRESENT, BY_TABLES):
                how = f"{name}: {rows[model]['cases']} idle GPUs, out of sample, {model}"
                key = "persistence_brier" if model == PRESENT else "persistence_by_tables_brier"
                yield Figure(f"{key}_{name}_{horizon}", rows[model]["brier"], "score", how)
    STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    write_page()
