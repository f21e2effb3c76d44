"""`fallow findings`: text, JSON and CSV of the same findings."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest

from fallow.cli import main
from tests.findings.conftest import BUSY, HELD, HOUR
from tests.ledger.rows import fill, processes, samples

if TYPE_CHECKING:
    from fallow.lake import Lake

COLUMNS = [
    "finding_id", "rule", "sentence", "gpus", "host", "holder", "since", "gpu_hours", "energy_kwh", "cost", "confidence",
    "failed_conditions", "reclaimable", "reclaimable_gpus", "evidence", "next_command", "simulated",
]  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], lake: Lake, *arguments: str) -> str:
    assert main(["findings", "--lake", lake.root, *arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def held(lake: Lake) -> Lake:
    rows = samples("GPU-1", 0, 2 * HOUR, every_s=60, power_w=70.0, mem_used_bytes=2**34, **HELD)
    rows += samples("GPU-2", 0, 2 * HOUR, every_s=60, **HELD)
    lists = [row for gpu in ("GPU-1", "GPU-2") for row in processes(gpu, *range(0, 2 * HOUR, 60), every_s=60)]
    return fill(lake, rows, lists)


def test_json(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, held, "--json"))
    assert list(found) == ["window", "findings"]
    assert found["window"] == {"since": "2026-11-20T00:00:00Z", "until": "2026-11-20T02:00:00Z"}
    (finding,) = found["findings"]
    assert list(finding) == COLUMNS
    assert finding["gpus"] == ["GPU-1", "GPU-2"]
    assert (finding["holder"], finding["gpu_hours"], finding["cost"]) == ("ann", 4.0, None)
    assert finding["energy_kwh"] is None, "the power of one of the two GPUs is not known"
    assert finding["failed_conditions"] == ["0.0 days of history, 14 are wanted"]
    assert finding["evidence"] == {
        "since": "2026-11-20T00:00:00Z", "until": "2026-11-20T02:00:00Z",
        "held_gpu_hours_in_stretches_of_30_min": 4.0, "held_gpu_hours_in_stretches_of_60_min": 4.0,
        "held_gpu_hours_in_stretches_of_120_min": 4.0, "holder_source": "process", "gpus_held_now": 2,
        "stretch_count": 2, "longest_h": 2.0, "mem_used_max_bytes": 2**34, "power_mean_w": 70.0, "gpu_util_max_pct": 0.0,
        "sample_count": 240, "coverage": 1.0, "commands": "python3",
    }  # fmt: skip


def test_csv_says_the_same_as_json(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    (expected,) = json.loads(run(capsys, held, "--json"))["findings"]
    out = run(capsys, held, "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert list(row) == COLUMNS
    assert row["gpus"] == "GPU-1 GPU-2"
    assert json.loads(row["evidence"]) == expected["evidence"]
    assert (float(row["gpu_hours"]), row["cost"], row["reclaimable"]) == (4.0, "", "True")
    assert row["failed_conditions"] == "0.0 days of history, 14 are wanted"
    assert "\r" not in out


def test_csv_keeps_odd_names_whole(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    name = 'a,"b"\nc'
    fill(lake, samples("g", 0, 2 * HOUR, **HELD), processes("g", *range(0, 2 * HOUR, 30), user=name))
    (row,) = csv.DictReader(io.StringIO(run(capsys, lake, "--csv")))
    assert row["holder"] == name


def test_text(held: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, held) == TEXT


TEXT = """\
1 finding over 2 GPUs, 2026-11-20 00:00 UTC to 2026-11-20 02:00 UTC

F-f3eb8c41f7  4.0 GPU-hours: 2 GPUs on h1 held without running a kernel
  holder      ann, since 2026-11-20 00:00 UTC
  gpus        GPU-1, GPU-2
  confidence  medium:
              - 0.0 days of history, 14 are wanted
  evidence    4.0 / 4.0 / 4.0 GPU-hours in stretches of at least 30 / 60 / 120 min; holder known
              by process; 2 of the GPUs held at the end; stretches 2; longest 2.0 h; memory in use
              up to 16.0 GiB; mean power 70.0 W; highest utilization 0.0 %; samples 240; observed
              100.0 %; commands python3
  next        ssh h1 kill 4711
"""


def test_no_findings(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    fill(lake, samples("g", 0, 2 * HOUR, **BUSY))
    assert "no findings: no GPU was held for long without a kernel, and none went unused" in run(capsys, lake)
    assert json.loads(run(capsys, lake, "--json"))["findings"] == []
    assert run(capsys, lake, "--csv") == ",".join(COLUMNS) + "\n"


def test_json_and_csv_at_once_is_wrong_use(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "--lake", lake.root, "--json", "--csv"]) == 2
    assert "not allowed with" in capsys.readouterr().err
