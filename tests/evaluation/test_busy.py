"""Foundations of `python -m benchmarks busy`: labels add up to their programs' hours; right and wrong are counted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from benchmarks.busy import gpu_figures, summed
from benchmarks.busy_lake import ONSET_S, SECONDS, SLOT_S, Site, course, program_gpus
from benchmarks.busy_programs import NONE, PROGRAMS, WORK
from fallow.clock import HOUR_MS


@pytest.mark.parametrize("seed", [1, 101])
def test_each_program_runs_for_its_whole_hours_and_stalls_for_those_of_its_label(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for program in PROGRAMS:
        levels, stalled = course(rng, program)
        assert stalled.sum() == round(3600 * program.stalled_h * bool(program.stall)), program.name
        assert levels[-1] == levels[0] == 0, program.name  # free, so nothing is cut off
        if not program.stall:
            assert (levels > 0).sum() == round(3600 * program.hours), program.name
    assert sum(each.hours * each.gpus for each in WORK if each.judged) >= 500
    assert {each.kind for each in NONE} == {"hung", "orphan", "keep", "context", "straggler"}


def test_a_ledger_is_scored_by_the_hour_against_the_label() -> None:
    program = next(each for each in NONE if each.name == "endless kernel")
    gpu = next(program_gpus(np.random.default_rng(1), 1, program))
    site = Site(1, 0, (gpu,))
    from_ms = (ONSET_S - 3600) * 1000  # an hour too early, and half of the six hours
    segments = pl.DataFrame(
        {
            "since_ms": [0, from_ms, from_ms + 4 * HOUR_MS],
            "until_ms": [from_ms, from_ms + 4 * HOUR_MS, SECONDS * 1000],
            "state": ["active", "stalled", "active"],
        }
    )
    row = gpu_figures(site, gpu, segments)
    hours = {name: row[name] for name in ("stalled", "shown", "found", "false", "passes")}
    assert hours == pytest.approx(
        {"stalled": 6, "shown": 4, "found": 3, "false": 1, "passes": 3}, abs=4 * SLOT_S / 3600
    )
    facts = {"known_min": 10, "by_a_rule": True, "by_its_rule": True, "with_job": True, "with_culprit": None}
    found = summed(pl.DataFrame([row | facts]), ["program"]).row(0, named=True)
    assert (found["precision"], found["recall"], found["recall_10_min"]) == pytest.approx((3 / 4, 1 / 2, 1), abs=0.01)
    unjudged = gpu_figures(site, replace(gpu, truth=np.full_like(gpu.truth, -1)), segments)
    assert (unjudged["false"], unjudged["shown"], unjudged["not_judged"]) == (0, 0, pytest.approx(4))
