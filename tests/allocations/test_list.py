"""`fallow allocations list`: one line per allocation."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fallow import schema
from tests.ledger.rows import allocation, samples, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HOUR = 3600


WINDOW = ("--until", "2026-11-20T03:00Z")


@pytest.fixture
def some(lake: Lake) -> Lake:
    """A job on two hosts, an allocation of unknown size, one that runs on."""
    slurm = {"scheduler": "slurm", "state": "COMPLETED", "account": "ml", "gpu_count": 6}
    write(
        lake,
        schema.ALLOCATION,
        [allocation("a", 0, HOUR, "ann", "7") | slurm, allocation("b", 0, HOUR, "ann", "7") | slurm],
        "h1",
    )
    write(lake, schema.ALLOCATION, [allocation(None, 0, HOUR, "ann", "7") | slurm | {"host_gpu_count": 4}], "h2")
    others = [allocation(None, HOUR, 2 * HOUR, "bob", "8"), allocation("c", 2 * HOUR, None, None, "ml/pod")]
    write(lake, schema.ALLOCATION, others, "h3")
    return lake


@pytest.mark.usefixtures("some")
def test_a_allocation_is_one_line_over_all_its_hosts(allocations: Allocations) -> None:
    listed = allocations("list", *WINDOW).rows("allocations")
    shown = [
        tuple(each[name] for name in ("allocation_id", "hosts", "gpus", "gpu_hours", "unplaced_gpus"))
        for each in listed
    ]
    assert shown == [("7", ["h1", "h2"], 6, 6.0, 4), ("8", ["h3"], None, None, None), ("ml/pod", ["h3"], 1, 1.0, 0)]
    first, _, last = listed
    assert (first["start"], first["end"], last["end"]) == ("2026-11-20T00:00:00Z", "2026-11-20T01:00:00Z", None)


def test_pods_of_two_clusters_with_one_name_and_start_are_two_lines(allocations: Allocations, lake: Lake) -> None:
    for host in ("n1@a", "n1@b"):
        pod = allocation(f"GPU-{host}", 0, HOUR, None, "ml/t-0") | {"scheduler": "kubernetes"}
        write(lake, schema.ALLOCATION, [pod], host)
    listed = allocations("list", *WINDOW).rows("allocations")
    assert [(each["allocation_id"], each["hosts"], each["gpu_hours"]) for each in listed] == [
        ("ml/t-0", ["n1@a"], 1.0),
        ("ml/t-0", ["n1@b"], 1.0),
    ]


@pytest.mark.usefixtures("some")
def test_only_the_window_and_the_user_count(allocations: Allocations) -> None:
    (only,) = allocations("list", "--since", "2026-11-20T00:30Z", "--until", "2026-11-20T01:00Z").rows("allocations")
    assert (only["allocation_id"], only["gpu_hours"]) == ("7", 3.0)
    done = allocations("list", "--until", "2026-11-19")
    assert (done.code, done.out) == (1, "")
    assert "holds no allocations between its beginning and 2026-11-20T00:00:00Z; it has allocations from " in done.err
    assert done.err.endswith("from 2026-11-20T00:00:00Z to 2026-11-20T02:00:00Z: widen --since and --until\n")
    assert [each["allocation_id"] for each in allocations("list", *WINDOW, "--user", "bob").rows("allocations")] == [
        "8"
    ]
    assert "user eve has no allocation in this window" in allocations("list", *WINDOW, "--user", "eve").err
    assert "the allocations of all users; leave out --user" in allocations("list", "--check", "--user", "bob").err


@pytest.mark.usefixtures("some")
def test_as_a_table_for_other_programs_and_for_people(allocations: Allocations) -> None:
    rows = list(csv.DictReader(io.StringIO(allocations("list", "--csv", *WINDOW, as_json=False).out)))
    assert (rows[0]["hosts"], rows[0]["end"]) == ("h1; h2", "2026-11-20T01:00:00Z")
    assert (rows[1]["gpus"], rows[2]["end"]) == ("", "")
    text = allocations("list", *WINDOW, as_json=False).out.splitlines()
    assert text[0] == "3 allocations, 7.0 GPU-hours and 1 of unknown size"
    assert " ".join(text[4].split()) == "7 ann 2026-11-20 00:00 UTC 2026-11-20 01:00 UTC 6 6.0 COMPLETED h1+h2"
    assert text[6].split()[5:8] == ["running", "1", "1.0"]
    assert text[7] == "  1 allocation is still running: its GPU-hours count up to 2026-11-20 03:00 UTC."
    assert all(len(line) <= 100 for line in text)


def test_what_runs_on_is_counted_up_to_the_newest_sample(allocations: Allocations, some: Lake) -> None:
    write(some, schema.GPU, samples("c", 0, 3 * HOUR + 1800), "h3")
    write(some, schema.GPU, samples("a", 0, HOUR), "h1")
    runs = allocations("list").rows("allocations")[2]
    assert runs["gpu_hours"] == pytest.approx(1.5, abs=0.01)
    assert "is still running: its GPU-hours count up to 2026-11-20 03:29 UTC" in allocations("list", as_json=False).out


def test_a_lake_without_allocations_is_told_how_they_come(allocations: Allocations, lake: Lake) -> None:
    assert "holds no allocations yet" in allocations("list").err
    write(lake, schema.GPU, samples("a", 0, 60))
    done = allocations("list")
    assert done.code == 1
    assert "holds no allocations yet; import them with `fallow allocations import`" in done.err


def test_a_file_that_cannot_be_used_is_left_out_and_said(allocations: Allocations, some: Lake) -> None:
    files = some.files("allocation")
    Path(files[-1].url).write_bytes(b"PAR1")
    write(some, schema.GPU, samples("a", 0, HOUR), "h1")
    for check in ((), ("--check",)):
        done = allocations("list", *WINDOW, *check)
        assert [each["allocation_id"] for each in done.rows("allocations")] == ["7"]
        assert f"one file of the lake is left out: {files[-1].url} is not a whole Parquet file" in done.err
    for file in files:
        Path(file.url).write_bytes(b"PAR1")
    done = allocations("list")
    assert (done.code, "hold no rows; import them again" in done.err) == (1, True)


def test_a_job_that_runs_is_not_counted_up_to_its_time_limit(allocations: Allocations, lake: Lake) -> None:
    write(lake, schema.GPU, samples("a", 0, 2 * HOUR))
    for number, end in enumerate((None, 3 * HOUR)):
        row = allocation("a", 0, end, "ann", str(number))
        limit = {"scheduler": "slurm", "planned_end": row["time"] + 10 * HOUR * 1000}
        write(lake, schema.ALLOCATION, [row | limit])
    running, over = allocations("list").rows("allocations")
    assert (running["end"], running["planned_end"]) == (None, "2026-11-20T10:00:00Z")
    assert [round(each["gpu_hours"], 1) for each in (running, over)] == [2.0, 2.0]
    assert over["end"] == "2026-11-20T03:00:00Z"


def test_a_allocation_whose_end_is_to_come_is_counted_up_to_the_newest_sample(
    allocations: Allocations, lake: Lake
) -> None:
    write(lake, schema.GPU, samples("a", 0, 2 * HOUR, every_s=3600))
    rows = [
        allocation("a", 0, 100 * HOUR),
        allocation("b", 0, HOUR / 2, allocation_id="j2"),
        allocation("c", 50 * HOUR, 60 * HOUR, allocation_id="j3"),
    ]
    write(lake, schema.ALLOCATION, rows)
    listed = allocations("list").rows("allocations")
    assert {each["allocation_id"]: each["gpu_hours"] for each in listed} == {"j1": 1.0, "j2": 0.5, "j3": 0.0}
    assert listed[0]["end"] == "2026-11-24T04:00:00Z", "the end itself is known"
    text = allocations("list", as_json=False).out.splitlines()
    assert text[0] == "3 allocations, 1.5 GPU-hours"
    note = "2 allocations end after the newest sample: their GPU-hours count up to 2026-11-20 01:00 UTC."
    assert note in " ".join(" ".join(text).split())
    assert [line.split()[9] for line in text[4:7]] == ["1.0", "0.5", "0.0"]


@pytest.mark.usefixtures("some")
def test_what_waits_and_what_was_withdrawn_is_listed_beside(allocations: Allocations, file: File) -> None:
    text = (
        "submitted,end,gpu_count,allocation_id,user,priority,project,time_limit,as_of\n"
        "2026-11-20T00:00Z,,8,r1,ann,5,mt,2h,2026-11-20T02:30Z\n"
        "2026-11-20T00:00Z,2026-11-20T01:00Z,4,r2,bob,,,,\n"
        "2026-11-21T00:00Z,,4,later,bob,,,,\n"
    )
    allocations("import", "csv", file(text))
    found = allocations("list", *WINDOW)
    assert len(found.rows("allocations")) == 3
    first, second = found.rows("requests")
    sizes = {"gpus": 8, "tasks": 1, "priority": 5, "time_limit_s": 7200}
    told = {
        "allocation_id": "r1",
        "standing": "waiting",
        "project": "mt",
        "as_of": "2026-11-20T02:30:00Z",
        "withdrawn": None,
    }
    assert first.items() >= (told | sizes).items()
    assert (second["standing"], second["withdrawn"]) == ("withdrawn", "2026-11-20T01:00:00Z")
    requests = allocations("list", "--csv", "--table", "requests", *WINDOW, as_json=False).out
    rows = list(csv.DictReader(io.StringIO(requests)))
    assert (rows[0]["allocation_id"], rows[0]["standing"], rows[0]["as_of"]) == (
        "r1",
        "waiting",
        "2026-11-20T02:30:00Z",
    )
    lines = allocations("list", *WINDOW, as_json=False).out.splitlines()
    waits = "  1 job waits for 8 GPUs, as of 2026-11-20 02:30 UTC at the latest, 1 was withdrawn without any GPU"
    assert " ".join(lines[lines.index(waits) + 2].split()) == "r1 ann 2026-11-20 00:00 UTC 2 h 30 min 8 waiting - -"


def test_a_lake_of_requests_alone_lists_them_and_an_array_is_one_line(allocations: Allocations, file: File) -> None:
    head = "JobIDRaw|JobID|State|Submit|Start|End|NodeList|ReqTRES|AllocTRES"
    waits = "4|4_[1-5%2]|PENDING|1000000000|Unknown|Unknown|None assigned|gres/gpu=2|"
    allocations("import", "slurm", file(f"{head}\n{waits}\n"))
    [array] = allocations("list").rows("requests")
    assert (array["allocation_id"], array["tasks"], array["gpus"]) == ("4", 5, 2)
    assert (
        "5 jobs wait for 10 GPUs, as of 2001-09-09 01:46 UTC at the latest\n" in allocations("list", as_json=False).out
    )
    assert "5 x 2" in allocations("list", as_json=False).out
