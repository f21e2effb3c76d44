"""`fallow follow otlp` from the request to the lake: rows, who had the GPU, a lake that is away, and kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from agent.metrics.otlp import OtlpPush, OtlpSettings
from agent.snapshot import SnapshotBoard
from analytics.frames import read_frame
from analytics.mapping.mapping_file import load_exporters, metric_names
from analytics.scraped.lake_writer import DayMerging
from analytics.scraped.otlp import delivery
from analytics.scraped.otlp.command import ReceiverStatus
from analytics.scraped.otlp.delivery import DeliveryRounds
from analytics.scraped.otlp.messages import PROTOBUF
from analytics.scraped.otlp.receiver import PATH, Intake, otlp_receiver
from analytics.scraped.otlp.spool import RequestSpool, frames
from analytics.scraped.serving_rows import SERVER_NAMES
from fallow import config, parquet
from fallow.cli import main
from fallow.clock import SystemClock
from fallow.exposition import TEXT
from fallow.lake import AGENT_FIRST_SEQ, Lake, LakeFile
from fallow.schema import ALLOCATION, DEVICE, GPU, SERVING
from tests.agent.conftest import wait_until
from tests.agent.snapshots import BUSY, GIB, INTERVAL_MS, LOST, snapshot
from tests.conftest import REPOSITORY
from tests.lakes import made_lake
from tests.ledger.rows import device, samples
from tests.scraped.otlp_requests import NOW_MS, climbing, gauge, histogram, point, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    from fallow.schema import LakeTable

ABOUT: dict[str, Any] = {
    "hw__id": "GPU-1",
    "hw__type": "gpu",
    "hw__model": "NVIDIA H100 80GB HBM3",
    "k8s__namespace__name": "ml",
    "k8s__pod__name": "train-0",
}
STEP_MS = 15_000


def push(at: int, util: float = 0.5, *, first: int = 0) -> ExportMetricsServiceRequest:
    """What a collector says at the `at`th step; its counter began at the step `first`."""
    at_ms = NOW_MS + at * STEP_MS
    energy = 1000.0 * (at - first)
    return request(
        gauge("hw.gpu.utilization", "1", point(util, at_ms, **ABOUT, hw__gpu__task="general"),
              point(0.9, at_ms, **ABOUT, hw__gpu__task="encoder")),
        gauge("hw.power", "W", point(300.0, at_ms + 3, **ABOUT)),
        gauge("hw.temperature", "Cel", *(
            point(celsius, at_ms + 3, hw__id=f"GPU-1/{place}", hw__parent="GPU-1", hw__sensor_location=place)
            for place, celsius in (("GPU_DIE", 61.0), ("HBM", 82.0))
        )),
        climbing("hw.gpu.memory.limit", "By", point(80e9, at_ms + 4, **ABOUT)),
        climbing("hw.energy", "J", point(energy, at_ms + 5, start_ms=NOW_MS + first * STEP_MS - 1, **ABOUT)),
        host__name="gn001", k8s__namespace__name="monitoring", k8s__pod__name="collector-x7",
    )  # fmt: skip


class Site:
    """A lake, a receiver without its socket, and the rounds that deliver."""

    def __init__(self, folder: Path) -> None:
        self.lake = made_lake(folder / "lake")
        self.folder = folder
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        exporters = load_exporters()
        self.spool = RequestSpool(self.folder / "spool", 10_000_000)
        self.intake = Intake(self.spool, metric_names(exporters) | SERVER_NAMES, 1_000_000, SystemClock())
        lake = Lake.at(self.lake.root)
        self.rounds = DeliveryRounds(
            self.spool, exporters, lake, None, DayMerging(lake, 0, 0), SystemClock(), self.said.append
        )
        self.status = ReceiverStatus(self.intake, self.rounds.state, SystemClock(), 300_000)

    def take(self, *pushes: ExportMetricsServiceRequest) -> None:
        for each in pushes:
            assert self.intake.take(each.SerializeToString(), PROTOBUF) == b""

    def rows(self, table: LakeTable = GPU) -> pl.DataFrame:
        return read_frame(self.lake.files(table.name), table, table.names).sort("time")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS + 3_600_000)
    found = Site(tmp_path)
    yield found
    found.spool.close()


def moments(rows: pl.DataFrame) -> list[float]:
    return ((rows["time"].dt.epoch("ms") + rows["offset_ms"] - NOW_MS) / STEP_MS).to_list()


def test_a_push_is_a_row_with_what_it_covers(site: Site) -> None:
    site.take(*(push(at) for at in range(8)))
    site.rounds.run()
    rows = site.rows()
    assert moments(rows) == list(range(8))
    first = rows.row(1, named=True)
    named = ("GPU-1", "gn001", STEP_MS, "scraped")
    assert (first["gpu"], first["host"], first["interval_ms"], first["util_source"]) == named
    assert (first["gpu_util_pct"], first["power_w"], first["energy_mj"]) == (50.0, 300.0, 1_000_000)
    assert (first["temperature_c"], first["mem_temperature_c"]) == (61, 82)
    assert first["gpu_util_coverage_ratio"] == pytest.approx(0.1666 * 1000 / STEP_MS, rel=0.01)
    assert rows["counters_since"].unique().dt.epoch("ms").to_list() == [NOW_MS - 1]
    (device,) = site.rows(DEVICE).to_dicts()
    assert (device["model"], device["mem_total_bytes"]) == ("NVIDIA H100 80GB HBM3", 80_000_000_000)
    (allocation,) = site.rows(ALLOCATION).to_dicts()
    assert (allocation["gpu"], allocation["account"]) == ("GPU-1", "ml")


def test_rounds_go_on_from_one_another_and_a_late_push_is_no_less(site: Site) -> None:
    site.take(*(push(at) for at in range(4)))
    site.rounds.run()
    site.take(*(push(at) for at in (6, 7, 5)), push(7))
    site.rounds.run()
    site.rounds.run()
    site.take(push(4), push(8, first=8))
    site.rounds.run()
    rows = site.rows()
    assert moments(rows) == list(range(9))
    assert set(rows["interval_ms"]) == {STEP_MS}
    assert rows["counters_since"].dt.epoch("ms").to_list() == [*[NOW_MS - 1] * 8, NOW_MS + 8 * STEP_MS - 1]
    assert len(list(site.folder.glob("spool/*.otlp*"))) == 2, (
        "the last file that was delivered, and the one that is open"
    )


def test_deltas_begin_a_new_sum_after_a_day_of_silence(site: Site) -> None:
    for back_h in (72, 71, 1, 0):
        at_ms = NOW_MS - back_h * 3_600_000
        site.take(request(climbing("hw.energy", "J", point(5.0, at_ms, start_ms=at_ms - 1000, **ABOUT), delta=True)))
        site.rounds.run()
    assert site.rows()["energy_mj"].to_list() == [5000, 10_000, 5000, 10_000]


def test_a_lake_that_is_away_is_waited_for(site: Site) -> None:
    away = site.folder / "away"
    site.take(push(0), push(1))
    Path(site.lake.root).rename(away)
    site.rounds.run()
    site.rounds.run()
    assert site.status.health()[1]["status"] == "failing"
    away.rename(site.lake.root)
    site.take(push(2))
    site.rounds.run()
    assert moments(site.rows()) == [0, 1, 2]
    assert [each.split("; ")[-1] for each in site.said] == [
        "new data is kept in the spool meanwhile",
        "the lake takes rows again",
    ]
    assert not away.exists()
    page = site.status.metrics().render(TEXT).decode()
    assert "fallow_otlp_points_total 21\n" in page
    assert "fallow_otlp_delivery_failing 0\n" in page
    assert site.status.health()[0] == 200


def test_what_nobody_foresaw_is_set_aside_and_holds_nothing_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.take(push(0))
    site.rounds.run()
    site.take(push(1))
    with monkeypatch.context() as patched:
        patched.setattr(delivery, "host_rows", unforeseen)
        site.rounds.run()
    site.take(push(2))
    site.rounds.run()
    assert moments(site.rows()) == [0, 2]
    assert "ValueError: odd" in site.said[0]
    assert site.status.health()[0] == 200
    [kept] = site.folder.glob("spool/*.unusable")
    assert str(kept) in site.said[0]
    [left] = frames(kept)
    assert left == push(1).SerializeToString()
    in_spool = sum(path.stat().st_size for path in site.folder.glob("spool/*.otlp*") if path != kept)
    assert site.spool.size_bytes == in_spool


def unforeseen(*_: object) -> None:
    raise ValueError("odd")


def test_a_crash_between_answer_and_lake_loses_and_doubles_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.take(push(0), push(1))
    with monkeypatch.context() as patched:
        patched.setattr(RequestSpool, "forget", crash)
        site.rounds.run()
        site.take(push(2))
        with pytest.raises(KeyboardInterrupt):
            site.rounds.run()
    site.spool.close()
    site.begin()
    site.take(push(3))
    site.rounds.run()
    assert moments(site.rows()) == [0, 1, 2, 3]


def test_after_a_restart_a_row_is_as_long_as_before(site: Site) -> None:
    for at in (0, 40, 80):
        site.take(push(at))
        site.rounds.run()
    site.spool.close()
    site.begin()
    site.rounds.run()
    site.take(push(120))
    site.rounds.run()
    assert site.rows()["interval_ms"].to_list() == [60_000, *[40 * STEP_MS] * 3], "nobody knows how long the first was"


def test_the_first_push_waits_for_the_second_one_and_has_its_length(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS + 10_000)
    site.take(push(0))
    site.rounds.run()
    site.rounds.run()
    assert site.lake.files(GPU.name) == []
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: NOW_MS + STEP_MS + 10_000)
    site.take(push(1))
    site.rounds.run()
    assert moments(site.rows()) == [0, 1]
    assert site.rows()["interval_ms"].to_list() == [STEP_MS] * 2


def test_what_no_lake_can_hold_holds_up_nobody_else(site: Site) -> None:
    util = gauge("hw.gpu.utilization", "1", point(0.5, NOW_MS, **ABOUT))
    of_another = point(1.0, NOW_MS, start_ms=NOW_MS + 1, **ABOUT | {"hw__id": "GPU-2"})
    site.take(request(util, host__name="h" * 5000), request(util, host__name="\u7535" * 80), push(0), push(1))
    site.take(request(climbing("hw.energy", "J", of_another), host__name="gn002"))
    site.rounds.run()
    assert site.said == []
    assert set(site.rows()["host"]) == {"gn001", "gn002"}
    assert site.rows().filter(gpu="GPU-2")["counters_since"].to_list() == [None], "a sum that begins after its time"


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def test_what_an_agent_has_is_left_to_it(site: Site) -> None:
    for table, rows in ((DEVICE, [device("GPU-1")]), (GPU, samples("GPU-1", 0, 60))):
        file = LakeFile(table.name, "2026-11-20", "gn001", AGENT_FIRST_SEQ, AGENT_FIRST_SEQ)
        site.lake.put(file, parquet.encode(table, parquet.table_from_rows(table, rows)))
    site.take(*(push(at) for at in range(5)), push(5, 1.5))
    site.rounds.run()
    scraped = site.rows().filter(pl.col("util_source") == "scraped")
    assert moments(scraped) == [4, 5]
    assert scraped["gpu_util_pct"].to_list() == [50.0, None], "no GPU is at work for 150 % of a time"
    page = site.status.metrics().render(TEXT).decode()
    assert "fallow_otlp_agent_rows_total 4\n" in page
    assert "fallow_otlp_dropped_total 1\n" in page


def test_an_agent_that_pushes_is_understood(site: Site) -> None:
    receiver, board = otlp_receiver(("127.0.0.1", 0), site.intake), SnapshotBoard()
    receiver.start()
    loaded = config.load({"metrics.otlp_endpoint": f"{receiver.url}{PATH}"}, environment={})
    push_to = OtlpPush(OtlpSettings.from_config(loaded), board, 0.01)
    push_to.start()
    for at in range(3):
        board.publish(snapshot(NOW_MS + at * INTERVAL_MS))
        wait_until(lambda at=at: push_to.pushed == at + 1)
    push_to.close()
    receiver.close()
    site.rounds.run()
    rows = site.rows().filter(pl.col("gpu") == BUSY)
    assert push_to.dropped == 0
    assert rows["interval_ms"].unique().to_list() == [INTERVAL_MS]
    first = rows.row(0, named=True)
    assert (first["host"], first["gpu_util_pct"], first["mem_used_bytes"], first["temperature_c"]) == (
        "gn001",
        pytest.approx(73.4),
        48 * GIB,
        64,
    )
    assert (first["power_w"], first["energy_mj"]) == (pytest.approx(612.3, abs=0.1), 123_456_789_012)
    assert LOST not in set(site.rows()["gpu"])


@pytest.mark.long
def test_kill_9_after_the_answer_loses_nothing(tmp_path: Path) -> None:
    lake = made_lake(tmp_path / "lake")
    command = [sys.executable, "-m", "fallow", "follow", "otlp", "--lake", lake.root, "--listen", "127.0.0.1:0"]
    flags, environment = (
        ["--spool", str(tmp_path / "spool"), "--config", os.devnull],
        {**os.environ, "FALLOW_FOLLOW_LISTEN": ""},
    )
    now = SystemClock().now_ms() // STEP_MS * STEP_MS - 100 * STEP_MS

    def begin(every: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [*command, *flags, "--every", every], stderr=subprocess.PIPE, text=True, cwd=REPOSITORY, env=environment
        )
        assert process.stderr is not None
        return process, process.stderr.readline().split()[-1]

    sent = 0
    for every in ("1h", "50ms", "50ms", "1h"):
        process, url = begin(every)
        for _ in range(10):
            asked = push((now - NOW_MS) // STEP_MS + sent).SerializeToString()
            pushed = urllib.request.Request(url, asked, {"Content-Type": PROTOBUF})  # noqa: S310  # loopback
            with urllib.request.urlopen(pushed, timeout=60) as answer:  # noqa: S310
                sent += answer.status == 200
        process.send_signal(signal.SIGKILL)
        process.communicate()
    process, _ = begin("1h")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.communicate()
    rows = read_frame(lake.files(GPU.name), GPU, ("time", "offset_ms"))
    assert rows.height == rows.unique().height == sent == 40


def test_a_spool_has_to_be_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["follow", "otlp", "--lake", site.lake.root, "--config", os.devnull]) == 2
    assert "--spool is missing" in capsys.readouterr().err


def test_an_inference_server_that_a_collector_sends_has_the_gpu_of_its_pod(site: Site) -> None:
    """Counters, levels and a histogram; the pod that sends is the server's, and tokens go on from file to file."""
    for at in range(4):
        at_ms = NOW_MS + at * STEP_MS
        counts = [
            climbing(f"vllm:{name}_total", "", point(per_step * at, at_ms, model_name="m"))
            for name, per_step in (("prompt_tokens", 3000.0), ("generation_tokens", 600.0))
        ]
        served = request(
            *counts,
            gauge("vllm:num_requests_running", "", point(2.0, at_ms, model_name="m")),
            histogram("vllm:time_to_first_token_seconds", 0.5 * at, 4 * at, at_ms, model_name="m"),
            service__instance__id="10.0.0.7:8000",
            k8s__pod__name="train-0",
            k8s__namespace__name="ml",
        )
        site.take(push(at), served)
        site.rounds.run()
    rows = site.rows(SERVING)
    assert site.said == []
    assert rows["prompt_tokens_per_s"].to_list() == [200.0] * 3
    assert rows["generated_tokens_per_s"].to_list() == [40.0] * 3
    assert rows["time_to_first_token_s"].to_list() == [0.125] * 3
    assert set(rows["gpu"]) == {"GPU-1"}
    assert set(rows["pod"]) == {"train-0"}
