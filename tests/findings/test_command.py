"""`fallow findings`: text, JSON and CSV of the same findings."""

from __future__ import annotations

import csv
import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from analytics.rules import RULES
from fallow.cli import main
from tests.findings.conftest import BUSY, HELD, HOUR
from tests.lakes import made_lake
from tests.ledger.rows import device, fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake

COLUMNS = (
    "finding_id rule category sentence status gpus host user team job since gpu_hours basis energy_kwh cost currency"
    " confidence failed_conditions reclaimable reclaimable_gpus evidence next_command simulated notes witnesses"
)


FAILED = [
    "0.0 days of history, 14 are needed",
    "the probability of staying unused for another 7 d is 24.3 %: below 80 %, ask first",
]


def run_plain(capsys: pytest.CaptureFixture[str], lake: Lake, *arguments: str) -> str:
    assert main(["findings", "--lake", lake.root, *arguments]) == 0
    return capsys.readouterr().out


def run(capsys: pytest.CaptureFixture[str], lake: Lake, *arguments: str) -> str:
    """With findings of low confidence too: so short a history has no others."""
    return run_plain(capsys, lake, "--all", *arguments)


def lists_of(gpu: str, **values: Any) -> list[dict[str, Any]]:
    return processes(gpu, *range(0, 2 * HOUR, 60), every_s=60, **values)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    rows = samples("GPU-1", 0, 2 * HOUR, every_s=60, power_w=70.0, mem_used_bytes=2**34, **HELD)
    rows += samples("GPU-2", 0, 2 * HOUR, every_s=60, **HELD)
    lists = lists_of("GPU-1") + lists_of("GPU-2")
    return fill(made_lake(tmp_path_factory.mktemp("held")), rows, lists)


def test_json(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, held, "--json"))
    assert list(found) == ["window", "totals", "sensitivity", "reversals", "snoozed", "findings", "waiting", "gone"]
    none = {"findings": 0, "gpus": 0, "reclaimable_gpus": 0, "findings_without_price": 0}
    surely = {"reclaimable_gpus_of_high_confidence": 0, "low_findings": 1}
    assert found["totals"] == none | surely | {"by_rule": {}}
    assert found["sensitivity"] == {"held_gpu_hours": {"30min": 4.0, "60min": 4.0, "120min": 4.0}}
    assert (found["reversals"], found["snoozed"], found["gone"]) == (None, 0, [])
    assert found["window"] == {"since": "2026-11-20T00:00:00Z", "until": "2026-11-20T02:00:00Z"}
    (finding,) = found["findings"]
    assert " ".join(finding) == COLUMNS
    assert finding["gpus"] == ["GPU-1", "GPU-2"]
    assert (finding["user"], finding["gpu_hours"], finding["cost"]) == ("ann", 4.0, None)
    assert finding["energy_kwh"] is None, "the power of one of the two GPUs is not known"
    assert finding["failed_conditions"] == FAILED
    hours = {f"held_gpu_hours_in_segments_of_{minutes}_min": 4.0 for minutes in (30, 60, 120)}
    known = {
        "user_source": "process",
        "gpus_held_now": 2,
        "segment_count": 2,
        "longest_h": 2.0,
        "commands": "python3",
    }
    seen = {
        "mem_used_max_bytes": 2**34,
        "power_mean_w": 70.0,
        "gpu_util_max_pct": 0.0,
        "sample_count": 240,
        "coverage": 1,
    }
    stays = {
        "stays_unused_probability": pytest.approx(0.243, abs=0.001),
        "stays_unused_horizon_h": 168.0,
        "stays_unused_1d_probability": pytest.approx(0.344, abs=0.001),
    }
    assert finding["evidence"] == found["window"] | hours | known | seen | stays


def test_csv_says_the_same_as_json(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    (expected,) = json.loads(run(capsys, held, "--json"))["findings"]
    out = run(capsys, held, "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert " ".join(row) == COLUMNS
    assert row["gpus"] == "GPU-1 GPU-2"
    assert json.loads(row["evidence"]) == expected["evidence"]
    assert (float(row["gpu_hours"]), row["cost"], row["reclaimable"]) == (4.0, "", "true")
    assert row["failed_conditions"] == "; ".join(FAILED)
    assert "\r" not in out


def test_text(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(run(capsys, held).split())
    for each in (
        f"2026-11-20 00:00 UTC to 2026-11-20 02:00 UTC fleet: 2 GPUs 17 of {len(RULES)} rules have too little history",
        "0 findings; no GPU to free; 1 finding of low confidence, which no sum counts.",
        "F-f3eb8c41f7 held h1 ann 4.0 - low 2",
        "Commands only inspect, because the newest row is ",
        "Held idle ≥ 120 min 4.0",
        "F-f3eb8c41f7: 4.0 GPU-hours: 2 GPUs on h1 held idle, without a running kernel",
        (
            "user: ann, since 2026-11-20 00:00 UTC; reclaimable if the user agrees: GPU-1, GPU-2 (2 of 2); rule: held;"
            " status: new"
        ),
        "- 4.0 / 4.0 / 4.0 GPU-hours in intervals of at least 30 / 60 / 120 min; source of the user: process",
        f"- less certain because {'; '.join(FAILED)}",
        "next step ssh h1 nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory,name --format=csv",
    ):
        assert each in said, each


@pytest.fixture(scope="module")
def mixed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ann and bob share a GPU and cy has two; one team is known, one card has a price."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "owners.csv").write_text("kind,name,team\nuser,cy,vision\n", encoding="utf-8")
    (folder / "prices.csv").write_text("model,hourly\nL40S,2\n", encoding="utf-8")
    rows = [row for gpu in "abc" for row in samples(gpu, 0, 2 * HOUR, every_s=60, **HELD)]
    users = (("a", "ann"), ("a", "bob"), ("b", "cy"), ("c", "cy"))
    lists = [row for at, (gpu, user) in enumerate(users) for row in lists_of(gpu, user=user, pid=min(at + 1, 3))]
    models = [device("a", "home-made card"), device("b", "NVIDIA L40S"), device("c", "NVIDIA L40S")]
    fill(made_lake(folder / "lake"), rows, lists, devices=models)
    return folder


@pytest.fixture
def mixed(mixed_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The lake of that folder; who changes it copies it."""
    monkeypatch.setenv("FALLOW_MONEY_OWNERS", str(mixed_folder / "owners.csv"))
    monkeypatch.setenv("FALLOW_MONEY_PRICES", str(mixed_folder / "prices.csv"))
    return made_lake(mixed_folder / "lake")


@pytest.mark.parametrize(
    ("flags", "users"),
    [
        ([], ["cy", "ann+bob"]),
        (["--rule", "never_used"], []),
        (["--rule", "never_used", "--rule", "held"], ["cy", "ann+bob"]),
        (["--category", "reclaim"], ["cy", "ann+bob"]),
        (["--category", "efficiency"], []),
        (["--user", "bob"], ["ann+bob"]),
        (["--team", "vision"], ["cy"]),
        (["--min-cost", "8"], ["cy"]),
        (["--min-cost", "8.01"], []),
        (["--limit", "1"], ["cy"]),
    ],
)
def test_filters(mixed: Lake, capsys: pytest.CaptureFixture[str], flags: list[str], users: list[str]) -> None:
    found = json.loads(run(capsys, mixed, "--json", *flags))
    assert [each["user"] for each in found["findings"]] == users


def test_the_sums_are_those_of_what_is_left_whatever_the_limit(mixed: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, mixed, "--json", "--limit", "1"))["totals"]["low_findings"] == 2
    text = run(capsys, mixed, "--limit", "1")
    said = " ".join(text.split())
    assert max(len(line) for line in text.splitlines() if not line.startswith("    next ")) <= 100
    assert "0 findings; no GPU to free; 2 findings of low confidence, which no sum counts." in said
    assert "and 1 more finding with no more GPU to reclaim; `fallow findings` lists all" in said
    assert "user: cy (team vision), since 2026-11-20 00:00 UTC; reclaimable if the user agrees: b, c (2 of 2)" in said


def test_findings_of_low_confidence_are_counted_in_one_line_and_listed_on_demand(
    mixed: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    text = " ".join(run_plain(capsys, mixed).split())
    assert "0 findings; no GPU to free." in text
    assert "2 findings of low confidence are not listed: --all" in text
    assert "cy" not in text
    assert "more of low confidence" not in run(capsys, mixed)
    found = json.loads(run_plain(capsys, mixed, "--json"))
    assert (found["findings"], found["totals"]["low_findings"]) == ([], 2)
    assert "1 finding of low confidence is not listed: --all" in run_plain(capsys, mixed, "--user", "cy")


@pytest.mark.parametrize("flags", [["--rule", "hoarding"], ["--category", "demand"], ["--min-cost", "9"]])
def test_filters_that_leave_nothing_are_no_all_clear(
    mixed: Lake, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    text = " ".join(run(capsys, mixed, *flags).split())
    assert "The filters leave none of the 2 findings of this window." in text
    assert "no findings: no rule" not in text


def test_the_count_of_snoozed_ones_follows_the_filters(
    mixed: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = made_lake(shutil.copytree(mixed.root, tmp_path / "copy"))
    found = json.loads(run(capsys, mixed, "--json"))["findings"]
    cy = next(each["finding_id"] for each in found if each["user"] == "cy")
    run(capsys, mixed, "snooze", cy, "--reason", "mine")
    for flags, number in (([], 1), (["--user", "cy"], 1), (["--user", "ann"], 0)):
        assert json.loads(run(capsys, mixed, "--json", *flags))["snoozed"] == number
        assert ("1 finding snoozed" in run(capsys, mixed, *flags)) == bool(number)


def test_all_findings_have_their_evidence_and_odd_names_are_whole_in_csv(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    users = {f"g{number:02}": f"u{number:02}" for number in range(21)} | {"g21": 'a,"b"\nc'}
    lists = [row for at, (gpu, user) in enumerate(users.items()) for row in lists_of(gpu, user=user, pid=at + 1)]
    fill(lake, [row for gpu in users for row in samples(gpu, 0, 2 * HOUR, every_s=300, **HELD)], lists)
    text = run(capsys, lake)
    assert text.count("- less certain because") == 22
    table = [line for line in text.splitlines() if line.startswith("  F-") and ":" not in line]
    assert (len(table), max(map(len, table)) <= 100) == (22, True)
    assert {row["user"] for row in csv.DictReader(io.StringIO(run(capsys, lake, "--csv")))} == {*users.values()}


def test_show_prints_whole_findings(mixed: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = json.loads(run(capsys, mixed, "--json"))["findings"]
    text = run(capsys, mixed, "show", second["finding_id"], first["finding_id"])
    titles = [line.split(":")[0].strip() for line in text.splitlines() if line.startswith("  F-") and ":" in line]
    assert titles == [second["finding_id"], first["finding_id"]]
    assert json.loads(run(capsys, mixed, "show", first["finding_id"], "--json"))["findings"] == [first]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--rule", "helt"], "there is no rule 'helt'; did you mean held?"),
        (["--rule", "xyz"], "there is no rule 'xyz'; the rules are held, "),
        (["--limit", "0"], "--limit 0 is not above 0"),
        (["--category", "waste"], "invalid choice: 'waste'"),
        (["--min-cost", "-5"], "--min-cost -5 is not 0 or more"),
        (["--min-cost", "nan"], "--min-cost nan is not 0 or more"),
        (["--min-cost", "much"], "invalid float value: 'much'"),
        (["--json", "--csv"], "not allowed with"),
        (["show", "F-0"], "there is no finding F-0 in this window"),
        (["--user", "zed"], "nothing in this window belongs to user zed"),
        (["--user", "an"], "nothing in this window belongs to user an"),
        (["--team", "lang"], "nothing in this window belongs to team lang"),
    ],
)
def test_wrong_filters(held: Lake, capsys: pytest.CaptureFixture[str], flags: list[str], error: str) -> None:
    assert main(["findings", "--lake", held.root, *flags]) == (1 if "in this window" in error else 2)
    assert error in capsys.readouterr().err


def test_no_findings(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    fill(lake, samples("g", 0, 2 * HOUR, **BUSY))
    assert "no findings: no rule that has enough history found anything in this window" in run(capsys, lake)
    assert json.loads(run(capsys, lake, "--json"))["findings"] == []
    assert run(capsys, lake, "--csv") == COLUMNS.replace(" ", ",") + "\n"


def test_silence_of_a_new_host_is_no_all_clear(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    fill(lake, samples("GPU-1", 0, 100, **HELD), processes("GPU-1", *range(0, 100, 10), every_s=10))
    text = " ".join(run(capsys, lake).split())
    assert f"{len(RULES)} of {len(RULES)} rules have too little history and start later:" in text
    assert "stalls at 2026-11-20 00:03 UTC, hung_job at 2026-11-20 00:07 UTC" in text, "the earliest are named"
    assert f"{len(RULES) - 3} more by 2026-12-04 00:00 UTC" in text
    waiting = {each["rule"]: each["from"] for each in json.loads(run(capsys, lake, "--json"))["waiting"]}
    assert (waiting["held"], waiting["releasable_pool"]) == ("2026-11-20T01:00:00Z", "2026-11-27T00:00:00Z")
    assert waiting.keys() == {rule.name for rule in RULES}
