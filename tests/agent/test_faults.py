"""What goes wrong with drivers, and that each gap explains itself."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.agent.conftest import wait_until
from tests.fakes.nvml import GIB, Fault, Gpu, Process, Scenario, constant, ms_ago

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agent.conftest import FakeHost
    from tests.agent.conftest import FakeHost as Host

    MakeHost = Callable[[Scenario], FakeHost]

BUSY = constant(60)


def two_gpus(*faults: Fault) -> Scenario:
    own = (Process(os.getpid(), mem_bytes=GIB),)
    return Scenario(
        (Gpu("GPU-a", util=BUSY, processes=own), Gpu("GPU-b", util=BUSY, processes=own)), ms_ago(20), faults
    )


def of(host: Host, gpu: str) -> list[dict[str, Any]]:
    return [row for row in host.rows("gpu") if row["gpu"] == gpu]


def kinds(host: Host) -> list[str]:
    return [row["kind"] for row in host.rows("event")]


@pytest.mark.parametrize(("kind", "health"), [("lost", "lost"), ("reset_required", "reset_required")])
def test_a_lost_gpu_is_its_own_state_and_nobody_elses(fake_host: MakeHost, kind: str, health: str) -> None:
    host = fake_host(two_gpus(Fault(kind, gpu=0, start_s=23.5, end_s=26)))
    assert host.run("--interval", "1s", "--for", "12s").returncode == 0
    lost = [row for row in of(host, "GPU-a") if row["health"] == health]
    assert len(lost) >= 2
    assert all(row["gpu_util_pct"] is None and row["mem_used_bytes"] is None and row["power_w"] is None for row in lost)
    assert {row["health"] for row in of(host, "GPU-b")} == {"ok"}
    assert of(host, "GPU-a")[-1]["health"] == "ok", "it is found again"
    assert of(host, "GPU-a")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    assert kinds(host) == ["agent_start", f"gpu_{health}", "gpu_ok", "counters_restarted", "agent_stop"]


def test_a_call_that_blocks_for_ever_wedges_one_gpu_and_the_rest_lives_on(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("hang", gpu=0, function="nvmlDeviceGetPowerUsage", start_s=24)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    finished = host.run("--interval", "1s", "--for", "14s")
    assert finished.returncode == 0, finished.stderr
    wedged = [row for row in of(host, "GPU-a") if row["health"] == "wedged"]
    assert len(wedged) >= 4
    assert all(row["gpu_util_pct"] is None for row in wedged)
    assert of(host, "GPU-b")[-1]["health"] == "ok"
    assert of(host, "GPU-b")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    (event,) = [row for row in host.rows("event") if row["kind"] == "gpu_wedged"]
    assert event["gpu"] == "GPU-a"
    assert "nvmlDeviceGetPowerUsage" in event["detail"]


def test_a_blocked_call_that_returns_brings_the_gpu_back(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("hang", gpu=0, function="nvmlDeviceGetTemperature", start_s=23, end_s=28)))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    assert host.run("--interval", "1s", "--for", "16s").returncode == 0
    assert "gpu_wedged" in kinds(host)
    assert "gpu_ok" in kinds(host)
    assert of(host, "GPU-a")[-1]["health"] == "ok"


def test_a_driver_upgraded_under_the_agent_is_loaded_again(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("mismatch", start_s=24, end_s=28)))
    assert host.run("--interval", "1s", "--for", "18s").returncode == 0
    down = [row for row in host.rows("gpu") if row["health"] == "driver_down"]
    assert {row["gpu"] for row in down} == {"GPU-a", "GPU-b"}
    assert all(row["gpu_util_pct"] is None for row in down)
    assert of(host, "GPU-a")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    found = kinds(host)
    assert found.index("driver_down") < found.index("driver_up")


@pytest.mark.parametrize(("kind", "event"), [("not_supported", "call_unsupported"), ("no_permission", "call_denied")])
def test_a_call_that_is_refused_is_null_and_said_once(fake_host: MakeHost, kind: str, event: str) -> None:
    host = fake_host(two_gpus(Fault(kind, gpu=0, function="nvmlDeviceGetPowerUsage")))
    assert host.run("--interval", "1s", "--for", "4s").returncode == 0
    assert all(row["power_w"] is None and row["health"] == "ok" for row in of(host, "GPU-a"))
    assert all(row["power_w"] is not None for row in of(host, "GPU-b"))
    (said,) = [row for row in host.rows("event") if row["kind"] == event]
    assert said["gpu"] == "GPU-a"
    assert "nvmlDeviceGetPowerUsage" in said["detail"]


def test_without_a_ring_the_rates_are_read_and_the_coverage_says_how_little_that_is(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("not_supported", gpu=0, function="nvmlDeviceGetSamples")))
    assert host.run("--interval", "4s", "--for", "8s").returncode == 0
    for row in of(host, "GPU-a"):
        assert row["util_source"] == "rates"
        assert row["gpu_util_pct"] == pytest.approx(60, abs=1)
        assert 0.08 <= row["gpu_util_coverage_ratio"] <= 0.25
    assert all(row["util_source"] == "samples" for row in of(host, "GPU-b"))


def test_without_any_utilization_it_is_null_and_never_zero(fake_host: MakeHost) -> None:
    faults = [
        Fault("not_supported", gpu=0, function=call)
        for call in ("nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates")
    ]
    host = fake_host(two_gpus(*faults))
    assert host.run("--interval", "1s", "--for", "3s").returncode == 0
    for row in of(host, "GPU-a"):
        assert (row["util_source"], row["gpu_util_pct"], row["gpu_util_coverage_ratio"]) == ("none", None, 0)
        assert row["mem_used_bytes"] is not None


def test_a_call_that_fails_again_and_again_degrades_its_gpu(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("unknown", gpu=0, function="nvmlDeviceGetTemperature", start_s=0)))
    assert host.run("--interval", "1s", "--for", "6s").returncode == 0
    assert of(host, "GPU-a")[-1]["health"] == "degraded"
    assert of(host, "GPU-a")[-1]["temperature_c"] is None
    assert of(host, "GPU-a")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    assert "gpu_degraded" in kinds(host)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("driver_not_loaded"), "modprobe nvidia"),
        (Fault("mismatch"), "different versions"),
        (Fault("no_permission", function="nvmlInit"), "device nodes"),
    ],
)
def test_a_driver_that_cannot_be_used_is_one_sentence(fake_host: MakeHost, fault: Fault, words: str) -> None:
    host = fake_host(two_gpus(fault))
    for finished in (host.run("--for", "1s"), host.once()):
        assert finished.returncode == 1
        assert words in finished.stderr
        assert len(finished.stderr.splitlines()) == 1
        assert finished.stdout == ""


def test_a_driver_that_blocks_from_the_start_is_one_sentence(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus(Fault("hang", function="nvmlInit")))
    host.environment["FALLOW_AGENT_CALL_TIMEOUT"] = "1s"
    finished = host.once()
    assert finished.returncode == 1
    assert "nvmlInit does not return" in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


def test_no_driver_at_all_says_what_was_looked_for(run_fallow: Any) -> None:
    finished = run_fallow("agent", "once", LD_LIBRARY_PATH="")
    assert finished.returncode == 1
    assert "libnvidia-ml.so.1" in finished.stderr
    assert len(finished.stderr.splitlines()) == 1


def test_one_look_shows_every_gpu_and_process(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    look = json.loads(host.once("--json").stdout)
    assert [gpu["gpu"] for gpu in look["gpus"]] == ["GPU-a", "GPU-b"]
    assert look["gpus"][0]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
    assert [process["pid"] for process in look["processes"]] == [os.getpid()] * 2
    assert "60 %" in host.once().stdout


def spooled(host: Host, name: str) -> int:
    path = host.spool / "spool.sqlite"
    if not path.exists():
        return 0
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
    try:
        waiting = "SELECT count(*) FROM row WHERE name = ? AND seq > (SELECT coalesce(max(batch), 0) FROM stretch)"
        return int(db.execute(waiting, (name,)).fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # the table is being made
    finally:
        db.close()


def known(host: Host, name: str) -> int:
    """Rows that were published or will be."""
    return len(host.rows(name)) + spooled(host, name)


def rows_after(host: Host) -> list[dict[str, Any]]:
    """The published rows of an agent that has ended; on a busy machine some may wait for the next start."""
    if spooled(host, "gpu"):
        assert host.run("--interval", "1s", "--for", "1s").returncode == 0
    return host.rows("gpu")


def test_kill_9_loses_nothing_before_the_current_interval_and_doubles_nothing(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    agent = host.start("--interval", "1s")
    wait_until(lambda: spooled(host, "gpu") >= 8)
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    kept = spooled(host, "gpu")
    assert host.run("--interval", "1s", "--for", "2s").returncode == 0
    rows = host.rows("gpu")
    assert len(rows) > kept
    assert len({(row["gpu"], row["time"]) for row in rows}) == len(rows)
    assert spooled(host, "gpu") == 0
    assert "agent_killed" in kinds(host)


def test_sigterm_publishes_and_ends_well(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    agent = host.start("--interval", "1s")
    wait_until(lambda: spooled(host, "gpu") >= 2)
    agent.terminate()
    assert agent.wait(60) == 0
    assert len(rows_after(host)) >= 2
    assert "agent_stop" in kinds(host)


def test_a_second_agent_on_one_spool_is_refused(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    agent = host.start("--interval", "1s")
    wait_until(lambda: spooled(host, "event") >= 1)
    second = host.run("--for", "1s")
    agent.terminate()
    agent.wait(60)
    assert second.returncode == 1
    assert "another agent runs on the spool" in second.stderr


def test_a_lake_that_cannot_be_written_keeps_the_rows_and_a_later_start_publishes_them(
    fake_host: MakeHost, tmp_path: Any
) -> None:
    host = fake_host(two_gpus())
    blocked = tmp_path / "lake"
    blocked.write_text("a file where the lake should be")
    finished = host.run("--interval", "1s", "--for", "2s")
    assert finished.returncode == 0
    assert "rows stay in the spool" in finished.stderr
    assert spooled(host, "gpu") == 4
    blocked.unlink()
    agent = host.start("--interval", "1s")
    wait_until(lambda: known(host, "gpu") >= 6)
    agent.terminate()
    assert agent.wait(120) == 0
    rows = rows_after(host)
    assert len({(row["gpu"], row["time"]) for row in rows}) == len(rows) >= 6


def test_a_worker_that_dies_is_replaced(fake_host: MakeHost) -> None:
    host = fake_host(two_gpus())
    agent = host.start("--interval", "1s")
    wait_until(lambda: spooled(host, "gpu") >= 2)
    found = subprocess.run(
        ["pgrep", "-P", str(agent.pid), "-f", "agent.nvml.worker"], capture_output=True, text=True, check=True
    )
    os.kill(int(found.stdout.split()[0]), signal.SIGSEGV)
    wait_until(lambda: known(host, "event") >= 2)
    before = known(host, "gpu")
    wait_until(lambda: known(host, "gpu") >= before + 6)
    agent.terminate()
    assert agent.wait(120) == 0
    assert "worker_restart" in kinds(host)
    assert of(host, "GPU-a")[-1]["gpu_util_pct"] == pytest.approx(60, abs=0.5)
