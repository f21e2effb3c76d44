"""Jobs of Slurm from the text of sacct: what becomes of each line, and importing again."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from analytics.allocations.slurm_output import EXPORT, duration_ms, expand, gpu_count, gpu_model, task_count
from analytics.capacity.jobs import load_jobs
from analytics.importers.times import UTC_OF_FILES
from fallow import parquet, schema
from fallow.lake import LakeFile
from tests.allocations.conftest import agent_wrote, allocation, requested, stored
from tests.lakes import holds_nothing
from tests.ledger.rows import device, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HEAD = (
    "JobIDRaw|JobID|User|Account|Partition|QOS|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NodeList|NNodes|"
    "AllocTRES|ReqTRES|JobName"
)
# as a Slurm 22.05 printed it: an array, a job without GPUs, one that waits, a name that holds the separator
PRINTED = f"""{HEAD}
1|1|root|ml|p|normal|COMPLETED|2026-11-21T04:33:43|2026-11-21T04:33:43|2026-11-21T04:33:44|2026-11-21T04:33:47|3|60|\
vm|1|billing=1,cpu=1,gres/gpu=2,node=1|billing=1,cpu=1,gres/gpu=2,mem=2000M,node=1|done|one
2|2|root|ml|p|normal|RUNNING|2026-11-21T04:33:43|2026-11-21T04:33:43|2026-11-21T04:33:44|Unknown|11|30|\
vm|1|billing=1,cpu=1,gres/gpu=1,node=1|billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|run
4|4|root|ml|p|normal|COMPLETED|2026-11-21T04:33:43|2026-11-21T04:33:43|2026-11-21T04:33:48|2026-11-21T04:33:49|1|60|\
vm|1|billing=1,cpu=1,node=1|billing=1,cpu=1,mem=2000M,node=1|nogpu
5|5|root|ml|p|normal|PENDING|2026-11-21T04:33:43|2026-11-21T04:33:43|Unknown|Unknown|0|Partition_Limit|\
None assigned|1||billing=1,cpu=1,gres/gpu=4,mem=2000M,node=1|pend
6|3_1|root|ml|p|normal|RUNNING|2026-11-21T04:33:43|2026-11-21T04:33:44|2026-11-21T04:33:44|Unknown|11|30|\
vm|1|billing=1,cpu=1,gres/gpu=1,node=1|billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|arr
"""
AT = 1_795_235_624_000  # 04:33:44
NAMED = "JobIDRaw|Start|End|NodeList|AllocTRES|JobName"


def sacct(*jobs: str, head: str = "JobIDRaw|Start|End|NodeList|AllocTRES") -> str:
    return "\n".join([head, *jobs]) + "\n"


@pytest.fixture
def write_text(allocations: Allocations, file: File) -> Allocations:
    """Imports a text of sacct."""
    return lambda text, *flags: allocations("import", "slurm", file(text), *flags)


def test_what_slurm_prints_becomes_allocations(write_text: Allocations, lake: Lake) -> None:
    done = write_text(PRINTED)
    assert (done.counts, done.counts_of("request"), done.dropped) == ((3, 0, 0), (1, 0, 0), {"no GPU": 1})
    assert done.said("running", "as_of", "timezone") == (
        2,
        "2026-11-21T04:33:49Z",
        "UTC (assumed) for times without an offset",
    )
    named = {
        "scheduler": "slurm",
        "user": "root",
        "account": "ml",
        "partition": "p",
        "qos": "normal",
        "eligible": AT - 1000,
    }
    shared = named | {"host": "vm", "submitted": AT - 1000, "time": AT, "host_count": 1}
    assert stored(lake) == [
        shared | {"allocation_id": "1", "end": AT + 3000, "gpu_count": 2, "host_gpu_count": 2, "name": "done|one",
                  "state": "COMPLETED", "planned_end": AT + 3_600_000, "time_limit_s": 3600},
        shared | {"allocation_id": "2", "gpu_count": 1, "host_gpu_count": 1, "name": "run", "state": "RUNNING",
                  "planned_end": AT + 1_800_000, "time_limit_s": 1800},
        shared | {"allocation_id": "6", "gpu_count": 1, "host_gpu_count": 1, "name": "arr", "state": "RUNNING",
                  "planned_end": AT + 1_800_000, "time_limit_s": 1800, "eligible": AT},
    ]  # fmt: skip
    waits = {"allocation_id": "5", "name": "pend", "state": "PENDING", "time": AT - 1000, "as_of": AT + 5000}
    assert requested(lake) == [named | waits | {"host": "slurm", "gpu_count": 4, "task_count": 1, "host_count": 1}]


def as_json(*, nested: bool) -> str:
    """PRINTED as `sacct --json` gives it: numbers and states nested since Slurm 22.05 and 23.02, plain before."""

    def number(value: int | None) -> Any:
        return {"set": value is not None, "infinite": value is None, "number": value or 0} if nested else value or 0

    def job(job_id: int, state: str, times: tuple[int, int, int], *facts: Any) -> Any:
        limit, nodes, tres, title = facts
        start, end, elapsed = times
        counts = [(*key.partition("/")[::2], int(n)) for key, n in (each.split("=") for each in tres.split(","))]
        entries = [{"type": kind, "name": name, "count": n} for kind, name, n in counts]
        return {
            "job_id": job_id, "name": title, "user": "root", "account": "ml", "partition": "p", "qos": "normal",
            "nodes": nodes, "state": {"current": [state] if nested else state, "reason": "None"},
            "time": {"submission": at - 1, "eligible": at - (job_id != 6), "start": start, "end": end,
                     "elapsed": elapsed, "limit": number(limit)},
            "tres": {"allocated": entries if nodes == "vm" else [], "requested": entries},
            "steps": [{"step": {"id": f"{job_id}.batch"}}],
        }  # fmt: skip

    at = AT // 1000
    jobs = [
        job(1, "COMPLETED", (at, at + 3, 3), 60, "vm", "billing=1,cpu=1,gres/gpu=2,node=1", "done|one"),
        job(2, "RUNNING", (at, 0, 11), 30, "vm", "cpu=1,gres/gpu=1,node=1", "run"),
        job(4, "COMPLETED", (at + 4, at + 5, 1), 60, "vm", "cpu=1,node=1", "nogpu"),
        job(5, "PENDING", (0, 0, 0), None, "None assigned", "cpu=1,gres/gpu=4,node=1", "pend"),
        job(6, "RUNNING", (at, 0, 11), 30, "vm", "cpu=1,gres/gpu=1,node=1", "arr"),
    ]
    return json.dumps({"meta": {"Slurm": {}}, "jobs": jobs, "errors": [], "warnings": []})


@pytest.mark.parametrize("nested", [False, True])
def test_json_of_sacct_is_the_same_as_its_text(write_text: Allocations, lake: Lake, *, nested: bool) -> None:
    assert write_text(PRINTED).counts == (3, 0, 0)
    known = stored(lake)
    done = write_text(as_json(nested=nested), "--time-zone", "Europe/Paris")
    assert (done.counts, done.counts_of("request"), done.dropped) == ((0, 3, 0), (0, 1, 0), {"no GPU": 1})
    assert stored(lake) == known
    assert done.said("timezone") == (UTC_OF_FILES,)


QUEUE = (
    "JobIDRaw|JobID|WCKey|Priority|State|Reason|Submit|Eligible|Start|End|TimelimitRaw|"
    "NodeList|NNodes|AllocTRES|ReqTRES"
)
S = 1_000_000_000


def queued(*jobs: str) -> str:
    """Jobs that were submitted at S, by id, JobID, priority, state, reason, start, end, and GPUs."""
    lines = []
    for job in jobs:
        number, name, priority, state, reason, start, end, gpus = job.split("|")
        first, nodes = f"{number}|{name}|*|{priority}|{state}", "n1" if state == "RUNNING" else "None assigned"
        lines.append(f"{first}|{reason}|{S}|{S + 5}|{start}|{end}|60|{nodes}|2||node=2,gres/gpu:h100={gpus}")
    return sacct(*lines, head=QUEUE)


def test_what_waits_is_a_request_until_it_begins(write_text: Allocations, lake: Lake) -> None:
    runs, array = f"1|1|9|RUNNING|None|{S}|Unknown|2", "3|3_[{}-5%2]|7|PENDING|Priority|Unknown|Unknown|1"
    first = queued(runs, f"2|2|0|PENDING|JobHeldUser|{S + 900}|Unknown|4", array.format(1))
    done = write_text(first)
    assert (done.counts, done.counts_of("request"), done.json["waiting"]) == ((1, 0, 0), (2, 0, 0), 6)
    when = {"time": S * 1000, "eligible": (S + 5) * 1000, "as_of": S * 1000, "time_limit_s": 3600, "host_count": 2}
    shared = {"host": "slurm", "scheduler": "slurm", "state": "PENDING", "gpu_model": "h100", **when}
    assert requested(lake) == [
        shared | {"allocation_id": "2", "priority": 0, "reason": "JobHeldUser", "gpu_count": 4, "task_count": 1},
        shared | {"allocation_id": "3", "priority": 7, "reason": "Priority", "gpu_count": 1, "task_count": 5},
    ]
    assert write_text(first).counts_of("request") == (0, 2, 0)
    gone = f"2|2|0|CANCELLED by 7|JobHeldUser|None|{S + 60}|4"
    later = queued(runs, gone, array.format(3), f"4|3_1|7|RUNNING|None|{S + 50}|Unknown|1")
    done = write_text(later)
    assert (done.counts_of("request"), done.said("waiting", "withdrawn")) == ((2, 0, 0), (3, 1))
    assert write_text(first).counts_of("request") == (0, 2, 0)  # in any order
    jobs = load_jobs(lake).select("job", "gpus", "priority", "start", "withdrawn", "as_of").rows()
    assert jobs == [
        ("1", 2, 9, S * 1000, None, None),
        ("4", 1, 7, (S + 50) * 1000, None, None),
        ("2", 4, 0, None, (S + 60) * 1000, (S + 60) * 1000),
        *[("3", 1, 7, None, None, (S + 60) * 1000)] * 3,
    ]
    # a later export says no more of what was withdrawn
    assert write_text(queued(gone, f"1|1|9|RUNNING|None|{S + 900}|Unknown|2")).counts_of("request") == (0, 1, 0)


def test_what_is_over_without_an_end_is_no_request(write_text: Allocations) -> None:
    over = ("2|2|0|CANCELLED|None|None|Unknown|4", f"3|3|0|CANCELLED|None|None|{S - 60}|4")
    unknown, before = "ended before it started, at an unknown time", "ended before it was submitted"
    assert write_text(queued(*over, "4|4|0|PENDING|None|None|Unknown|4")).dropped == {unknown: 1, before: 1}
    assert f"1 left out: {unknown}; 1 left out: {before}" in write_text(queued(*over)).err


@pytest.mark.parametrize("task", ["0x3E", "1-5%2"])
def test_an_array_in_json_counts_its_tasks(write_text: Allocations, lake: Lake, task: str) -> None:
    content = json.loads(as_json(nested=True))
    array = {"job_id": 5, "task": task, "task_id": None}
    priority = {"set": True, "infinite": False, "number": 0}
    content["jobs"][3] |= {"array": array, "wckey": {"wckey": "proj", "flags": []}, "priority": priority}
    write_text(json.dumps(content))
    [row] = requested(lake)
    assert (row["task_count"], row["project"], row["priority"]) == (5, "proj", 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"jobs": [', "is not the JSON of sacct"),
        ('{"jobs": [{"job_id": 1}]}', "is not the JSON of sacct: it lacks the field 'time'"),
        ('{"jobs": [], "errors": ["no connection to slurmdbd"]}', "sacct reported an error: no connection to slurmdbd"),
        (as_json(nested=True).replace('"vm"', '"vm[1-"'), "job 1: 'vm[1-' is not a list of hosts"),
    ],
)
def test_json_that_cannot_be_used_is_named(write_text: Allocations, text: str, said: str) -> None:
    done = write_text(text)
    assert (done.code, said in done.err) == (1, True), done.err


KINDS: dict[str, dict[str, int | None]] = {
    "{}.batch|1000000000|1000000060|n1|gres/gpu=1": {},
    "{}|Unknown|1000000060|None assigned|gres/gpu=1": {},
    "{}|None|None|None assigned|": {},
    "{}|1000000000|1000000000|n1|gres/gpu=1": {},
    "{}|1000000000|1000000060|n1|cpu=4,gres/gpumem=3,gres/gpuutil=5": {},
    "{}|1000000000|1000000060|n1|gres/gpu:h100=8,gres/gpu=8": {"n1": 8},
    "{}|1000000000|1000000060|n1|gres/gpu:a100_1g.10gb=2,gres/gpu:a100=1,gres/gpu=3": {"n1": 3},
    "{}|1000000000|1000000060|n1|gres/gpu:a100_1g.10gb=2,gres/gpu:a100=1": {"n1": 3},
    "{}|1000000000|1000000060|gn[001-003,7]|gres/gpu=8": dict.fromkeys(("gn001", "gn002", "gn003", "gn7"), 2),
    "{}|1000000000|1000000060|gn[1-2],z|gres/gpu=4": dict.fromkeys(("gn1", "gn2", "z")),
}
"""Lines by the hosts and the numbers of GPUs that become of them."""


def test_each_kind_of_line(write_text: Allocations, lake: Lake) -> None:
    lines = [line.format(number) for number, line in enumerate(KINDS)]
    assert write_text(sacct(*(line for line, kept in zip(lines, KINDS.values(), strict=True) if not kept))).code == 1
    assert holds_nothing(lake)
    assert write_text(sacct(*lines)).code == 0
    found: dict[str, dict[str, int | None]] = {str(number): {} for number in range(len(KINDS))}
    for row in stored(lake):
        found[row["allocation_id"]][row["host"]] = row.get("host_gpu_count")
    assert found == {str(number): kept for number, kept in enumerate(KINDS.values())}
    assert {row["time"] for row in stored(lake)} == {1_000_000_000_000}


def test_steps_columns_in_any_order_and_lines_that_end_in_a_separator(write_text: Allocations, lake: Lake) -> None:
    done = write_text(
        "End|JobID|Comment|Timelimit|NodeList|ReqTRES|Start|State|\n"
        "2026-11-20T11:00:00|12_4|x|1-02:00:00|n1|gres/gpu=1|2026-11-20T10:00:00|CANCELLED by 1000|\n"
        "2026-11-20T11:00:00|12_4.batch|x||n1|gres/gpu=1|2026-11-20T10:00:00|CANCELLED|\n"
        "2026-11-20T11:00:00|13+0|x|UNLIMITED|n1|gres/gpu=1|2026-11-20T10:00:00|TIMEOUT|\n"
    )
    assert done.dropped == {"step of a job": 1}
    assert "JobIDRaw" in done.notes[0]
    one, other = stored(lake)
    assert (one["allocation_id"], one["state"], one["planned_end"] - one["time"]) == (
        "12_4",
        "CANCELLED",
        26 * 3_600_000,
    )
    assert (other["allocation_id"], other["state"], other.get("planned_end")) == ("13+0", "TIMEOUT", None)


def test_a_name_with_a_line_end_where_it_stands_last(write_text: Allocations, lake: Lake) -> None:
    jobs = ("7|1000000000|1000000060|n1|gres/gpu=1|two", "lines", "42", "8|1000000000|1000000060|n1|gres/gpu=1|one")
    write_text(sacct(*jobs, head=NAMED))
    assert [row["name"] for row in stored(lake)] == ["two", "one"]


@pytest.mark.parametrize(
    ("zone", "times"),
    [
        ("UTC", "2026-11-20T10:00:00|2026-11-20T11:00:00"),
        ("Europe/Paris", "2026-11-20T11:00:00|2026-11-20T12:00:00"),
        ("Europe/Paris", "2026-11-20T11:00:00+0100|2026-11-20T16:30:00+05:30"),
        ("Europe/Paris", "2026-11-20T10:00:00Z|1795172400"),
    ],
)
def test_times_are_the_clusters(write_text: Allocations, lake: Lake, zone: str, times: str) -> None:
    write_text(sacct(f"7|{times}|n1|gres/gpu=1"), "--time-zone", zone)
    (row,) = stored(lake)
    assert (row["time"], row["end"]) == (1_795_168_800_000, 1_795_172_400_000)


@pytest.mark.parametrize(
    ("times", "minutes"),
    [
        ("02:10|02:50|2400", (10, 50)),
        ("02:10|02:50|6000", (10, 110)),
        ("02:50|02:10|", (50, 70)),
        ("02:10|02:50|", (10, 50)),
        ("02:30|03:30|3600", (90, 150)),
        ("02:30|03:30|7200", (30, 150)),
        ("01:30|02:30|7200", (-30, 90)),
    ],
)
def test_the_hour_that_summer_time_repeats_goes_by_the_elapsed_time(
    write_text: Allocations, lake: Lake, times: str, minutes: tuple[int, int]
) -> None:
    midnight = 1_792_886_400_000  # 2026-10-25 00:00 UTC is 02:00 in Paris, and so is 01:00 UTC
    start, end, elapsed = times.split("|")
    job = f"7|2026-10-25T{start}:00|2026-10-25T{end}:00|{elapsed}|n1|gres/gpu=1"
    head = "JobIDRaw|Start|End|ElapsedRaw|NodeList|AllocTRES"
    done = write_text(sacct(job, head=head), "--time-zone", "Europe/Paris")
    assert "in the hour that Europe/Paris repeats" in done.notes[0]
    (row,) = stored(lake)
    assert ((row["time"] - midnight) // 60_000, (row["end"] - midnight) // 60_000) == minutes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("squeue\nno such thing\n", "begins neither with the header line"),
        ("JobID|Start|End|NodeList\n", "lacks the column AllocTRES"),
        ("JobIDRaw|JobIDRaw|Start|End|NodeList|AllocTRES\n", "names a column twice"),
        (sacct("7|1|2"), "line 2: 3 fields where the header names 5"),
        (
            sacct("7|yesterday|Unknown|n1|gres/gpu=1"),
            "Start is not a time, or one that UTC skips: line 2 ('yesterday')",
        ),
        (sacct("7|1000000000|soon|n1|gres/gpu=1"), "End is not a time"),
        (sacct("7|1000000000|Unknown|n1|gres/gpu=many"), "line 2: 'gres/gpu=many' is not a count"),
        (sacct("7|1000000000|Unknown|n[3-1]|gres/gpu=1"), "line 2: '3-1' is not a range of numbers"),
        (sacct("7|1000000000|Unknown||gres/gpu=1"), "line 2: the job has GPUs and no node"),
        (sacct("7|1000000000|Unknown|n1|gres/gpu=9999999999"), "line 2: 'gres/gpu=9999999999' counts more GPUs than"),
        (sacct("7|1900-01-01T00:00:00|Unknown|n1|gres/gpu=1"), "Start is not in the years 2000 to 9999: line 2 ('1900"),
        (sacct("7|9999-01-01T00:00:00|Unknown|n1|gres/gpu=1"), "Start is after the year 5137: line 2 ('9999"),
        (sacct("7|1000000000|Unknown|n1|gres/gpu=1|x", "8", head=NAMED).rstrip("\n"), "line 3: 1 fields where"),
    ],
)
def test_what_cannot_be_used_is_named_and_nothing_is_written(
    allocations: Allocations, file: File, lake: Lake, text: str, said: str
) -> None:
    done = allocations("import", "slurm", file(sacct("7|1000000000|Unknown|n1|gres/gpu=1"), "good.txt"), file(text))
    assert (done.code, done.out) == (1, "")
    assert all(part in done.err for part in (said, "allocations.txt", "; "))  # what, where, and the remedy
    assert holds_nothing(lake)


def test_the_command_of_a_remedy_is_whole(allocations: Allocations, file: File) -> None:
    assert allocations("import", "slurm", file("JobID|Start\n")).err.endswith(f"export it with: {EXPORT}\n")


def test_zones_that_cannot_be_are_named(write_text: Allocations) -> None:
    done = write_text(sacct("7|2026-03-29T02:30:00|Unknown|n1|gres/gpu=1"), "--tz", "Europe/Paris")
    assert (done.code, "skips: line 2" in done.err) == (1, True)
    done = write_text(PRINTED, "--time-zone", "Europe/Pari")
    said = "fallow: --time-zone: there is no time zone 'Europe/Pari'; did you mean Europe/Paris?\n"
    assert (done.code, done.err) == (2, said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is nothing to read"),
        (["x", "--live"], "either files or --live"),
        (["x", "--since", "7d"], "--since and --sacct are for --live"),
        (["--live", "--time-zone", "UTC"], "no effect with --live"),
    ],
)
def test_wrong_use(allocations: Allocations, arguments: list[str], said: str) -> None:
    done = allocations("import", "slurm", *arguments)
    assert (done.code, said in done.err) == (2, True), done.err


def test_gzip_and_several_files_that_overlap(allocations: Allocations, file: File, tmp_path: Path, lake: Lake) -> None:
    older = file(sacct("7|1000000000|Unknown|n1|gres/gpu=1", "8|1000000000|Unknown|n1|gres/gpu=1"), "older.txt")
    newer = tmp_path / "newer.txt.gz"
    newer.write_bytes(gzip.compress(sacct("8|1000000000|1000000060|n1|gres/gpu=1").encode()))
    for order in ((older, newer), (newer, older)):
        assert allocations("import", "slurm", *order).code == 0
        assert [row.get("end") for row in stored(lake)] == [None, 1_000_000_060_000]


def test_importing_again_replaces_and_never_doubles(allocations: Allocations, file: File, lake: Lake) -> None:
    head = "JobIDRaw|Start|End|State|QOS|NodeList|AllocTRES"
    running = file(sacct("7|1000000000|Unknown|RUNNING|high|n[1-2]|gres/gpu=2", head=head), "a")
    ended, next_one = "7|1000000000|1000000060|FAILED||n[1-2]|gres/gpu=2", "9|1000003600|Unknown|RUNNING||n1|gres/gpu=1"
    over = file(sacct(ended, next_one, head=head), "b")
    assert allocations("import", "slurm", running).counts == (2, 0, 0)
    assert allocations("import", "slurm", running).counts == (0, 2, 0)
    assert allocations("import", "slurm", over).counts == (1, 0, 2)
    before = [file.key for file in lake.all_files("allocation")]
    assert allocations("import", "slurm", over).counts == (0, 3, 0)
    assert allocations("import", "slurm", running).counts == (0, 2, 0)  # an older export knows nothing better
    assert [file.key for file in lake.all_files("allocation")] == before
    first_two = [(row["host"], row["state"], row["qos"], row["end"]) for row in stored(lake)[:2]]
    assert first_two == [(host, "FAILED", "high", 1_000_000_060_000) for host in ("n1", "n2")]


def test_allocations_of_an_agent_in_the_same_folder_stay(write_text: Allocations, lake: Lake) -> None:
    row = allocation("GPU-a", 1_000_000_000_000, None, "ml/pod", scheduler="kubernetes")
    agent_wrote(lake, "n1", row, date="2001-09-09")
    for last in ("Unknown", "1000000060"):
        write_text(sacct(f"7|1000000000|{last}|n1|gres/gpu=1", "8|1000000500|Unknown|n1|gres/gpu=1"))
        assert [each["allocation_id"] for each in stored(lake)] == ["7", "8", "ml/pod"]
    assert len(lake.all_files("allocation")) == 2


def test_a_crash_between_the_new_file_and_the_end_of_the_old_one_doubles_nothing(
    write_text: Allocations, lake: Lake
) -> None:
    write_text(sacct("7|1000000000|Unknown|n1|gres/gpu=1"))
    (old,) = lake.files("allocation")
    kept = parquet.encode(schema.ALLOCATION, parquet.read([old], schema.ALLOCATION).drop_columns(["host"]))
    write_text(sacct("7|1000000000|Unknown|n1|gres/gpu=1", "8|1000000500|Unknown|n1|gres/gpu=1"))
    lake.put(LakeFile("allocation", old.date, old.host, old.first_seq, old.last_seq), kept)
    assert [row["allocation_id"] for row in stored(lake)] == ["7", "8"]


def test_a_broken_file_of_the_lake_is_found_before_anything_is_written(write_text: Allocations, lake: Lake) -> None:
    write_text(sacct("7|1000000000|Unknown|n2|gres/gpu=1"))
    (there,) = lake.files("allocation")
    lake.put(there, b"PAR1 no longer")
    done = write_text(sacct("7|1000000000|Unknown|n[1-2]|gres/gpu=2"))
    assert (done.code, "is not a whole Parquet file" in done.err) == (1, True)
    assert [each.host for each in lake.all_files("allocation")] == ["n2"]


@pytest.mark.parametrize(
    ("hosts", "suffix", "named"),
    [
        (["gn1.cluster.example"], "", "gn1.cluster.example"),
        (["GN1"], "", "GN1"),
        (["gn1", "gn1.cluster.example"], "", "gn1"),
        (["gn1.a.example", "gn1.b.example"], "", "gn1"),  # nobody can tell which
        (["gn1.a.example", "gn1.b.example"], ".b.example", "gn1.b.example"),
    ],
)
def test_nodes_are_the_lakes_hosts(
    write_text: Allocations, lake: Lake, hosts: list[str], suffix: str, named: str
) -> None:
    for number, host in enumerate(hosts):
        write(lake, schema.DEVICE, [device(f"GPU-{number}")], host)
    write_text(sacct("7|1000000000|Unknown|gn1|gres/gpu=1"), *([f"--host-suffix={suffix}"] if suffix else []))
    assert [row["host"] for row in stored(lake)] == [named]


def test_a_cluster_that_does_not_account_for_gpus_is_told_how(allocations: Allocations, file: File) -> None:
    done = allocations("import", "slurm", file(sacct("7|1000000000|Unknown|n1|cpu=4")))
    assert (done.code, "AccountingStorageTRES" in done.err) == (1, True)


GRES = "JobIDRaw|Start|End|NodeList|AllocTRES|AllocGRES\n7|1000000000|1000000060|n1|cpu=4|gpu:2\n"
PLAIN = sacct("7|1000000000|1000000060|n1|gres/gpu=2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRES, "1 left out: GPUs in AllocGRES or ReqGRES alone, which this import does not count"),
        (PLAIN.replace("|", ","), "its fields are separated by commas, which fields of sacct contain"),
        ("sacct: error: Connection refused\n", "it begins with 'sacct: error: Connection refused'"),
        (
            '{"jobs": [{"job_id": 7, "job_state": "RUNNING"}]}',
            "it is that of squeue or scontrol, which --scontrol reads",
        ),
    ],
)
def test_the_true_reason_is_said(write_text: Allocations, text: str, said: str) -> None:
    done = write_text(text)
    assert (done.code, said in done.err) == (1, True), done.err


@pytest.mark.parametrize(
    "text",
    [PLAIN.replace("|", ";"), PLAIN.replace("|", "\t"), PLAIN.replace("Raw|", "Raw|JobID|").replace("7|", "|7|")],
)
def test_other_separators_are_read_and_an_empty_id_is_none(write_text: Allocations, lake: Lake, text: str) -> None:
    assert write_text(text).code == 0
    assert [(row["allocation_id"], row["gpu_count"]) for row in stored(lake)] == [("7", 2)]


READ = {
    expand: {
        "a,b": ("a", "b"), "a,a": ("a",), "gn[001-003,007],x1": ("gn001", "gn002", "gn003", "gn007", "x1"),
        "r[1-2]n[08-09]": ("r1n08", "r1n09", "r2n08", "r2n09"), "n[9-10].example": ("n9.example", "n10.example"),
    },
    duration_ms: {"00:30:00": 1_800_000, "2-12:30:15": 217_815_000, "05:00": 300_000, "UNLIMITED": None, "60": None},
    gpu_count: {"": None, "gres/gpu=0": None, "gres/gpu:a=2,gres/gpu:b=1": 3, "cpu=1,gres/gpu:a=2,gres/gpu=2": 2},
    gpu_model: {"cpu=1,gres/gpu:h100=4,gres/gpu=4": "h100", "gres/gpu=1": None, "gres/gpu:a=1,gres/gpu:b=2": None},
    task_count: {
        "4_[1-5%2]": 5, "4_[1-5,7,9-20:5]": 9, "4": 1, "4_3": 1, "4+0": 1, "4_[1-3,...]": None, "4_[5-1]": 0,
    },
}  # fmt: skip
"""Words of Slurm's, and what they say."""


@pytest.mark.parametrize("read", READ, ids=lambda read: read.__name__)
def test_words_of_slurm(read: Callable[[str], object]) -> None:
    assert {text: read(text) for text in READ[read]} == READ[read]


@pytest.mark.parametrize(
    "text",
    ["", "a,", "[", "a[1-2", "a]1[", "a[x-y]", "a[1-99999999]", "a[1-60000]b[1-60000]", "a[1-60000],b[1-60000]", "a[]"],
)
def test_what_is_no_host_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|names more than"):
        expand(text)


def test_a_plus_in_a_name_becomes_a_backslash(write_text: Allocations, lake: Lake) -> None:
    job = "7|2026-11-20T10:00:00|2026-11-20T11:00:00|n1|gres/gpu=1|CORP+ann|r+d"
    write_text(sacct(job, head="JobIDRaw|Start|End|NodeList|AllocTRES|User|Account"))
    (row,) = stored(lake)
    assert (row["user"], row["account"]) == ("CORP\\ann", "r\\d")


def test_a_job_that_ends_before_it_starts_is_named(write_text: Allocations) -> None:
    done = write_text(sacct("7|1000000060|1000000000|n1|gres/gpu=1", "8|1000000000|1000000060|n1|gres/gpu=1"))
    assert done.counts == (1, 0, 0)
    assert done.dropped == {"ends before it starts (line 2)": 1}


@pytest.mark.parametrize(
    ("state", "nodes"),
    [*(("FAILED", each) for each in ("None assigned", "None", "Unknown", "(null)")), ("PENDING", "None assigned")],
)
def test_a_job_that_never_had_a_node_did_not_begin_and_its_expected_start_is_not_the_time_of_the_export(
    write_text: Allocations, nodes: str, state: str
) -> None:
    waits = f"7|{state}|1000000900|{'1000000900' if state == 'FAILED' else 'Unknown'}|{nodes}|gres/gpu=1"
    runs = "8|RUNNING|1000000000|1000000060|n1|gres/gpu=1"
    done = write_text(sacct(waits, runs, head="JobIDRaw|State|Start|End|NodeList|AllocTRES"))
    assert (done.counts, done.dropped) == ((1, 0, 0), {"did not start, and the export lacks its Submit": 1})
    assert done.json["as_of"] == ("2001-09-09T02:01:40Z" if state == "FAILED" else "2001-09-09T01:47:40Z")


@pytest.mark.parametrize(
    ("state", "elapsed", "end"),
    [
        ("COMPLETED", "60", 60_000),
        ("CANCELLED by 1000", "60", 60_000),
        ("COMPLETED", "", None),
        ("RUNNING", "60", None),
        ("COMPLETING", "60", None),
        ("SUSPENDED", "60", None),
    ],
)
def test_a_job_that_is_over_and_has_no_end_ends_after_its_elapsed_time(
    write_text: Allocations, lake: Lake, state: str, elapsed: str, end: int | None
) -> None:
    head = "JobIDRaw|State|Start|End|ElapsedRaw|NodeList|AllocTRES"
    done = write_text(sacct(f"7|{state}|1000000000|Unknown|{elapsed}|n1|gres/gpu=1", head=head))
    (row,) = stored(lake)
    assert row.get("end") == (None if end is None else 1_000_000_000_000 + end)
    over = state.startswith("C") and state != "COMPLETING"
    assert ("ended jobs have no End" in "".join(done.notes)) == over
    assert ("1 of them have no ElapsedRaw" in "".join(done.notes)) == (over and end is None)


def test_jobs_with_shares_of_gpus_are_no_mistake_of_the_cluster(write_text: Allocations) -> None:
    shares = ("7|1000000000|1000000060|n1|cpu=4,gres/shard=2", "8|1000000000|1000000060|n1|gres/mps:a100=50")
    done = write_text(sacct(*shares, "9|1000000000|1000000060|n1|cpu=4"))
    assert (done.counts, done.dropped) == ((2, 0, 0), {"no GPU": 1})
    assert done.notes == ["2 jobs have shares of GPUs (gres/shard, gres/mps): no whole GPU counts as theirs"]
