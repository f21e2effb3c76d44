"""Foundations of the judging benchmarks: the judged fleet, labels that a trace implies, models of idle intervals."""

from __future__ import annotations

import csv
import math
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from analytics.rules import RULES
from analytics.workloads.idle_intervals import ANYBODY
from benchmarks import busy
from benchmarks.busy_programs import NONE, WORK
from benchmarks.idle_moments import Moment, Plan, moments
from benchmarks.judged_fleet import PAGE, judge, page, summed
from benchmarks.judged_labels import labels_of
from benchmarks.judged_rows import hosts_of
from benchmarks.judged_situations import SITUATIONS, fleet_of, half_used_gang, never_used, orphan
from benchmarks.labelled_trace import STEP_S, write_labels
from benchmarks.persistence_models import BY_TABLES, PRESENT, answers, score, scores
from benchmarks.strangers import truth_at
from benchmarks.strangers_fleet import LEAD, made_world
from benchmarks.strangers_people import USES, WEEK
from benchmarks.survival_libraries import Landmarks, installed
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from pathlib import Path


def test_every_rule_has_true_cases_and_as_many_look_alikes() -> None:
    fleet = fleet_of(1, [(build, 1) for build, _ in SITUATIONS])
    yes, no = Counter[str](), Counter[str]()
    for label in labels_of(fleet, [f"GPU-{number}" for number in range(len(fleet))], hosts_of(fleet)):
        assert label.since < label.until
        yes.update(filter(None, label.rules.split("+")))
        no.update(filter(None, label.not_rules.split("+")))
    for rule, kind in busy.RULES.items():
        yes[rule], no[rule] = sum(each.kind == kind for each in NONE), sum(each.judged for each in WORK)
    unjudged = {"releasable_pool", "light_traffic"}  # the judged fleet has no replicas of a server
    assert set(no) == set(yes) == {rule.name for rule in RULES} - unjudged
    assert {rule for rule in yes if not 0 < yes[rule] <= no[rule]} == set()


@pytest.mark.long
def test_a_tiny_judged_fleet_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FALLOW_LEDGER_WORKERS", "1")
    found = summed([judge(1, tmp_path, ((half_used_gang, 1), (orphan, 1), (never_used, 1)))])
    assert all(found["rules"][rule]["precision"]["right"] for rule in ("partial_use", "never_used"))
    assert found["states_agreed_ratio"] == pytest.approx(1, abs=0.01)


def test_the_page_has_the_stored_figures_of_the_judged_fleet() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


def test_strangers_are_the_same_twice_and_use_their_gpus_in_every_way() -> None:
    worlds = [made_world(seed) for seed in (1, 2, 2)]
    assert np.array_equal(worlds[1].util_pct, worlds[2].util_pct)
    assert {kind for world in worlds for kinds in world.kinds for kind in kinds} == {*USES, "queue"}
    for world in worlds:
        slots = world.util_pct.shape[1]
        assert all(LEAD <= moment <= slots - WEEK for moment in world.moments)
        truth = truth_at(world, world.moments[-1])
        assert set(truth.filter("ought_left_free")["state"]) <= {"free"}
        assert truth.filter(pl.col("unused_7d") & ~pl.col("unused_1d")).is_empty()
        worked = pl.Series(world.util_pct[:, world.moments[-1] :].any(axis=1))
        assert (truth["unused_7d"] != worked).all()


BEGIN_S, HOUR = 1_662_858_720, 3600 / STEP_S
USED, PAUSE = [(step, 5) for step in range(105, 200)], [(step, 0) for step in range(100)]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        pytest.param(
            [(0, 5), *((step, 0) for step in range(1, 101)), (101, 5), (102, 0), (103, 0), (104, 5), *USED],
            [
                (0, 1, "used", "false"),
                (1, 101 - HOUR, "unused", "true"),
                (101 - HOUR, 101, "unused", "false"),
                (101, 102, "used", "false"),
                (102, 104, "", "false"),  # shorter than five minutes
                (104, 200, "used", "false"),
            ],
            id="a pause is takeable until an hour before it ends",
        ),
        pytest.param(
            [*PAUSE, (100, 5)],
            [
                (0, 100 - HOUR, "unused", "true"),
                (100 - HOUR, 101 - HOUR, "unused", "false"),
                (101 - HOUR, 100, "unused", ""),
                (100, 101, "used", "false"),
            ],
            id="of an hour that was not recorded nothing is known",
        ),
        pytest.param(
            [*PAUSE, (102, 0), (107, 5)],
            [
                (0, 103 - HOUR, "unused", "true"),
                (103 - HOUR, 103, "unused", ""),
                (107, 108, "used", "false"),
            ],
            id="else a use behind a gap would be seen, and its absence would not",
        ),
    ],
)
def test_labels_of_a_trace(
    tmp_path: Path, rows: list[tuple[int, int]], labels: list[tuple[float, float, str, str]]
) -> None:
    """Rows of one pod are (step, duty cycle); labels (first step, end, state, takeable)."""
    trace, written = tmp_path / "duty.csv", tmp_path / "labels.csv"
    lines = "".join(f"{BEGIN_S + STEP_S * step}.0,pod,{duty}\n" for step, duty in rows)
    trace.write_text("timestamp_anon,container_ip,value\n" + lines)
    write_labels(trace, written, 1)
    found = list(csv.DictReader(written.read_text().splitlines()))
    assert {row["gpu"] for row in found} == {"trace/pod"}

    def step(moment: str) -> float:
        return (datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp() - BEGIN_S) / STEP_S

    assert [(step(row["since"]), step(row["until"]), row["state"], row["takeable"]) for row in found] == labels


SPANS = """
a 0 2 active ann | a 2 9 held ann | a 9 30 active ann
b 0 2 active ann | b 2 6 held ann | b 6 7 free - | b 7 30 active bob
c 0 3 low eve | c 3 6 free - | c 6 8 unknown - | c 8 30 free -
d 0 6 active eve | e 0 4.5 active eve | e 4.5 30 free -
"""
"""GPU, hours, state, user. Ann leaves a at 2 h and is back at 9 h; bob uses b, which ann left, from 7 h on; c is not
observed from 6 h to 8 h; at 5 h d is in use, and e has been idle for too short a time."""
PLAN = Plan(5 * HOUR_MS, 5 * HOUR_MS, HOUR_MS, HOUR_MS, HOUR_MS, (HOUR_MS, 3 * HOUR_MS, 12 * HOUR_MS))


@pytest.fixture
def moment() -> Moment:
    rows = [span.split() for line in SPANS.strip().splitlines() for span in line.split(" | ")]
    text = pl.DataFrame(rows, schema=["gpu", "time", "end", "state", "user"], orient="row")
    ms = (pl.col("time", "end").cast(pl.Float64) * HOUR_MS).cast(pl.Int64)
    segments = text.with_columns(ms, user=pl.col("user").replace("-", None), host=pl.lit("h"), pool=pl.lit("p"))
    (found,) = moments(segments, PLAN)
    return found


def test_what_is_asked_at_a_moment_and_what_became_of_it(moment: Moment) -> None:
    """On a GPU with ann's processes: whether she uses it; on others: whether anyone does; unobserved: null."""
    assert moment.cases.sort("gpu").rows() == [
        ("a", "ann", 3 * HOUR_MS, 1.0, 1.0, 0.0),
        ("b", "ann", 3 * HOUR_MS, 1.0, 1.0, 1.0),
        ("c", ANYBODY, 2 * HOUR_MS, 1.0, None, None),
    ]
    assert moment.intervals.select("gpu", "kind", "user").rows() == [
        *(("a", "held", "ann"), ("b", "held", "ann"), ("c", "free", ""), ("e", "free", ""))
    ]


def test_every_model_answers_every_question_that_can_be_judged(moment: Moment) -> None:
    found = list(answers(moment, PLAN.horizons_ms, PLAN.landmarks_ms))
    models = {PRESENT, BY_TABLES, *installed()}
    assert len(found) == 7 * len(models)
    assert {model for model, *_ in found} == models
    assert all(0 <= promised <= 1 for _, _, promised, _ in found)
    assert scores([([moment], PLAN)])["12h"][PRESENT]["cases"] == 2


def test_a_library_is_taught_by_what_was_known_at_each_landmark() -> None:
    """An interval of 10 h that use ended, and a running one, probed every 4 h; `rest_ms` is known once use ended it."""
    rows = [
        ("a", "held", "ann", 0, 10, True, False),
        ("a", "held", "ann", 12, 20, False, True),
        ("b", "free", "", -1, 2, True, True),
    ]
    names = ["gpu", "kind", "user", "time", "end", "ended", "is_last"]
    intervals = pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.col("time", "end") * HOUR_MS)
    landmarks = Landmarks(intervals.with_columns(began="time", stop="end"), 20 * HOUR_MS, 4 * HOUR_MS)
    rows, rest_ms, ended = landmarks.to_learn()
    # b at 0 h, a at 4, 8 and 16 h; at 12 h the interval has only begun
    assert (rest_ms / HOUR_MS).tolist() == [2, 6, 2, 4]
    assert ended.tolist() == [1, 1, 1, 0]
    assert np.exp(rows[:, 0]).tolist() == pytest.approx([1, 4, 8, 4])
    assert rows[:, 2].tolist() == pytest.approx([0, 0, 0, math.log(2)])
    assert rows[:, -2].tolist() == [0, 1, 1, 1]
    assert {gpu: round(math.exp(row[0])) for gpu, row in landmarks.to_ask().items()} == {"a": 8, "b": 3}


def test_scores_are_those_of_the_book() -> None:
    found = score(np.array([0.96, 1.0, 0.9, 0.25]), np.array([1.0, 0.0, 1.0, 0.0]))
    assert found["brier"] == pytest.approx((0.04**2 + 1 + 0.1**2 + 0.25**2) / 4, abs=1e-4)
    logs = math.log(0.96) + math.log(0.001) + math.log(0.9) + math.log(0.75)
    assert found["log_loss"] == pytest.approx(-logs / 4, abs=1e-4)
    assert found["high"] == {"gpus": 2, "promised_ratio": 0.98, "kept_ratio": 0.5}
    assert found["medium"] == {"gpus": 1, "promised_ratio": 0.9, "kept_ratio": 1.0}
