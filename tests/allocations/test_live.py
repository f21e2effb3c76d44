"""Queries of Slurm itself, and saved output of scontrol: small programs stand for its commands, or a real cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.allocations.slurm_limits import GpuLimits
from analytics.allocations.slurm_output import JobGpus, job_gpus
from analytics.allocations.slurm_state import read_snapshot
from analytics.capacity.causes import cause_of
from analytics.capacity.jobs import load_jobs, load_withheld
from analytics.importers.source import InputLimits
from fallow import schema
from fallow.clock import DAY_MS
from tests.allocations.conftest import requested, stored
from tests.allocations.slurm_cluster import NODE, Cluster, missing, slurm_cluster
from tests.lakes import holds_nothing
from tests.ledger.rows import T0, device, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HEAD = "JobIDRaw|JobID|Start|End|NodeList|AllocTRES|JobName"
RUNS = "2|2|1795235624|Unknown|gn1|gres/gpu=2|run"
SHOWN = """JobId=2 JobName=run
   JobState=RUNNING Reason=None Dependency=(null)
   JOB_GRES=gpu:h100:2
     Nodes=gn1 CPU_IDs=1 Mem=0 GRES=gpu:h100:2(IDX:0,2)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0

"""


class Commands:
    """A folder with a sacct and a scontrol that print what they are told, and write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def translate(self, name: str, text: str, *, code: int = 0, stderr: str = "") -> None:
        (self.folder / f"{name}.out").write_text(text, encoding="utf-8")
        (self.folder / f"{name}.err").write_text(stderr, encoding="utf-8")
        script = (
            f'#!/bin/sh\ncd "{self.folder}"\necho "$TZ $SLURM_TIME_FORMAT $*" >> {name}.calls\n'
            f"cat {name}.out\ncat {name}.err >&2\nexit {code}\n"
        )
        path = self.folder / name
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        return (self.folder / f"{name}.calls").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    folder = tmp_path / "bin"
    folder.mkdir()
    found = Commands(folder)
    found.translate("sacct", f"{HEAD}\n{RUNS}\n")
    found.translate("scontrol", SHOWN)
    found.translate("sacctmgr", "")
    found.translate("sinfo", "")
    monkeypatch.setenv("FALLOW_SLURM_SCONTROL", str(folder / "scontrol"))
    return found


def inventory(lake: Lake, host: str = "gn1", numbers: tuple[int, ...] = (0, 1, 2, 3)) -> None:
    """GPUs of a host whose device nodes are not in NVML's order."""
    rows = [device(f"GPU-{number}", minor_number=number, gpu_index=3 - number) for number in numbers]
    write(lake, schema.DEVICE, rows, host)


def test_a_running_job_is_on_the_gpus_that_scontrol_names_and_they_stay_known_when_it_ends(
    allocations: Allocations, commands: Commands, lake: Lake
) -> None:
    inventory(lake, "gn1.example")
    done = allocations("import", "slurm", "--live", "--since", "2026-11-20")
    assert (done.counts, done.json["notes"]) == ((2, 0, 0), [])
    found = stored(lake)
    told = [(row["host"], row["gpu"], row["gpu_count"], row.get("host_gpu_count")) for row in found]
    assert told == [("gn1.example", gpu, 2, None) for gpu in ("GPU-0", "GPU-2")]
    (asked,) = commands.calls("sacct")
    assert asked.startswith("UTC %s --allusers --duplicates --parsable2 --format=")
    assert asked.endswith(" --starttime=2026-11-20T00:00:00")
    assert commands.calls("scontrol") == [f"UTC %s show {what}" for what in ("job --details", "reservation")]
    assert commands.calls("sinfo") == ["UTC %s --Node --all --format=%N|%T|%G|%H|%E"]
    assert allocations("import", "slurm", "--live").counts == (0, 2, 0)
    commands.translate("sacct", f"{HEAD}\n{RUNS.replace('Unknown', '1795239224')}\n")
    assert allocations("import", "slurm", "--live").counts == (0, 0, 2)
    assert [(row["gpu"], row["end"] - row["time"]) for row in stored(lake)] == [
        ("GPU-0", 3_600_000),
        ("GPU-2", 3_600_000),
    ]


def test_a_count_from_a_file_gives_way_to_the_gpus(
    allocations: Allocations, commands: Commands, file: File, lake: Lake
) -> None:
    inventory(lake)
    allocations("import", "slurm", file((commands.folder / "sacct.out").read_text(encoding="utf-8")))
    assert [row["host_gpu_count"] for row in stored(lake)] == [2]
    allocations("import", "slurm", "--live")
    assert [row["gpu"] for row in stored(lake)] == ["GPU-0", "GPU-2"]


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ((0, 1), SHOWN),  # Slurm knows a third
        ((), SHOWN),
        ((0, 1, 2), SHOWN.replace("h100:2(IDX:0,2)", "h100:1(IDX:0)")),  # resized since
        ((0, 1, 2), SHOWN.replace("h100:2", "a100_1g.10gb:2")),  # positions of instances are no positions of GPUs
        ((0, 1, 2), SHOWN.replace("GRES=gpu:h100:2(IDX:0,2)", "GRES=")),
        ((0, 1, 2), ""),
    ],
)
def test_what_scontrol_does_not_settle_stays_a_count(
    allocations: Allocations, commands: Commands, lake: Lake, numbers: tuple[int, ...], shown: str
) -> None:
    inventory(lake, numbers=numbers)
    commands.translate("scontrol", shown)
    done = allocations("import", "slurm", "--live")
    assert [(row.get("gpu"), row["host_gpu_count"]) for row in stored(lake)] == [(None, 2)]
    told = "the inventory of 1 hosts is not in the lake, so the GPUs of jobs there are not known: gn1"
    assert done.json["notes"] == ([told] if len(numbers) < 3 else [])


@pytest.mark.parametrize(("host", "gpus"), [("other", ["GPU-0", "GPU-2"]), ("gn1", [None])])
def test_a_bad_file_of_the_inventory_costs_its_own_hosts_positions_alone(
    allocations: Allocations, commands: Commands, lake: Lake, host: str, gpus: list[str | None]
) -> None:
    """With a GPU missing, the others of its host would stand in wrong places."""
    del commands
    inventory(lake)
    write(lake, schema.DEVICE, [device("GPU-late", time=T0 + DAY_MS, minor_number=9)], host)
    bad = lake.files("device", hosts=[host])[-1]
    Path(bad.url).write_bytes(b"PAR1")
    done = allocations("import", "slurm", "--live")
    assert [row.get("gpu") for row in stored(lake)] == gpus
    assert f"one file of the lake is left out: {bad.url} is not a whole Parquet file" in done.err


def test_a_scontrol_that_fails_costs_the_positions_alone(
    allocations: Allocations, commands: Commands, lake: Lake
) -> None:
    commands.translate("scontrol", "", code=1, stderr="slurm_load_jobs error: Unable to contact slurm controller\n")
    done = allocations("import", "slurm", "--live")
    assert "Unable to contact slurm controller" in done.json["notes"][0]
    assert [row["host_gpu_count"] for row in stored(lake)] == [2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sacct", "/nowhere/sacct"], "cannot run sacct: there is no command /nowhere/sacct here; run this where"),
        ([], "sacct failed: sacct: error: Unable to connect to slurmdbd"),
    ],
)
def test_no_slurm_is_told_with_the_remedy(
    allocations: Allocations, commands: Commands, lake: Lake, arguments: list[str], said: str
) -> None:
    commands.translate("sacct", "", code=1, stderr="sacct: error: Unable to connect to slurmdbd\n")
    done = allocations("import", "slurm", "--live", *arguments)
    assert (done.code, done.out, said in done.err, holds_nothing(lake)) == (1, "", True, True), done.err


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:h100:8(IDX:0-7)", [tuple(range(8))]),
        ("gpu:1(IDX:3)", [(3,)]),
        ("gpu:h100:2(IDX:0-1),gpu:a100:1(IDX:4)", [(0, 1, 4)]),
        ("nic:1(IDX:0)", []),
        ("gpu:0(IDX:)", []),
    ],
)
def test_positions_in_gres_strings(gres: str, found: list[Any]) -> None:
    assert [each.positions for each in job_gpus(SHOWN.replace("gpu:h100:2(IDX:0,2)", gres))] == found


def test_a_job_on_several_nodes_and_a_name_that_looks_like_an_answer() -> None:
    odd = SHOWN.replace("JobName=run", "JobName=x Nodes=gn9 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:0)")
    found = list(job_gpus(odd.replace("gn1", "gn[1-2]")))
    assert found == [JobGpus("2", "gn1", (0, 2)), JobGpus("2", "gn2", (0, 2))]


STATE = """JobId=2 JobName=run
   JobState=RUNNING Reason=None Dependency=(null)

JobId=3 JobName=JobState=PENDING Reason=Licenses Dependency=
   JobState=PENDING Reason=AssocGrpGRES Dependency=(null)

JobId=4 ArrayJobId=4 ArrayTaskId=1-3 JobName=many
   JobState=PENDING Reason=ReqNodeNotAvail,_Reserved_for_maintenance Dependency=(null)

NodeName=gn1 Arch=x86_64 CoresPerSocket=1
   Gres=gpu:h100:4
   State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=bad gpu [root@1795235000]

NodeName=gn2 Arch=x86_64 CoresPerSocket=1
   Gres=gpu:h100:4
   State=IDLE+PLANNED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=was bad [root@1795235000]

NodeName=login Arch=x86_64 CoresPerSocket=1
   Gres=(null)
   State=DOWN* ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=Not responding [slurm@1795235000]

ReservationName=course StartTime=1795235100 EndTime=4102444800 Duration=01:00:00
   Nodes=gn[2-3] NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=SPEC_NODES
   TRES=cpu=4,gres/gpu=4

ReservationName=cores StartTime=1795235100 EndTime=4102444800 Duration=01:00:00
   Nodes=gn4 NodeCnt=1 CoreCnt=1 Features=(null) PartitionName=(null) Flags=
     NodeName=gn4 CoreIDs=0
   TRES=cpu=1
"""
"""As Slurm 22.05 prints them, one after the other."""
QUEUED = """JobIDRaw|JobID|State|Reason|Submit|Eligible|Start|End|NodeList|AllocTRES|ReqTRES
2|2|RUNNING|AssocGrpGRES|1795235000|1795235000|1795235624|Unknown|gn1|gres/gpu=2|
3|3|PENDING|None|1795235000|1795235000|Unknown|Unknown|None assigned||gres/gpu=1
4|4_[1-3]|PENDING|None|1795235000|1795235000|Unknown|Unknown|None assigned||gres/gpu=1
"""


SINFO = """NODELIST|STATE|GRES|TIMESTAMP|REASON
gn1|drained*|gpu:h100:4(S:0-1)|1795235000|bad gpu
gn2|idle|gpu:h100:4|1795235000|was bad
login|down*|(null)|1795235000|Not responding
"""


def withheld(lake: Lake) -> list[tuple[object, ...]]:
    rows = load_withheld(lake).with_columns(pl.col("time") // 1000)
    return sorted(rows.select("host", "cause", "time", "gpus").rows())


WITHHELD = [
    ("gn1", "drained", 1795235000, None),
    ("gn2", "reservation", 1795235100, 2),
    ("gn3", "reservation", 1795235100, 2),
]


def test_why_jobs_wait_and_what_slurm_may_not_give_out(
    allocations: Allocations, commands: Commands, lake: Lake
) -> None:
    """Sacct says it of jobs that have begun alone, and of no host."""
    commands.translate("sacct", QUEUED)
    commands.translate("scontrol", "\n\n".join(each for each in STATE.split("\n\n") if not each.startswith("NodeName")))
    commands.translate("sinfo", SINFO)
    done = allocations("import", "slurm", "--live")
    reasons = {"3": "AssocGrpGRES", "4": "ReqNodeNotAvail, Reserved for maintenance"}
    assert {row["allocation_id"]: row["reason"] for row in requested(lake)} == reasons
    assert [row["reason"] for row in stored(lake)] == ["AssocGrpGRES"]
    assert (done.counts_of("withheld"), withheld(lake)) == ((3, 0, 0), WITHHELD)
    held = load_jobs(lake).select("job", pl.col("held").list.first().struct.field("cause")).unique()
    assert dict(held.iter_rows()) == {"2": "account_limit", "3": "account_limit", "4": "reservation"}
    commands.translate("sinfo", SINFO.replace("drained*", "mixed"))
    was = {row[0]: row for row in load_withheld(lake).select("host", "end").iter_rows()}
    assert allocations("import", "slurm", "--live").counts_of("withheld")[0] == 2  # seen again, and later
    now = {row[0]: row for row in load_withheld(lake).select("host", "end").iter_rows()}
    assert now["gn1"] == was["gn1"]
    assert now["gn2"] > was["gn2"]


LIMITS = GpuLimits.of(
    "root||||\nall||root|gres/gpu=6\nml||all|cpu=9\nml|ann||gres/gpu=2\nml|bob||\nnlp||root|gres/gpu:h100=1\n",
    "normal|||\ntight|gres/gpu=4|cpu=1,gres/gpu=3|gres/gpu=5\n",
)


@pytest.mark.parametrize(
    ("reason", "account", "user", "qos", "most"),
    [
        ("AssocGrpGRES", "ml", "ann", "normal", 2),
        ("AssocGrpGRES", "ml", "bob", "normal", 6),  # of the account above
        ("AssocGrpGRES", "nlp", "ann", "normal", None),  # a limit on one type
        ("QOSGrpGRES", "ml", "ann", "tight", 4),
        ("QOSMaxGRESPerUser", "ml", "ann", "tight", 3),
        ("MaxGRESPerAccount", "ml", "ann", "tight", 5),
        ("QOSGrpGRES", "ml", "ann", "normal", None),
        ("Resources", "ml", "ann", "tight", None),
    ],
)
def test_a_job_that_asks_for_more_than_its_limit_can_never_start(
    reason: str, account: str, user: str, qos: str, most: int | None
) -> None:
    for gpus in (1, 2, 3, 4, 5, 6, 7):
        job = {"reason": reason, "account": account, "user": user, "qos": qos, "gpu_count": gpus}
        told = LIMITS.with_limits(pl.DataFrame([job]))
        is_never = told.select(cause_of(pl.col("reason")) == "never").item()
        assert bool(is_never) == (most is not None and gpus > most)


def test_what_was_saved_of_nodes_and_reservations_holds_at_the_time_of_the_export(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    later = QUEUED.replace("1795235624|Unknown", "1795235624|1795239224")
    allocations("import", "slurm", file(later), "--scontrol", file(STATE, "state.txt"))
    assert {row["reason"] for row in requested(lake)} == {"AssocGrpGRES", "ReqNodeNotAvail, Reserved for maintenance"}
    assert withheld(lake) == WITHHELD
    assert set(load_withheld(lake)["end"]) == {1795239224000}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    if reason := missing():
        pytest.skip(f"no Slurm here: {reason}")
    folder = tmp_path / "slurm"
    folder.mkdir()
    with slurm_cluster(folder) as running:
        yield running


@pytest.mark.long
def test_a_real_cluster(
    allocations: Allocations, file: File, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    cluster.wrapper("sacct")
    monkeypatch.setenv("FALLOW_SLURM_SCONTROL", str(cluster.wrapper("scontrol")))
    inventory(lake, f"{NODE}.example")
    sleep = ("sbatch", "--account=ml", "--wrap", "sleep 300", "--output=/dev/null")
    cluster.run(*sleep, "--gres=gpu:h100:2", "--job-name=two|gpus", "--time=30")
    cluster.run(*sleep, "--gres=gpu:1", "--array=1-2")
    cluster.run(*sleep, "--job-name=none")
    cluster.wait_until("4 RUNNING", "sh", "-c", "sacct -X -a -n -o state%-10 | sort | uniq -c")
    running = allocations("import", "slurm", "--live")
    assert (running.counts, running.dropped["no GPU"], running.json["running"]) == ((4, 0, 0), 1, 3)
    assert running.counts_of("request") == (0, 0, 0)
    found = stored(lake)
    assert sorted(row["gpu"] for row in found) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    asked = {"text": ("scontrol", "show", "job", "--details"), "json": ("squeue", "--json")}
    saved = [
        read_snapshot(str(file(cluster.run(*command), name)), InputLimits(2**24, 2**20, 1_000))
        for name, command in asked.items()
    ]
    text, document = (sorted((each.job_id, each.node, each.positions) for each in shown.gpus) for shown in saved)
    assert text == document
    assert sorted(positions for _, _, positions in text) == [(0, 1), (2,), (3,)]
    assert {(each.job_id, int(each.start) * 1000) for each in saved[1].gpus} == {
        (row["allocation_id"], row["time"]) for row in found
    }
    assert {(row["host"], row["user"], row["account"], row["state"]) for row in found} == {
        (f"{NODE}.example", "root", "ml", "RUNNING")
    }
    assert [(row["name"], row["planned_end"] - row["time"]) for row in found if row["allocation_id"] == "1"] == [
        ("two|gpus", 1_800_000)
    ] * 2
    cluster.run("scancel", "1")
    cluster.wait_until("CANCELLED", "sacct", "-X", "-n", "-j", "1", "-o", "state%20,end%20")
    assert allocations("import", "slurm", "--live").counts == (0, 2, 2)
    ended = [row for row in stored(lake) if "end" in row]
    assert {row["allocation_id"] for row in ended} == {"1"}
    assert {row["gpu"] for row in ended} == {row["gpu"] for row in found if row["allocation_id"] == "1"}


@pytest.mark.long
def test_a_real_cluster_whose_jobs_wait(
    allocations: Allocations, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    cluster.wrapper("sacct")
    monkeypatch.setenv("FALLOW_SLURM_SCONTROL", str(cluster.wrapper("scontrol")))
    sleep = ("sbatch", "--account=ml", "--wrap", "sleep 300", "--output=/dev/null")
    cluster.run(*sleep, "--gres=gpu:h100:4", "--time=30")
    cluster.wait_until("RUNNING", "sacct", "-X", "-n", "-j", "1", "-o", "state%20")
    cluster.run(*sleep, "--gres=gpu:2", "--time=20", "--job-name=waits")
    cluster.run(*sleep, "--gres=gpu:1", "--array=1-40%3")  # more than sacct lists by itself
    cluster.run(*sleep, "--gres=gpu:1", "--job-name=gives up")
    cluster.wait_until("3 PENDING", "sh", "-c", "sacct -X -a -n -o state%-10 | sort | uniq -c")
    waiting = allocations("import", "slurm", "--live")
    assert (waiting.counts, waiting.counts_of("request"), waiting.json["waiting"]) == ((1, 0, 0), (3, 0, 0), 42)
    [first, *_] = requested(lake)
    assert {
        name: first[name] for name in ("allocation_id", "name", "gpu_count", "time_limit_s", "host_count", "state")
    } == {
        "allocation_id": "2", "name": "waits", "gpu_count": 2,
        "time_limit_s": 1200, "host_count": 1, "state": "PENDING",
    }  # fmt: skip
    cluster.run("scancel", "4")
    cluster.run("scancel", "1")
    cluster.wait_until("3 RUNNING", "sh", "-c", "sacct -X -a -n -o state%-10 | sort | uniq -c")
    cluster.wait_until("CANCELLED", "sacct", "-X", "-n", "-j", "4", "-o", "state%20,end%20")
    after = allocations("import", "slurm", "--live")
    assert (after.json["waiting"], after.json["withdrawn"]) == (38, 1)
    jobs = load_jobs(lake)
    assert jobs.filter(pl.col("withdrawn").is_not_null())["name"].to_list() == ["gives up"]
    assert jobs.filter(pl.col("start").is_null(), pl.col("withdrawn").is_null())["job"].to_list() == ["3"] * 38
    # two of the 40 tasks run, and their first is no longer asked for
    assert sorted(jobs.filter(pl.col("start").is_not_null())["gpus"].to_list()) == [1, 1, 2, 4]


@pytest.mark.long
def test_a_real_cluster_with_limits_a_drained_host_and_a_reservation(
    allocations: Allocations, file: File, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, lake: Lake
) -> None:
    cluster.wrapper("sacct")
    cluster.wrapper("sacctmgr")
    cluster.wrapper("sinfo")
    monkeypatch.setenv("FALLOW_SLURM_SCONTROL", str(cluster.wrapper("scontrol")))
    cluster.run("sacctmgr", "-i", "add", "account", "small", "set", "GrpTRES=gres/gpu=1")
    cluster.run("sacctmgr", "-i", "add", "user", "root", "account=small")
    cluster.run("sacctmgr", "-i", "add", "qos", "tight", "set", "GrpTRES=gres/gpu=1")
    cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=tight")
    sleep = ("sbatch", "--wrap", "sleep 300", "--output=/dev/null", "--time=20")
    cluster.run(*sleep, "--account=small", "--gres=gpu:1")
    cluster.wait_until("RUNNING", "squeue", "--noheader", "-j", "1", "-o", "%T")
    cluster.run(*sleep, "--account=small", "--gres=gpu:1")
    cluster.run(*sleep, "--account=ml", "--qos=tight", "--gres=gpu:2")
    cluster.run(*sleep, "--account=ml", "--gres=gpu:1", "--time=200")
    told = {"2": "AssocGrpGRES", "3": "QOSGrpGRES", "4": "PartitionTimeLimit"}
    for job, reason in told.items():
        cluster.wait_until(reason, "squeue", "--noheader", "-j", job, "-o", "%r")
    cluster.wait_until("3 PENDING", "sh", "-c", "sacct -X -a -n -o state%-10 | sort | uniq -c")
    allocations("import", "slurm", "--live")
    told["3"] += ", which allows 1 of its 2 GPUs"
    assert {row["allocation_id"]: row.get("reason") for row in requested(lake)} == told
    cluster.run("scontrol", "update", f"nodename={NODE}", "state=drain", "reason=bad gpu")
    allocations("import", "slurm", "--live")
    assert load_withheld(lake).select("host", "cause", "gpus").rows() == [(NODE, "drained", None)]
    for asked in ("--list-reasons", "--Node --format=%N|%T|%G|%H|%E"):
        shown = read_snapshot(
            str(file(cluster.run("sinfo", *asked.split()), "sinfo.txt")), InputLimits(2**24, 2**20, 1_000)
        )
        assert [(each.node, each.kind, each.reason) for each in shown.withheld] == [(NODE, "drained", "bad gpu")]
    cluster.run("scontrol", "update", f"nodename={NODE}", "state=resume")
    whole = (f"nodes={NODE}", "users=root", "flags=maint,ignore_jobs", "starttime=now", "duration=60")
    cluster.run("scontrol", "create", "reservation", "reservationname=maint", *whole)
    cluster.run("scancel", "1")
    allocations("import", "slurm", "--live")
    assert set(load_withheld(lake)["cause"]) == {"drained", "reservation"}
    cluster.run("scontrol", "delete", "reservation=maint")
    cluster.wait_until("RUNNING", "squeue", "--noheader", "-j", "2", "-o", "%T")
    allocations("import", "slurm", "--live")
    causes = load_jobs(lake).select("job", pl.col("held").list.eval(pl.element().struct.field("cause")).list.first())
    assert {job: cause for job, cause in causes.iter_rows() if job in told} == {
        "2": "account_limit",
        "3": "never",
        "4": "never",
    }


AT = T0 // 1000

EXPORT = f"""JobIDRaw|JobID|State|Submit|Start|End|NodeList|AllocTRES
7|7_1|COMPLETED|{AT - 60}|{AT}|{AT + 600}|gn[1-2]|gres/gpu=4
8|7_2|COMPLETED|{AT - 60}|{AT + 100}|{AT + 700}|gn1|gres/gpu=1
9|9|REQUEUED|{AT - 60}|{AT}|{AT + 100}|gn2|gres/gpu=1
9|9|COMPLETED|{AT + 100}|{AT + 200}|{AT + 900}|gn2|gres/gpu=1
"""
"""An array of two tasks, whose tasks have ids of their own, and a run of job 9 that was requeued."""
SAVED = """JobId=7 ArrayJobId=7 ArrayTaskId=1 JobName=a
   StartTime=2026-11-20T01:00:00 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:h100:2(IDX:0-1)

JobId=8 ArrayJobId=7 ArrayTaskId=2 JobName=a
   StartTime=2026-11-20T01:01:40 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn1 CPU_IDs=0-1 Mem=0 GRES=gpu:h100:1(IDX:3)

JobId=9 JobName=b
   StartTime=2026-11-20T01:03:20 EndTime=2026-11-20T02:00:00 Deadline=N/A
     Nodes=gn2 CPU_IDs=0-1 Mem=0 GRES=gpu:h100:1(IDX:3)

"""
ON_GPUS = {("7", host, f"GPU-{host}-{at}") for host in ("gn1", "gn2") for at in (0, 1)}
ON_GPUS |= {("8", "gn1", "GPU-gn1-3"), ("9", "gn2", "GPU-gn2-3"), ("9", "gn2", None)}


def told_inventory(lake: Lake, *hosts: str) -> None:
    """As exporters' labels give it: the number of the device node (`device="nvidia3"`), or NVML's index (`gpu="3"`)."""
    for host, number in zip(hosts, ("minor_number", "gpu_index"), strict=False):
        rows = [device(f"GPU-{host}-{at}", source="scraped", **{number: at}) for at in range(4)]
        write(lake, schema.DEVICE, rows, host)


def as_json(*, nested: bool) -> str:
    """SAVED as `scontrol show job --json` gives it: times are nested since Slurm 23.02."""

    def job(number: int, nodes: str, start: int, details: list[str]) -> Any:
        time = {"set": True, "infinite": False, "number": start} if nested else start
        return {"job_id": number, "nodes": nodes, "start_time": time, "gres_detail": details, "job_state": ["RUNNING"]}

    jobs = [
        job(7, "gn[1-2]", AT, ["gpu:h100:2(IDX:0-1)"] * 2),
        job(8, "gn1", AT + 100, ["gpu:h100:1(IDX:3)"]),
        job(9, "gn2", AT + 200, ["gpu:h100:1(IDX:3)"]),
        job(10, "", 0, []),
    ]
    return json.dumps({"jobs": jobs, "errors": []})


@pytest.mark.parametrize(
    ("text", "zone"), [(SAVED, "Europe/Paris"), (as_json(nested=False), "UTC"), (as_json(nested=True), "UTC")]
)
def test_a_saved_snapshot_names_the_gpus_of_the_runs_that_it_shows(
    allocations: Allocations, file: File, lake: Lake, text: str, zone: str
) -> None:
    told_inventory(lake, "gn1", "gn2")
    jobs, saved = file(EXPORT), file(text, "scontrol.txt")
    allocations("import", "slurm", jobs)
    done = allocations("import", "slurm", jobs, "--scontrol", saved, "--time-zone", zone)
    assert done.json["notes"] == []
    assert {(row["allocation_id"], row["host"], row.get("gpu")) for row in stored(lake)} == ON_GPUS
    assert allocations("import", "slurm", jobs, "--scontrol", saved, "--time-zone", zone).counts == (0, 7, 0)


def test_hosts_without_an_inventory_and_jobs_without_indices_are_said(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    told_inventory(lake, "gn1")
    jobs = file(EXPORT)
    done = allocations("import", "slurm", jobs, "--scontrol", file(SAVED, "s.txt"), "--time-zone", "Europe/Paris")
    said = "the inventory of 1 hosts is not in the lake, so the GPUs of jobs there are not known: gn2"
    assert done.json["notes"] == [said]
    assert sum("gpu" in row for row in stored(lake)) == 3
    plain = file("JobId=7 JobName=a\n   StartTime=2026-11-20T01:00:00 EndTime=Unknown\n", "p.txt")
    assert "names no GPU of any job" in allocations("import", "slurm", jobs, "--scontrol", plain).json["notes"][0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("JobIDRaw|Start\n", "is not scontrol's output for jobs, nodes or reservations; save it while jobs run"),
        (
            SAVED.replace("gn[1-2]", "gn[2-1]"),
            "is not scontrol's output for jobs, nodes or reservations: '2-1' is not a range of numbers",
        ),
        (SAVED.replace("IDX:0-1", "IDX:0-99999999"), "'0-99999999' is not a range of numbers"),
        (as_json(nested=True)[:-40], "is not the JSON of scontrol"),
        ('{"nodes": []}', "is JSON without jobs; save nodes, reservations and states as text"),
        ("JobId=7 JobName=run JobState=RUNNING Reason=None Nodes=n1 GRES=gpu:1(IDX:0)\n", "save it without --oneliner"),
        (as_json(nested=True).replace('"gn[1-2]"', '"gn1"'), "is not the JSON of scontrol"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_remedy(
    allocations: Allocations, file: File, lake: Lake, text: str, said: str
) -> None:
    done = allocations("import", "slurm", file(EXPORT), "--scontrol", file(text, "s.txt"))
    assert (done.code, said in done.err, holds_nothing(lake)) == (1, True, True), done.err
