"""How likely an idle GPU stays unused: over random fleets, from a lake's idle intervals, and on a published trace."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.ledger.build import load_recent, recent
from analytics.ledger.settings import LedgerSettings
from analytics.proportions import wilson
from analytics.states import IN_USE
from analytics.workloads.idle_intervals import idle_intervals
from analytics.workloads.lifetables import AGES_MS, SHIPPED, Lifetables, _fitted, _rising
from analytics.workloads.persistence import Stays, known_intervals, outlook, promised
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, WEEK_MS, Window
from tests.conftest import REPOSITORY, run_python
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, idle_findings
from tests.lakes import made_lake
from tests.ledger.rows import fill, load, ms, processes, samples

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fallow.lake import Lake
    from tests.ledger.recording import Recording


Use = tuple[int, str, float, str | None]
"""GPU, state, length in hours, user: rows of a GPU follow each other from 0 on."""
TRACE = REPOSITORY.parent / "shared" / "traces" / "genai26" / "duty.csv.gz"
BEGIN_MS = 20_000 * DAY_MS
WEEK_H = 7 * 24


def ledger(uses: list[Use], until_h: float) -> pl.DataFrame:
    """Ledger rows up to a moment; the last row of each GPU goes on to it."""
    rows, ends = [], {}
    for gpu, state, length_h, user in uses:
        begin = ends.get(gpu, 0.0)
        ends[gpu] = begin + length_h
        rows.append((f"g{gpu}", f"h{gpu // 2}", begin, begin + length_h, state, user))
    last = {gpu: max(number for number, row in enumerate(rows) if row[0] == f"g{gpu}") for gpu in ends}
    rows = [
        (*row[:3], max(row[3], until_h) if number in last.values() else row[3], *row[4:])
        for number, row in enumerate(rows)
        if row[2] < until_h
    ]
    frame = pl.DataFrame(rows, schema=["gpu", "host", "time", "end", "state", "user"], orient="row")
    in_ms = (pl.col("time", "end").cast(pl.Float64) * HOUR_MS + BEGIN_MS).cast(pl.Int64)
    return frame.with_columns(in_ms, pl.col("user").cast(pl.String)).filter(pl.col("time") < pl.col("end"))


def known(uses: list[Use], until_h: float) -> pl.DataFrame:
    return known_intervals(ledger(uses, until_h), lambda _: "pool", at(until_h))


def at(hour: float) -> int:
    return round(BEGIN_MS + hour * HOUR_MS)


def stay(uses: list[Use], until_h: float, horizon_ms: int = WEEK_MS) -> Mapping[str, Stays]:
    return promised(known(uses, until_h), at(until_h), horizon_ms)


def daily(gpu: int, user: str, days: int, state: str = "held") -> list[Use]:
    """An hour of work from 06:00 every day."""
    return [(gpu, "free", 6.0, None)] + [
        each for _ in range(days) for each in ((gpu, "active", 1.0, user), (gpu, state, 23.0, user))
    ]


states = st.sampled_from(("free", "held", "active", "reserved", "unknown"))
some_uses = st.lists(
    st.tuples(
        st.integers(0, 3), states, st.sampled_from((0.5, 3.0, 20.0, 70.0, 200.0)), st.sampled_from(("ann", "bob", None))
    ),
    min_size=1,
    max_size=60,
)


@given(some_uses, st.integers(24, 1500), st.sampled_from((HOUR_MS, DAY_MS, WEEK_MS)))
def test_a_promise_is_a_probability_and_a_week_is_never_likelier_than_a_day(
    uses: list[Use], until_h: int, horizon_ms: int
) -> None:
    for each in stay(uses, until_h, horizon_ms).values():
        assert 0 < each.horizon <= each.day < 1


@given(some_uses, st.integers(200, 1500))
def test_no_promise_of_a_week_falls_with_age(uses: list[Use], until_h: int) -> None:
    """Of two GPUs of the same groups at the same moment, the one that has been idle for longer is the surer."""
    intervals = known(uses, until_h)
    tables = Lifetables(intervals)
    asked = tables.newest(at(until_h))
    ages = [replace(asked, age_ms=np.full(len(asked.places), age)) for age in AGES_MS[::3] * 1.07]
    shares = [tables.promised(each, WEEK_MS) for each in ages]
    assert all((later >= earlier - 1e-9).all() for earlier, later in pairwise(shares))


@given(some_uses, st.integers(1, 500))
def test_no_share_of_the_tables_falls_while_all_that_is_idle_stays_so(uses: list[Use], more_h: int) -> None:
    done = [use for use in uses if use[1] != "unknown"]
    rests = [(gpu, "free", 1.0, None) for gpu in sorted({use[0] for use in done})]
    long = sum(use[2] for use in done) + 1
    both = []
    for hour in (long, long + more_h):
        tables = Lifetables(known([*done, *rests], hour))
        asked = tables.newest(at(hour))
        both.append(tables.shares([asked], WEEK_MS)[0])
    assert (both[1] >= both[0] - 1e-9).all()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12))
def test_isotonic_regression_is_the_least_of_the_greatest_means(pairs: list[tuple[int, int]]) -> None:
    """Barlow et al.: the value at k is the greatest over i <= k of the least over j >= k of the mean of i to j."""
    parts, wholes = (np.array([values], np.float64) for values in zip(*pairs, strict=True))
    places = range(len(pairs))
    means = {(i, j): parts[0, i : j + 1].sum() / wholes[0, i : j + 1].sum() for i in places for j in places if i <= j}
    expected = [max(min(means[i, j] for j in places[k:]) for i in range(k + 1)) for k in places]
    assert _rising(parts, wholes)[0] == pytest.approx(expected)


def long_and_short(days: int) -> list[Use]:
    """Twelve GPUs on six hosts left for good on the first day, twelve others in use every day."""
    left = [each for gpu in range(12) for each in ((gpu, "active", 5.0, f"u{gpu}"), (gpu, "free", 24.0 * days, None))]
    return left + [each for gpu in range(12, 24) for each in daily(gpu, f"u{gpu}", days)]


def test_who_has_been_away_for_months_is_ever_surer_and_reaches_high() -> None:
    """Intervals older than five weeks used to be forgotten, and the promise fell from there on."""
    found = [stay(long_and_short(98), 24.0 * days)["g0"].horizon for days in range(14, 99, 7)]
    assert found == sorted(found)
    assert found[0] > 0.8
    assert found[-1] > 0.95
    assert stay(long_and_short(98), 24.0 * 98)["g20"].horizon < 0.1


def test_a_fleet_whose_promises_were_broken_promises_less() -> None:
    """Rows of 90 % of which all or none was kept; none without any history."""
    start = SHIPPED[WEEK_MS]
    rows = np.column_stack([np.ones(200), np.full(200, 2.2), np.full(200, 2.0), np.zeros(200), np.zeros(200)])
    weight = np.ones(200)
    none, kept, broken = (
        float(rows[0] @ _fitted(start, learnt, outcome))
        for learnt, outcome in (
            ([], []),
            ([rows], [(np.ones(200), weight)]),
            ([rows], [(np.zeros(200), weight)]),
        )
    )
    assert broken < none < kept
    assert _fitted(start, [rows], [(np.zeros(200), weight * 1e4)])[1] >= 0, "no promise falls with the life tables"


def test_a_release_for_a_night_knows_when_the_user_comes() -> None:
    """Ann comes at 06:00 every day: 12 hours from 07:00 on nobody comes, from 19:00 on ann does."""
    uses = [each for gpu in range(6) for each in daily(gpu, f"ann{gpu}", 40)]
    morning, evening = (stay(uses, 24.0 * 35 + hour, 12 * HOUR_MS)["g0"].horizon for hour in (8, 20))
    assert (morning > 0.7, evening < 0.2) == (True, True)


def test_own_intervals_tell_more_than_those_of_others() -> None:
    """Eve's GPU came back after 10 days three times, ann's were left for good: both have been idle for 9 days."""
    come_back = [each for _ in range(3) for each in ((0, "active", 2.0, "eve"), (0, "held", 240.0, "eve"))]
    others = [each for gpu in range(4, 14) for each in ((gpu, "active", 2.0, "x"), (gpu, "held", 2000.0, f"x{gpu}"))]
    mine = [(2, "active", 942.0 - 216.0, "ann"), (2, "held", 216.0, "ann")]
    uses = [*come_back, (0, "active", 0.0 + 2.0, "eve"), (0, "held", 216.0, "eve"), *others, *mine]
    found = stay(uses, 3 * 242.0 + 2 + 216)
    assert found["g0"].horizon < 0.5 < found["g2"].horizon


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
    ("gpus", "expected", "day"),
    [(["a"], 0.9, 0.96), (["a", "b"], 0.3, 0.4), (["a", "busy"], None, None), (["busy"], None, None)],
)
def test_a_promise_about_several_gpus_is_that_of_the_worst(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], expected: float | None, day: float | None
) -> None:
    known = {"a": Stays(HOUR_MS, None, 0.96, 0.9), "b": Stays(2 * HOUR_MS, "ann", 0.4, 0.3)}
    monkeypatch.setattr("analytics.workloads.persistence.stays", lambda _: known)
    context: Any = SimpleNamespace(settings=SimpleNamespace(horizon_ms=WEEK_MS))
    found = outlook(context, gpus)
    assert (found.probability, found.day_probability) == (expected, day)
    assert found.is_doubtful == (expected is None or expected < 0.8)


def held(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **HELD)


def busy(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **BUSY)


def lists(gpu: str, first_s: int, last_s: int, user: str = "ann") -> list[dict[str, object]]:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, user=user)


def found_intervals(site: Recording, until_s: float) -> list[tuple[str, str, float, float, bool, bool, float]]:
    frame = idle_intervals(load(site).segments.filter(pl.col("time") < ms(until_s)))
    rows = frame.with_columns(pl.col("end") - pl.col("time"), pl.col("stop") - pl.col("began"))
    return [
        (kind, user, length / HOUR_MS, whole / HOUR_MS, *others)
        for kind, user, length, whole, *others in rows.select(
            "kind", "user", "end", "stop", "ended", "is_last", "weight"
        ).rows()
    ]


def test_what_a_lakes_idle_intervals_are(site: Recording) -> None:
    """One before any use, one that ended, one that unknown time follows, one that still runs."""
    rows = (
        held("a", 0, HOUR) + busy("a", HOUR, 2 * HOUR) + held("a", 2 * HOUR, 3 * HOUR) + busy("a", 3 * HOUR, 4 * HOUR)
    )
    rows += held("a", 4 * HOUR, 6 * HOUR) + held("a", 7 * HOUR, 8 * HOUR) + busy("a", 8 * HOUR, 9 * HOUR)
    rows += held("a", 9 * HOUR, 12 * HOUR)
    fill(site, rows, lists("a", 0, 12 * HOUR))
    # a sample stands for up to three intervals, so that the gap begins two minutes later
    gap = pytest.approx(2 + 2 / 60)
    assert found_intervals(site, 12 * HOUR) == [
        ("held", "ann", 1.0, 1.0, True, False, 1.0),
        ("held", "ann", 1.0, 1.0, True, False, 1.0),
        ("held", "ann", gap, gap, False, False, 1.0),
        ("held", "ann", pytest.approx(1.0), pytest.approx(1.0), True, False, 1.0),
        ("held", "ann", 3.0, 3.0, False, True, 1.0),
    ]


def test_a_user_whose_process_ends_shortly_before_its_next_use_came_back(site: Recording) -> None:
    rows = busy("a", 0, HOUR) + held("a", HOUR, 3 * HOUR) + samples("a", 3 * HOUR, 4 * HOUR, every_s=60, **FREE)
    fill(site, rows + busy("a", 4 * HOUR, 5 * HOUR), lists("a", 0, 3 * HOUR) + lists("a", 4 * HOUR, 5 * HOUR))
    assert [each[:5] for each in found_intervals(site, 5 * HOUR)] == [
        ("held", "ann", pytest.approx(2, abs=0.1), 3.0, True),
        ("free", "", pytest.approx(1, abs=0.1), 3.0, True),
    ]


def test_gpus_that_are_left_together_share_the_weight_of_one(site: Recording) -> None:
    rows, users = [], []
    for gpu in "abcd":
        rows += busy(gpu, 0, HOUR) + held(gpu, HOUR, 3 * HOUR) + busy(gpu, 3 * HOUR, 4 * HOUR)
        users += lists(gpu, 0, 4 * HOUR, user="bob" if gpu == "d" else "ann")
    fill(site, rows, users)
    weights = [(user, weight) for _, user, *_, weight in found_intervals(site, 4 * HOUR)]
    assert weights == [("ann", pytest.approx(1 / 3))] * 3 + [("bob", 1.0)]


def test_days_before_those_that_are_read_are_remembered(lake: Lake) -> None:
    """Whether a command reads all of the lake's days, cuts them, or reads only the newest of a kept ledger."""
    rows = [
        row
        for day in range(6)
        for row in busy("a", day * DAY, day * DAY + HOUR) + held("a", day * DAY + HOUR, (day + 1) * DAY)
    ]
    fill(lake, rows, lists("a", 0, 6 * DAY))
    whole = load(lake)
    first_ms = ms(4 * DAY)
    newest = load_recent(lake, LedgerSettings(), Window(first_ms, None), first_ms)
    assert newest is not None
    columns = ["gpu", "time", "end", "state", "user"]
    expected = whole.states(0).select(columns).sort("time")
    for cut in (recent(whole, first_ms), newest):
        assert cut.segments["time"].min() >= first_ms  # type: ignore[operator]  # an integer column
        assert cut.states(0).select(columns).sort("time").equals(expected)
        assert len(cut.states(ms(5 * DAY))) < len(expected)


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
    found = {each.user: each for each in idle_findings(fill(site, rows, users)) if each.rule == "held"}
    chances = {user: each.evidence.numbers["stays_unused_probability"] for user, each in found.items()}
    assert (chances["ann"] < 0.05, chances["bob"] > 0.8) == (True, True)  # type: ignore[operator]  # they are numbers
    assert (found["ann"].confidence.grade, found["bob"].confidence.grade in ("high", "medium")) == ("low", True)
    (said,) = [each for each in found["ann"].confidence.failed if "staying unused" in each]
    assert said.startswith("the probability of staying unused for another 7 d is ")
    assert said.endswith(": below 80 %, ask first")
    assert found["bob"].evidence.numbers["stays_unused_horizon_h"] == WEEK_H


@pytest.mark.long
@pytest.mark.skipif(not TRACE.is_file(), reason="the trace genai26 is not there (its licence keeps it out)")
def test_what_is_promised_of_the_trace_is_kept_as_often_and_oftener_when_work_thins_out(tmp_path: Path) -> None:
    """An hour ahead: kept within 4 points by day, and oftener in the evening, of which no earlier day informs."""
    columns = (f"gpu_util_pct={TRACE}:value", f"mem_used_bytes={TRACE.with_name('memory.csv.gz')}:value")
    named = ("--time", "timestamp_anon", "--gpu", "container_ip", "--interval", "57s", "--lake", str(tmp_path / "lake"))
    done = run_python(
        "-m", "fallow", "import", "series", *named, *(word for each in columns for word in ("--column", each))
    )
    assert done.returncode == 0, done.stderr
    segments = load(made_lake(tmp_path / "lake")).segments
    start_ms = int(segments["time"].min())  # type: ignore[arg-type]  # an integer column
    day, evening = (
        np.array([each for hour in hours for each in judged(segments, start_ms + hour * HOUR_MS)])
        for hours in (range(10, 18), range(18, 22))
    )
    assert min(len(day), len(evening)) > 400
    assert day[:, 1].mean() == pytest.approx(day[:, 0].mean(), abs=0.04)
    assert evening[:, 1].mean() > evening[:, 0].mean()


def judged(segments: pl.DataFrame, until_ms: int) -> list[tuple[float, bool]]:
    """For each pod idle for 5 minutes and observed: the probability that it stays unused for an hour, and if it did."""
    later_ms = until_ms + HOUR_MS
    found = promised(known_intervals(segments, lambda _: "", until_ms), until_ms, HOUR_MS)
    after = segments.filter(pl.col("end") > until_ms, pl.col("time") < later_ms, pl.col("state") != "unknown")
    used = set(after.filter(pl.col("state").is_in(IN_USE))["gpu"])
    during = pl.min_horizontal("end", later_ms) - pl.max_horizontal("time", until_ms)
    seen = {str(gpu) for gpu, time_ms in after.group_by("gpu").agg(during.sum()).iter_rows() if time_ms > 0.9 * HOUR_MS}
    return [
        (each.horizon, gpu not in used)
        for gpu, each in found.items()
        if each.age_ms >= 5 * MINUTE_MS and (gpu in used or gpu in seen)
    ]


@pytest.mark.parametrize(
    ("first", "then", "ended"), [("ann", "bob", False), ("ann", "ann", True), (None, "bob", True), ("ann", None, True)]
)
def test_somebody_unknown_may_be_whoever_was_there_before(
    site: Recording, first: str | None, then: str | None, *, ended: bool
) -> None:
    fill(
        site,
        held("a", 0, 2 * HOUR) + busy("a", 2 * HOUR, 3 * HOUR),
        (lists("a", 0, 2 * HOUR, first) if first else []) + (lists("a", 2 * HOUR, 3 * HOUR, then) if then else []),
    )
    was_ended = [each[4] for each in found_intervals(site, 3 * HOUR) if each[0] == "held"]
    assert was_ended == [ended]
