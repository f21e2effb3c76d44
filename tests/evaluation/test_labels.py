"""Files of labels: what they may say, and how a mistake in one is told."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from analytics.evaluation.labels import COLUMNS, STATES_MEANT, gpu_names, read_labels
from analytics.importers.source import InputLimits
from analytics.inventory import Device, Inventory
from fallow.errors import InputError
from fallow.schema import STATES
from tests.conftest import REPOSITORY
from tests.ledger.rows import ms

if TYPE_CHECKING:
    from pathlib import Path

    from analytics.evaluation.labels import Labels
    from tests.evaluation.conftest import Evaluate

LIMITS = InputLimits(max_bytes=2**20, max_record_bytes=2**16, max_rows=10_000)
KNOWN = gpu_names(
    ("GPU-a", "GPU-b", "GPU-c", "h1/pod"),
    Inventory({"GPU-a": Device("GPU-a", "h1", gpu_index=0), "GPU-b": Device("GPU-b", "h1", gpu_index=1),
               "GPU-c": Device("GPU-c", "h1", gpu_index=1)}),
)  # fmt: skip
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
    found = read(
        tmp_path, f"gpu,since,until,state\nGPU-a,{DAY},held\nh1/0,2026-11-22,2026-11-23,used\nh1/pod,{DAY},free\n"
    )
    assert spans(found.states) == [(24.0, "GPU-a", "held", 0.0), (24.0, "h1/pod", "free", 0.0), (72.0, "GPU-a", "used", 48.0)]  # fmt: skip
    assert (found.lines, found.gpus, found.strangers) == (3, 2, ())


def test_lines_that_say_the_same_are_one(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "gpu;since;until;takeable;rules;not_rules\n"
        "GPU-a;2026-11-20 00:00;2026-11-20 02:00;yes;held;\n"
        "GPU-a;2026-11-20 01:00;2026-11-20 03:00;TRUE;never_used;wind_down\n",
    )
    assert spans(found.takeable) == [(3.0, "GPU-a", True, 0.0)]
    assert spans(found.rules) == [
        (2, "GPU-a", True, "held", 0), (3, "GPU-a", False, "wind_down", 1), (3, "GPU-a", True, "never_used", 1),
    ]  # fmt: skip


def test_times_without_an_offset_are_the_zones(tmp_path: Path) -> None:
    found = read(tmp_path, "gpu,since,until,state\nGPU-a,2026-11-20 02:00,2026-11-20T02:00:00Z,free\n", "Europe/Paris")
    assert spans(found.states) == [(2.0, "GPU-a", "free", 1.0)]


def test_parquet_says_the_same_as_csv(tmp_path: Path) -> None:
    file = tmp_path / "labels.parquet"
    day = [datetime(2026, 11, 20, tzinfo=UTC)], [datetime(2026, 11, 21, tzinfo=UTC)]
    pl.DataFrame(
        {"gpu": ["GPU-a"], "since": day[0], "until": day[1], "takeable": [False], "not_rules": [["held", "stalls"]]}
    ).write_parquet(file)
    found = read_labels(str(file), "UTC", KNOWN, LIMITS)
    assert spans(found.takeable) == [(24.0, "GPU-a", False, 0.0)]
    assert spans(found.rules) == [(24.0, "GPU-a", False, "held", 0.0), (24.0, "GPU-a", False, "stalls", 0.0)]
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        read_labels(str(file), "UTC", KNOWN, LIMITS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu,since,state\n", "lacks the columns of a label; it needs gpu, since and until"),
        ("gpu,since,until,sate\n", "has a column 'sate', which no label has; did you mean 'state'?"),
        (f"gpu,since,until,state\n,{DAY},held\n", "line 2: no gpu; correct them: nothing was judged"),
        (f"gpu,since,until,state\nGPU-a,{DAY},\n", "line 2: it says nothing: give one of state, takeable, rules, not_rules"),
        (f"gpu,since,until,state\nGPU-a,{DAY},idle\n", "line 2: state 'idle' is none of unavailable, free"),
        (f"gpu,since,until,state\nGPU-a,{DAY},unknown\n", "line 2: state 'unknown' is nothing that a GPU does: leave the cell empty"),
        (f"gpu,since,until,takeable\nGPU-a,{DAY},maybe\n", "line 2: takeable 'maybe' is neither true nor false"),
        (f"gpu,since,until,rules\nGPU-a,{DAY},heldd\n", "line 2: there is no rule 'heldd', did you mean held?"),
        (f"gpu,since,until,rules,not_rules\nGPU-a,{DAY},held,stalls+held\n", "line 2: held stands in rules and in not_rules"),
        ("gpu,since,until,state\nGPU-a,2026-11-20,,held\n", "line 2: no until"),
        ("gpu,since,until,state\nGPU-a,yesterday,2026-11-21,held\n", "line 2: since is not a time"),
        ("gpu,since,until,state\nGPU-a,2026-11-21,2026-11-20,held\n", "line 2: it ends before it starts"),
        (f"gpu,since,until,state\nh1/1,{DAY},held\n", "line 2: h1/1 was GPU-b and GPU-c: name the UUID"),
        (f"gpu,since,until,state\ngPU-a,{DAY},held\n", "the lake knows none of its GPUs, such as gPU-a; did you mean GPU-a?"),
        (f"gpu,since,until,state\nGPU-a,{DAY},held,\n", "line 2: 5 fields where the header names 4"),
        (
            f"gpu,since,until,state\nGPU-a,{DAY},held\n\nh1/0,2026-11-20T12:00Z,2026-11-22,free\n",
            "lines 2 and 4 contradict each other on GPU-a; correct one of them, or end one before the other starts",
        ),
        (
            "gpu,since,until,rules,not_rules\nGPU-a,2026-11-01,2026-11-30,held,\nGPU-a,2026-11-10,2026-11-11,,wind_down\nGPU-a,2026-11-20,2026-11-21,,others\n",
            "lines 2 and 4 contradict each other on GPU-a and held",
        ),
    ],
    ids=lambda value: value[:40] if not value.startswith("gpu") else "",
)  # fmt: skip
def test_a_mistake_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
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


def test_states_may_be_every_one_but_unknown_and_two_words_for_several() -> None:
    assert set(STATES_MEANT) == set(STATES) - {"unknown"} | {"used", "unused"}


def test_the_page_names_every_column() -> None:
    page = (REPOSITORY / "docs/evaluate.md").read_text(encoding="utf-8")
    assert [name for name in COLUMNS if f"| `{name}` |" not in page] == []
