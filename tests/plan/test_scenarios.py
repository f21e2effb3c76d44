"""Policies as users write them, errors where they say none; scenarios saved by name, of which the newest counts."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from analytics.plan.replay.comparisons import (
    MOST,
    SavedScenario,
    as_toml,
    load_scenarios,
    remove_scenario,
    save_scenario,
    saved_policy,
)
from analytics.plan.replay.policy import (
    GIB,
    OffPeakHours,
    Priorities,
    ReplayPolicy,
    SmallWork,
    policy_from,
    policy_table,
)
from analytics.plan.replay.replay_fleet import HostGroup
from fallow.actors import Actor
from fallow.clock import HOUR_MS, MINUTE_MS
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
    with pytest.raises(UsageError, match=f"already has {MOST} scenarios"):
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


WHOLE = """
order = "conservative"
merge = [["train", "research"]]
off_peak = "20:00-08:00"
small_work_to = "old"
small_work_kinds = ["test"]
share = 2
idle_timeout_h = 1.5
limit_to_need = true
block = 1

[gpus]
train = 40

[priorities]
by = "kind"
values = ["serving", "training"]
preempt = true
resume = false
cost_min = 10

[[hosts]]
pool = "new"
model = "NVIDIA H200"
count = 4
gpus_per_host = 8
memory_gib = 141
price_per_hour = 3.2
idle_w = 80
busy_w = 500
slowdown = 0.7
"""


def test_a_file_says_a_whole_policy(tmp_path: Path) -> None:
    file = tmp_path / "night.toml"
    file.write_text(WHOLE, encoding="utf-8")
    assert policy_from(policy_table(file), "Europe/Paris", "the file") == ReplayPolicy(
        gpus={"train": 40},
        groups=(HostGroup("new", "NVIDIA H200", 4, 8, 141 * GIB, 3.2, 80, 500, 0.7),),
        merge=(("train", "research"),),
        order="conservative",
        priorities=Priorities("kind", ("serving", "training"), preempt=True, resume=False, cost_ms=10 * MINUTE_MS),
        off_peak=OffPeakHours(20 * 60, 8 * 60, "Europe/Paris"),
        small_work=SmallWork("old", ("test",)),
        share=2,
        idle_timeout_ms=HOUR_MS * 3 // 2,
        limit_to_need=True,
        block=1,
    )


def test_nothing_said_is_the_policy_of_today() -> None:
    assert policy_from({}, "UTC", "the file") == ReplayPolicy()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"ordr": "fifo"}, "night.toml sets ordr, which is not a known key; did you mean order?"),
        ({"order": "lifo"}, "night.toml: order is none of fifo, backfill, conservative"),
        ({"gpus": -1}, "gpus must be a number of GPUs"),
        ({"gpus": {"train": True}}, "gpus must be a number of GPUs"),
        ({"gpus": {"train": "16"}}, 'write 48, or "+16" for 16 more'),
        ({"merge": ["a", "b"]}, "merge is not a list of pools that become one"),
        ({"off_peak": "25:00-08:00"}, "off_peak is not a span of hours"),
        ({"off_peak": "08:00-08:00"}, "off_peak is not a span of hours"),
        ({"idle_timeout_h": 0}, "idle_timeout_h must be a number above 0"),
        ({"idle_timeout_h": float("nan")}, "idle_timeout_h must be a number above 0"),
        ({"limit_to_need": "yes"}, "limit_to_need is neither true nor false"),
        ({"small_work_kinds": ["test"]}, "sets small_work_kinds without small_work_to"),
        ({"small_work_to": "q", "small_work_kinds": ["tests"]}, "none of batch, test, notebook, serving"),
        ({"share": 2, "mig": True}, "sets both mig and share"),
        ({"priorities": {"values": ["a"]}}, "priorities has no by"),
        ({"priorities": {"by": "kind"}}, "priorities by kind needs values"),
        ({"priorities": {"by": "priority", "values": ["a"]}}, "priorities by priority has no values"),
        (
            {"priorities": {"by": "kind", "values": ["a"], "preemt": True}},
            "sets preemt, which is not a known key; did you mean",
        ),
        ({"hosts": [{"pool": "new"}]}, "hosts has an incomplete table"),
        ({"hosts": {"pool": "new"}}, "hosts is not a list of tables"),
    ],
)
def test_what_no_policy_says_is_told_with_its_key(table: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as error:
        policy_from(table, "UTC", "night.toml")
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("content", "said"), [(b"order =", "is not TOML"), (b"\xff", "is not UTF-8 text"), (None, "cannot read")]
)
def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "night.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=said):
        policy_table(file)
