"""The named sets of states, which no module lists itself, and the stays that segments of allocated time form."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import polars as pl
import pytest

from analytics import states
from analytics.ledger.usage import stays
from fallow.schema import STATES

ROOT = Path(__file__).parents[2]

# What is known of a GPU in each state: it was observed; it is usable; a workload is on it; it computes; it has a user.
KNOWN = {
    "unknown": {"looked": False, "usable": None, "workload": None, "computes": None, "owned": False},
    "unavailable": {"looked": True, "usable": False, "workload": False, "computes": False, "owned": False},
    "free": {"looked": True, "usable": True, "workload": False, "computes": False, "owned": False},
    "reserved": {"looked": True, "usable": True, "workload": False, "computes": False, "owned": True},
    "held": {"looked": True, "usable": True, "workload": True, "computes": False, "owned": True},
    "stalled": {"looked": True, "usable": True, "workload": True, "computes": False, "owned": True},
    "low": {"looked": True, "usable": True, "workload": True, "computes": True, "owned": True},
    "active": {"looked": True, "usable": True, "workload": True, "computes": True, "owned": True},
}

MEANING = {
    "UNUSED": {"usable": True, "computes": False},
    "IN_USE": {"computes": True},
    "IDLE_ALLOCATED": {"owned": True, "computes": False},
    "OCCUPIED": {"workload": True},
    "UNOCCUPIED": {"usable": True, "workload": False},
    "ALLOCATED": {"owned": True},
    "UNALLOCATED": {"owned": False},
    "AT_REST": {"computes": False},
    "OBSERVED": {"looked": True},
}


@pytest.mark.parametrize(("name", "facts"), MEANING.items())
def test_a_set_has_the_states_of_its_meaning_in_their_order(name: str, facts: dict[str, bool]) -> None:
    wanted = tuple(state for state in STATES if all(KNOWN[state][fact] == value for fact, value in facts.items()))
    assert getattr(states, name) == wanted


def test_without_evidence_is_all_that_nobody_could_have_used_or_seen() -> None:
    assert set(states.WITHOUT_EVIDENCE) == {state for state in STATES if not KNOWN[state]["usable"]}
    assert set(states.WITHOUT_EVIDENCE).isdisjoint({*states.UNUSED, *states.IN_USE})
    assert tuple(reversed(STATES)) == states.USED_FIRST


def test_no_module_idle_intervals_a_set_out() -> None:
    """Neither the unused states in any order, nor a literal set that a column of states is compared with."""
    unused = {", ".join(f'"{state}"' for state in order) for order in permutations(states.UNUSED)}
    compared = re.compile(r'col\("state"\)\.is_in\([\[({]"')
    spelled = [
        path.relative_to(ROOT).as_posix()
        for folder in ("fallow", "agent", "analytics", "dashboard")
        for path in (ROOT / folder).rglob("*.py")
        if any(each in (text := path.read_text("utf-8")) for each in unused) or compared.search(text)
    ]
    assert spelled == ["fallow/schema/__init__.py"]


def test_segments_of_one_gpu_user_and_job_are_one_stay_and_an_instance_counts_as_its_part() -> None:
    """Nobody's time is none, and ends none."""
    rows = [
        ("a", 0, 10, "held", "ada", "slurm:1", 1.0),
        ("a", 10, 30, "active", "ada", "slurm:1", 1.0),
        ("a", 30, 40, "unknown", None, None, 1.0),
        ("a", 40, 45, "active", "ada", "slurm:1", 1.0),
        ("a", 45, 50, "free", None, None, 1.0),
        ("a", 50, 60, "active", "ada", "slurm:2", 1.0),
        ("a", 60, 70, "reserved", "bea", None, 1.0),
        ("b", 70, 140, "low", "bea", None, 1 / 7),
    ]
    names = ["gpu", "time", "end", "state", "user", "job", "gpu_share"]
    found = stays(pl.DataFrame(rows, names, orient="row").with_columns(host=pl.lit("h1"), unconfirmed_ms=pl.lit(0)))
    assert found.select("gpu", "user", "job", "time", "end", "active", "held", "reserved", "low").rows() == [
        ("b", "bea", None, 70, 140, 0.0, 0.0, 0.0, 10.0),
        ("a", "bea", None, 60, 70, 0.0, 0.0, 10.0, 0.0),
        ("a", "ada", "slurm:2", 50, 60, 10.0, 0.0, 0.0, 0.0),
        ("a", "ada", "slurm:1", 0, 45, 25.0, 10.0, 0.0, 0.0),
    ]
