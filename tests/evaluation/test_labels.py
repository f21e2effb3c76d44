"""Files of labels: what they may say, how a mistake in one is told, and those of a simulated fleet."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.evaluation.labels import COLUMNS, STATES_MEANT, gpu_names, read_labels
from analytics.importers.source import InputLimits
from analytics.inventory import Device, Inventory
from analytics.simulation import labels_csv, plan_fleet
from analytics.simulation.people import true_spans
from fallow.clock import HOUR_MS
from fallow.errors import InputError
from fallow.schema import STATES
from tests.answers import rows_of
from tests.conftest import REPOSITORY
from tests.findings.conftest import SIMULATED, simulated_lake
from tests.in_process import run_in_process
from tests.ledger.rows import ms

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.evaluation.labels import Labels
    from tests.evaluation.conftest import Evaluate

LIMITS = InputLimits(max_bytes=2**20, max_record_bytes=2**16, max_rows=10_000)
DEVICES = {name: Device(name, "h1", gpu_index=index) for name, index in (("GPU-a", 0), ("GPU-b", 1), ("GPU-c", 1))}
KNOWN = gpu_names((*DEVICES, "h1/pod"), Inventory(DEVICES))
DAY = "2026-11-20T00:00Z,2026-11-21T00:00Z"


def read(tmp_path: Path, text: str, zone: str = "UTC") -> Labels:
    file = tmp_path / "labels.csv"
    file.write_text(text)
    return read_labels(str(file), zone, KNOWN, LIMITS)


def spans(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    """The rows with times in hours after T0."""
    hours = frame.with_columns((pl.col("time", "end") - ms(0)) // 3_600_000)
    return sorted(hours.select(sorted(hours.columns)).rows())


def test_a_gpu_by_uuid_by_its_place_and_by_the_name_of_an_import(tmp_path: Path) -> None:
    lines = f"GPU-a,{DAY},held\nh1/0,2026-11-22,2026-11-23,used\nh1/pod,{DAY},free\n"
    found = read(tmp_path, f"gpu,since,until,state\n{lines}")
    states = [(24.0, "GPU-a", "held", 0.0), (24.0, "h1/pod", "free", 0.0), (72.0, "GPU-a", "used", 48.0)]
    assert spans(found.states) == states
    assert (found.lines, found.gpus, found.strangers) == (3, 2, ())


def test_lines_that_say_the_same_are_one(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "gpu;since;until;takeable;rules;not_rules\n"
        "GPU-a;2026-11-20 00:00;2026-11-20 02:00;yes;held;\n"
        "GPU-a;2026-11-20 01:00;2026-11-20 03:00;TRUE;never_used;ending\n",
    )
    assert spans(found.takeable) == [(3.0, "GPU-a", True, 0.0)]
    rules = [(2, "GPU-a", True, "held", 0), (3, "GPU-a", False, "ending", 1), (3, "GPU-a", True, "never_used", 1)]
    assert spans(found.rules) == rules


def test_times_without_an_offset_are_the_zones(tmp_path: Path) -> None:
    found = read(tmp_path, "gpu,since,until,state\nGPU-a,2026-11-20 02:00,2026-11-20T02:00:00Z,free\n", "Europe/Paris")
    assert spans(found.states) == [(2.0, "GPU-a", "free", 1.0)]


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    file = tmp_path / "labels.parquet"
    since, until = (datetime(2026, 11, day, tzinfo=UTC) for day in (20, 21))
    row = {"gpu": "GPU-a", "since": since, "until": until, "takeable": False, "not_rules": ["held", "stalls"]}
    pl.DataFrame([row]).write_parquet(file)
    found = read_labels(str(file), "UTC", KNOWN, LIMITS)
    assert spans(found.takeable) == [(24.0, "GPU-a", False, 0.0)]
    assert spans(found.rules) == [(24.0, "GPU-a", False, "held", 0.0), (24.0, "GPU-a", False, "stalls", 0.0)]
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        read_labels(str(file), "UTC", KNOWN, LIMITS)


@pytest.mark.parametrize(
    ("columns", "lines", "said"),
    [
        ("gpu,since,state", "", "lacks the columns of a label; it needs gpu, since and until"),
        ("sate", "", "has a column 'sate', which no label has; did you mean 'state'?"),
        ("state", ",DAY,held", "line 2: no gpu; correct them: nothing was judged"),
        ("state", "GPU-a,DAY,", "line 2: the line has no label: give one of state, takeable, rules, not_rules"),
        ("state", "GPU-a,DAY,idle", "line 2: state 'idle' is none of unavailable, free"),
        ("state", "GPU-a,DAY,unknown", "line 2: 'unknown' is not a state of a GPU: leave the cell empty"),
        ("takeable", "GPU-a,DAY,maybe", "line 2: takeable 'maybe' is neither true nor false"),
        ("rules", "GPU-a,DAY,heldd", "line 2: there is no rule 'heldd', did you mean held?"),
        ("rules,not_rules", "GPU-a,DAY,held,stalls+held", "line 2: held is in rules and in not_rules"),
        ("state", "GPU-a,2026-11-20,,held", "line 2: no until"),
        ("state", "GPU-a,yesterday,2026-11-21,held", "line 2: since is not a time"),
        ("state", "GPU-a,2026-11-21,2026-11-20,held", "line 2: it ends before it starts"),
        ("state", "h1/1,DAY,held", "line 2: h1/1 was GPU-b and GPU-c: name the UUID"),
        ("state", "gPU-a,DAY,held", "the lake knows none of its GPUs, such as gPU-a; did you mean GPU-a?"),
        ("state", "GPU-a,DAY,held,", "line 2: 5 fields where the header names 4"),
        (
            "state",
            "GPU-a,DAY,held\n\nh1/0,2026-11-20T12:00Z,2026-11-22,free",
            "lines 2 and 4 contradict each other on GPU-a; correct one of them, or end one before the other starts",
        ),
        (
            "rules,not_rules",
            "GPU-a,2026-11-01,2026-11-30,held,\nGPU-a,2026-11-10,2026-11-11,,ending\nGPU-a,DAY,,others",
            "lines 2 and 4 contradict each other on GPU-a and held",
        ),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path: Path, columns: str, lines: str, said: str) -> None:
    head = columns if columns.startswith("gpu") else f"gpu,since,until,{columns}"
    with pytest.raises(InputError) as error:
        read(tmp_path, f"{head}\n{lines}\n".replace("DAY", DAY))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_hour_that_comes_twice_wants_an_offset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="since lies in the hour that the zone repeats: write an offset"):
        read(tmp_path, "gpu,since,until,state\nGPU-a,2026-10-25 02:30,2026-10-26,held\n", "Europe/Paris")


def test_bad_labels_are_one_sentence_and_exit_code_1(evaluate: Evaluate) -> None:
    done = evaluate("GPU-0,2026-11-20,2026-11-21,idle,,,,")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("fallow: ")
    done = evaluate("GPU-0,2026-11-20,2026-11-21,free,,,,", flags=("--time-zone", "Paris"))
    assert (done.returncode, done.stdout) == (2, "")


def test_states_are_all_but_unknown_and_two_words_for_several_and_the_page_names_every_column() -> None:
    assert set(STATES_MEANT) == set(STATES) - {"unknown"} | {"used", "unused"}
    page = (REPOSITORY / "docs/evaluate.md").read_text(encoding="utf-8")
    assert [name for name in COLUMNS if f"| `{name}` |" not in page] == []


def test_what_a_simulated_gpu_did_has_no_gap_and_no_overlap() -> None:
    for host in plan_fleet(SIMULATED).hosts:
        for gpu in host.host.gpus:
            own = list(true_spans(SIMULATED, host, gpu.index))
            assert (own[0].start_ms, own[-1].end_ms) == (SIMULATED.since_ms, SIMULATED.until_ms)
            assert all(before.end_ms == after.start_ms for before, after in pairwise(own))


def test_nobody_knows_what_comes_after_the_simulated_period() -> None:
    """The labels come from the plan of the fleet and not from its rows."""
    rows = list(csv.DictReader(io.StringIO(labels_csv(SIMULATED, 12 * HOUR_MS))))
    (gpu, *_) = next(each.gpus for each in plan_fleet(SIMULATED).planted if each.kind == "never_used")
    begin, last, end = "2026-11-12T00:00:00Z", "2026-11-19T12:00:00Z", "2026-11-20T00:00:00Z"
    assert [tuple(row.values())[1:] for row in rows if row["gpu"] == gpu] == [
        (begin, last, "free", "true", ""),
        (last, end, "free", "", ""),
        (begin, end, "", "", "never_used"),
    ]
    assert not any(row["takeable"] == "true" for row in rows if row["state"] in ("used", "unavailable"))


@pytest.mark.long
def test_a_simulated_fleet_is_judged_by_its_own_labels(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The ledger agrees but for what rows of a minute blur; planted situations are found, and could be taken back."""
    labels = tmp_path_factory.mktemp("labelled") / "labels.csv"
    labels.write_text(labels_csv(SIMULATED, 12 * HOUR_MS))
    asked = ("--labels", str(labels), "--until", "2026-11-19T12:00Z", "--json")
    lake, _ = simulated_lake(tmp_path_factory.getbasetemp())
    done = run_in_process("evaluate", "--lake", lake.root, *asked, FALLOW_LEDGER_WORKERS="1")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["simulated_gpus"] == 16
    found = rows_of(done.stdout)
    (whole,) = found["evaluation"]
    assert whole["labelled_gpu_hours"] == whole["gpu_hours"] == pytest.approx(16 * 180)
    assert 0.97 < whole["agreed_share"] <= 1
    by_label = {each["label"]: each for each in found["states"]}
    assert [state for state in STATES if by_label["unavailable"][f"{state}_gpu_hours"]] == ["unavailable"]
    assert (by_label["free"]["active_gpu_hours"] or 0.0) < 0.5
    rules = {str(each["rule"]): each for each in found["rules"]}
    for name in ("held", "never_used", "reserved_unused"):
        assert rules[name]["recall_share"] == 1.0, name
        assert rules[name]["recall_judged"] >= 1
