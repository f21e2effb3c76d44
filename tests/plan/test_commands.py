"""`fallow plan` on a small lake: wrong use gives one sentence, and missing data stops no other answer."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from tests.lakes import made_lake
from tests.ledger.rows import device, fill, processes, samples
from tests.plan.asked import answer, refusal, text

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake


@pytest.fixture(scope="module")
def two_pools(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two pools of a GPU each, of which one works for its second hour; nobody asked for anything."""
    made = made_lake(tmp_path_factory.mktemp("pools") / "lake")
    working = samples("G0", 3600, 7200, gpu_util_pct=90, process_count=1)
    listed = processes("G0", *range(3600, 7200, 30))
    fill(made, samples("G0", 0, 3600) + working, listed, devices=[device("G0", pool="train")])
    return fill(made, samples("G1", 0, 7200), devices=[device("G1", pool="spare")])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("allocation --days 0", "--days"),
        ("allocation --table unserved", "there is no table 'unserved' in this answer"),
        ("allocation --team nobody", "nobody"),
        ("carbon --intensity /none.csv", "No such file"),
        ("carbon --shift 3d", "whole hours up to 48h"),
        ("carbon --shift 90m", "whole hours up to 48h"),
        ("fit --config-json nowhere.json", "config.json nowhere.json: No such file"),
        ("fit --context 100", "--context needs a model"),
        ("fit --params 8B --batch 2", "--batch applies to training"),
        ("fit --params 8B --requests 0", "--requests 0 is out of range"),
        ("fit --params 8B --train lora --bits 4", "--bits applies to serving"),
        ("fit --params many", "--params many is no size of a model"),
        ("fit --seen light --bits 4", "--bits needs a model"),
        ("fit --train lora", "--train needs a model"),
        ("forecast --horizon 3y", "'3y' is not a duration"),
        ("forecast --horizon 60w", "--horizon 60w is more than a year ahead; give 52w or less"),
        ("forecast --lead-time nowhere=4w", "names the pool nowhere, which has no GPU; the pools are spare, train"),
        ("forecast --lead-time soon", "'soon' is not a duration"),
        ("forecast --pool nowhere", "nothing in this window belongs to pool nowhere"),
        ("forecast --team vision", "a forecast is for pools, not for teams or users"),
        ("forecast --user bob", "a forecast is for pools, not for teams or users"),
        ("purchase --spot-share 1.5", "--spot-share 1.5 is not a share; give a number from 0 to 1"),
        ("purchase --user ann", "GPUs are bought and rented for pools; leave out --user"),
        ("replay --gpus 1..9", "needs the name of a pool; the pools are spare, train"),
        ("replay --gpus 9..3", "smaller number first"),
        ("replay --gpus many", "not a number of GPUs; write train=+16 for 16 more"),
        ("replay --gpus old=1..9", "unknown pool old; the pools are spare, train"),
        ("replay --gpus train=-4..2", "mixes a number and a difference"),
        ("replay --gpus train=-2", "has 1 GPUs, so 2 cannot be removed"),
        ("scenarios --gpus train=+1", "a change needs a name"),
        ("scenarios --save more", "--save needs a change"),
        ("scenarios --save more --gpus train=1..9", "a scenario has one"),
        ("scenarios --save more --gpus old=+1", "there is no pool old"),
        ("replay --gpus train=1..9 --gpus spare=1..9", "one range"),
        ("replay --gpus train=1..9999", "larger steps"),
        ("replay --merge train,old", "old"),
        ("replay --off-peak night", "span of hours"),
        ("replay --user ann", "the jobs of all users"),
    ],
    ids=lambda value: value if " -" in value else "",
)
def test_wrong_use_is_one_sentence(two_pools: Lake, asked: str, said: str) -> None:
    assert said in refusal(two_pools, *asked.split())


def test_without_a_queue_a_replay_says_what_is_missing_and_answers_the_rest(two_pools: Lake) -> None:
    found = answer(two_pools, "replay", "--merge", "train,spare")
    [outcome], [basis] = found["replay_outcome"], found["replay_basis"]
    assert outcome["then_p95_wait_s"] is None
    assert "fallow allocations import slurm" in basis["refused"]
    gpus = {each["pool"]: (each["today_gpus"], each["then_gpus"]) for each in outcome["pools"]}
    assert gpus == {"spare": (1, 0), "train": (1, 2)}
    assert outcome["today_gpus"] == outcome["then_gpus"] == 2
    assert "Queue waits in train cannot be computed" in text(two_pools, "replay", "--gpus", "train=0..2")


def test_flags_win_over_the_scenario(two_pools: Lake, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("gpus = {spare = 3}\n", encoding="utf-8")
    for flags, gpus in (((), 4), (("--gpus", "spare=0"), 1), (("--gpus", "spare=+4", "--gpus", "train=-1"), 5)):
        [outcome] = answer(two_pools, "replay", "--scenario", str(scenario), *flags)["replay_outcome"]
        assert outcome["then_gpus"] == gpus


def test_a_range_of_differences_counts_from_the_gpus_of_today(two_pools: Lake) -> None:
    [found] = answer(two_pools, "replay", "--gpus", "train=-1..+3:2")["replay_sweep_figures"]
    assert (found["gpus"], [each["gpus"] for each in found["points"]]) == (1, [0, 2, 4])


def test_a_scenario_is_saved_from_the_flags_of_a_replay(two_pools: Lake) -> None:
    flags = ("--gpus", "train=+2", "--gpus", "spare=0", "--idle-timeout", "90m", "--preempt", "10m")
    [saved] = answer(two_pools, "scenarios", "--save", "two more", *flags, "--as", "ann")["saved_scenarios"]
    assert tomllib.loads(saved["policy"]) == {
        "gpus": {"train": "+2", "spare": 0},
        "idle_timeout_h": 1.5,
        "priorities": {"by": "priority", "preempt": True, "cost_min": 10.0},
    }
    [outcome] = answer(two_pools, "replay", *flags)["replay_outcome"]
    assert saved["outcome"]["replay_outcome"] == [outcome]
    assert outcome["then_gpus"] == 3
    assert answer(two_pools, "scenarios", "--remove", "two more", "--as", "ann")["saved_scenarios"] == []


def test_without_jobs_the_queue_says_what_is_missing_and_what_stood_idle(two_pools: Lake) -> None:
    found = answer(two_pools, "queue")
    assert (found["queue_counted"][0]["jobs"], found["queue_halves"]) == (None, [])
    idle = {each["pool"]: (each["free_gpu_hours"], each["unused_gpu_hours"]) for each in found["idle_while_waiting"]}
    assert idle == {"spare": (2.0, 0), "train": (1.0, 0)}
    said = text(two_pools, "queue")
    assert "fallow allocations import slurm" in said
    assert "Jobs counted" not in said
    [only] = answer(two_pools, "queue", "--pool", "spare")["idle_while_waiting"]
    assert (only["pool"], only["free_gpu_hours"]) == ("spare", 2.0)
