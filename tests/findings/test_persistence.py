"""How likely an idle GPU stays unused: the model against counting by hand, from a lake's own spells, and on a published trace."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.proportions import wilson
from analytics.states import IN_USE
from analytics.workloads.persistence import IdleSpells, Persistence, idle_spells, outlook, spells_of
from fallow.clock import HOUR_MS, MINUTE_MS
from tests.conftest import REPOSITORY, run_python
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings
from tests.lakes import made_lake
from tests.ledger.rows import fill, load, ms, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ledger.recording import Recording


Spell = tuple[str, str, float, bool]
"""User, GPU, length in hours, and whether use ended it."""
TRACE = REPOSITORY.parent / "shared" / "traces" / "genai26" / "duty.csv.gz"
WEEK_H = 7 * 24


def known(rows: list[Spell], began_h: list[float] | None = None, until_h: float = 0.0) -> Persistence:
    """Spells that all began long ago, unless their starts are given."""
    users, gpus, hours, ended = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Persistence(
        IdleSpells(
            np.array([-1e6] * len(rows) if began_h is None else began_h, np.float64) * HOUR_MS,
            np.array(hours, np.float64) * HOUR_MS,
            np.array(ended, np.bool_),
            np.array(users, np.object_),
            np.array(gpus, np.object_),
            np.ones(len(rows)),
        ),
        round(until_h * HOUR_MS),
    )


def lasting(rows: list[Spell], age_h: float, horizon_h: float = WEEK_H, user: str = "ann", gpu: str = "a") -> float:
    return known(rows).lasting(user, gpu, round(age_h * HOUR_MS), round(horizon_h * HOUR_MS))


hours = st.integers(1, 1000)
some_spells = st.lists(
    st.tuples(st.sampled_from(("ann", "bob")), st.sampled_from(("a", "b")), hours.map(float), st.booleans()),
    max_size=40,
)


@given(some_spells, hours, hours)
def test_own_spells_move_it_the_way_that_they_went(rows: list[Spell], age_h: int, horizon_h: int) -> None:
    """One of the GPU's own, of the same user, that reached this age: it came back in time, or it did not."""
    before = lasting(rows, age_h, horizon_h)
    here = ("ann", "a")
    reversal = lasting([*rows, (*here, float(age_h + horizon_h // 2), True)], age_h, horizon_h)
    rest = lasting([*rows, (*here, float(age_h + horizon_h), False)], age_h, horizon_h)
    assert reversal < before + 1e-9
    assert rest > before - 1e-9


@pytest.mark.parametrize(("lasted", "ended"), [(0, 5), (3, 2), (10, 0)])
def test_levels_are_pooled_by_their_weights(lasted: int, ended: int) -> None:
    """The user's spells weigh against four of the fleet's, those on the GPU against one of the user's."""
    others = [("bob", "b", 30.0, True)] * 40 + [("bob", "c", 400.0, False)] * 5
    mine = [("ann", "x", 400.0, False)] * lasted + [("ann", "x", 50.0, True)] * ended
    rows = others + mine
    fleet = lasting(rows, 48, user="eve", gpu="e")
    user = (lasted + 4 * fleet) / (lasted + ended + 4)
    assert lasting(rows, 48, gpu="new") == pytest.approx(user)
    assert lasting(rows, 48, gpu="x") == pytest.approx((lasted + user) / (lasted + ended + 1))


def evenings(now_h: float, age_h: float, horizon_h: float) -> float:
    """Ann comes at 22:00 on weekdays and is done at another hour every time: how likely her GPU stays unused."""
    done_h = (2, 17, 5, 14, 8, 11)
    visits = [24 * day + 22 for day in range(35) if day % 7 < 5 and 24 * day + 22 < now_h - age_h]
    left_h = [visit + 2 + done_h[number % len(done_h)] for number, visit in enumerate(visits[:-1])] + [now_h - age_h]
    rows = [("ann", "a", back - left, True) for left, back in zip(left_h, visits[1:], strict=False)]
    others = [(f"u{number}", f"g{number}", 20.0, number % 2 == 0) for number in range(40)]
    starts = [*left_h, *[-1e6] * len(others)]
    promised = known([*rows, ("ann", "a", age_h, False), *others], starts, now_h)
    return promised.lasting("ann", "a", round(age_h * HOUR_MS), round(horizon_h * HOUR_MS))


THURSDAY_H = (4 * 7 + 3) * 24.0


def test_a_release_for_twelve_hours_knows_when_the_user_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time an hour after the last use: nobody comes for 16 hours, ann does in four; on Saturday nobody does."""
    at_six, at_eighteen, saturday = ((THURSDAY_H + 6, 1.0), (THURSDAY_H + 18, 1.0), (THURSDAY_H + 66, 3.0))
    assert evenings(*at_eighteen, 12) < 0.2
    assert evenings(*at_six, 12) > 0.8
    assert evenings(*saturday, 12) > 0.85
    week = [evenings(*asked, WEEK_H) for asked in (at_six, at_eighteen, saturday)]
    monkeypatch.setattr("analytics.workloads.persistence.WEIGHT_OF_AGE", 1e9)
    assert [evenings(*asked, WEEK_H) for asked in (at_six, at_eighteen, saturday)] == week
    by_age = [evenings(*asked, 12) for asked in (at_six, at_eighteen, saturday)]
    assert by_age == pytest.approx([0.6, 0.6, 0.45], abs=0.02)  # which is all that the age of the interval tells


@given(some_spells, hours, st.integers(1, WEEK_H - 1))
def test_what_lasts_a_week_lasts_every_part_of_it(rows: list[Spell], age_h: int, horizon_h: int) -> None:
    starts = [float(7 * 24 * (number % 5)) - 1000 for number in range(len(rows))]
    promised = known(rows, starts)
    part, whole = (promised.lasting("ann", "a", age_h * HOUR_MS, each * HOUR_MS) for each in (horizon_h, WEEK_H))
    assert part >= whole


def test_short_breaks_of_earlier_weeks_say_nothing_of_what_was_left_for_good() -> None:
    """Bob's four weeks of daily use lie behind him; his GPU has rested for six days."""
    visits = [24.0 * day for day in range(28)]
    rows = [("bob", "b", 20.0, True)] * 27 + [("bob", "b", 144.0, False)]
    now_h = visits[-1] + 4 + 144
    starts = [visit + 4 for visit in visits]
    resting = known(rows, starts, now_h).lasting("bob", "b", 144 * HOUR_MS, 12 * HOUR_MS)
    assert resting == known(rows).lasting("bob", "b", 144 * HOUR_MS, 12 * HOUR_MS)


def test_spells_that_were_lost_from_sight_before_the_horizon_count_for_nobody() -> None:
    others = [("bob", "b", 30.0, True)] * 40
    lost = [("ann", "a", 60.0, False)] * 9
    fleet = lasting(others + lost, 48, user="eve", gpu="e")
    assert lasting(others + lost, 48) == pytest.approx(fleet)


def test_before_anything_was_seen_ever_longer_rests_are_ever_likelier_to_last() -> None:
    chances = [lasting([], age_h) for age_h in (1, 24, WEEK_H, 8 * WEEK_H)]
    assert chances == sorted(chances)
    assert chances[-1] == pytest.approx((9 / 8) ** -0.4)  # as _PRIOR_RATE has it


def test_a_constant_rate_for_each_e_fold_of_age_is_found_again() -> None:
    """Lengths of Pareto's law with exponent 0.5: of those that reach an age, sqrt(age / later) reach the later one."""
    rank = (np.arange(4000) + 0.5) / 4000
    rows = [("bob", f"g{number}", hours, True) for number, hours in enumerate(0.2 * rank**-2.0)]
    for age_h in (1.0, 12.0, 100.0):
        assert lasting(rows, age_h, 3 * age_h, user="eve", gpu="e") == pytest.approx(0.5, abs=0.03)


def test_others_daily_rests_are_no_yardstick_for_one_that_has_been_dead_for_two_weeks() -> None:
    daily = [(f"u{number}", f"g{number}", 14.0, True) for number in range(20)] * 28
    dead = [("ann", "a", 14.0 * 24, False)]
    alone = lasting(daily + dead, 14 * 24)
    assert 0.85 < alone < 0.95
    assert lasting(daily + dead + [(f"z{number}", f"z{number}", 500.0, False) for number in range(5)], 14 * 24) > 0.95
    assert lasting(daily, 12, user="u1", gpu="g1") < 0.05


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_wilsons_bounds_are_where_the_normal_score_is_the_quantile(share: float, number: int) -> None:
    low, high = wilson(share, number)
    for bound in (low, high):
        if 1e-9 < bound < 1 - 1e-9:
            reach = 1.6448536269514722 * math.sqrt(bound * (1 - bound) / number)
            assert abs(share - bound) == pytest.approx(reach, rel=1e-6, abs=1e-9)
    assert low <= share + 1e-9
    assert share <= high + 1e-9
    assert wilson(1.0, 0) == (0.0, 1.0), "of nothing it says nothing"


@pytest.mark.parametrize(
    ("gpus", "expected"), [(["a"], 0.9), (["a", "b"], 0.3), (["a", "busy"], None), (["busy"], None)]
)
def test_a_promise_about_several_gpus_is_that_of_the_worst(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], expected: float | None
) -> None:
    of_one = {"a": 0.9, "b": 0.3}
    of_users = SimpleNamespace(lasting=lambda _user, gpu, _age, _horizon: of_one[gpu])
    known = SimpleNamespace(of_users=of_users, idle_ms={"a": HOUR_MS, "b": 2 * HOUR_MS})
    monkeypatch.setattr("analytics.workloads.persistence.persistence", lambda _: known)
    context: Any = SimpleNamespace(settings=SimpleNamespace(horizon_ms=HOUR_MS))
    found = outlook(context, gpus, "ann")
    assert found.probability == expected
    assert found.is_doubtful == (expected is None or expected < 0.8)


def held(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **HELD)


def busy(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **BUSY)


def lists(gpu: str, first_s: int, last_s: int, user: str = "ann") -> list[dict[str, object]]:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, user=user)


def found_spells(site: Recording, until_s: float) -> list[tuple[str | None, float, bool, bool, bool, float]]:
    frame = idle_spells(load(site).stretches, ms(until_s))
    rows = frame.select("user", "length_ms", "ended", "ended_by_user", "is_last", "weight").rows()
    return [(user, length / HOUR_MS, *others) for user, length, *others in rows]


def test_what_a_lakes_spells_are(site: Recording) -> None:
    """One before any use, one that ended, one that unknown time follows, one that still runs."""
    rows = (
        held("a", 0, HOUR) + busy("a", HOUR, 2 * HOUR) + held("a", 2 * HOUR, 3 * HOUR) + busy("a", 3 * HOUR, 4 * HOUR)
    )
    rows += held("a", 4 * HOUR, 6 * HOUR) + held("a", 7 * HOUR, 8 * HOUR) + busy("a", 8 * HOUR, 9 * HOUR)
    rows += held("a", 9 * HOUR, 12 * HOUR)
    fill(site, rows, lists("a", 0, 12 * HOUR))
    assert found_spells(site, 12 * HOUR) == [
        (None, 1.0, True, False, False, 1.0),
        ("ann", 1.0, True, True, False, 1.0),
        # a sample stands for up to three intervals, so that the gap begins two minutes later
        ("ann", pytest.approx(2 + 2 / 60), False, False, False, 1.0),
        (None, pytest.approx(1.0), True, False, False, 1.0),
        ("ann", 3.0, False, False, True, 1.0),
    ]


def test_gpus_that_are_left_together_share_the_weight_of_one(site: Recording) -> None:
    rows, users = [], []
    for gpu in "abcd":
        rows += busy(gpu, 0, HOUR) + held(gpu, HOUR, 3 * HOUR) + busy(gpu, 3 * HOUR, 4 * HOUR)
        users += lists(gpu, 0, 4 * HOUR, user="bob" if gpu == "d" else "ann")
    fill(site, rows, users)
    weights = [(user, weight) for user, *_, weight in found_spells(site, 4 * HOUR)]
    assert weights == [("ann", pytest.approx(1 / 3))] * 3 + [("bob", 1.0)]


def test_who_comes_every_morning_is_not_promised_to_stay_away_and_who_has_been_away_for_weeks_is(
    site: Recording,
) -> None:
    """Ann works for an hour from 06:00 every day, bob worked on the first day of four weeks and never again."""
    rows, users = [], []
    for gpu, user, days in (("a", "ann", range(28)), ("b", "bob", range(1))):
        at = 0
        for day in days:
            six = day * DAY + 6 * HOUR
            rows += samples(gpu, at, six, every_s=600, **HELD) + samples(gpu, six, six + HOUR, every_s=600, **BUSY)
            at = six + HOUR
        rows += samples(gpu, at, 28 * DAY, every_s=600, **HELD)
        users += processes(gpu, *range(0, 28 * DAY, 600), every_s=600, user=user)
    found = {each.holder: each for each in idle_findings(fill(site, rows, users)) if each.rule == "held"}
    chances = {user: each.evidence.numbers["stays_unused_probability"] for user, each in found.items()}
    assert (chances["ann"] < 0.05, chances["bob"] > 0.9) == (True, True)  # type: ignore[operator]  # they are numbers
    assert (found["ann"].confidence.grade, found["bob"].confidence.grade in ("high", "medium")) == ("low", True)
    (said,) = [each for each in found["ann"].confidence.failed if "staying unused" in each]
    assert said.startswith("the probability of staying unused for another 7 d is ")
    assert said.endswith(": below 80 %, ask first")
    assert found["bob"].evidence.numbers["stays_unused_horizon_h"] == WEEK_H


@pytest.mark.skipif(not TRACE.is_file(), reason="the trace genai26 is not there (its licence keeps it out)")
def test_what_is_promised_of_the_trace_is_kept_as_often_and_oftener_when_work_thins_out(tmp_path: Path) -> None:
    """An hour ahead, from what was known: by day as often within 4 points; in the evening, which no day before told of, oftener."""
    columns = (f"gpu_util_pct={TRACE}:value", f"mem_used_bytes={TRACE.with_name('memory.csv.gz')}:value")
    named = ("--time", "timestamp_anon", "--gpu", "container_ip", "--interval", "57s", "--lake", str(tmp_path / "lake"))
    done = run_python(
        "-m", "fallow", "import", "series", *named, *(word for each in columns for word in ("--column", each))
    )
    assert done.returncode == 0, done.stderr
    stretches = load(made_lake(tmp_path / "lake")).stretches
    start_ms = int(stretches["time"].min())  # type: ignore[arg-type]  # an integer column
    day, evening = (
        np.array([each for hour in hours for each in judged(stretches, start_ms + hour * HOUR_MS)])
        for hours in (range(10, 18), range(18, 22))
    )
    assert min(len(day), len(evening)) > 400
    assert day[:, 1].mean() == pytest.approx(day[:, 0].mean(), abs=0.04)
    assert evening[:, 1].mean() > evening[:, 0].mean()


def judged(stretches: pl.DataFrame, until_ms: int) -> list[tuple[float, bool]]:
    """Of each pod that had been idle for 5 minutes: how likely it stays so for an hour, and whether it did; none that nobody saw."""
    spells, later_ms = idle_spells(stretches, until_ms), until_ms + HOUR_MS
    model = Persistence(spells_of(spells, "ended", spells["gpu"]), until_ms)
    after = stretches.filter(pl.col("end") > until_ms, pl.col("time") < later_ms, pl.col("state") != "unknown")
    used = set(after.filter(pl.col("state").is_in(IN_USE))["gpu"])
    during = pl.min_horizontal("end", later_ms) - pl.max_horizontal("time", until_ms)
    seen = {str(gpu) for gpu, time_ms in after.group_by("gpu").agg(during.sum()).iter_rows() if time_ms > 0.9 * HOUR_MS}
    return [
        (model.lasting(gpu, gpu, length_ms, HOUR_MS), gpu not in used)
        for gpu, length_ms in spells.filter("is_last").select("gpu", "length_ms").iter_rows()
        if length_ms >= 5 * MINUTE_MS and (gpu in used or gpu in seen)
    ]


@pytest.mark.parametrize(
    ("first", "then", "ended"), [("ann", "bob", False), ("ann", "ann", True), (None, "bob", True), ("ann", None, True)]
)
def test_somebody_unknown_may_be_whoever_was_there_before(
    site: Recording, first: str | None, then: str | None, *, ended: bool
) -> None:
    fill(
        site,
        busy("a", 0, HOUR) + samples("a", HOUR, 2 * HOUR, every_s=60, **FREE) + busy("a", 2 * HOUR, 3 * HOUR),
        (lists("a", 0, HOUR, first) if first else []) + (lists("a", 2 * HOUR, 3 * HOUR, then) if then else []),
    )
    [(_, _, was_ended, by_user, *_)] = found_spells(site, 3 * HOUR)
    assert (was_ended, by_user) == (True, ended)
