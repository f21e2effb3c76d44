"""Slurm's accounting of GPU use, clusters, shares and nodes, and where the ledger shows it."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from analytics.allocations.slurm_output import gpu_shares
from analytics.capacity.jobs import load_withheld
from analytics.scraped.who.label_runs import SEGMENT_SCHEMA, named_users
from fallow import schema
from fallow.cli import main
from tests.allocations.conftest import requested, stored
from tests.ledger.rows import device, samples, write

if TYPE_CHECKING:
    from pathlib import Path

    from fallow.lake import Lake
    from tests.allocations.conftest import Allocations, File

HEAD = (
    "JobIDRaw|User|Account|Partition|QOS|State|Start|End|ElapsedRaw|NodeList|NTasks|"
    "AllocTRES|TRESUsageInAve|TRESUsageInMax|TRESUsageInTot"
)
HOUR = 3600
T0 = 1_795_132_800  # 2026-11-20 00:00 UTC
GIB = 2**30


def job(name: str, gpus: int, hours: float, *, user: str = "ann", account: str = "vis", node: str = "n1") -> str:
    """A job from midnight on, as sacct prints its allocation."""
    last = round(hours * HOUR)
    return f"{name}|{user}|{account}|gpu|normal|COMPLETED|{T0}|{T0 + last}|{last}|{node}||gres/gpu={gpus}|||"


def step(name: str, gpus: int | None, hours: float, *, tasks: int | str = 1, **usage: str) -> str:
    """A step, with what its columns have of each of these words: ave, most, tot."""
    tres = "cpu=1" if gpus is None else f"cpu=1,gres/gpu={gpus}"
    used = "|".join(usage.get(each, "") for each in ("ave", "most", "tot"))
    return f"{name}|||||COMPLETED|{T0}|{T0 + round(hours * HOUR)}|{round(hours * HOUR)}|n1|{tasks}|{tres}|{used}"


def util(percent: float, memory: str = "0") -> str:
    return f"cpu=00:01:00,gres/gpumem={memory},gres/gpuutil={percent:g},mem=1K"


def text(*lines: str, head: str = HEAD) -> str:
    return "\n".join([head, *lines]) + "\n"


def use(allocations: Allocations) -> dict[str, tuple[float | None, ...]]:
    """The known share, mean, bound and memory of each job."""
    figures = ("ratio", "util_pct", "peak_pct", "mem_bytes")
    found = {
        row["allocation_id"]: [row[f"accounted_{each}"] for each in figures]
        for row in allocations("list").rows("allocations")
    }
    return {name: tuple(None if each is None else round(each, 4) for each in own) for name, own in found.items()}


USES: list[tuple[list[str], tuple[float | None, ...]]] = [
    # the sum over the GPUs of the step, whatever the number of tasks
    ([step("7.0", 4, 2, tasks=2, ave=util(160), most=util(190), tot=util(320))], (1, 80, 95, 0)),
    ([step("7.0", 4, 2, tasks=2, ave=util(160), most=util(190))], (1, 80, 95, 0)),
    # a step of some of the GPUs for some of the time is known for that part alone
    ([step("7.0", 2, 1, most=util(90), tot=util(90, "20G"))], (0.25, 45, 45, 10 * GIB)),
    # memory that no step states is unknown
    ([step("7.0", 4, 2, most="gres/gpuutil=90", tot="gres/gpuutil=80")], (1, 20, 22.5, None)),
    # the script and its step run at once, and extern holds no work
    (
        [
            step("7.batch", 4, 2, most=util(0), tot=util(0)),
            step("7.extern", 4, 2, most=util(0), tot=util(0)),
            step("7.0", 4, 1, most=util(300), tot=util(200, "8192M")),
        ],
        (1, 25, 37.5, GIB),
    ),
    ([step("7.0", 4, 2, most=util(0), tot=util(0))], (1, 0, 0, 0)),
    # without the GPUs or the tasks of the step there is no mean
    ([step("7.0", None, 2, most=util(90), tot=util(90))], (None, None, None, None)),
    ([step("7.0", 4, 2, tasks="", ave=util(90))], (None, None, None, None)),
    ([step("7.0", 4, 2, tot="cpu=00:01:00,mem=1K")], (None, None, None, None)),
]
"""Steps of a job of four GPUs and two hours, and its use."""


def test_utilization_of_a_job_is_the_sum_over_its_steps_for_the_time_that_they_know(
    allocations: Allocations, file: File
) -> None:
    lines = []
    for number, (steps, _) in enumerate(USES):
        lines += [job(str(number), 4, 2), *(each.replace("7.", f"{number}.", 1) for each in steps)]
    allocations("import", "slurm", file(text(*lines)))
    assert use(allocations) == {str(number): expected for number, (_, expected) in enumerate(USES)}


def test_the_json_of_sacct_has_the_same_figures(allocations: Allocations, file: File) -> None:
    def tres(**counts: int) -> list[dict[str, Any]]:
        return [{"type": "gres", "name": name, "count": number} for name, number in counts.items()]

    used = {"average": tres(gpuutil=60), "max": tres(gpuutil=70), "total": tres(gpuutil=120, gpumem=4 * GIB)}
    one = {
        "step": {"id": "7.0"},
        "time": {"elapsed": 2 * HOUR},
        "tasks": {"count": 2},
        "tres": {"requested": used, "allocated": tres(gpu=2)},
    }
    whole = {
        "job_id": 7,
        "cluster": "a",
        "time": {"start": T0, "end": T0 + 2 * HOUR, "elapsed": 2 * HOUR},
        "state": {"current": ["COMPLETED"]},
        "nodes": "n1",
        "tres": {"allocated": tres(gpu=2)},
        "steps": [one],
    }
    allocations("import", "slurm", file(json.dumps({"jobs": [whole], "errors": []})))
    assert list(use(allocations).values()) == [(1, 60, 70, 2 * GIB)]


def test_accounts_with_their_users_have_the_gpu_hours_of_sreport_and_the_share_that_is_known(
    allocations: Allocations, file: File
) -> None:
    jobs = (
        job("7", 4, 2),
        step("7.0", 4, 2, most=util(400), tot=util(320)),
        job("8", 2, 4),
        job("9", 1, 3, user="bob", account="nlp"),
    )
    allocations("import", "slurm", file(text(*jobs)))
    rows = allocations("list", "--by", "account").rows("allocations_account")
    shown = [
        (each["account"], each["user"], each["gpu_hours"], each["accounted_share"], each["util_pct"]) for each in rows
    ]
    assert shown == [("vis", "ann", 16.0, 0.5, 80.0), ("nlp", "bob", 3.0, 0.0, None)]
    said = allocations("list", "--by", "account", as_json=False).out
    assert said.startswith(
        "19.0 allocated GPU-hours; the scheduler's accounting has the GPU utilization of 42.1 % of them."
    )
    for group, names in (
        ("user", ["ann", "bob"]),
        ("partition", ["gpu"]),
        ("qos", ["normal"]),
        ("job", ["7", "8", "9"]),
    ):
        found = allocations("list", "--by", group).rows(f"allocations_{group}")
        assert [each[group] for each in found] == names
        assert sum(each["gpu_hours"] for each in found) == 19.0
    assert "leave out --by" in allocations("list", "--by", "user", "--check").err


@pytest.mark.parametrize(
    ("tres", "shares"),
    [
        ("cpu=4,gres/shard=2", "shard=2"),
        ("gres/mps:a100=50", "mps:a100=50"),
        ("gres/mps=25,gres/shard=1", "mps=25,shard=1"),
        ("gres/shard=0,cpu=1", None),
        ("cpu=1", None),
    ],
)
def test_words_for_shares(tres: str, shares: str | None) -> None:
    assert gpu_shares(tres) == shares


@pytest.mark.parametrize("shares", ["gres/mps=50", "gres/shard:a100=1"])
def test_a_share_is_an_allocation_and_never_a_whole_gpu(
    allocations: Allocations, file: File, lake: Lake, shares: str
) -> None:
    """Also not in the time that could not be placed."""
    write(lake, schema.GPU, samples("GPU-a", 0, HOUR, every_s=60), "n1")
    waits = "8||ann|vis|PENDING|Unknown|Unknown|None assigned||" + shares + "|1000000000"
    runs = f"7|2|ann|vis|COMPLETED|{T0}|{T0 + HOUR}|n1|{shares}||{T0}"
    head = "JobIDRaw|NNodes|User|Account|State|Start|End|NodeList|AllocTRES|ReqTRES|Submit"
    done = allocations("import", "slurm", file(text(runs, waits, head=head)))
    assert (done.dropped, done.counts[0], done.counts_of("request")[0]) == ({}, 1, 1)
    (row,) = allocations("list").rows("allocations")
    assert (row["gpu_shares"], row["gpus"], row["gpu_hours"]) == (shares.removeprefix("gres/"), None, None)
    assert [row["gpu_shares"] for row in requested(lake)] == [shares.removeprefix("gres/")]
    assert allocations("list", "--check").rows("allocation_check")[0]["unplaced_gpu_hours"] == 0


CLUSTERS = "Cluster|JobIDRaw|User|State|Start|End|NodeList|AllocTRES"


def of_cluster(cluster: str, name: str, user: str, node: str = "n1", gpus: int = 2) -> str:
    return f"{cluster}|{name}|{user}|COMPLETED|{T0}|{T0 + HOUR}|{node}|gres/gpu={gpus}"


def placed_jobs(lake: Lake) -> list[tuple[object, ...]]:
    return [(row["allocation_id"], row["host"], row["user"]) for row in stored(lake)]


def test_jobs_of_two_clusters_with_one_id_and_one_node_name_are_two(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    jobs = [of_cluster("a", "7", "ann"), of_cluster("b", "7", "bob"), of_cluster("b", "8", "bob", "m1")]
    done = allocations("import", "slurm", file(text(*jobs, head=CLUSTERS)))
    assert placed_jobs(lake) == [("a/7", "n1@a", "ann"), ("b/7", "n1@b", "bob"), ("b/8", "m1", "bob")]
    assert "name it in slurm.cluster" in done.json["notes"][0]


def test_the_agents_cluster_keeps_plain_ids_also_where_the_clusters_come_in_files_of_their_own(
    allocations: Allocations, file: File, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FALLOW_SLURM_CLUSTER", "a")
    files = [file(text(of_cluster(each, "7", "ann"), head=CLUSTERS), f"{each}.txt") for each in "ab"]
    assert allocations("import", "slurm", *files).json["notes"] == []
    assert placed_jobs(lake) == [("7", "n1", "ann"), ("b/7", "n1@b", "ann")]


def test_an_export_of_one_cluster_has_the_ids_that_agents_write(
    allocations: Allocations, file: File, lake: Lake
) -> None:
    allocations("import", "slurm", file(text(of_cluster("hopper", "7", "ann"), head=CLUSTERS)))
    assert placed_jobs(lake) == [("7", "n1", "ann")]


SHOWN_JOB = f"""JobId=7 JobName=run
   JobState=RUNNING Reason=Prolog Dependency=(null)
   StartTime={T0} EndTime=Unknown Deadline=N/A
     Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:h100:2(IDX:0,2)
"""


def test_jobs_of_clusters_are_on_the_hosts_that_exporters_name_with_the_label_of_the_cluster(
    allocations: Allocations, file: File, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exporters write the same ids, so that accounting joins what their labels name."""
    for cluster in ("a", "b"):
        write(
            lake,
            schema.DEVICE,
            [device(f"GPU-{cluster}{each}", minor_number=each) for each in range(3)],
            f"n1.domain@{cluster}",
        )
    segments = pl.DataFrame([{"host": "n1.domain@a", "slurm_job": "7"}], schema=SEGMENT_SCHEMA)
    assert named_users(segments)["allocation_id"].to_list() == ["a/7"]
    monkeypatch.setenv("FALLOW_SLURM_CLUSTER", "a")
    jobs = text(*(of_cluster(each, "7", "ann") for each in "ab"), head=CLUSTERS)
    done = allocations("import", "slurm", file(jobs), "--scontrol", file(SHOWN_JOB, "shown.txt"))
    found = [(row["allocation_id"], row["host"], row.get("gpu"), row.get("reason")) for row in stored(lake)]
    assert found == [
        ("a/7", "n1.domain@a", "GPU-a0", "Prolog"),
        ("a/7", "n1.domain@a", "GPU-a2", "Prolog"),
        ("b/7", "n1.domain@b", None, None),
    ]
    assert done.json["notes"] == []
    other = allocations("import", "slurm", file(text(of_cluster("c", "7", "ann"), head=CLUSTERS)))
    assert "the lake has no host of the cluster c, only of a, b" in other.json["notes"][0]


SINFO = {
    "a format": (
        "NODELIST|STATE|GRES|TIMESTAMP|REASON\ngn1|drained*|gpu:h100:4|2026-11-20T00:00:00|bad"
        " gpu\ngn2|idle|gpu:4|Unknown|none\ncpu1|down|(null)|2026-11-20T00:00:00|x\n"
    ),
    "another order": (
        "STATE|REASON|NODELIST|TIMESTAMP\ndrng|bad gpu|gn1|2026-11-20T00:00:00\nmix|none|gn[2-3]|Unknown\n"
    ),
    "list reasons": (
        "REASON               USER      TIMESTAMP           NODELIST\nbad gpu              root     "
        " 2026-11-20T00:00:00 gn1\n"
    ),
}


@pytest.mark.parametrize(
    ("printed", "packed"), [*((each, False) for each in SINFO.values()), (SINFO["a format"], True)]
)
def test_nodes_that_sinfo_shows_stopped_are_withheld(
    allocations: Allocations,
    file: File,
    lake: Lake,
    printed: str,
    packed: bool,  # noqa: FBT001
) -> None:
    nodes: Path = file(printed, "sinfo.txt")
    if packed:
        nodes.write_bytes(gzip.compress(nodes.read_bytes()))
    allocations("import", "slurm", file(text(job("7", 1, 1))), "--scontrol", nodes)
    assert load_withheld(lake).select("host", "time", "cause").rows() == [("gn1", T0 * 1000, "drained")]


def test_sinfo_without_the_time_is_refused_with_the_command(allocations: Allocations, file: File) -> None:
    nodes = file("NODELIST STATE\ngn1 drained\n", "sinfo.txt")
    done = allocations("import", "slurm", file(text(job("7", 1, 1))), "--scontrol", nodes)
    assert (done.code, "sinfo --Node --all --format=" in done.err) == (1, True)


def test_the_reason_of_a_job_is_kept_whatever_its_state(allocations: Allocations, file: File) -> None:
    shown = (
        "JobId=7 JobName=run\n   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n\n"
        "JobId=8 JobName=run\n   JobState=RUNNING Reason=None Dependency=(null)\n"
    )
    jobs = text(job("7", 1, 1), job("8", 1, 1))
    allocations("import", "slurm", file(jobs), "--scontrol", file(shown, "shown.txt"))
    assert [each["reason"] for each in allocations("list").rows("allocations")] == ["NonZeroExitCode", None]


def test_the_list_names_the_gpus_by_index_and_uuid(allocations: Allocations, lake: Lake) -> None:
    for host, indices in (("n1", (0, 1, 2)), ("n2", (3,))):
        write(lake, schema.DEVICE, [device(f"GPU-{host}-{each}", gpu_index=each) for each in indices], host)
        rows = [
            {"gpu": f"GPU-{host}-{each}", "time": T0 * 1000, "end": None, "allocation_id": "7", "scheduler": "slurm"}
            for each in indices
        ]
        write(lake, schema.ALLOCATION, rows, host)
    (row,) = allocations("list").rows("allocations")
    named = [(each["host"], each["index"], each["gpu"]) for each in row["placed"]]
    assert named == [*(("n1", each, f"GPU-n1-{each}") for each in (0, 1, 2)), ("n2", 3, "GPU-n2-3")]
    assert allocations("list", as_json=False).out.splitlines()[4].endswith("n1:0-2+n2:3")


@pytest.fixture
def half_known(allocations: Allocations, file: File, lake: Lake) -> Lake:
    """Four GPUs, of which jobs without names have some, and a host that is allocated as a whole."""
    for host, gpus in (("n1", "abcd"), ("n2", "e")):
        write(lake, schema.DEVICE, [device(f"GPU-{each}") for each in gpus], host)
        write(lake, schema.GPU, [row for each in gpus for row in samples(f"GPU-{each}", 0, 2 * HOUR, every_s=60)], host)
    whole = job("9", 1, 2, user="bob", account="nlp", node="n2").replace("|gpu|normal|", "|big|high|")
    allocations("import", "slurm", file(text(job("7", 3, 2), job("8", 2, 1, user="bob"), whole)))
    return lake


def ledger(lake: Lake, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["ledger", "--lake", lake.root, *flags]) == 0
    return capsys.readouterr().out


def test_the_ledger_says_how_many_allocated_gpu_hours_have_no_gpu_and_so_does_the_check(
    allocations: Allocations, half_known: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(ledger(half_known, capsys, "--json"))
    assert found["unplaced_gpu_hours"] == pytest.approx(8, abs=0.1)
    checked = allocations("list", "--check").rows("allocation_check")[0]["unplaced_gpu_hours"]
    assert checked == pytest.approx(found["unplaced_gpu_hours"], abs=1e-6)
    assert f"{checked:,.1f} allocated GPU-hours are on GPUs that are not known" in ledger(half_known, capsys)
    own = json.loads(ledger(half_known, capsys, "--json", "--user", "bob"))
    assert own["unplaced_gpu_hours"] == pytest.approx(2, abs=0.1)


def test_the_ledger_groups_by_facts_of_the_job(half_known: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    for group, names in (("partition", {"big"}), ("qos", {"high"}), ("job", {"slurm:9"})):
        found = json.loads(ledger(half_known, capsys, "--json", "--by", group))
        rows = {each["name"]: each["gpu_hours"] for each in found["groups"]["rows"]}
        assert {name for name in rows if name is not None and not name.startswith("(")} == names
        assert sum(rows.values()) == pytest.approx(found["gpu_hours"]["total"])
        assert ledger(half_known, capsys, "--by", group).count(next(iter(names)))
