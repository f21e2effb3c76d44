"""A simulated fleet judged by its own labels, which come from the plan and not from the rows."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from analytics.simulation import labels_csv, plan_fleet
from analytics.simulation.labels import true_spans
from fallow.clock import HOUR_MS
from fallow.schema import STATES
from tests.answers import rows_of
from tests.findings.conftest import SIMULATED, simulated_lake
from tests.in_process import run_in_process

if TYPE_CHECKING:
    from pathlib import Path

Found = dict[str, list[dict[str, Any]]]


def test_what_a_gpu_did_has_no_gap_and_no_overlap() -> None:
    plan = plan_fleet(SIMULATED)
    for host in plan.hosts:
        for gpu in host.host.gpus:
            spans = list(true_spans(SIMULATED, host, gpu.index))
            assert (spans[0].start_ms, spans[-1].end_ms) == (SIMULATED.since_ms, SIMULATED.until_ms)
            assert all(before.end_ms == after.start_ms for before, after in pairwise(spans))


def test_nobody_knows_what_comes_after_the_period() -> None:
    rows = list(csv.DictReader(io.StringIO(labels_csv(SIMULATED, 12 * HOUR_MS))))
    never = next(each for each in plan_fleet(SIMULATED).planted if each.kind == "never_used")
    own = [(row["since"], row["until"], row["state"], row["takeable"], row["rules"]) for row in rows if row["gpu"] == never.gpus[0]]  # fmt: skip
    assert own == [
        ("2026-11-12T00:00:00Z", "2026-11-19T12:00:00Z", "free", "true", ""),
        ("2026-11-19T12:00:00Z", "2026-11-20T00:00:00Z", "free", "", ""),
        ("2026-11-12T00:00:00Z", "2026-11-20T00:00:00Z", "", "", "never_used"),
    ]
    assert not any(row["takeable"] == "true" for row in rows if row["state"] in ("used", "unavailable"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder: Path = tmp_path_factory.mktemp("labelled")
    lake, _ = simulated_lake(tmp_path_factory.getbasetemp())
    (folder / "labels.csv").write_text(labels_csv(SIMULATED, 12 * HOUR_MS))
    done = run_in_process(
        "evaluate", "--lake", lake.root, "--labels", str(folder / "labels.csv"),
        "--until", "2026-11-19T12:00Z", "--json", FALLOW_LEDGER_WORKERS="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["simulated_gpus"] == 16
    return rows_of(done.stdout)


def test_the_ledger_agrees_with_the_plan_but_for_what_rows_of_a_minute_blur(found: Found) -> None:
    (whole,) = found["evaluation"]
    assert whole["labelled_gpu_hours"] == whole["gpu_hours"] == pytest.approx(16 * 180)
    assert 0.97 < whole["agreed_share"] <= 1
    by_label = {each["label"]: each for each in found["states"]}
    assert [state for state in STATES if by_label["unavailable"][f"{state}_gpu_hours"]] == ["unavailable"]
    assert (by_label["free"]["active_gpu_hours"] or 0.0) < 0.5


def test_the_planted_situations_are_found_and_their_gpus_could_be_taken(found: Found) -> None:
    rules = {str(each["rule"]): each for each in found["rules"]}
    for name in ("held", "never_used", "reserved_unused"):
        assert rules[name]["recall_share"] == 1.0, name
        assert rules[name]["recall_judged"] >= 1
