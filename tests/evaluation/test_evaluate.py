"""`fallow evaluate` over a lake and labels whose precision, recall and agreement were worked out by hand."""

from __future__ import annotations

import csv
import io
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from analytics.evaluation.evaluate import Proportion, reliability
from analytics.workloads.confidence import grade
from analytics.workloads.model import Outlook
from fallow.schema import STATES
from tests.answers import rows_of
from tests.evaluation.conftest import at
from tests.findings.conftest import BUSY, DAY, HELD, HOUR
from tests.in_process import run_in_process
from tests.ledger.rows import fill, processes, samples

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.evaluation.conftest import Evaluate

Found = dict[str, list[dict[str, Any]]]

ALL = f"{at(0)},{at(4)}"


def judged(evaluate: Evaluate, *lines: str, flags: tuple[str, ...] = ()) -> Found:
    done = evaluate(*lines, flags=(*flags, "--json"))
    assert (done.returncode, done.stderr) == (0, "")
    return rows_of(done.stdout)


def row(found: Found, table: str, key: str, value: str) -> dict[str, Any]:
    (own,) = (each for each in found[table] if each[key] == value)
    return own


def rule(found: Found, name: str = "held") -> dict[str, Any]:
    return row(found, "rules", "rule", name)


def counts(own: dict[str, Any], proportion: str) -> tuple[int, int]:
    return own[f"{proportion}_right"], own[f"{proportion}_judged"]


def promised(found: Found) -> tuple[int, int]:
    """Return the GPUs to reclaim that could be reclaimed, and those with a label."""
    return counts(found["evaluation"][0], "takeable")


def test_one_rule_right_and_one_wrong(evaluate: Evaluate) -> None:
    """0 and 1 are found as held; 0 is labelled held and takeable, 1 is not held, and 2 is held but not found."""
    found = judged(evaluate, f"GPU-0,{ALL},,true,held,,", f"h1/1,{ALL},,,,held,", f"GPU-2,{ALL},,,held,,")
    held = rule(found)
    assert held["findings"] == 2
    assert counts(held, "precision") == (1, 2)
    # Wilson (1927) with z = 1.645: (0.5 + z^2/4) / (1 + z^2/2) -+ z / (1 + z^2/2) * sqrt(1/8 + z^2/16)
    assert held["precision_interval_90"] == pytest.approx([0.1209, 0.8791], abs=1e-4)
    assert counts(held, "recall") == (1, 2)
    assert counts(held, "takeable") == (1, 1)
    assert (found["evaluation"][0]["findings"], found["evaluation"][0]["judged_findings"]) == (2, 2)


def test_a_finding_is_wrong_where_its_gpu_could_not_be_taken_back(evaluate: Evaluate) -> None:
    found = judged(evaluate, f"GPU-0,{ALL},,false,held,,", f"GPU-1,{ALL},,true,,,", f"GPU-3,{ALL},,true,,,")
    assert counts(rule(found), "precision") == (1, 2)
    assert promised(found) == (1, 2)
    assert counts(row(found, "takeable", "confidence", "low"), "takeable") == (1, 2)
    high = row(found, "takeable", "confidence", "high")
    assert (high["gpus"], counts(high, "takeable")) == (0, (0, 0))
    assert high["takeable_share"] is high["takeable_interval_90"] is None
    assert counts(found["evaluation"][0], "takeable_recall") == (1, 2), "a free GPU that no finding names"
    (kept,) = found["reliability"]
    assert (kept["probability"], *counts(kept, "takeable")) == ([0.2, 0.4], 1, 2)
    assert 0.2 < kept["promised_share"] < 0.4


def test_what_no_label_speaks_of_is_neither_right_nor_wrong(evaluate: Evaluate) -> None:
    found = judged(evaluate, f"GPU-0,{ALL},held,,,,")
    whole = found["evaluation"][0]
    assert (whole["findings"], whole["judged_findings"], whole["takeable_gpus"]) == (2, 0, 2)
    for own, proportion in ((rule(found), "precision"), (whole, "takeable")):
        assert counts(own, proportion) == (0, 0)
        assert own[f"{proportion}_share"] is own[f"{proportion}_interval_90"] is None


@pytest.mark.parametrize(
    ("lines", "right", "of"),
    [
        pytest.param([f"GPU-0,{at(1)},{at(1.6)},,,,held,"], 0, 0, id="a fifth of its hours 1 to 4 is not enough"),
        pytest.param([f"GPU-0,{at(1)},{at(3.8)},,,,held,"], 0, 1, id="nine tenths of them are"),
        pytest.param([f"GPU-0,{ALL},,,never_used,others,"], 0, 1, id="others are all that the line does not name"),
        pytest.param([f"GPU-0,{ALL},,,held,others,", f"GPU-1,{ALL},,,,others,"], 1, 2, id="and not those it names"),
    ],
)
def test_which_label_speaks_of_a_finding(evaluate: Evaluate, lines: list[str], right: int, of: int) -> None:
    assert counts(rule(judged(evaluate, *lines)), "precision") == (right, of)


def test_the_label_of_the_windows_last_moment_says_whether_a_gpu_could_be_taken(evaluate: Evaluate) -> None:
    lines = (f"GPU-0,{at(0)},{at(3)},,false,,,", f"GPU-0,{at(3)},{at(4)},,true,,,")
    assert promised(judged(evaluate, *lines)) == (1, 1)
    assert promised(judged(evaluate, *lines, flags=("--until", at(3)))) == (0, 1)


def test_states_in_gpu_hours(evaluate: Evaluate) -> None:
    """0 is active for an hour and held for three; labels agree in 1 + 2 of its 4 hours, and in 1 of GPU 3's 2 hours."""
    said = ["0 0 1 used,", "0 1 3 unused,", "0 3 4 active,", "3 0 1 free,", "3 1 2 reserved,", "3 2 4 ,true"]
    spans = [each.split(" ") for each in said]
    found = judged(evaluate, *(f"GPU-{gpu},{at(int(a))},{at(int(b))},{what},,," for gpu, a, b, what in spans))
    hours = {f"{own['label']} {state}": own[f"{state}_gpu_hours"] for own in found["states"] for state in STATES}
    assert {pair: spent for pair, spent in hours.items() if spent is not None} == {
        **dict.fromkeys(("free free", "reserved free", "active held", "used active"), 1.0),
        "unused held": 2.0,
    }
    (whole,) = found["evaluation"]
    assert (whole["gpu_hours"], whole["labelled_gpu_hours"], whole["judged_gpu_hours"]) == (16.0, 6.0, 6.0)
    assert (whole["agreed_gpu_hours"], whole["agreed_share"]) == (4.0, pytest.approx(4 / 6))
    held = row(found, "recorded_states", "state", "held")
    assert (held["agreed_gpu_hours"], held["labelled_gpu_hours"]) == (2.0, 3.0)
    assert held["agreed_share"] == pytest.approx(2 / 3)


def test_time_that_nobody_observed_is_not_judged(lake: Lake, tmp_path: Path) -> None:
    """Rows for an hour, none for three, rows for an hour; the rule cannot find what lies in between."""
    rows = samples("GPU-0", 0, HOUR, every_s=60, **BUSY) + samples("GPU-0", 4 * HOUR, 5 * HOUR, every_s=60, **BUSY)
    fill(lake, rows, processes("GPU-0", *range(0, HOUR, 60), *range(4 * HOUR, 5 * HOUR, 60), every_s=60))
    labels = tmp_path / "labels.csv"
    labels.write_text(f"gpu,since,until,state,rules\nGPU-0,{at(1.5)},{at(3.5)},held,held\n")
    done = run_in_process("evaluate", "--lake", lake.root, "--labels", str(labels), "--json")
    found = rows_of(done.stdout)
    assert counts(rule(found), "recall") == (0, 0)
    assert rule(found)["expected_but_unobserved"] == 1
    (whole,) = found["evaluation"]
    assert (whole["labelled_gpu_hours"], whole["judged_gpu_hours"], whole["agreed_share"]) == (2.0, 0.0, None)


def test_windows_one_after_another(lake: Lake, tmp_path: Path) -> None:
    """Three and a half days, held in the last two: two windows have the finding; what is too short is left out."""
    days = [(0.5, 1.0, BUSY), (1.0, 2.0, BUSY), (2.0, 4.0, HELD)]
    rows = [row for first, last, how in days for row in samples("GPU-0", first * DAY, last * DAY, every_s=600, **how)]
    fill(lake, rows, processes("GPU-0", *range(DAY // 2, 4 * DAY, 600), every_s=600))
    labels = tmp_path / "labels.csv"
    labels.write_text(f"gpu,since,until,takeable\nGPU-0,{at(12)},{at(72)},false\nGPU-0,{at(72)},{at(96)},true\n")
    asked = ("evaluate", "--lake", lake.root, "--labels", str(labels), "--every")
    found = rows_of(run_in_process(*asked, "1d", "--json").stdout)
    assert found["evaluation"][0]["windows"] == 3
    assert (rule(found)["findings"], counts(rule(found), "precision")) == (2, (1, 2))
    assert promised(found) == (1, 2)
    done = run_in_process(*asked, "7d")
    assert done.returncode == 2
    assert "is shorter than --every; give a shorter --every, or an earlier --since" in done.stderr


def test_the_page_says_how_much_the_labels_cover(evaluate: Evaluate) -> None:
    done = evaluate(f"GPU-0,{ALL},,true,held,,", f"GPU-1,{at(1)},{at(2)},held,,,,", f"GPU-9,{ALL},free,,,,")
    assert done.returncode == 0
    page = done.stdout
    for line in (
        "3 labels over 2 GPUs; 1 window from 2026-11-20 00:00 UTC to 2026-11-20 04:00 UTC.",
        "- 1 of 2 findings have a label",
        "- 1 of 2 GPUs to reclaim have a label",
        "- 1.0 of 16.0 GPU-hours have a labelled state (6.2 %); 1.0 of these were observed",
        "- 1 GPU of the labels is not in the lake: GPU-9",
        "held         2  1 of 1    100.0 %  27 % to 100 %  1 of 1  100.0 %  27 % to 100 %",
        "1 of 1 GPUs to reclaim could be reclaimed (100.0 %).",
        "1.0 of 1.0 labelled and observed GPU-hours agree (100.0 %).",
    ):
        assert line in page
    assert max(map(len, page.splitlines())) <= 100


def test_csv_has_the_table_that_is_named(evaluate: Evaluate) -> None:
    lines = (f"GPU-0,{ALL},,true,held,,", f"GPU-1,{ALL},,,,held,", f"GPU-0,{at(1)},{at(2)},held,,,,")

    def read(*flags: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(evaluate(*lines, flags=("--csv", *flags)).stdout)))

    (held,) = read()
    assert [held[f"precision_{name}"] for name in ("right", "judged", "share")] == ["1", "2", "0.5"]
    assert [held[f"recall_{name}"] for name in ("right", "judged", "share")] == ["1", "1", "1.0"]
    high = read("--table", "takeable")[0]
    assert [high[name] for name in ("confidence", "takeable_right", "takeable_share")] == ["high", "0", ""]
    assert read("--table", "evaluation")[0]["takeable_recall_share"] == "1.0"
    assert read("--table", "states")[0]["agreed_share"] == "1.0"


def test_labels_judge_no_part_of_the_fleet(evaluate: Evaluate) -> None:
    done = evaluate(f"GPU-0,{ALL},,true,held,,", flags=("--team", "vision"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "labels are compared with the whole fleet; leave out --pool, --model, --team and --user" in done.stderr


def test_a_probability_is_of_the_class_that_it_is_the_upper_end_of() -> None:
    """0.8 is one of 0.6 to 0.8, and 1 of the last: both ends of (0, 1] are in one class each."""
    said = [(0.8, True), (0.81, False), (0.95, True), (1.0, True)]
    findings = [SimpleNamespace(confidence=grade([], outlook=Outlook(share, 1, 1))) for share, _ in said]
    verdicts = [
        SimpleNamespace(finding=own, takeable={"a": right}) for own, (_, right) in zip(findings, said, strict=True)
    ]
    windows: Any = [SimpleNamespace(verdicts=verdicts)]
    edges, right = [0.6, 0.8, 0.9, 0.95, 1.0], [1, 0, 1, 1]
    assert [(each.low, each.high, each.takeable) for each in reliability(windows)] == [
        (low, high, Proportion(number, 1)) for (low, high), number in zip(pairwise(edges), right, strict=True)
    ]
