"""`fallow plan replay` on lakes: what it answers without a queue, and how it takes wrong use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fallow.cli import main
from tests.answers import rows_of
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two pools of a GPU each, of which one works for its second hour; nobody asked for anything."""
    made = made_lake(tmp_path / "lake")
    times = [*range(3600, 7200, 30)]
    working = samples("G0", 3600, 7200, gpu_util_pct=90, process_count=1)
    fill(made, [*samples("G0", 0, 3600), *working], processes("G0", *times), devices=[device("G0", pool="train")])
    return fill(made, samples("G1", 0, 7200), devices=[device("G1", pool="spare")])


def test_without_a_queue_it_says_what_is_missing_and_answers_the_rest(lake: Lake, capsys: Printed) -> None:
    assert main(["plan", "replay", "--lake", lake.root, "--merge", "train,spare", "--json"]) == 0
    answer = rows_of(capsys.readouterr().out)
    [outcome], [basis] = answer["replay_outcome"], answer["replay_basis"]
    assert outcome["then_p95_wait_s"] is None
    assert "fallow allocations import slurm" in basis["refused"]
    assert [each["pool"] for each in outcome["today_pools"]] == ["spare", "train"]
    assert [each["pool"] for each in outcome["then_pools"]] == ["train"]
    assert outcome["today_gpus"] == outcome["then_gpus"] == 2
    assert main(["plan", "replay", "--lake", lake.root, "--gpus", "train=0..2"]) == 0
    assert "Waits are not answered" in capsys.readouterr().out


def test_flags_win_over_the_scenario(lake: Lake, tmp_path: Path, capsys: Printed) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("gpus = {spare = 3}\n", encoding="utf-8")
    asked = ["plan", "replay", "--lake", lake.root, "--scenario", str(scenario), "--json"]
    assert main(asked) == 0
    assert rows_of(capsys.readouterr().out)["replay_outcome"][0]["then_gpus"] == 4
    assert main([*asked, "--gpus", "spare=0"]) == 0
    assert rows_of(capsys.readouterr().out)["replay_outcome"][0]["then_gpus"] == 1


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gpus", "9..3"], "smaller number first"),
        (["--gpus", "many"], "no number of GPUs"),
        (["--gpus", "1..9"], "of which pool"),
        (["--gpus", "old=1..9"], "there are spare, train"),
        (["--gpus", "train=1..9", "--gpus", "spare=1..9"], "one range"),
        (["--gpus", "train=1..9999"], "larger steps"),
        (["--merge", "train,old"], "old"),
        (["--off-peak", "night"], "span of hours"),
        (["--user", "ann"], "everybody's jobs"),
    ],
)
def test_wrong_use_is_one_sentence(lake: Lake, capsys: Printed, flags: list[str], said: str) -> None:
    assert main(["plan", "replay", "--lake", lake.root, *flags]) == 2
    assert said in capsys.readouterr().err
