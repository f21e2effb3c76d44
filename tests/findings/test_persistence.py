"""How likely an idle spell lasts on: against brute force, from a lake's own spells, and on a published trace."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.workloads.persistence import (
    HORIZON_MS,
    SPELLS_MIN,
    IdleSpells,
    Persistence,
    idle_spells,
    lasting,
    wilson,
)
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS
from fallow.lake import Lake
from tests.conftest import REPOSITORY, run_python
from tests.findings.conftest import BUSY, DAY, FREE, HELD, HOUR, reviewed
from tests.ledger.rows import fill, load, ms, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

Spell = tuple[int, int, bool]
TRACE = REPOSITORY.parent / "shared" / "traces" / "genai26" / "duty.csv.gz"


def spells(rows: list[Spell]) -> IdleSpells:
    lengths, entries, ended = zip(*rows, strict=True) if rows else ((), (), ())
    return IdleSpells(np.array(lengths, np.int64), np.array(entries, np.int64), np.array(ended, bool))


@st.composite
def some_spells(draw: st.DrawFn) -> list[Spell]:
    step = 10 * MINUTE_MS
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=40))
    return [(length * step, draw(st.integers(0, length - 1)) * step, draw(st.booleans())) for length in lengths]


def share_by_hand(rows: list[Spell], age_ms: int) -> float:
    """The product over every minute of one minus the share of those followed that ended in it."""
    share = 1.0
    for at_ms in range(age_ms, age_ms + HORIZON_MS, MINUTE_MS):
        followed = [row for row in rows if row[1] < at_ms <= row[0]]
        ended = [row for row in followed if row[0] == at_ms and row[2]]
        if ended:
            share *= 1 - len(ended) / len(followed)
    return share


@given(some_spells(), st.integers(1, 18))
def test_kaplan_meier_is_what_counting_minute_by_minute_gives(rows: list[Spell], tens: int) -> None:
    age_ms = tens * 10 * MINUTE_MS
    found = spells(rows).outlook(age_ms)
    assert found.share == pytest.approx(share_by_hand(rows, age_ms), abs=1e-12)
    assert found.spell_count == sum(entry < age_ms <= length for length, entry, _ in rows)
    assert found.ended_count == sum(ended and age_ms <= length < age_ms + HORIZON_MS for length, _, ended in rows)
    assert 0 <= found.low <= found.share + 1e-12
    assert found.share - 1e-12 <= found.high <= 1


@given(some_spells())
def test_without_any_spell_lost_from_sight_it_is_the_plain_share_of_the_plain_number(rows: list[Spell]) -> None:
    whole = [(length, 0, True) for length, _, _ in rows]
    age_ms = 20 * MINUTE_MS
    reached = sum(length >= age_ms for length, _, _ in whole)
    lasted = sum(length >= age_ms + HORIZON_MS for length, _, _ in whole)
    found = spells(whole).outlook(age_ms)
    if reached:
        assert found.share == pytest.approx(lasted / reached)
        assert (found.low, found.high) == pytest.approx(wilson(lasted / reached, reached))


@given(st.floats(0, 1), st.integers(1, 10_000))
def test_wilsons_bounds_are_where_the_normal_score_is_the_quantile(share: float, number: int) -> None:
    low, high = wilson(share, number)
    for bound in (low, high):
        if 1e-9 < bound < 1 - 1e-9:
            reach = 1.6448536269514722 * math.sqrt(bound * (1 - bound) / number)
            assert abs(share - bound) == pytest.approx(reach, rel=1e-6, abs=1e-9)
    assert low <= share + 1e-9
    assert share <= high + 1e-9


def test_of_nothing_wilson_says_nothing() -> None:
    assert wilson(1.0, 0) == (0.0, 1.0)


def long(count: int, hours: float, *, ended: bool = True) -> list[Spell]:
    return [(round(hours * HOUR_MS), 0, ended)] * count


def test_a_holder_with_enough_spells_of_that_age_is_judged_by_them() -> None:
    own, others = spells(long(30, 5)), spells(long(30, 5) + long(300, 2.5))
    known = Persistence(others, {"ann": own})
    found, pooled = known.outlook("ann", 2 * HOUR_MS)
    assert found is not None
    assert (found.spell_count, found.share, pooled) == (30, 1.0, False)
    found, pooled = known.outlook("bob", 2 * HOUR_MS)
    assert found is not None
    assert (found.spell_count, found.ended_count, pooled) == (330, 300, True)


def test_one_spell_fewer_and_the_fleet_is_asked() -> None:
    known = Persistence(spells(long(200, 5)), {"ann": spells(long(SPELLS_MIN - 1, 5))})
    found, pooled = known.outlook("ann", 2 * HOUR_MS)
    assert found is not None
    assert (found.spell_count, pooled) == (200, True)


def test_beyond_what_enough_spells_reached_the_greatest_age_that_they_did_is_judged() -> None:
    known = Persistence(spells(long(40, 3) + long(35, 10) + long(3, 100)), {})
    found, _ = known.outlook("ann", 50 * HOUR_MS)
    assert found is not None
    assert (found.age_ms, found.spell_count) == (10 * HOUR_MS, 38)


def test_with_too_few_spells_of_any_age_nothing_is_said() -> None:
    assert Persistence(spells(long(SPELLS_MIN - 1, 3)), {}).outlook("ann", HOUR_MS) == (None, True)


@pytest.mark.parametrize("count", [3, 29, 30, 31, 200])
def test_a_spell_that_is_only_lost_from_sight_makes_nothing_surer(count: int) -> None:
    """Censored spells add to those at risk while they are followed, and to nothing after."""
    seen = spells(long(count, 5)).outlook(2 * HOUR_MS)
    lost = spells(long(count, 5) + long(50, 2.1, ended=False)).outlook(2 * HOUR_MS)
    assert (seen.low, seen.high) == (lost.low, lost.high)


def held(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **HELD)


def busy(gpu: str, first_s: float, last_s: float) -> list[dict[str, object]]:
    return samples(gpu, first_s, last_s, every_s=60, **BUSY)


def lists(gpu: str, first_s: int, last_s: int, user: str = "ann") -> list[dict[str, object]]:
    return processes(gpu, *range(first_s, last_s, 60), every_s=60, user=user)


def found_spells(lake: Lake, until_s: float) -> list[tuple[str, float, float, bool]]:
    frame = idle_spells(load(lake).stretches, ms(until_s))
    rows = frame.select("whom", "length_ms", "entry_ms", "ended").rows()
    return sorted((whom, length / HOUR_MS, entry / HOUR_MS, ended) for whom, length, entry, ended in rows)


def test_what_a_lakes_spells_are(lake: Lake) -> None:
    """One cut by the start of history, one that ended, one that unknown time follows, one that still runs."""
    rows = (
        held("a", 0, HOUR) + busy("a", HOUR, 2 * HOUR) + held("a", 2 * HOUR, 3 * HOUR) + busy("a", 3 * HOUR, 4 * HOUR)
    )
    rows += held("a", 4 * HOUR, 6 * HOUR) + held("a", 7 * HOUR, 8 * HOUR) + busy("a", 8 * HOUR, 9 * HOUR)
    rows += held("a", 9 * HOUR, 12 * HOUR)
    fill(lake, rows, lists("a", 0, 12 * HOUR))
    assert found_spells(lake, 12 * HOUR) == [
        ("ann", 1.0, 0.0, True),
        # a sample stands for up to three intervals, so that the gap begins two minutes later
        ("ann", pytest.approx(2 + 2 / 60), 0.0, False),
        ("ann", 3.0, 0.0, False),
    ]


def test_a_spell_ends_when_its_holder_leaves_or_another_comes(lake: Lake) -> None:
    rows = busy("a", 0, HOUR) + held("a", HOUR, 3 * HOUR) + samples("a", 3 * HOUR, 4 * HOUR, every_s=60, **FREE)
    rows += busy("b", 0, HOUR) + held("b", HOUR, 5 * HOUR)
    users = lists("a", 0, 3 * HOUR) + lists("b", 0, 3 * HOUR) + lists("b", 3 * HOUR, 5 * HOUR, user="bob")
    fill(lake, rows, users)
    assert [each for each in found_spells(lake, 5 * HOUR) if each[3]] == [("ann", 2.0, 0.0, True)]


def test_gpus_that_are_left_and_taken_up_together_are_one_spell(lake: Lake) -> None:
    rows, users = [], []
    for gpu in "abcd":
        rows += busy(gpu, 0, HOUR) + held(gpu, HOUR, 3 * HOUR) + busy(gpu, 3 * HOUR, 4 * HOUR)
        users += lists(gpu, 0, 4 * HOUR, user="bob" if gpu == "d" else "ann")
    fill(lake, rows, users)
    assert found_spells(lake, 4 * HOUR) == [("ann", 2.0, 0.0, True), ("bob", 2.0, 0.0, True)]


def test_a_spell_over_midnight_is_one_and_one_from_before_the_28_days_is_followed_from_then(lake: Lake) -> None:
    rows = samples("a", -2 * DAY, -DAY, every_s=600, **BUSY) + samples("a", -DAY, 28 * DAY, every_s=600, **HELD)
    fill(lake, rows, processes("a", *range(-2 * DAY, 28 * DAY, 600), every_s=600))
    assert found_spells(lake, 28 * DAY) == [("ann", 29 * 24.0, 24.0, False)]


def test_the_failure_in_words(lake: Lake) -> None:
    """Forty spells of 70 and 150 minutes; the one that runs has lasted an hour."""
    rows, at = busy("a", 0, 600), 600
    for number in range(40):
        spell_s = 150 * 60 if number % 4 == 0 else 70 * 60
        rows += held("a", at, at + spell_s) + busy("a", at + spell_s, at + spell_s + 600)
        at += spell_s + 600
    rows += held("a", at, at + HOUR)
    fill(lake, rows, lists("a", 0, at + HOUR))
    (finding,) = [each for each in reviewed(lake).findings if each.rule == "held"]
    low, high = wilson(0.25, 40)  # of the 41 the one that runs was never seen older than it is
    (said,) = [each for each in finding.confidence.failed if "the probability of" in each]
    assert said == (
        "of 41 idle intervals of ann's that lasted 1 h, 30 ended within the next hour: the probability of 60 more minutes is "
        f"{math.floor(100 * low) / 100:.2f} to {high:.2f} (90 %), at least 0.5 is needed"
    )


def test_where_the_fleet_has_too_little_history_it_says_so(lake: Lake) -> None:
    fill(lake, busy("a", 0, HOUR) + held("a", HOUR, 4 * HOUR), lists("a", 0, 4 * HOUR))
    context = reviewed(lake).context
    assert lasting(context, "ann", "a", 3 * HOUR_MS) == [
        "only 1 idle interval of the whole fleet has a known start: how long one lasts is not known, 30 are needed"
    ]


needs_trace = pytest.mark.skipif(
    not TRACE.is_file(), reason="the trace genai26 is not there (its licence keeps it out)"
)
AGES_MIN = (5, 15, 30, 60, 120)


@pytest.fixture(scope="module")
def trace_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("genai26") / "lake"
    done = run_python(
        "-m", "fallow", "import", "series", "--time", "timestamp_anon", "--gpu", "container_ip", "--interval", "57s",
        "--column", f"gpu_util_pct={TRACE}:value", "--column", f"mem_used_bytes={TRACE.with_name('memory.csv.gz')}:value",
        "--lake", str(folder),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@needs_trace
def test_the_published_chances_are_a_plain_count_of_runs_of_zero_rows() -> None:
    """4.7, 9.6, 17, 42 and 70 %: runs of consecutive rows at 0, each row 57 s, gaps passed over, none right-censored."""
    rows = pl.read_csv(TRACE).sort("container_ip", "timestamp_anon")
    zero = pl.col("value") == 0
    changes = (zero != zero.shift(1)) | (pl.col("container_ip") != pl.col("container_ip").shift(1))
    runs = rows.with_columns(run=changes.fill_null(value=True).cum_sum()).filter(zero).group_by("run").len()
    length_s = runs["len"].to_numpy() * 57
    chances = [float((length_s >= 60 * age + 3600).sum() / (length_s >= 60 * age).sum()) for age in AGES_MIN]
    assert [f"{100 * chance:.1f}" for chance in chances[:2]] == ["4.7", "9.6"]
    assert [f"{100 * chance:.0f}" for chance in chances[2:]] == ["17", "42", "70"]


@needs_trace
def test_the_ledgers_spells_give_the_same_within_a_point_and_kaplan_meier_more(trace_lake: Path) -> None:
    """A day cuts many long spells short: counting those as over makes them look shorter than they were."""
    ledger = load(Lake.at(str(trace_lake)))
    lengths = ledger.spells.group_by("gpu", "spell_start").agg(
        pl.col("spell_end").first() - pl.col("spell_start").first()
    )
    length_ms = lengths["spell_end"].to_numpy()
    counted = [
        float((length_ms >= age * MINUTE_MS + HORIZON_MS).sum() / (length_ms >= age * MINUTE_MS).sum())
        for age in AGES_MIN
    ]
    assert counted == pytest.approx([0.047, 0.096, 0.17, 0.42, 0.70], abs=0.01)
    ended = lengths.join(
        ledger.stretches.filter(pl.col("state") != "unknown").select("gpu", over="time").unique(),
        left_on=["gpu", pl.col("spell_start") + pl.col("spell_end")], right_on=["gpu", "over"], how="semi",
    )  # fmt: skip
    rows = [(int(length), 0, True) for length in ended["spell_end"]]
    rest = lengths.join(ended, on=("gpu", "spell_start"), how="anti")
    rows += [(int(length), 0, False) for length in rest["spell_end"]]
    followed = [spells(rows).outlook(age * MINUTE_MS).share for age in AGES_MIN]
    assert followed == pytest.approx([0.054, 0.115, 0.194, 0.463, 0.828], abs=0.01)


@needs_trace
def test_held_spells_of_the_trace_are_judged_as_by_hand(trace_lake: Path) -> None:
    ledger = load(Lake.at(str(trace_lake)))
    until_ms = int(ledger.stretches["end"].max())  # type: ignore[arg-type]  # an integer column
    frame = idle_spells(ledger.stretches, until_ms)
    rows = [(length, entry, ended) for length, entry, ended in frame.drop("whom").rows()]
    assert len(rows) > 1000
    for age in AGES_MIN:
        at = age * MINUTE_MS
        events = sorted({length for length, _, ended in rows if ended and at <= length < at + HORIZON_MS})
        share = math.prod(
            1
            - sum(ended and length == each for length, _, ended in rows) / sum(length >= each for length, _, _ in rows)
            for each in events
        )
        assert spells(rows).outlook(at).share == pytest.approx(share, abs=1e-12)
    assert max(length for length, _, _ in rows) < DAY_MS
