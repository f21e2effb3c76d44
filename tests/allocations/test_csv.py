"""Allocations from a site's own table, and ones that come again at other times because of another time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from analytics.allocations.csv_file import COLUMNS
from analytics.importers.times import UTC_OF_FILES
from fallow import schema
from fallow.pseudonyms import Pseudonyms
from tests.allocations.conftest import agent_wrote, allocation, requested, stored
from tests.lakes import holds_nothing
from tests.ledger.rows import device, write

if TYPE_CHECKING:
    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

START = 1_795_168_800_000  # 2026-11-20 10:00 UTC
HOUR = 3_600_000


def table(*lines: str) -> str:
    """A file with every column; each line as `name=value` joined by `|`."""
    cells = (dict(each.split("=", 1) for each in line.split("|")) for line in lines)
    rows = [",".join(COLUMNS), *(",".join(row.get(name, "") for name in COLUMNS) for row in cells)]
    return "\n".join(rows) + "\n"


def test_every_column(allocations: Allocations, file: File, lake: Lake) -> None:
    write(lake, schema.DEVICE, [device("GPU-a")], "gn1.example")
    workshop = "start=2026-11-20T10:00Z|user=ann|account=ml|allocation_id=r1|name=Workshop|partition=train|qos=high"
    text = table(
        f"{workshop}|end=2026-11-20T11:00Z|gpu=GPU-a|submitted=2026-11-19T10:00Z|eligible=2026-11-19T11:00Z|"
        "time_limit=2h|priority=0|project=p|gpu_model=h100|state=done",
        f"{workshop}|host=gn2|gpu_count=2",
        'start=2026-11-20 12:00|gpu=GPU-x|host=gn3|account="a ""b"", c"',
    )
    done = allocations("import", "csv", file(text), "--time-zone", "Europe/Paris")
    assert done.counts == (3, 0, 0)
    shared = {
        "scheduler": "csv",
        "account": "ml",
        "user": "ann",
        "name": "Workshop",
        "partition": "train",
        "qos": "high",
    }
    assert stored(lake) == [
        {"host": "gn3", "gpu": "GPU-x", "time": START + HOUR, "scheduler": "csv", "account": 'a "b", c', "gpu_count": 1,
         "allocation_id": 'a "b", c@2026-11-20T11:00:00Z'},
        shared | {"host": "gn1.example", "gpu": "GPU-a", "time": START, "end": START + HOUR, "allocation_id": "r1",
                  "gpu_count": 3, "submitted": START - 24 * HOUR, "eligible": START - 23 * HOUR,
                  "planned_end": START + 2 * HOUR, "time_limit_s": 7200, "priority": 0, "project": "p",
                  "gpu_model": "h100", "state": "done"},
        shared | {"host": "gn2", "time": START, "allocation_id": "r1", "gpu_count": 3, "host_gpu_count": 2},
    ]  # fmt: skip
    assert allocations("import", "csv", file(text), "--time-zone", "Europe/Paris").counts == (0, 3, 0)


def test_a_line_without_a_start_is_a_request(allocations: Allocations, file: File, lake: Lake) -> None:
    text = table(
        "submitted=2026-11-20T10:00Z|gpu_count=16|allocation_id=r1|user=ann|time_limit=7d|priority=5|gpu_model=h100|"
        "state=queued",
        "submitted=2026-11-20T11:00Z|gpu_count=4|allocation_id=r2|end=2026-11-20T12:00Z",
        "submitted=2026-11-20T11:00Z|gpu_count=1|allocation_id=r3|as_of=2026-11-21T11:00Z",
        "start=2026-11-20T10:00Z|submitted=2026-11-20T09:00Z|host=h1|gpu_count=1|allocation_id=r0",
    )
    done = allocations("import", "csv", file(text))
    assert (done.counts, done.counts_of("request")) == ((1, 0, 0), (3, 0, 0))
    assert (done.json["waiting"], done.json["withdrawn"]) == (2, 1)
    shared = {"scheduler": "csv", "host": "csv", "task_count": 1}
    assert requested(lake) == [
        shared | {"allocation_id": "r1", "time": START, "as_of": START + 2 * HOUR, "gpu_count": 16, "user": "ann",
                  "priority": 5, "time_limit_s": 604_800, "gpu_model": "h100", "state": "queued"},
        shared | {"allocation_id": "r2", "time": START + HOUR, "as_of": START + 2 * HOUR, "gpu_count": 4,
                  "withdrawn": START + 2 * HOUR},
        shared | {"allocation_id": "r3", "time": START + HOUR, "as_of": START + 25 * HOUR, "gpu_count": 1},
    ]  # fmt: skip
    assert allocations("import", "csv", file(text)).counts_of("request") == (0, 3, 0)


def test_users_of_requests_are_pseudonyms_too(allocations: Allocations, file: File, lake: Lake) -> None:
    key = file("0123456789abcdef" * 4 + "\n", "key")
    key.chmod(0o600)
    text = table("submitted=2026-11-20T10:00Z|gpu_count=16|allocation_id=r1|user=ann")
    assert allocations("import", "csv", file(text), "--pseudonym-key", key).counts_of("request") == (1, 0, 0)
    assert [row["user"] for row in requested(lake)] == [Pseudonyms.load(str(key)).of("ann")]


def test_a_row_that_came_again_with_its_end_replaces(allocations: Allocations, file: File, lake: Lake) -> None:
    for end, counts in (("", (1, 0, 0)), ("2026-11-20T11:00Z", (0, 0, 1)), ("2026-11-20T12:00Z", (0, 0, 1))):
        text = f"start;end;gpu;host;allocation_id\n2026-11-20T10:00Z;{end};GPU-a;h1;r1\n"
        done = allocations("import", "csv", file(text), "--time-zone", "Europe/Paris")
        assert (done.counts, done.said("timezone")) == (counts, (UTC_OF_FILES,))
    assert [row["end"] - START for row in stored(lake)] == [2 * HOUR]


def test_cells_that_state_nothing_and_the_line_of_a_spreadsheet_are_none(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    text = "sep=;\nstart;end;gpu;gpu_count;host\n2026-11-20T10:00Z;-;N/A;2;h1\n"
    assert allocations("import", "csv", file(text)).counts == (1, 0, 0)
    assert [(row.get("end"), row.get("gpu"), row["gpu_count"]) for row in stored(lake)] == [(None, None, 2)]


REQUEST, LATER = (
    "submitted,gpu_count,allocation_id",
    "line 2: a request (it has no start) needs gpu_count and allocation_id",
)
COUNT = "line 2: gpu_count is not a whole number from 1 to 10,000"
YEARS = "is not in the years 2000 to 9999"
QUOTE = "a double quote opens a field, which"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start,gpu,hots\n", "a column 'hots', which no allocation has; did you mean 'host'?"),
        ("start,start,gpu\n", "names a column twice"),
        ('[{"start": "2026-11-20"}]', "is JSON or XML, not a table"),
        ("start,host\n", "lacks the columns of an allocation; it needs start, and gpu, or host and gpu_count"),
        ("gpu,host\n", "lacks the columns of an allocation"),
        (f"{REQUEST}\n2026-11-20,,r\n", LATER),
        (f"{REQUEST}\n2026-11-20,2,\n", LATER),
        (f"{REQUEST},gpu\n2026-11-20,2,r,a\n", LATER),
        (f"{REQUEST}\n2026-11-20,0,r\n", COUNT),
        (f"{REQUEST}\n,2,r\n", "line 2: no start"),
        (f"{REQUEST},end\n2026-11-20,2,r,2026-11-19\n", "line 2: it is withdrawn before it was submitted"),
        (f"{REQUEST},as_of\n2026-11-20,2,r,2026-11-19\n", "line 2: as_of is before it was submitted"),
        ("start,gpu,host,priority\n2026-11-20,a,h,high\n", "line 2: priority is not a whole number"),
        ("start,gpu,host,time_limit\n2026-11-20,a,h,7\n", "line 2: time_limit is not a duration such as 36h or 7d"),
        ("start,gpu\n1,2,3\n", "line 2: 3 fields where the header names 2"),
        ("start,gpu,host\n,a,h\n", "line 2: no start"),
        ("start,end,gpu,host\n2026-11-20T10:00,2026-11-20T09:00,a,h\n", "line 2: it ends before it starts"),
        ("start,gpu,host,gpu_count\n2026-11-20,,h,\n", "line 2: neither gpu, nor host and gpu_count"),
        ("start,host,gpu_count\n2026-11-20,h,two\n", COUNT),
        ("start,host,gpu_count\n2026-11-20,h,9999999999\n", COUNT),
        ("start,gpu,host,gpu_count\n2026-11-20,a,h,1\n", "line 2: both gpu and gpu_count"),
        ("start,gpu,host\n0001-01-01T00:00Z,a,h\n", f"line 2: start {YEARS}"),
        ("start,gpu,host\n100000000,a,h\n", f"line 2: start {YEARS}"),
        ("start,gpu,host\n9999-12-31,a,h\n", "line 2: start is after the year 5137"),
        ("start,end,gpu,host\n2026-11-20,9999-12-31T23:59-08:00,a,h\n", f"line 2: end {YEARS}"),
        ("start,gpu,submitted,host\n2026-11-20,a,1999-12-31,h\n", f"line 2: submitted {YEARS}"),
        ('start,gpu,host,name\n2026-11-20,a,h,x\n2026-11-21,a,h,"x\n2026-11-22,a,h,x\n',
         f"line 3: {QUOTE} has no closing quote; close the quote"),
        ('start,gpu,host,name\n2026-11-20,a,h,"' + "x" * 200_000 + "\n", f"line 2: {QUOTE} has no closing"),
        ('start,gpu,host,name\n2026-11-20,a,h,"x" y\n', f"line 2: {QUOTE} is followed by"),
        ("start,host,gpu_count,user\n2026-11-20,h,1,ann\n2026-11-20,h,1,bob\n2026-11-20,h,2,ann\n",
         ("lines 2 and 4 have the same user (or account), host and start, and no allocation_id; "
          "give each line an allocation_id")),
        ("\n\n \nstart,gpu,host\nx,a,h\n", "line 5: start is not a time"),
        ("start,gpu\n2026-11-20,GPU-a\n", "line 2: the lake does not know on which host the gpu is"),
        ("start,gpu,host\n2026-11-20,a,h\n\nx,a,h\ny,a,h\n",
         "line 4: start is not a time, or one that the zone skips; line 5"),
        ('start,gpu,host\n2026-11-20,"a\nb",h\nx,a,h\n', "line 4: start is not a time"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_by_their_line_and_nothing_is_written(
    allocations: Allocations, file: File, lake: Lake, text: str, said: str
) -> None:
    done = allocations("import", "csv", file("start,gpu,host\n2026-11-20,a,h\n", "good.csv"), file(text))
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert holds_nothing(lake)


def test_a_table_without_rows_is_no_error_and_an_end_in_the_year_9999_is_an_end(
    allocations: Allocations, file: File
) -> None:
    assert allocations("import", "csv", file("start,gpu,host\n")).counts == (0, 0, 0)
    done = allocations("import", "csv", file("start,end,gpu,host\n2026-11-20,9999-12-31,a,h\n"))
    assert (done.counts, done.json["running"]) == ((1, 0, 0), 0)
    assert allocations("list").rows("allocations")[0]["end"] == "9999-12-31T00:00:00Z"


def test_a_plus_in_a_name_becomes_a_backslash(allocations: Allocations, file: File, lake: Lake) -> None:
    allocations("import", "csv", file("start,gpu,host,user,account\n2026-11-20 10:00,GPU-x,gn3,CORP+ann,r+d\n"))
    (row,) = stored(lake)
    assert (row["user"], row["account"]) == ("CORP\\ann", "r\\d")
    assert row["allocation_id"] == "CORP\\ann@2026-11-20T10:00:00Z"


def test_a_later_line_of_the_same_allocation_counts_and_the_earlier_one_is_counted(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    text = "start,end,host,gpu_count,allocation_id\n2026-11-20,,h,2,r1\n2026-11-20,2026-11-21,h,3,r1\n"
    done = allocations("import", "csv", file(text))
    assert (done.counts, done.dropped) == ((1, 0, 0), {"the same allocation as a later line, which counts": 1})
    (row,) = stored(lake)
    assert (row["host_gpu_count"], row["gpu_count"], "end" in row) == (3, 3, True)


def test_the_lake_knows_where_a_gpu_is(allocations: Allocations, file: File, lake: Lake) -> None:
    write(lake, schema.DEVICE, [device("GPU-a"), device("GPU-b")], "gn1.example")
    done = allocations("import", "csv", file("start,gpu,host\n" + "".join(
        f"2026-11-20,{gpu},{host}\n" for gpu, host in (("GPU-a", "gn2"), ("GPU-b", "gn1"), ("GPU-x", "gn2"))
    )))  # fmt: skip
    known = dict.fromkeys(("GPU-a", "GPU-b"), "gn1.example") | {"GPU-x": "gn2"}
    assert {row["gpu"]: row["host"] for row in stored(lake)} == known
    assert done.notes == [
        (
            "1 line names another host than the lake has for its GPU, and the lake's host counts: line 2 names gn2, the"
            " lake has gn1.example"
        )
    ]


# the same allocations at other times, because they were read in another zone
HEAD = "JobIDRaw|Submit|Start|End|NodeList|AllocTRES\n"
JOBS = (
    "1|2026-11-20T09:00:00|2026-11-20T10:00:00|2026-11-20T11:00:00|n1|gres/gpu=1\n"
    "2|2026-11-20T09:00:00|2026-11-20T00:10:00|2026-11-20T00:50:00|n1|gres/gpu=1\n"
    "3|2026-11-20T09:00:00|2026-11-20T12:00:00|Unknown|n2|gres/gpu=1\n"
)
NOON = START + 2 * HOUR
PARIS = ("--time-zone", "Europe/Paris")


def starts(lake: Lake) -> dict[str, int]:
    rows = stored(lake)
    assert len({row["allocation_id"] for row in rows}) == len(rows), "each is there once"
    return {row["allocation_id"]: row["time"] - NOON for row in rows}


def test_the_same_jobs_in_another_zone_are_refused(allocations: Allocations, file: File, lake: Lake) -> None:
    jobs = file(HEAD + JOBS, "jobs.txt")
    assert allocations("import", "slurm", jobs).counts == (3, 0, 0)
    before = stored(lake)
    done = allocations("import", "slurm", jobs, *PARIS)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"fallow: {jobs}: 3 jobs are in the lake already, 1 h apart: they were imported with another --time-zone; "
        "nothing was imported; --replace replaces the earlier import with this one\n"
    )
    assert stored(lake) == before
    assert allocations("import", "slurm", jobs).counts == (0, 3, 0), "in the same zone they are there already"


@pytest.mark.parametrize(("zones", "shift"), [(((), PARIS), -HOUR), ((PARIS, ()), 0)])
def test_replace_puts_them_in_their_place_also_over_midnight(
    allocations: Allocations, file: File, lake: Lake, zones: tuple[tuple[str, ...], ...], shift: int
) -> None:
    first, second = zones
    jobs = file(HEAD + JOBS, "jobs.txt")
    allocations("import", "slurm", jobs, *first)
    done = allocations("import", "slurm", jobs, *second, "--replace")
    assert done.json["notes"] == ["3 jobs are in the lake already, 1 h apart: this import replaces them"]
    assert starts(lake) == {"1": shift - 2 * HOUR, "2": shift - 12 * HOUR + 600_000, "3": shift}
    assert allocations("import", "slurm", jobs, *second).counts == (0, 3, 0)


def test_a_lake_that_has_them_twice_is_mended(allocations: Allocations, file: File, lake: Lake) -> None:
    twice = HEAD + JOBS + "1|2026-11-20T08:00:00|2026-11-20T09:00:00|2026-11-20T10:00:00|n1|gres/gpu=1\n"
    allocations("import", "slurm", file(twice))
    assert len(stored(lake)) == 4
    allocations("import", "slurm", file(HEAD + JOBS), *PARIS, "--replace")
    assert starts(lake) == {"1": -3 * HOUR, "2": -13 * HOUR + 600_000, "3": -HOUR}


def test_what_the_lake_knows_of_their_gpus_stays(allocations: Allocations, file: File, lake: Lake) -> None:
    allocations(
        "import", "csv", file("start,end,gpu,host,allocation_id\n2026-11-20T10:00,2026-11-20T11:00,GPU-a,n1,7\n")
    )
    counted = file("start,end,host,gpu_count,allocation_id\n2026-11-20T10:00,2026-11-20T11:00,n1,1,7\n")
    allocations("import", "csv", counted, *PARIS, "--replace")
    (row,) = stored(lake)
    assert (row["gpu"], row["time"] - NOON, row["end"] - NOON) == ("GPU-a", -3 * HOUR, -2 * HOUR)


def test_jobs_over_the_end_of_summer_time_move_too(allocations: Allocations, file: File, lake: Lake) -> None:
    jobs = file(
        HEAD + "1|2026-10-24T09:00:00|2026-10-24T10:00:00|2026-10-24T11:00:00|n1|gres/gpu=1\n"
        "2|2026-10-24T09:00:00|2026-10-24T10:00:00|2026-10-26T10:00:00|n1|gres/gpu=1\n"
        "3|2026-10-26T09:00:00|2026-10-26T10:00:00|2026-10-26T11:00:00|n1|gres/gpu=1\n"
    )
    allocations("import", "slurm", jobs)
    assert "3 jobs are in the lake already, 1 h or 2 h apart" in allocations("import", "slurm", jobs, *PARIS).err
    allocations("import", "slurm", jobs, *PARIS, "--replace")
    assert len(stored(lake)) == 3


@pytest.mark.parametrize(
    "again",
    [
        "1|2026-11-20T11:00:00|2026-11-20T12:00:00|2026-11-20T14:30:00|n1|gres/gpu=1\n",  # requeued, and lasted longer
        "1|2026-11-20T09:00:00|2026-11-20T12:00:00|2026-11-20T13:00:00|n1|gres/gpu=1\n",  # submitted once
        "1|2026-11-20T11:07:00|2026-11-20T12:07:00|2026-11-20T13:07:00|n1|gres/gpu=1\n",  # no zones are so far apart
        "1|2026-11-20T11:00:00|2026-11-20T12:00:00|2026-11-20T13:00:00|n2|gres/gpu=1\n",  # elsewhere
    ],
)
def test_a_job_that_began_again_is_another_allocation(
    allocations: Allocations, file: File, lake: Lake, again: str
) -> None:
    allocations("import", "slurm", file(HEAD + JOBS))
    allocations("import", "slurm", file(HEAD + again), *PARIS)
    assert len(stored(lake)) == 4


def test_a_table_may_name_one_reservation_twice_a_day(allocations: Allocations, file: File, lake: Lake) -> None:
    head = "start,end,host,gpu_count,user\n"
    for hour in (8, 12, 16):
        allocations(
            "import", "csv", file(f"{head}2026-11-20T{hour:02d}:00,2026-11-20T{hour + 2:02d}:00,n1,1,ann\n"), *PARIS
        )
    assert len(stored(lake)) == 3
    moved = allocations("import", "csv", file(f"{head}2026-11-20T08:00,2026-11-20T10:00,n1,1,ann\n"))
    assert "1 allocation is in the lake already, 1 h apart: it was imported with another --time-zone" in moved.err


def test_allocations_of_agents_are_left_alone(allocations: Allocations, file: File, lake: Lake) -> None:
    agent_wrote(lake, "n1", allocation("a", NOON - 2 * HOUR, NOON - HOUR))
    allocations("import", "slurm", file(HEAD + JOBS), *PARIS, "--replace")
    assert len(stored(lake)) == 4
