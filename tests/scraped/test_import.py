"""`fallow import prometheus`: what it writes, once; what it leaves out, asks, refuses; what a failed run leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from analytics.scraped import reading
from analytics.scraped.discovery import FoundHost
from analytics.scraped.reading import Chunker
from analytics.scraped.server.metrics_server import MetricsServer
from analytics.scraped.server_import import ProgressLine
from fallow import parquet, schema
from fallow.clock import DAY_MS, HOUR_MS, MINUTE_MS, SystemClock, format_ms
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from tests.conftest import run_python
from tests.in_process import run_in_process
from tests.ledger.rows import load
from tests.scraped.exposed import DCGM, facts_in, facts_of
from tests.scraped.held_server import HeldServer
from tests.scraped.site import GPUS, dcgm, dcgm_of_pods, site_samples

if TYPE_CHECKING:
    from subprocess import CompletedProcess

MIDNIGHT_MS = 1_795_651_200_000  # 2026-11-26T00:00Z
SINCE_MS, UNTIL_MS = MIDNIGHT_MS - 40 * MINUTE_MS, MIDNIGHT_MS + 40 * MINUTE_MS
SITE = GPUS[2:6]
"""Two busy cards on gn001, and two on gn002 that are held and idle."""

SAMPLES = list(site_samples(dcgm, range(SINCE_MS, UNTIL_MS, 2 * MINUTE_MS), SITE))


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> HeldServer:
    held = HeldServer()
    held.write(SAMPLES)
    monkeypatch.setattr(MetricsServer, "connect", lambda *_: held)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: UNTIL_MS)
    return held


def brought(lake: Lake, state: Path, *flags: str) -> CompletedProcess[str]:
    return run_in_process(
        "import", "prometheus", "--url", "http://held:9090", "--since", format_ms(SINCE_MS), "--lake", lake.root,
        *flags, XDG_STATE_HOME=str(state),
    )  # fmt: skip


def content(lake: Lake) -> dict[str, bytes]:
    return {str(path.relative_to(lake.root)): path.read_bytes() for path in Path(lake.root).rglob("*.parquet")}


def test_every_sample_is_there_once_in_a_file_for_each_host_and_day(lake: Lake, tmp_path: Path) -> None:
    done = brought(lake, tmp_path)
    assert done.returncode == 0, done.stderr
    assert facts_in(lake, DCGM) == facts_of(SAMPLES, DCGM)
    assert sorted((file.host, file.date) for file in lake.files("gpu")) == [
        (host, date) for host in ("gn001", "gn002") for date in ("2026-11-25", "2026-11-26")
    ]
    assert "GPUs      4 on 2 hosts" in done.stdout
    assert f"{len(SAMPLES):,} samples" in done.stdout
    assert f"next      fallow recommendations --lake {lake.root}" in done.stdout
    assert "has metrics of NVIDIA dcgm-exporter; reading by memory" in done.stderr


def test_a_chunk_with_more_samples_than_are_held_at_once_is_read_in_parts(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_MOST_AT_ONCE", 100)
    done = brought(lake, tmp_path)
    assert facts_in(lake, DCGM) == facts_of(SAMPLES, DCGM)
    assert f"{len(SAMPLES):,} samples" in done.stdout


def test_hosts_whose_pods_come_and_go_are_found_in_parts_of_a_window(
    server: HeldServer, lake: Lake, tmp_path: Path
) -> None:
    """Each of four GPUs has two series, and others every ten minutes: of a day's four pods, two at a time are taken."""
    server.__init__(most_series=16)  # type: ignore[misc]
    served = [
        replace(each, labels=tuple(sorted((*each.labels, ("exported_pod", f"p{each.time_ms // (10 * MINUTE_MS)}")))))
        for each in SAMPLES
    ]
    server.write(served)
    assert brought(lake, tmp_path).returncode == 0
    assert facts_in(lake, DCGM) == facts_of(SAMPLES, DCGM)
    server.most_series = 7
    refused = brought(lake, tmp_path, "--restart")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == "fallow: more series than are taken; narrow them"


@pytest.fixture
def turns(server: HeldServer) -> None:
    """Two pods take turns on every GPU."""
    server.__init__()  # type: ignore[misc]
    moments = range(SINCE_MS, UNTIL_MS, 2 * MINUTE_MS)
    named = ((each, f"p{each.time_ms // (14 * MINUTE_MS) % 2}") for each in site_samples(dcgm_of_pods, moments, SITE))
    server.write(each.labelled(exported_pod=pod, exported_namespace="nlp") for each, pod in named)


def users(lake: Lake, state: Path, *flags: str) -> list[object]:
    done = brought(lake, state, *flags)
    assert done.returncode == 0, done.stderr
    listed = json.loads(run_in_process("allocations", "list", "--lake", lake.root, "--json").stdout)
    return sorted(
        (each["allocation_id"], each["start"], str(each.get("end"))) for each in listed["tables"]["allocations"]["rows"]
    )


@pytest.mark.usefixtures("turns")
def test_who_left_and_came_back_is_the_same_in_parts_of_a_day(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cuts lie where one of the pods is."""
    whole = users(lake, tmp_path)
    monkeypatch.setattr(reading, "Chunker", partial(Chunker, 1500))
    monkeypatch.setattr(reading, "_MOST_AT_ONCE", 150)
    assert users(Lake.at(str(tmp_path / "in parts")), tmp_path) == whole
    assert len(whole) == 6


@pytest.mark.usefixtures("turns")
@pytest.mark.parametrize(
    "minutes",
    [pytest.param(20, id="while a pod is there"), pytest.param(28, id="when it leaves", marks=pytest.mark.long)],
)
def test_who_left_and_came_back_is_the_same_though_earlier_days_are_read_later_and_once_more(
    lake: Lake, tmp_path: Path, minutes: int
) -> None:
    whole = users(lake, tmp_path)
    other = Lake.at(str(tmp_path / "later first"))
    at = format_ms(MIDNIGHT_MS + minutes * MINUTE_MS)
    users(other, tmp_path, "--since", at)
    assert users(other, tmp_path) == whole
    assert users(other, tmp_path, "--restart", "--until", at) == whole


@pytest.mark.long
def test_again_spares_the_work_and_without_the_journal_changes_nothing(
    server: HeldServer, lake: Lake, tmp_path: Path
) -> None:
    brought(lake, tmp_path)
    before, reads = content(lake), server.reads
    again = json.loads(brought(lake, tmp_path, "--json").stdout)
    assert again["read_from"] == format_ms(UNTIL_MS - 10 * MINUTE_MS)
    assert (again["tables"], content(lake)) == (
        [
            {"table": "device", "new": 0, "already_there": 4, "replaced": 0, "files_written": 0},
            {"table": "gpu", "new": 0, "already_there": 20, "replaced": 0, "files_written": 0},
        ],
        before,
    )
    assert server.reads == reads + 1
    for flags, state in ((["--restart"], tmp_path), ([], tmp_path / "another")):
        assert json.loads(brought(lake, state, "--json", *flags).stdout)["read_from"] == format_ms(SINCE_MS)
        assert content(lake) == before


def test_what_a_failed_run_left_is_whole_and_the_next_one_completes_it(
    server: HeldServer, lake: Lake, tmp_path: Path
) -> None:
    server.fails_after = 1
    failed = brought(lake, tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.endswith("the server has had enough; ask it later\n")
    assert {file.date for file in lake.files("gpu")} == {"2026-11-25"}
    server.fails_after = None
    assert json.loads(brought(lake, tmp_path, "--json").stdout)["read_from"] == "2026-11-26T00:00:00Z"
    assert facts_in(lake, DCGM) == facts_of(SAMPLES, DCGM)


def test_an_agents_rows_count_under_its_name_of_the_host(lake: Lake, tmp_path: Path) -> None:
    start_ms, gpu = UNTIL_MS - 30 * MINUTE_MS, SITE[0].uuid
    rows = [
        {"time": start_ms + at, "gpu": gpu, "interval_ms": 10_000, "gpu_util_pct": 7.0}
        for at in range(0, 20 * MINUTE_MS, 10_000)
    ]
    for table, content_ in (("gpu", rows), ("device", [{"time": start_ms, "gpu": gpu, "model": "of the agent"}])):
        data = parquet.table_from_rows(schema.table(table), content_)
        file = LakeFile(table, "2026-11-26", "gn001.site", AGENT_FIRST_SEQ, AGENT_FIRST_SEQ + 1)
        lake.put(file, parquet.encode(schema.table(table), data))
    done = brought(lake, tmp_path)
    assert "10 rows left out: agents have these GPUs and times" in done.stdout
    of_the_day = {file.host for file in lake.files("gpu", dates=["2026-11-26"])}
    assert of_the_day == {"gn001.site", "gn002"}
    kept = [
        fact
        for fact in facts_of(SAMPLES, DCGM)
        if not (fact.gpu == gpu and start_ms <= fact.time_ms < start_ms + 20 * MINUTE_MS)
    ]
    assert [fact for fact in facts_in(lake, DCGM) if fact.value != 7] == [fact for fact in kept if fact.value != 7]
    devices = parquet.read(lake.files("device", dates=["2026-11-26"], hosts=["gn001.site"]), schema.DEVICE)
    assert {each["model"] for each in devices.to_pylist() if each["gpu"] == gpu} == {"of the agent"}


def test_a_wrong_unit_in_a_sites_own_mapping_is_asked_about(tmp_path: Path) -> None:
    mapping = tmp_path / "ours.toml"
    mapping.write_text(
        'extend = "dcgm-exporter"\nmetrics = [{ name = "DCGM_FI_DEV_FB_USED", to = "gpu.mem_used_bytes", unit ='
        ' "bytes", kind = "reading" }]\n'
    )
    lake = Lake.at(str(tmp_path / "lake"))
    refused = brought(lake, tmp_path, "--mapping", str(mapping))
    assert refused.returncode == 1
    assert "nothing is published" in refused.stdout
    assert "mem_used_bytes holds 71,200 bytes at most" in refused.stderr
    assert not Path(lake.root).exists()
    assert brought(lake, tmp_path, "--mapping", str(mapping), "--yes").returncode == 0


def test_a_server_without_gpus_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = brought(Lake.at(str(tmp_path / "lake")), tmp_path, "--match", 'job="none"')
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert (
        "has no series of a known GPU exporter or inference server between 2026-11-25T23:20:00Z and"
        ' 2026-11-26T00:40:00Z where job="none"' in done.stderr
    )
    assert not (tmp_path / "lake").exists()


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    done = brought(Lake.at(str(tmp_path / "lake")), tmp_path, "--check")
    assert done.returncode == 0
    assert "4 GPUs on 2 hosts." in done.stdout
    assert not (tmp_path / "lake").exists()


def test_a_page_that_stands_still_is_not_observed_by_the_same_hours_everywhere(
    server: HeldServer, lake: Lake, tmp_path: Path
) -> None:
    """From midnight on a host's page repeats: its energy counters stand still beside 360 W; the other host's go on."""
    stood = {(each.name, each.labels): each.value for each in SAMPLES if each.time_ms == MIDNIGHT_MS}
    server.__init__()  # type: ignore[misc]
    server.write(
        replace(each, value=stood[each.name, each.labels])
        if each.label("Hostname") == "gn001" and each.time_ms > MIDNIGHT_MS
        else each
        for each in SAMPLES
    )
    said = "1.3 GPU-hours of 2 GPUs (scraped) with readings that repeat although one of them cannot stay equal"
    assert said in " ".join(brought(lake, tmp_path, "--check").stdout.split())
    done = brought(lake, tmp_path, "--json")
    (found,) = json.loads(done.stdout)["contradictions"]
    assert found["note"].startswith(said)
    ledger = load(lake)
    rows = ledger.segments.filter(state="unknown")
    assert set(rows["host"]) == {"gn001"}
    unknown_ms = (rows["end"] - rows["time"]).sum()
    assert unknown_ms == ledger.rollups.quality()["affected_ms"].sum() == 2 * 40 * MINUTE_MS
    assert found["gpu_hours"] == unknown_ms / HOUR_MS


def test_users_of_the_labels_become_allocations_that_go_on_from_day_to_day(
    server: HeldServer, lake: Lake, tmp_path: Path
) -> None:
    server.__init__()  # type: ignore[misc]
    server.write(site_samples(dcgm_of_pods, range(SINCE_MS, UNTIL_MS, 2 * MINUTE_MS), SITE))
    done = brought(lake, tmp_path)
    assert "users     2 jobs and pods" in done.stdout
    assert "users     2 jobs and pods" in brought(lake, tmp_path, "--restart").stdout
    listed = json.loads(run_in_process("allocations", "list", "--lake", lake.root, "--json").stdout)
    assert sorted((each["allocation_id"], each["start"]) for each in listed["tables"]["allocations"]["rows"]) == [
        (name, format_ms(SINCE_MS)) for name in ("nlp/notebook-7f", "vision/pretrain-0")
    ]


def test_without_a_terminal_there_is_a_line_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    clock = StillClock()
    with ProgressLine(clock) as progress:
        for share, samples in ((0.25, 500_000), (0.25, 700_000), (0.1, 1)):
            clock.passed_s += 45
            progress.advance(share, samples)
    assert capsys.readouterr().err == "fallow: 50% read, 1,200,000 samples, 13,333/s, about 1min 30s left\n"


class StillClock(SystemClock):
    """Goes on when the test says so."""

    passed_s = 0.0

    def monotonic_s(self) -> float:
        return self.passed_s


def test_a_window_is_cut_by_hosts_that_share_no_target_and_by_time() -> None:
    hosts = [FoundHost(f"h{n}", {f"i{n}"}, set(), 10) for n in range(5)]
    shared = [replace(host, instances={"federation"}, series=500) for host in hosts[3:]]
    chunker = Chunker(most_samples=240 * 1000)  # 15 s: a series has 240 samples an hour
    chunks = chunker.chunks([*hosts[:3], *shared], 0, HOUR_MS)
    assert [(chunk.hosts, chunk.since_ms, chunk.until_ms) for chunk in chunks] == [
        (("h0", "h1", "h2"), 0, HOUR_MS),
        (("h3", "h4"), 0, HOUR_MS),
    ]
    assert sum(chunk.share for chunk in chunks) == pytest.approx(1)
    chunker.learn(samples=2 * 240 * 30, series=30, length_ms=HOUR_MS)
    assert [(chunk.since_ms, chunk.until_ms) for chunk in chunker.chunks(shared, 0, DAY_MS)][:2] == [
        (0, DAY_MS // 48),
        (DAY_MS // 48, 2 * DAY_MS // 48),
    ]


@pytest.mark.long
def test_names_made_to_hurt_are_obeyed_by_nothing(server: HeldServer, lake: Lake, tmp_path: Path) -> None:
    """A host name with control characters is none; a pod's stays in its column."""
    server.__init__()  # type: ignore[misc]
    times = range(SINCE_MS, SINCE_MS + 20 * MINUTE_MS, 2 * MINUTE_MS)
    of_pods = [each.labelled(exported_pod="p\x1b[2J\n../x") for each in site_samples(dcgm_of_pods, times, SITE)]
    server.write(
        each.labelled(Hostname="gn\x1b]0;x\x07") if each.label("Hostname") == "gn001" else each for each in of_pods
    )
    server.warnings = ("the server warns \x1b[31mof this",)
    for flags in ([], ["--check"], ["--json", "--restart"]):
        done = brought(lake, tmp_path, *flags)
        assert done.returncode == 0, done.stderr
        assert not set(done.stdout + done.stderr) & {"\x1b", "\x07", "\r"}
    assert {file.host for file in lake.files("gpu")} == {"gn002"}


@pytest.mark.long
def test_a_trial_does_not_spoil_the_journal_of_the_whole(server: HeldServer, lake: Lake, tmp_path: Path) -> None:
    """A short window first, then the whole, which is cut off: what either has read is read no more."""
    trial = format_ms(MIDNIGHT_MS + 20 * MINUTE_MS)
    assert brought(lake, tmp_path, "--since", trial).returncode == 0
    server.fails_after = server.reads + 1
    assert brought(lake, tmp_path).returncode == 1
    server.fails_after = None
    assert json.loads(brought(lake, tmp_path, "--json").stdout)["read_from"] == format_ms(MIDNIGHT_MS)
    again = json.loads(brought(lake, tmp_path, "--json", "--since", trial).stdout)
    assert again["read_from"] == format_ms(UNTIL_MS - 10 * MINUTE_MS)


def test_loading_the_command_computes_nothing() -> None:
    """Polars' threads begin with its first query, and a fork of a process that has them may wait for ever."""
    code = (
        "import analytics.commands.imports, os; print(*(open(f'/proc/self/task/{each}/comm').read() for each in"
        " os.listdir('/proc/self/task')))"
    )
    assert "polars-0" not in run_python("-c", code).stdout
