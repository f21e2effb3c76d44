"""Whatever a server lost, doubled or began anew: each reading is one row at its own moment, and no gap is filled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.scraped.rows.model import RowSettings
from analytics.scraped.rows.scraped_rows import find_source_paces, host_rows
from analytics.scraped.samples import Samples
from tests.ledger.rows import T0
from tests.scraped.scraped_series import (
    ENERGY,
    EXPORTERS,
    POWER,
    UTIL,
    Series,
    columns,
    dcgm,
    one_host,
    samples_of,
    uuid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.hypothesis

SCRAPES = 40
STEP_MS = 30_000
STEPS = st.integers(0, SCRAPES - 1)


@st.composite
def kept(draw: st.DrawFn) -> dict[int, float]:
    """Utilization by the number of its scrape; some scrapes failed."""
    lost = draw(st.sets(STEPS, max_size=SCRAPES - 2))
    values = draw(st.lists(st.integers(0, 100), min_size=SCRAPES, max_size=SCRAPES))
    return {number: float(value) for number, value in enumerate(values) if number not in lost}


def series(metric: str, values: Mapping[int, float | None], shift_ms: int = 0, **labels: str) -> Series:
    said = {"__name__": metric, "UUID": uuid(0), "Hostname": "gn01", "instance": "gn01:9400", "job": "dcgm"} | labels
    return said, [(T0 + number * STEP_MS + shift_ms, value) for number, value in sorted(values.items())]


@given(kept(), st.sets(STEPS), st.sampled_from(["pods", "copies"]))
@settings(max_examples=25, deadline=None)
def test_series_of_one_scrape_are_one_row_however_they_are_cut_or_copied(
    values: dict[int, float], changes: set[int], how: str
) -> None:
    """Pods follow one another at `changes`, where the series of the pod before ends, or share the card throughout."""
    pods: dict[str, dict[int, float | None]] = {}
    for number, value in values.items():
        turn = sum(change <= number for change in changes)
        for pod in [f"p{turn}"] if how == "pods" else ["a", "b", "c"]:
            pods.setdefault(pod, {})[number] = value
    if how == "pods":
        for number in changes & values.keys():
            for pod, told in pods.items():
                if max(told) < number and max(told) == max((each for each in values if each < number), default=-1):
                    pods[pod] = told | {number: None}
    found = one_host(*(series(UTIL, told, pod=pod) for pod, told in pods.items()), collect_s=1)
    assert columns(found) == [(number * 30, value) for number, value in values.items()]
    named = found.given.filter(found.given["pod"] == ("p0" if how == "pods" else "a"))
    covered = sum(named["end_ms"] - named["start_ms"])
    assert covered <= (max(values) - min(values)) * STEP_MS


@given(kept(), kept(), st.integers(1, STEP_MS - 1))
@settings(max_examples=25, deadline=None)
def test_of_two_replicas_every_row_is_one_of_theirs_and_none_comes_while_the_first_goes_on(
    first: dict[int, float], second: dict[int, float], shift_ms: int
) -> None:
    """All of the first, and of the second all that come before these, or when the next one of these is long due."""
    found = one_host(series(UTIL, first, replica="a"), series(UTIL, second, shift_ms, replica="b"), collect_s=1)
    step_ms = int(found.gpu["interval_ms"].max())  # type: ignore[arg-type]  # there are rows
    own = {number * STEP_MS: value for number, value in first.items()}
    other = {number * STEP_MS + shift_ms: value for number, value in second.items()}
    rows = {round(float(str(at)) * 1000): value for at, value in columns(found)}
    assert rows.items() <= own.items() | other.items()
    assert rows.items() >= own.items()
    if found.gpu["interval_ms"].n_unique() == 1:
        last = {at: max((each for each in own if each <= at), default=None) for at in other}
        far = {at for at, before in last.items() if before is None or at - before >= 1.2 * step_ms}
        assert set(rows) - set(own) == far


@given(st.integers(0, 14), st.lists(st.integers(0, 1), min_size=240, max_size=240), st.booleans())
@settings(max_examples=25, deadline=None)
def test_windows_that_overlap_keep_the_same_readings_as_one(
    phase_s: int,
    power: list[int],
    still: bool,  # noqa: FBT001
) -> None:
    """An hour at 15 s of an exporter that reads every 30 s; each window has five minutes before it to follow on."""
    values = [70.0 + (0 if still else value) for value in power]
    whole = samples_of([dcgm(POWER, values, every_s=15, start_s=phase_s)])
    paces = find_source_paces(whole, EXPORTERS)

    def kept(since_min: int, until_min: int) -> set[object]:
        since, until = (T0 + each * 60_000 for each in (since_min, until_min))
        read = whole.frame.filter(whole.frame["time_ms"].is_between(since - 5 * 60_000, until - 1))
        (found,) = host_rows(Samples(whole.labels, read), EXPORTERS, RowSettings(since, until, paces=paces))
        return set(columns(found, "power_w"))

    windows = [kept(until - 10, until) for until in range(10, 61, 5)]
    assert set.union(*windows) == kept(0, 60)


@given(st.lists(st.integers(0, 5), min_size=3, max_size=SCRAPES), st.sets(st.integers(1, SCRAPES - 1)))
@settings(max_examples=25, deadline=None)
def test_a_counter_never_falls_within_its_epoch(rises: list[int], resets: set[int]) -> None:
    total, values = 0.0, dict[int, float | None]()
    for number, rise in enumerate(rises):
        total = 0.0 if number in resets else total + rise * 1e6
        values[number] = total
    found = one_host(series(ENERGY, values), collect_s=1)
    for _, rows in found.gpu.group_by("counters_since"):
        assert rows["energy_mj"].is_sorted()
    falls = int((found.gpu["energy_mj"].diff() < 0).sum())
    assert found.gpu["counters_since"].n_unique() == falls + 1
    assert found.gpu["energy_mj"].to_list() == list(values.values())
