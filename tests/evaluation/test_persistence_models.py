"""The comparison of models of idle intervals: what it asks, what became of it, and how promises are scored."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from analytics.workloads.persistence import ANYBODY
from benchmarks.idle_moments import Moment, Plan, moments
from benchmarks.persistence_models import BY_AGE, BY_KIND, PRESENT, answers, score, scores
from benchmarks.survival_libraries import Landmarks, installed
from fallow.clock import HOUR_MS

ROWS = [
    # ann leaves a at 2 h and comes back at 9 h; bob uses b, which ann left, from 7 h on; nobody saw c from 6 h to 8 h
    ("a", 0, 2, "active", "ann"), ("a", 2, 9, "held", "ann"), ("a", 9, 30, "active", "ann"),
    ("b", 0, 2, "active", "ann"), ("b", 2, 6, "held", "ann"), ("b", 6, 7, "free", None), ("b", 7, 30, "active", "bob"),
    ("c", 0, 3, "low", "eve"), ("c", 3, 6, "free", None), ("c", 6, 8, "unknown", None), ("c", 8, 30, "free", None),
    # in use at 5 h, and idle for too short a time
    ("d", 0, 6, "active", "eve"), ("e", 0, 4.5, "active", "eve"), ("e", 4.5, 30, "free", None),
]  # fmt: skip
SCHEMA = {"gpu": pl.String, "time": pl.Float64, "end": pl.Float64, "state": pl.String, "holder": pl.String}
PLAN = Plan(5 * HOUR_MS, 5 * HOUR_MS, HOUR_MS, HOUR_MS, HOUR_MS, (HOUR_MS, 3 * HOUR_MS, 12 * HOUR_MS))


@pytest.fixture
def moment() -> Moment:
    ms = (pl.col("time", "end") * HOUR_MS).cast(pl.Int64)
    stretches = pl.DataFrame(ROWS, schema=SCHEMA, orient="row").with_columns(ms)
    kinds = pl.DataFrame({"gpu": ["a"], "time": [2 * HOUR_MS], "kind": ["slurm"]})
    (found,) = moments(stretches, kinds, PLAN)
    return found


def test_what_is_asked_at_a_moment_and_what_became_of_it(moment: Moment) -> None:
    """Of a GPU that ann's processes are on, whether she uses it; of others, whether anybody does; nothing of what nobody saw."""
    assert moment.cases.sort("gpu").rows() == [
        ("a", 3 * HOUR_MS, "ann", 1.0, 1.0, 0.0),
        ("b", 3 * HOUR_MS, "ann", 1.0, 1.0, 1.0),
        ("c", 2 * HOUR_MS, ANYBODY, 1.0, None, None),
    ]
    assert dict(moment.spells.select("gpu", "kind").iter_rows()) == {"a": "slurm", "b": "", "c": "", "e": ""}


def test_every_model_answers_every_question_that_can_be_judged(moment: Moment) -> None:
    found = list(answers(moment, PLAN.horizons_ms, PLAN.landmarks_ms))
    models = {PRESENT, BY_AGE, BY_KIND, *installed()}
    assert len(found) == 7 * len(models)
    assert {model for model, *_ in found} == models
    assert all(0 <= promised <= 1 for _, _, promised, _ in found)
    assert scores([([moment], PLAN)])["12h"][PRESENT]["cases"] == 2


def test_a_library_is_taught_by_what_was_known_at_each_landmark() -> None:
    """One spell of 10 h that use ended and one that runs, asked about every 4 h: the mean of rests is known once one has ended."""
    spells = pl.DataFrame(
        {
            "gpu": ["a", "a", "b"], "time": [0, 12 * HOUR_MS, -HOUR_MS], "length_ms": [10 * HOUR_MS, 8 * HOUR_MS, 3 * HOUR_MS],
            "ended": [True, False, True], "asked": ["ann", "ann", None], "kind": ["slurm", "slurm", ""],
        }
    )  # fmt: skip
    landmarks = Landmarks(spells, "ended", 20 * HOUR_MS, 4 * HOUR_MS)
    rows, rest_ms, ended = landmarks.to_learn()
    assert (rest_ms / HOUR_MS).tolist() == [
        6,
        2,
        4,
    ]  # at 4, 8 and 16 h; at 12 h the spell has only begun, b's user is not known
    assert ended.tolist() == [1, 1, 0]
    assert np.exp(rows[:, 0]).tolist() == pytest.approx([4, 8, 4])
    assert rows[2, 2] == pytest.approx(math.log(2))
    assert rows[:2, 2].tolist() == [0, 0]
    assert {gpu: round(math.exp(row[0])) for gpu, row in landmarks.to_ask().items()} == {"a": 8}


def test_scores_are_those_of_the_book() -> None:
    found = score(np.array([0.96, 1.0, 0.9, 0.25]), np.array([1.0, 0.0, 1.0, 0.0]))
    assert found["brier"] == pytest.approx((0.04**2 + 1 + 0.1**2 + 0.25**2) / 4, abs=1e-4)
    logs = math.log(0.96) + math.log(0.001) + math.log(0.9) + math.log(0.75)
    assert found["log_loss"] == pytest.approx(-logs / 4, abs=1e-4)
    assert found["high"] == {"gpus": 2, "promised_ratio": 0.98, "kept_ratio": 0.5}
    assert found["medium"] == {"gpus": 1, "promised_ratio": 0.9, "kept_ratio": 1.0}
