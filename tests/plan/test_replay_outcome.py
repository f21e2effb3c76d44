"""A replay of what a simulated scheduler did: waste found again, waits predicted, and where it says that it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.language.sentences import ENGLISH
from analytics.money.energy import Grid
from analytics.plan.purchase import InternalPrices
from analytics.plan.replay.comparisons import (
    ShiftedWork,
    curve_sizes,
    knee,
    pool_part,
    shifted_work,
    sweep,
    sweep_of,
    sweep_point,
)
from analytics.plan.replay.engine import replay
from analytics.plan.replay.policy import OffPeakHours, Priorities
from analytics.plan.replay.replay_base import ReplayBase, ReplayOutcome, fleet_use, scenario_outcome
from analytics.tables.plan_replay import replay_answer
from analytics.tables.plan_scenarios import queue_curve, replay_sweep
from fallow.clock import HOUR_MS
from fallow.errors import UsageError
from tests.plan.replays import base_of, gpu_rows, job_row, jobs_frame, placed_rows, simulated_base
from tests.plan.scheduler import Cluster, Planted, Task, planted, recorded_jobs, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analytics.plan.replay.replayed_waits import CheckedWaits

PERIODS = 50
FENCED = Cluster({"A": ("a0",), "B": ("b0",)}, {"a": ("a0",), "b": ("b0",)})


def task(name: str, asked_h: float, run_h: float, partition: str, gpus: int = 8) -> Task:
    run = round(run_h * HOUR_MS)
    return Task(name, round(asked_h * HOUR_MS), gpus, run, run, partition)


def in_turns() -> Iterator[Task]:
    """Pool A has work in even hours, pool B in odd ones: each needs all of its GPUs, half of the time."""
    for period in range(PERIODS):
        yield task(f"even-{period}", 2 * period, 1, "a")
        yield task(f"odd-{period}", 2 * period + 1, 1, "b")


def two_at_once() -> Iterator[Task]:
    """Two jobs at a time for pool A, which has room for one, while nobody works in pool B but at the very end."""
    for period in range(PERIODS):
        yield task(f"first-{period}", 3 * period, 1, "a")
        yield task(f"second-{period}", 3 * period, 1, "a")
    yield task("last", 3 * PERIODS, 1, "b")


def test_a_fence_costs_what_its_fall_frees() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    outcome = scenario_outcome(base, replace(base.policy, merge=(("A", "B"),)))
    assert outcome.waits is not None
    assert outcome.waits.today.gpu_ms == PERIODS * 8 * HOUR_MS
    assert outcome.waits.then.gpu_ms == 0
    assert [(each.name, each.saved_ms / HOUR_MS) for each in outcome.teams] == [("user-a", PERIODS * 8), ("user-b", 0)]


def test_merged_pools_that_work_in_turns_need_half_of_their_gpus() -> None:
    base = simulated_base(FENCED, [*in_turns()])
    merged = replace(base.policy, merge=(("A", "B"),))
    found = sweep(base, merged, "B", range(9))
    assert (found.there, found.enough) == (8, 0)
    # a forecast also counts jobs that never had GPUs, and may order for them
    assert "as good as today for the replayed jobs" in str(replay_sweep(found, None).headline)
    answer = replay_answer(base, scenario_outcome(base, merged), Grid(1.0, None, None), "USD")
    assert "never had GPUs (the forecast counts" in str(answer.notes)
    assert (found.there - found.enough) * found.window_ms / HOUR_MS == 8 * 2 * PERIODS
    assert sweep(base, base.policy, "B", range(9)).enough == 8
    assert scenario_outcome(base, merged).spare == 8


def wide_before_small() -> Iterator[Task]:
    """A wide job that one more host starts at once; then small jobs, which would have fitted before it, wait."""
    for period in range(20):
        yield task(f"first-{period}", 2 * period, 0.5, "a", 32)
        yield task(f"wide-{period}", 2 * period + 0.1, 1, "a", 40)
        for number in range(4):
            yield task(f"small-{period}-{number}", 2 * period + 0.2, 1 / 60, "a", 32)


def test_more_gpus_that_lengthen_waits_are_explained() -> None:
    hosts = tuple(f"a{number}" for number in range(8))
    base = simulated_base(Cluster({"A": hosts}, {"a": hosts}), [*wide_before_small()])
    for gpus, is_longer in ((64, False), (72, True), (640, False)):
        outcome = scenario_outcome(base, replace(base.policy, gpus={"A": gpus}))
        headline = str(replay_answer(base, outcome, Grid(1.0, None, None), "USD").headline)
        assert ("GPU-hours more." in headline, "others wait for them" in headline) == (is_longer, is_longer)


def left_standing() -> ReplayBase:
    """User ada idles on 4 GPUs for 7 of 10 hours; bo on one for 3 hours, then works for 1; cy works all the time."""
    jobs = [job_row("ada", 1, 11, gpus=4), job_row("bo", 2, 7), job_row("cy", 2, 12)]
    ada = [(1, 4, "active", "slurm:ada"), (4, 11, "held", "slurm:ada")]
    bo = [(2, 3, "active", "slurm:bo"), (3, 6, "held", "slurm:bo"), (6, 7, "active", "slurm:bo")]
    use = dict.fromkeys((f"a/{number}" for number in range(4)), ada) | {"a/4": bo}
    rows = gpu_rows(20, use | {"a/5": [(2, 12, "active", "slurm:cy")]})
    return base_of(jobs_frame(*jobs), rows, 20 * HOUR_MS)


def test_an_idle_timeout_frees_what_was_left_standing_and_names_whom_it_hits() -> None:
    base = left_standing()
    outcome = scenario_outcome(base, replace(base.policy, idle_timeout_ms=2 * HOUR_MS))
    cuts = {
        each.user: (each.freed_ms / HOUR_MS, each.worked_ms / HOUR_MS, each.worked_later, each.cost)
        for each in outcome.cuts
    }
    assert cuts == {"ada": (20, 0, 0, pytest.approx(40)), "bo": (2, 1, 1, pytest.approx(4))}
    held = [each.total.held_ms / HOUR_MS for each in (outcome.today, outcome.then)]
    assert held == [4 * 10 + 5 + 10, 4 * 10 + 5 + 10 - 22]


def test_a_job_that_fits_nowhere_today_is_no_loss_of_a_change() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    too_wide = pl.col("number") == base.coming.filter(pl.col("pool") == "A")["number"].min()
    wide = pl.when(too_wide).then(9).otherwise("gpus").cast(base.coming.schema["gpus"])
    coming = base.coming.with_columns(gpus=wide)
    strange = replace(base, coming=coming, today=replay(coming, base.fleet, base.policy))
    assert (base.homeless, strange.homeless) == (0, 1)
    assert scenario_outcome(strange, base.policy).unplaced == ()
    none = scenario_outcome(strange, replace(base.policy, gpus={"A": 0}))
    assert sum(each.jobs for each in none.unplaced) == 2 * PERIODS - 1
    assert sweep(strange, base.policy, "A", (4, 8, 16)).enough == 8


def test_what_shared_gpus_draw_is_unknown() -> None:
    base = left_standing()
    watts = tuple(replace(group, idle_w=50.0, held_w=90.0, busy_w=300.0) for group in base.fleet.groups)
    today = replace(base.today, fleet=replace(base.fleet, groups=watts))
    assert fleet_use(today, base.window).kwh is not None
    in_thirds = replace(today, holds=today.holds.with_columns(gpus=pl.col("gpus") / 3))
    assert fleet_use(in_thirds, base.window).kwh is None


def test_without_the_time_of_asking_the_rest_is_answered() -> None:
    base = left_standing()
    assert not base.check.has_waits
    assert base.check.has_use
    outcome = scenario_outcome(base, base.policy)
    assert (outcome.waits, outcome.teams, outcome.ranks) == (None, (), ())
    assert outcome.today.total.utilization == pytest.approx(55 / (6 * 20))


def test_energy_is_what_free_idle_and_working_gpus_draw() -> None:
    watts = pl.col("state").replace_strict({"free": 50.0, "held": 100.0, "active": 400.0})
    span = pl.col("end") - pl.col("time")
    rows = gpu_rows(10, {"a/0": [(1, 4, "active", "ada"), (4, 9, "held", "ada")], "a/1": []})
    rows = rows.with_columns(energy_ms=span, energy_mj=watts * span)
    base = base_of(jobs_frame(), rows, 10 * HOUR_MS)
    outcome = scenario_outcome(base, replace(base.policy, idle_timeout_ms=2 * HOUR_MS))
    assert outcome.today.kwh == pytest.approx((12 * 50 + 5 * 100 + 3 * 400) / 1000)
    assert outcome.then.kwh == pytest.approx((15 * 50 + 2 * 100 + 3 * 400) / 1000)
    unknown = base_of(jobs_frame(), rows.with_columns(energy_ms=0), 10 * HOUR_MS)
    assert scenario_outcome(unknown, unknown.policy).today.kwh is None


def test_fewer_gpus_cost_less_and_what_does_not_fit_is_said() -> None:
    base = simulated_base(FENCED, [*in_turns()])
    outcome = scenario_outcome(base, replace(base.policy, gpus={"B": 4}))
    assert [(each.jobs, each.gpu_ms / HOUR_MS) for each in outcome.unplaced] == [(PERIODS, 8 * PERIODS)]
    today, then = outcome.today.total.cost, outcome.then.total.cost
    assert today is not None
    assert then is not None
    assert today - then == 4 * 2 * PERIODS * 2.0


def test_the_knee_is_where_the_curve_bends() -> None:
    assert knee([(1, 100), (2, 20), (3, 15), (4, 10)]) == 2
    assert knee([(1, 30), (2, 20), (3, 10)]) is None
    assert knee([(1, 0), (2, 0), (3, 0)]) is None
    assert knee([(1, 9), (2, 0)]) is None


def test_ranks_that_no_job_has_are_refused() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    scenario_outcome(base, replace(base.policy, priorities=Priorities("user", ("user-a",))))
    with pytest.raises(UsageError, match="no job of this window has the user nobody"):
        scenario_outcome(base, replace(base.policy, priorities=Priorities("user", ("user-a", "nobody"))))


def test_waits_that_look_the_same_are_said_to_be() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    outcome = scenario_outcome(base, replace(base.policy, merge=(("A", "B"),)))
    assert outcome.waits is not None
    nearly = replace(outcome.waits.today, gpu_ms=outcome.waits.today.gpu_ms - 1000)
    alike = replace(outcome, then=replace(outcome.then, waits=nearly))
    assert "jobs wait 400.0 GPU-hours less" in headline(base, outcome)
    assert "queue waits do not change" in headline(base, alike)


def headline(base: ReplayBase, outcome: ReplayOutcome) -> str:
    return ENGLISH.shown(replay_answer(base, outcome, Grid(1.0, None, None), "USD").headline)


def test_a_change_without_effect_says_so() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    today = scenario_outcome(base, base.policy)
    assert (today.is_today, today.is_same) == (True, True)
    assert "no difference" not in headline(base, today)
    same = scenario_outcome(base, replace(base.policy, limit_to_need=True))
    assert (same.is_today, same.is_same) == (False, True)
    assert headline(base, same).startswith("This change makes no difference.")
    more = scenario_outcome(base, replace(base.policy, more_gpus={"B": 8}))
    assert not more.is_same
    assert "8 more GPUs add 1,208.0 GPU-hours. Unallocated GPU-hours rise by 1,208.0." in headline(base, more)


def test_the_time_out_is_answered_before_the_waits_by_user() -> None:
    base = left_standing()
    outcome = scenario_outcome(base, replace(base.policy, idle_timeout_ms=2 * HOUR_MS))
    said = headline(base, outcome)
    assert said.startswith(
        "An idle time-out of 2 h frees 22.0 GPU-hours and ends 2 jobs of these people: ada (1), bo (1). Queue waits in "
    )
    none = scenario_outcome(base, replace(base.policy, idle_timeout_ms=9 * HOUR_MS))
    assert headline(base, none).startswith("An idle time-out of 9 h frees no GPU-hours")


def test_the_comparison_has_what_differs_pool_by_pool() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    outcome = scenario_outcome(base, replace(base.policy, more_gpus={"A": 8}))
    rows = replay_answer(base, outcome, Grid(1.0, None, None), "USD").records()
    pools = {row["figure"]: (row["today"], row["then"], row["difference"]) for row in rows if row["pool"] == "A"}
    assert pools["gpus"] == (8, 16, 8)
    assert pools["gpu_hours_waited"] == (400, 0, -400)
    assert all(row["difference"] != 0 for row in rows if row["pool"])
    assert "B" not in {row["pool"] for row in rows}


def test_the_curve_marks_today_and_the_scenario() -> None:
    base = simulated_base(FENCED, [*two_at_once()])
    assert curve_sizes(base.fleet, "A") == (8, 24, 16)
    part = pool_part(base, base.policy, "A")
    points = [sweep_point(part, base.policy, "A", gpus) for gpus in curve_sizes(base.fleet, "A")]
    chart = queue_curve(sweep_of(part, "A", points), (16, points[2].outcome.then.waits))
    assert chart is not None
    most, mean, today, scenario = chart.panels[0].marks
    assert [most.values, mean.values] == [(60.0, 0.0, 0.0), (30.0, 0.0, 0.0)], "minutes"
    assert [(each.at, each.values) for each in (today, scenario)] == [((0.0,), (60.0,)), ((1.0,), (0.0,))]


def test_a_sweep_in_which_nothing_waits_has_no_chart() -> None:
    base = simulated_base(FENCED, [*in_turns()])
    found = sweep(base, base.policy, "A", range(8, 10))
    assert [each.outcome.then.waits and each.outcome.then.waits.p95_ms for each in found.points] == [0, 0]
    assert replay_sweep(found, "USD").chart is None


NIGHT = OffPeakHours(20 * 60, 8 * 60)


def shifted(*prices: InternalPrices) -> ShiftedWork:
    """Two jobs that can wait, and one that serves and cannot; from 11:00 on day two, one runs beyond the window."""
    jobs = jobs_frame(job_row("early", 10, 14), job_row("late", 35, 47), job_row("served", 9, 40, partition="serving"))
    batch = [(10, 14, "active", "slurm:early"), (35, 47, "active", "slurm:late")]
    placed = gpu_rows(48, {"a/0": batch, "a/1": [(9, 40, "active", "slurm:served")]})
    return shifted_work(base_of(jobs, placed, 48 * HOUR_MS), NIGHT, prices)


def test_gpu_hours_move_into_the_night() -> None:
    found = shifted()
    today = [today / HOUR_MS for today, _ in found.by_hour]
    then = [then / HOUR_MS for _, then in found.by_hour]
    assert (found.jobs, found.postponed) == (2, 2)
    assert today == [0] * 10 + [1] + [2] * 3 + [1] * 9 + [0]
    assert then == [0] * 20 + [2] * 4
    assert [each / HOUR_MS for each in found.peak_ms()] == [13, 0]
    assert found.paid is None


def test_what_is_paid_is_by_the_hour() -> None:
    hourly = tuple(0.25 if hour >= 20 else 1.5 for hour in range(24))
    free = tuple(0.0 for _ in range(24))
    prices = InternalPrices("P", "H100", hourly, {"urgent": free, "normal": free, "deferrable": hourly}, 2.0)
    assert shifted(prices).paid == pytest.approx((2 * (13 * 1.5 + 3 * 0.25) / 16, 2 * 0.25))
    unknown = InternalPrices("P", "H100", hourly, {"urgent": free, "normal": free, "deferrable": hourly}, None)
    assert shifted(unknown).paid is None


CASES = {case.name: case for case in planted(seed=2)}
LONG = ("a wrong pool", "held without use", "a wrong pool and held")
PARAMETERS = [
    pytest.param(case, id=name, marks=[pytest.mark.long] if name in LONG else []) for name, case in CASES.items()
]


def relative_error(waits: CheckedWaits) -> float:
    """Of the median and the nineteen of twenty, without the grace that short waits have."""
    seen, then = waits.observed, waits.replayed
    pairs = ((seen.p50_ms, then.p50_ms), (seen.p95_ms, then.p95_ms))
    return max(abs((after or 0) - before) / before for before, after in pairs if before)


@pytest.mark.parametrize("case", PARAMETERS)
@pytest.mark.parametrize("order", ["fifo", "backfill"])
def test_waits_of_a_queue_are_predicted(case: Planted, order: str) -> None:
    base = simulated_base(replace(case.cluster, policy=order), case.tasks)
    assert base.policy.order in ({order} if order == "fifo" else {"backfill", "conservative"})
    assert base.check.has_waits
    assert relative_error(base.check.waits) < 0.10
    if order == "fifo":
        assert base.check.use.error == pytest.approx(0, abs=0.02)
        assert not base.delays


def held_back(delay_ms: int) -> tuple[pl.DataFrame, pl.DataFrame, int]:
    """Jobs of a queue in which every start comes later than GPUs would have it."""
    case = CASES["a real shortage"]
    starts = simulate(replace(case.cluster, policy="fifo"), case.tasks)
    until = max(starts[task.name].at + task.run for task in case.tasks)
    rows = placed_rows(case.cluster, case.tasks, starts, until)
    earlier = [(pl.col(name) - delay_ms).alias(name) for name in ("submitted", "eligible")]
    return recorded_jobs(case.tasks, starts).with_columns(earlier), rows, until


def test_what_else_holds_jobs_is_learnt_from_the_first_half_and_tried_on_the_second() -> None:
    base = base_of(*held_back(6 * HOUR_MS))
    assert base.delays
    assert base.check.has_waits
    assert base.check.waits.error is not None
    assert base.check.waits.error < 0.25
    assert base_of(*held_back(60_000)).delays == {}


def test_beyond_the_stated_error_waits_are_not_told_and_the_rest_is() -> None:
    jobs, rows, until = held_back(0)
    late = (pl.col("submitted") > until // 2).fill_null(value=False)
    changed = [
        (pl.col(name) - pl.when(late).then(50 * HOUR_MS).otherwise(0)).alias(name) for name in ("submitted", "eligible")
    ]
    base = base_of(jobs.with_columns(changed), rows, until)
    assert base.check.has_use
    assert not base.check.has_waits
    outcome = scenario_outcome(base, base.policy)
    assert outcome.waits is None
    assert outcome.today.total.utilization is not None
