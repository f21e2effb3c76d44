"""What people write as a policy, and what they are told where it says nothing that a policy can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

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
from fallow.clock import HOUR_MS, MINUTE_MS
from fallow.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

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
        ({"ordr": "fifo"}, "night.toml sets ordr, which is not known; did you mean order?"),
        ({"order": "lifo"}, "night.toml: order is none of fifo, backfill, conservative"),
        ({"gpus": -1}, "gpus is not a number that can be; write a whole number from 0 on"),
        ({"gpus": {"train": True}}, "gpus is not a number"),
        ({"merge": ["a", "b"]}, "merge is not a list of pools that become one"),
        ({"off_peak": "25:00-08:00"}, "off_peak is not a span of hours"),
        ({"off_peak": "08:00-08:00"}, "off_peak is not a span of hours"),
        ({"idle_timeout_h": 0}, "idle_timeout_h is not a number that can be; write a number above 0"),
        ({"idle_timeout_h": float("nan")}, "idle_timeout_h is not a number"),
        ({"limit_to_need": "yes"}, "limit_to_need is neither true nor false"),
        ({"small_work_kinds": ["test"]}, "sets small_work_kinds, but not where they go"),
        ({"small_work_to": "q", "small_work_kinds": ["tests"]}, "none of batch, test, notebook, serving"),
        ({"share": 2, "mig": True}, "sets both mig and share"),
        ({"priorities": {"values": ["a"]}}, "priorities does not say by what"),
        ({"priorities": {"by": "kind"}}, "priorities by kind needs values"),
        ({"priorities": {"by": "priority", "values": ["a"]}}, "priorities by priority has no values"),
        ({"priorities": {"by": "kind", "values": ["a"], "preemt": True}}, "priorities sets preemt, which is not known; did you mean preempt?"),
        ({"hosts": [{"pool": "new"}]}, "hosts has hosts of which something is missing"),
        ({"hosts": {"pool": "new"}}, "hosts is not a list of tables"),
    ],
)  # fmt: skip
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
