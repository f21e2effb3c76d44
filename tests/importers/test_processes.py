"""Who was on imported GPUs: process lists, their counts, and what the ledger and findings make of them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fallow.cli import main
from fallow.lake import Lake
from tests.importers.conftest import at, query
from tests.importers.test_nvidia_smi_forms import document
from tests.lakes import holds_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.importers.conftest import Outcome, Run

RECORDED = Path(__file__).parent / "recorded"
"""What gpustat 1.1.1 and nvitop 1.7.2 wrote over the fake driver: two users, an empty GPU, a hidden process."""

COUNTS = "select gpu, list(process_count order by time) from lake group by gpu order by gpu"


def gpu(index: int, processes: object, *, util: int = 0, mem: int = 0) -> dict[str, Any]:
    about = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3", "memory.total": 81559}
    values = {"utilization.gpu": util, "memory.used": mem, "power.draw": 70, "enforced.power.limit": 700}
    return {**about, **values, "processes": processes}


@pytest.fixture
def gpustat(fallow_import: Run, tmp_path: Path) -> Run:
    """Imports ticks, each a list of what `gpu` gives."""

    def run(ticks: Sequence[list[dict[str, Any]]], *flags: str, step_s: int = 10) -> Outcome:
        clocks = (
            f"{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}.100" for at in range(0, step_s * len(ticks), step_s)
        )
        whens = (f"2026-11-20T{clock}" for clock in clocks)
        documents = (
            {"hostname": "gn001", "query_time": when, "gpus": gpus} for when, gpus in zip(whens, ticks, strict=True)
        )
        path = tmp_path / "log.json"
        path.write_text("".join(json.dumps(each) + "\n" for each in documents))
        return fallow_import("gpustat", path, *flags)

    return run


def process(pid: object, user: object = "ann", mem: object = 400, command: object = "python") -> dict[str, Any]:
    return {"pid": pid, "username": user, "gpu_memory_usage": mem, "command": command, "cpu_memory_usage": 2**30}


def test_a_recorded_gpustat_names_its_processes(fallow_import: Run, place: str) -> None:
    done = fallow_import("gpustat", RECORDED / "gpustat.jsonl.gz")
    overview = done.summary["overview"]
    assert (overview["processes"], overview["users"]) == (3, 2)
    assert query(place, COUNTS) == [
        ("GPU-00000000-aaaa-bbbb-cccc-000000000000", [2, 2, 1, 1, 1, 1]),
        ("GPU-00000001-aaaa-bbbb-cccc-000000000001", [1] * 6),
        ("GPU-00000002-aaaa-bbbb-cccc-000000000002", [0] * 6),
        # its process is one that gpustat could not look at and left out
        ("GPU-00000003-aaaa-bbbb-cccc-000000000003", [None] * 6),
    ]
    assert "6 process lists are empty although more than 1 GB is in use: treated as unknown" in done.summary["notes"]
    rows = query(
        place,
        "select gpu[:12], user, command, mem_used_bytes // 1048576, host_mem_bytes > 0, attribution, count(*) from lake"
        " group by all order by all",
        "process",
    )
    assert rows == [
        ("GPU-00000000", "games", "sleep", 12_288, True, "import", 6),
        ("GPU-00000000", "nobody", "sleep", 8_192, True, "import", 2),
        ("GPU-00000001", "games", "sleep", 9_216, True, "import", 6),
    ]


def test_what_gpustat_may_not_see_is_unknown(gpustat: Run, place: str) -> None:
    listed = [process(7, "?", None, "?"), process("eight"), 9]
    done = gpustat([[gpu(0, listed), gpu(1, None), gpu(2, []), gpu(3, ["odd"])]] * 2)
    assert query(place, COUNTS) == [
        ("GPU-0", [1, 1]),
        ("GPU-1", [None, None]),
        ("GPU-2", [0, 0]),
        ("GPU-3", [None, None]),
    ]
    assert done.nulled()["processes", "a process without an id"] == 6
    assert query(place, "select distinct pid, user, command, mem_used_bytes from lake", "process") == [
        (7, None, None, None)
    ]


def test_processes_of_xml_documents(smi: Run, place: str) -> None:
    def listed(text: str) -> str:
        return document(0, 1).replace("</gpu>", f"{text}</gpu>").replace("GPU-0", f"GPU-{len(text)}")

    entry = (
        "<process_info><pid>{}</pid><type>{}</type><process_name>{}</process_name><used_memory>{}</used_memory>"
        "</process_info>"
    )
    two = entry.format(7, "C", "/opt/venv/bin/python3 train.py --key x", "9856 MiB")
    two += entry.format(8, "C+G", "[Not Found]", "N/A")
    texts = ["", "<processes>N/A</processes>", "<processes>\n</processes>", f"<processes>{two}</processes>"]
    smi(*map(listed, texts), *(listed(text).replace("10:00:00", "10:00:10") for text in texts))
    counts = dict(query(place, COUNTS))
    assert [counts[f"GPU-{len(text)}"] for text in texts] == [[None, None], [None, None], [None, None], [2, 2]]
    found = query(place, "select distinct pid, kind, user, command, mem_used_bytes from lake order by 1", "process")
    assert found == [(7, "compute", None, "python3", 9856 * 2**20), (8, "compute", None, None, None)]


def test_an_empty_list_is_none_and_a_missing_one_unknown(smi: Run, place: str) -> None:
    idle = document(0, 1).replace("<used>1024 MiB</used>", "<used>0 MiB</used>")
    texts = [idle.replace("10:00:00", f"10:00:{tick}0") for tick in range(3)]
    smi(*(text.replace("</gpu>", "<processes></processes></gpu>") for text in texts))
    assert query(place, COUNTS) == [("GPU-0", [0, 0, 0])]


HEAD = (
    "#Date        Time         gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm   "
    " command \n#YYYYMMDD    HH:MM:SS     Idx           #    C/G      %      %      %      %      %      %     MB    "
    " MB    name \n"
)
NOBODY = "-     -      -      -      -      -      -      -      -      -    -"


def pmon(second: int, gpu: int, rest: str) -> str:
    return f" 20261120    10:{second // 60:02}:{second % 60:02}       {gpu}          {rest}              \n"


def used(second: float, gpu: int, util: int = 5, mem: int = 0) -> str:
    return f"{at(second)}, {gpu}, GPU-{gpu}, {util} %, {mem} MiB\n"


SMI = "timestamp, index, uuid, utilization.gpu [%], memory.used [MiB]\n"
PROCESSES_OF = "select distinct gpu, pid, kind, command, mem_used_bytes // 1048576 from lake order by all"


ANN = "7     C     93     12      -      -      -      -   3900      0    python3 -m x"
HIDDEN = "8   C+G      -      -      -      -      -      -      -      0    -"


def test_pmon_beside_a_log_of_utilization(smi: Run, place: str) -> None:
    log = SMI + "".join(used(10 * tick + 0.3, gpu) for tick in range(3) for gpu in range(3))
    ticks = (pmon(second, gpu, rest) for second in range(21) for gpu, rest in ((0, ANN), (0, HIDDEN), (1, NOBODY)))
    done = smi(log, HEAD + "".join(ticks))
    assert query(place, COUNTS) == [("GPU-0", [2, 2, 2]), ("GPU-1", [0, 0, 0]), ("GPU-2", [None] * 3)]
    assert query(place, "select min(gpu_util_pct), max(gpu_util_pct), count(*) from lake") == [(5, 5, 9)]
    found = query(place, PROCESSES_OF, "process")
    assert found == [("GPU-0", 7, "compute", "python3", 3900), ("GPU-0", 8, "compute", None, None)]
    assert done.summary["rows"] == {"read": 9 + 63, "dropped": 0, "merged": 63, "kept": 9}
    assert done.summary["notes"] == []
    assert done.summary["files"][1]["notes"] == ["read as a table of nvidia-smi pmon"]


def test_pmon_alone_says_who_is_there_and_nothing_of_utilization(smi: Run, place: str) -> None:
    text = HEAD + "".join(pmon(tick, 0, NOBODY if tick else ANN) for tick in range(3))
    smi(text).refused("no file has the GPUs' own samples (1 of 1)")
    smi(text, flags=("--yes",))
    assert query(place, COUNTS) == [("gn001/0", [1, 0, 0])]
    assert query(place, "select count(gpu_util_pct), count(mem_used_bytes) from lake") == [(0, 0)]
    of_another = "timestamp, uuid, utilization.gpu [%]\n" + "".join(f"{at(tick)}, GPU-0, 5 %\n" for tick in range(9))
    done = smi(of_another, HEAD + pmon(0, 0, NOBODY) + pmon(1, 0, NOBODY))
    assert "no file has the GPUs' own samples (1 of 2)" in done.err


APPS = "timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"


def test_compute_apps_beside_a_log_of_utilization(smi: Run, place: str) -> None:
    log = SMI + "".join(used(10 * tick + 0.003 * gpu, gpu) for tick in range(4) for gpu in range(2))
    apps = APPS + "".join(
        f"{at(10 * tick + 1.5)}, GPU-0, 7, /usr/bin/python3, 3900 MiB\n{at(10 * tick + 1.51)}, GPU-0, 8, x, [N/A]\n"
        for tick in range(2)
    )
    done = smi(log, apps + f"{at(21)}, GPU-0, [N/A], x, 5 MiB\n")
    # a GPU without a line may have none, or may not have been asked
    assert query(place, COUNTS) == [("GPU-0", [2, 2, 2, 2]), ("GPU-1", [None] * 4)]
    assert query(place, PROCESSES_OF, "process") == [("GPU-0", 7, None, "python3", 3900), ("GPU-0", 8, None, "x", None)]
    assert done.dropped(1) == {"a process without an id": 1}
    assert done.summary["rows"] == {"read": 13, "dropped": 1, "merged": 4, "kept": 8}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            APPS.replace("gpu_uuid", "gpu_name") + f"{at(0)}, H100, 7, x, 5 MiB\n",
            "does not name the GPU of a process",
        ),
        (APPS.replace("timestamp, ", "") + "GPU-0, 7, x, 5 MiB\n", "has no timestamp field"),
        (APPS + "".join(f"{at(tick)}, GPU-0, 7, x, {4 * 2**20} MiB\n" for tick in range(3)), "above any card's"),
        (HEAD.replace("MB     MB", "GB     MB") + pmon(0, 0, NOBODY), "fb is in GB, but pmon writes MB"),
    ],
)
def test_process_logs_that_cannot_be_used(smi: Run, place: str, text: str, said: str) -> None:
    smi(text).refused(said)
    assert holds_nothing(Lake.at(place))


def test_importing_again_and_with_another_interval_is_harmless(gpustat: Run, place: str) -> None:
    log = [[gpu(0, [process(7)])]] * 6
    assert gpustat(log).published["process"] == (6, 0, 0)
    assert gpustat(log).published["process"] == (0, 6, 0)
    gpustat(log, "--interval", "20s", "--yes")
    assert query(place, "select distinct process_count, interval_ms from lake order by all") == [(1, 20_000)]
    assert query(place, "select count(distinct pid), count(*) from lake", "process") == [(1, 6)]
    gpustat([[gpu(0, [])]] * 6, "--yes")  # a later import of empty lists takes nobody away
    assert query(place, "select distinct process_count from lake") == [(1,)]


def test_memory_of_a_process_above_the_cards_is_refused(gpustat: Run, place: str) -> None:
    done = gpustat([[gpu(0, [process(7, mem=400 * 2**20)])]] * 6)
    done.refused("memory of processes has 6 of 6 values above the card's 79.6 GiB")
    assert holds_nothing(Lake.at(place))


def command_json(place: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--lake", place, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_process_id_alone_holds_a_gpu_for_somebody_not_known(
    smi: Run, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = SMI + "".join(used(tick, gpu, util=0, mem=400) for tick in range(0, 3600, 10) for gpu in range(2))
    held = ANN.replace("   3900      0    python3 -m x", "    400      0    python")
    smi(
        log, HEAD + "".join(pmon(tick, gpu, NOBODY if gpu else held) for tick in range(0, 3600, 10) for gpu in range(2))
    )
    rows = command_json(place, capsys, "ledger", "--by", "user")["groups"]["rows"]
    hours = {each["label"]: (each["held_gpu_hours"], each["free_gpu_hours"]) for each in rows}
    assert hours == {"(nobody)": (0, 1), "(unknown user)": (1, 0)}


def test_imported_history_knows_who_holds_what(gpustat: Run, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    held = [gpu(1, [process(2, "bob")], mem=400), gpu(2, [process(3, "?")], mem=400)]
    gpustat([[gpu(0, [process(1)], util=90, mem=400), *held, gpu(3, []), gpu(4, None)]] * 720, step_s=60)
    printed = partial(command_json, place, capsys)
    hours = printed("ledger")["gpu_hours"]
    assert {state: hours[state] for state in ("free", "held", "active")} == {"free": 24, "held": 24, "active": 12}
    rows = printed("ledger", "--by", "user")["groups"]["rows"]
    users = {each["label"]: (each["held_gpu_hours"], each["active_gpu_hours"]) for each in rows}
    assert users == {"(nobody)": (0, 0), "(unknown user)": (12, 0), "ann": (0, 12), "bob": (12, 0)}
    findings = [each for each in printed("findings", "--all")["findings"] if each["rule"] == "held"]
    found = sorted((each["gpus"], each["user"], each["evidence"]["user_source"]) for each in findings)
    assert found == [(["GPU-1"], "bob", "process"), (["GPU-2"], None, "process")]
    unnamed = next(each for each in findings if each["user"] is None)
    assert "the user is not known" in unnamed["failed_conditions"]


@pytest.mark.parametrize("mem", [8000, 500])
def test_a_list_holds_until_the_next_one(
    gpustat: Run, place: str, capsys: pytest.CaptureFixture[str], mem: int
) -> None:
    """Lists every minute beside samples every ten seconds: held by ann throughout, whatever her memory."""
    lists = [[process(7, mem=mem)] if tick % 6 == 0 else None for tick in range(360)]
    assert gpustat([[gpu(0, each, mem=mem)] for each in lists], "--yes").code == 0
    assert query(place, "select distinct process_count from lake") == [(1,)]
    assert query(place, "select distinct interval_ms from lake", "process") == [(60_000,)]
    (row,) = command_json(place, capsys, "ledger", "--by", "user", "--json")["groups"]["rows"]
    assert (row["name"], row["held_gpu_hours"]) == ("ann", pytest.approx(1))


def test_a_list_that_comes_no_more_holds_for_three_steps(gpustat: Run, place: str) -> None:
    lists = [[process(7)] if tick < 13 and tick % 6 == 0 else None for tick in range(60)]
    assert gpustat([[gpu(0, each)] for each in lists], "--yes").code == 0
    assert query(place, "select count(*) from lake where process_count = 1") == [(12 + 18 + 1,)]
