"""Scenarios saved by name: the newest of a name counts, and what is written is what is read."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from analytics.plan.replay.comparisons import saved_policy
from analytics.plan.replay.policy import Priorities, ReplayPolicy
from analytics.plan.scenarios import MOST, SavedScenario, as_toml, load_scenarios, remove_scenario, save_scenario
from fallow.actors import Actor
from fallow.errors import FallowError, UsageError
from tests.lakes import made_lake

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return made_lake(tmp_path / "lake")


def names(lake: Lake) -> list[tuple[str, str]]:
    return [(each.name, each.policy) for each in load_scenarios(lake)]


def test_the_newest_of_a_name_counts(lake: Lake) -> None:
    save_scenario(lake, "  two   pools ", "share = 2", Actor("ann"), now_ms=1)
    save_scenario(lake, "b", "share = 4", Actor("ann"), now_ms=2)
    save_scenario(lake, "two pools", "share = 3", Actor("bob"), now_ms=3)
    assert names(lake) == [("b", "share = 4"), ("two pools", "share = 3")]
    assert load_scenarios(lake)[1].by == "bob"
    remove_scenario(lake, "b", Actor("bob"), now_ms=4)
    assert names(lake) == [("two pools", "share = 3")]
    save_scenario(lake, "b", "share = 5", Actor("ann"), now_ms=5)
    assert names(lake)[0] == ("b", "share = 5")
    with pytest.raises(FallowError, match="no scenario 'c'"):
        remove_scenario(lake, "c", Actor("bob"), now_ms=6)


@pytest.mark.parametrize(("name", "policy"), [(" ", ""), ("x" * 61, ""), ("a", "#" * 4001)])
def test_what_is_no_name_or_too_long_is_refused(lake: Lake, name: str, policy: str) -> None:
    with pytest.raises(UsageError):
        save_scenario(lake, name, policy, Actor("ann"), now_ms=1)
    assert load_scenarios(lake) == ()


def test_a_lake_keeps_so_many_and_lets_one_be_saved_anew(lake: Lake) -> None:
    for number in range(MOST):
        save_scenario(lake, str(number), "share = 2", Actor("ann"), now_ms=number)
    with pytest.raises(UsageError, match="as many scenarios"):
        save_scenario(lake, "one more", "share = 2", Actor("ann"), now_ms=MOST)
    save_scenario(lake, "7", "share = 3", Actor("ann"), now_ms=MOST)
    assert ("7", "share = 3") in names(lake)


def test_a_policy_is_written_as_it_is_read() -> None:
    content = {"gpus": {'a"/b\\': 12}, "merge": [["a", "b\n"]], "off_peak": "20:00-08:00", "share": 2, "mig": True}
    assert tomllib.loads(as_toml(content)) == content


def test_what_a_scenario_does_not_name_is_as_today() -> None:
    today = ReplayPolicy(order="backfill", priorities=Priorities("priority"))
    policy = saved_policy(today, SavedScenario("s", "share = 2", Actor("ann"), 1), "UTC")
    assert policy == ReplayPolicy(order="backfill", priorities=Priorities("priority"), share=2)
    strict = saved_policy(today, SavedScenario("s", 'order = "fifo"', Actor("ann"), 1), "UTC")
    assert strict.order == "fifo"
    for text in ("share =", "shares = 2"):
        with pytest.raises(UsageError, match="the scenario s"):
            saved_policy(today, SavedScenario("s", text, Actor("ann"), 1), "UTC")
