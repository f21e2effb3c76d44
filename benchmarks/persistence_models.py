"""`python -m benchmarks persistence`: fallow's model of how long GPUs stay unused, against libraries for survival analysis.

Simulated fleets of every kind, from seeds that no constant was chosen on, and a published trace. At moments of the last weeks every
model learns from what was known then, and is judged by what came after: all figures are out of sample. Figures of libraries that
are not installed are left as they were. Stored in benchmarks/persistence.json; docs/calibration.md has them as a table.
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

from analytics.workloads.model import HIGH_MIN, MEDIUM_MIN
from analytics.workloads.persistence import ANYBODY, Persistence, spells_of
from benchmarks.idle_moments import Moment, Plan, simulated, trace
from benchmarks.measure import Figure
from benchmarks.survival_libraries import Landmarks, installed
from fallow.clock import format_duration, parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Ask = Callable[[str, str, int, int], float]
    """Of a user, a GPU, an age and a horizon in milliseconds the probability that it stays unused."""

STORED = Path(__file__).parent / "persistence.json"
PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"
PRESENT, BY_AGE, BY_KIND = "fallow", "without the hour of the week", "with the kind of work"
KIND_WEIGHT = 20.0
"""Spells of work of the same kind that weigh as much as the whole fleet's rate: in sample 4 was a little better for 12 hours, 100 for 7 days."""
CLIPPED = 0.001
"""No promise counts as surer than this: the logarithm of what was called impossible would outweigh everything."""


class _OfKind(Persistence):
    """The fleet's rate corrected by spells of one kind of work."""

    same: NDArray[np.int64]

    def _of_fleet(self, age_ms: int, horizon_ms: int) -> float:
        age = np.array([[float(age_ms)]])
        lasted, judged = self._counted(self.same, self._spells.weight, age, horizon_ms)
        return (lasted + KIND_WEIGHT * super()._of_fleet(age_ms, horizon_ms)) / (judged + KIND_WEIGHT)


def _questions(moment: Moment) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Which use ends a spell, with the spells (`asked`: whose use that is, null where nobody knows) and the cases that ask so."""
    is_anybodys = pl.col("user") == ANYBODY
    yield "ended_by_user", moment.spells.with_columns(asked="user"), moment.cases.filter(~is_anybodys)
    yield "ended", moment.spells.with_columns(asked=pl.lit(ANYBODY)), moment.cases.filter(is_anybodys)


def answers(moment: Moment, horizons_ms: Iterable[int], step_ms: int) -> Iterator[tuple[str, int, float, float]]:
    """Of every case and horizon that was observed: which model, the horizon, what it promises, and 1 where that was kept."""
    for ended, spells, cases in _questions(moment):
        if cases.is_empty() or spells.is_empty():
            continue
        own, libraries = _ours(moment, spells, ended), _libraries(spells, ended, moment.until_ms, step_ms)
        for horizon_ms in horizons_ms:
            asked = cases.filter(pl.col(str(horizon_ms)).is_not_null())
            kept = asked[str(horizon_ms)].to_list()
            for model, ask in (own | libraries).items():
                for (gpu, user, age_ms), outcome in zip(
                    asked.select("gpu", "user", "age_ms").iter_rows(), kept, strict=True
                ):
                    yield model, horizon_ms, ask(user, gpu, age_ms, horizon_ms), outcome


def _ours(moment: Moment, spells: pl.DataFrame, ended: str) -> dict[str, Ask]:
    kind = dict(spells.filter("is_last").select("gpu", "kind").iter_rows())
    spells = spells.filter(pl.col("asked").is_not_null())
    known = spells_of(spells, ended, spells["asked"])
    by_kind = {}
    for name in set(kind.values()):
        by_kind[name] = _OfKind(known, moment.until_ms)
        by_kind[name].same = np.flatnonzero((spells["kind"] == name).to_numpy())
    present = Persistence(known, moment.until_ms)

    def of_kind(user: str, gpu: str, age_ms: int, horizon_ms: int) -> float:
        return by_kind.get(kind.get(gpu, ""), present).lasting(user, gpu, age_ms, horizon_ms)

    # to a model that thinks it is 1970 no week before the present one has been
    return {PRESENT: present.lasting, BY_AGE: Persistence(known, 0).lasting, BY_KIND: of_kind}


def _libraries(spells: pl.DataFrame, ended: str, until_ms: int, step_ms: int) -> dict[str, Ask]:
    models = installed()
    if not models:
        return {}
    landmarks = Landmarks(spells, ended, until_ms, step_ms)
    known, rows = landmarks.to_learn(), landmarks.to_ask()
    return {name: _asking(fit(*known), rows) for name, (_, fit) in models.items()}


def _asking(
    curve: Callable[[NDArray[np.float64], int], NDArray[np.float64]], rows: dict[str, NDArray[np.float64]]
) -> Ask:
    gpus, table = {gpu: at for at, gpu in enumerate(rows)}, np.array(list(rows.values()))
    answered: dict[int, NDArray[np.float64]] = {}

    def ask(_user: str, gpu: str, _age_ms: int, horizon_ms: int) -> float:
        if horizon_ms not in answered:
            answered[horizon_ms] = curve(table, horizon_ms)
        return float(answered[horizon_ms][gpus[gpu]])

    return ask


def score(promised: NDArray[np.float64], kept: NDArray[np.float64]) -> dict[str, Any]:
    """Brier score, log loss, and of the promises of each grade how many there are, what they promise and what was kept."""
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
    """By horizon and model."""
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
    """Brier scores of fallow's own; all figures are stored, and the page written."""
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
            for model in (PRESENT, BY_AGE):
                how = f"{name}: {rows[model]['cases']} idle GPUs, out of sample, {model}"
                key = "persistence_brier" if model == PRESENT else "persistence_by_age_brier"
                yield Figure(f"{key}_{name}_{horizon}", rows[model]["brier"], "score", how)
    STORED.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """The page with the stored figures between its marks."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    tables = [_table(name, stored[name], stored["versions"]) for name in ("simulated", "genai26") if name in stored]
    before, rest = text.split("<!-- libraries -->\n", 1)
    _, after = rest.split("<!-- end -->", 1)
    return f"{before}<!-- libraries -->\n\n" + "\n".join(tables) + f"\n<!-- end -->{after}"


def _table(name: str, horizons: dict[str, Any], versions: dict[str, str]) -> str:
    heads = (
        f"{name}: horizon",
        "cases",
        "model",
        "Brier",
        "log loss",
        "from 95 %: GPUs",
        "promised",
        "kept",
        "80 to 95 %: GPUs",
        "promised",
        "kept",
    )
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for horizon, rows in sorted(horizons.items(), key=lambda item: parse_duration_ms(item[0])):
        for model, row in sorted(rows.items(), key=lambda item: (item[0] in versions, item[1]["brier"])):
            label = f"{model} ({versions[model]})" if model in versions else model
            classes = [cell for grade in ("high", "medium") for cell in _cells(row[grade])]
            cells = [horizon, row["cases"], label, f"{row['brier']:.4f}", f"{row['log_loss']:.4f}", *classes]
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def _cells(grade: dict[str, Any]) -> list[str]:
    shares = ["-" if grade[name] is None else f"{grade[name]:.1%}" for name in ("promised_ratio", "kept_ratio")]
    return [str(grade["gpus"]), *shares]
