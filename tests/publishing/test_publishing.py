"""When publishers run and what is said of them, with real publishers and stores that really fail."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agent.spool.publishing import ProcessRun, Publishing
from fallow import parquet, schema
from fallow.clock import MINUTE_MS
from fallow.lake import Lake
from tests.lakes import made_lake
from tests.publishing.proxy import FaultyProxy
from tests.publishing.rows import Hands, adopted, numbers, settings, ticks

if TYPE_CHECKING:
    from agent.spool.spool import Spool
    from tests.publishing.conftest import S3


def run_once(publishing: Publishing, now_s: float) -> None:
    """Starts the publisher that is due, and lets `publishing` take note of its end without starting another."""
    publishing.start_if_due(now_s)
    running = publishing._running  # noqa: SLF001  # its end is what has to be waited for
    assert running is not None
    running.wait(60)
    publishing.start_if_due(now_s)


def test_rows_reach_the_lake_and_the_status_says_so(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    hands = Hands()
    publishing = Publishing(settings(tmp_path, lake.root, publish_every_ms=60_000), spool, hands)
    publishing.start_if_due(hands.s)
    assert publishing.status.waiting_rows == 0
    assert publishing.status.last_success_ms is None
    spool.append({"gpu": ticks(0, 3)})
    hands.s += 60
    run_once(publishing, hands.s)
    assert numbers(lake) == [0, 1, 2]
    status = publishing.status
    assert (status.last_success_ms, status.failing_since_ms, status.last_error) == (hands.now_ms(), None, None)
    assert status.waiting_rows == 0
    assert status.spool_bytes
    assert publishing.take_incidents() == []
    spool.append({"gpu": ticks(3, 3)})
    publishing.start_if_due(hands.s + 40)
    assert publishing.status.waiting_rows == 3, "the next one is not due yet"
    run_once(publishing, hands.s + 80)
    assert numbers(lake) == list(range(6))


def test_a_store_that_is_down_is_said_once_and_tried_ever_more_rarely(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    every_ms = 2 * MINUTE_MS
    hands = Hands()
    publishing = Publishing(settings(tmp_path, lake.root, every_ms), spool, hands)
    spool.append({"gpu": ticks(0, 3)})
    Path(lake.root).rename(f"{lake.root}.away")
    begun_ms = hands.now_ms()
    pauses = []
    for _ in range(4):
        run_once(publishing, hands.s)
        pauses.append(publishing._next_s - hands.s)  # noqa: SLF001  # otherwise the test would have to wait for it
        hands.s = publishing._next_s  # noqa: SLF001
    for pause, expected in zip(pauses, [2, 4, 8, 15], strict=True):
        assert 0.8 * expected * 60 <= pause <= 1.2 * expected * 60
    [down] = publishing.take_incidents()
    assert down["kind"] == "store_down"
    assert down["detail"] == (
        f"rows stay in the spool: there is no fallow lake at {lake.root}; mount it, or create a lake with "
        f"`fallow lake init --lake {lake.root}`"
    )
    assert publishing.status.failing_since_ms == begun_ms
    assert f"rows stay in the spool: {publishing.status.last_error}" == down["detail"]
    assert spool.count() == 3
    assert not Path(lake.root).exists()
    Path(f"{lake.root}.away").rename(lake.root)
    run_once(publishing, hands.s)
    [up] = publishing.take_incidents()
    assert up["kind"] == "store_up"
    assert up["detail"].startswith(f"rows reach {lake.root} again after ")
    assert publishing.status.failing_since_ms is None
    assert numbers(lake) == [0, 1, 2]


def test_other_settings_are_followed_at_once(spool: Spool, tmp_path: Path) -> None:
    hands = Hands()
    publishing = Publishing(settings(tmp_path, str(tmp_path / "no"), 60 * MINUTE_MS), spool, hands)
    spool.append({"gpu": ticks(0, 3)})
    run_once(publishing, hands.s)
    other = made_lake(tmp_path / "other")
    adopted(spool, other)
    publishing.configure(settings(tmp_path, other.root))
    run_once(publishing, hands.s)
    assert numbers(other) == [0, 1, 2]
    assert [incident["kind"] for incident in publishing.take_incidents()] == ["store_down", "store_up"]
    spool.append({"gpu": ticks(3, 3)})
    assert [publishing.finish(60), numbers(other), publishing.finish(60)] == [True, list(range(6)), True], "at the end"


@pytest.mark.long
def test_the_end_of_the_run_does_not_wait_for_a_store_that_hangs(
    spool: Spool, local_s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.append({"gpu": ticks(0, 3)})
    adopted(spool, made_lake(local_s3.location))
    with FaultyProxy(local_s3.port) as proxy:
        local_s3.apply(monkeypatch, AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
        publishing = Publishing(settings(tmp_path, local_s3.location), spool)
        proxy.behave("hang")
        publishing.start_if_due(0)
        while not proxy.connections:
            time.sleep(0.01)
        assert not publishing.finish(1.0)
        # its own sentence, and not the publisher's, which would have waited for much longer
        assert publishing.status.last_error == "the store did not take the rows in time"
        proxy.behave("pass")
        assert publishing.finish(60)
    local_s3.apply(monkeypatch)
    assert numbers(Lake.at(local_s3.location)) == [0, 1, 2]


def test_a_publisher_that_is_killed_says_nothing_of_the_store(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    hands = Hands()
    with spool.in_agent():
        publishing = Publishing(settings(tmp_path, lake.root), spool, hands)
    spool.append({"gpu": ticks(0, 3)})
    publishing.start_if_due(hands.s)
    running = publishing._running  # noqa: SLF001
    assert isinstance(running, ProcessRun)
    running.kill()
    running.wait(60)
    publishing.start_if_due(hands.s)
    assert publishing.status.last_error == "the publisher was ended by signal 9"
    assert publishing.take_incidents() == []
    assert publishing.finish(60)
    assert numbers(lake) == [0, 1, 2]


def test_a_spool_that_the_publisher_finds_damaged_is_moved_aside(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    spool.append({"gpu": ticks(0, 3000)})
    spool.checkpoint()
    file = spool.folder / "spool.sqlite"
    content = bytearray(file.read_bytes())
    content[40_960:] = b"\xa5" * (len(content) - 40_960)
    file.write_bytes(content)
    hands = Hands()
    publishing = Publishing(settings(tmp_path, lake.root), spool, hands)
    run_once(publishing, hands.s)
    [incident] = publishing.take_incidents()
    assert incident["kind"] == "spool_failed"
    assert "the spool was damaged and is now" in incident["detail"]
    spool.append({"gpu": ticks(0, 5)})
    hands.s += 60
    publishing.start_if_due(hands.s)
    assert publishing.finish(60)
    assert numbers(lake) == list(range(5))


@pytest.mark.long
@pytest.mark.parametrize("way", ["refuse", "drop", "drop_answer", "slow"])
def test_a_store_that_misbehaves_loses_and_doubles_nothing(
    spool: Spool, local_s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    adopted(spool, made_lake(local_s3.location))
    with FaultyProxy(local_s3.port) as proxy:
        local_s3.apply(monkeypatch, AWS_ENDPOINT_URL=f"http://127.0.0.1:{proxy.port}")
        hands = Hands()
        publishing = Publishing(settings(tmp_path, local_s3.location), spool, hands)
        spool.append({"gpu": ticks(0, 500), "event": [{"time": 0, "kind": "k", "detail": "d"}]})
        proxy.behave(way)
        run_once(publishing, hands.s)
        kinds = [incident["kind"] for incident in publishing.take_incidents()]
        assert kinds == ([] if way == "slow" else ["store_down"])
        spool.append({"gpu": ticks(500, 10)})
        proxy.behave("pass")
        assert publishing.finish(60)
    local_s3.apply(monkeypatch)
    assert numbers(Lake.at(local_s3.location)) == list(range(510))
    assert spool.count() == 0


@pytest.mark.long
def test_no_secret_is_said_whatever_fails(
    spool: Spool, local_s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hush-hush-nobody-may-read-this"  # noqa: S105
    said = ""
    others = [{"AWS_ENDPOINT_URL": f"https://u:{secret}@127.0.0.1:1"}, {"AWS_ALLOW_HTTP": ""}]
    for other in ({}, *others, {"AWS_ACCESS_KEY_ID": secret, "AWS_SESSION_TOKEN": secret}):
        local_s3.apply(monkeypatch, **{"AWS_SECRET_ACCESS_KEY": secret} | other)
        publishing = Publishing(settings(tmp_path, local_s3.location), spool)
        spool.append({"gpu": ticks(0, 3)})
        assert not publishing.finish(60)
        said += f"{publishing.take_incidents()}{publishing.status}"
    assert "does not accept the credentials" in said
    assert secret not in said + caplog.text


def test_a_lake_in_a_folder_that_came_back_empty_is_filled_again(spool: Spool, lake: Lake, tmp_path: Path) -> None:
    publishing = Publishing(settings(tmp_path, lake.root), spool)
    for first in (0, 3):
        spool.append({"gpu": ticks(first, 3)})
        assert publishing.finish(60)
    shutil.rmtree(Path(lake.root, "gpu"))
    spool.append({"gpu": ticks(6, 3)})
    publishing.finish(60)
    assert numbers(lake) == list(range(9))
    assert spool.count() == 1
    assert publishing.finish(60)
    assert parquet_events(lake) == ["lake_repaired"]


def parquet_events(lake: Lake) -> list[str]:
    return [str(kind) for kind in parquet.read(lake.files("event"), schema.EVENT, ["kind"]).column("kind").to_pylist()]
