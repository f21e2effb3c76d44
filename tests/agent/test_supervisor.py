"""A run of the agent over time: clock steps, settings that change, a released driver, and consecutive runs."""

from __future__ import annotations

import threading
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from agent.spool.spool import Spool
from agent.supervise.control import ask
from fallow.errors import FallowError
from tests.agent.conftest import wait_until
from tests.agent.simulation import START_MS
from tests.fakes.nvml import Fault, Gpu, Scenario, constant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.supervise.supervisor import Supervisor
    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]


def one_gpu(*faults: Fault, gpus: int = 1) -> Scenario:
    names = "abcdefgh"[:gpus]
    return Scenario(tuple(Gpu(f"GPU-{name}", util=constant(60)) for name in names), START_MS - 20_000, faults)


def seconds_of(host: SimulatedHost) -> list[float]:
    """When the intervals of GPU-a's rows began, in seconds since the simulation's start."""
    return [(row["time"] - START_MS) / 1000 for row in host.of("GPU-a")]


def missed(host: SimulatedHost) -> int:
    return sum(row["missed_intervals"] for row in host.rows("agent"))


def steps(host: SimulatedHost) -> list[str]:
    return [event["detail"] for event in host.events("clock_stepped")]


def test_a_clock_that_is_put_back_a_little_doubles_no_interval(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.at(5.4, lambda _: host.clock.step(-3))
    host.run(12)
    assert seconds_of(host) == [float(second) for second in range(1, 13)]
    assert missed(host) == 0
    assert steps(host) == ["the wall clock was set back by about 3 s"]


@pytest.mark.parametrize(("at_s", "back_s"), [(29.0, 12.0), (30.2, 10.1)], ids=["before it", "into it"])
def test_a_step_late_in_a_long_interval_is_told_in_full_and_ends_no_interval_early(
    simulated: Simulated, at_s: float, back_s: float
) -> None:
    host = simulated(one_gpu())
    host.at(at_s, lambda _: host.clock.step(-back_s))
    host.run(60, interval="10s")
    assert seconds_of(host) == [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]
    assert {row["health"] for row in host.of("GPU-a")} == {"ok"}
    assert all(row["read_delay_ms"] >= 0 for row in host.of("GPU-a"))
    assert missed(host) == 0
    assert steps(host) == [f"the wall clock was set back by about {back_s:.0f} s"]


def test_after_a_clock_was_put_back_far_rows_begin_again_at_its_time(simulated: Simulated) -> None:
    host = simulated(one_gpu())

    def put_back(_: Supervisor) -> None:
        host.clock.step(-3600)
        host.at(-3590, lambda supervisor: supervisor.stop())

    host.at(5.4, put_back)
    host.run(60)
    times = seconds_of(host)
    assert [second for second in times if second > 0] == [1, 2, 3, 4]
    assert [second for second in times if second < 0] == [-3593, -3592]
    assert steps(host) == ["the wall clock was set back by about 3600 s"]


def test_intervals_that_nobody_watched_stay_unknown_and_are_counted(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.at(5.4, lambda _: host.clock.step(30))
    host.run(45)
    times = seconds_of(host)
    (gap,) = [(before, after) for before, after in pairwise(times) if after - before != 1]
    assert gap[0] == 4
    assert missed(host) == gap[1] - gap[0] - 1 == 45 - len(times)
    (said,) = host.events("missed_intervals")
    assert said["detail"].startswith(f"{missed(host)} intervals from ")
    known = [row["gpu_util_pct"] for row in host.of("GPU-a") if row["gpu_util_pct"] is not None]
    assert known == [pytest.approx(60, abs=0.5)] * len(known)
    assert len(known) >= len(times) - 3


def test_a_clock_that_was_never_set_ends_the_run(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.clock.step(-START_MS / 1000)
    with pytest.raises(FallowError, match="the clock of this host shows 1970-01-01T00:00:00Z"):
        host.run(5)


def order(host: SimulatedHost, verb: str, **arguments: Any) -> Callable[[Supervisor], None]:
    """Tells the agent through its socket; returns as soon as the agent has heard it."""

    def tell(supervisor: Supervisor) -> None:
        asking = threading.Thread(
            target=ask, args=(str(host.folder / "spool"), verb, 120.0), kwargs=arguments, daemon=True
        )
        asking.start()
        wait_until(lambda: not supervisor._orders._asked.empty())  # noqa: SLF001  # before time goes on

    return tell


def test_the_driver_is_let_go_of_and_taken_up_again(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.at(4.5, order(host, "release", for_ms=4_000))
    host.at(12.5, order(host, "release"))
    host.at(15.5, order(host, "resume"))
    host.run(20)
    healths = [row["health"] for row in host.of("GPU-a")]
    # from the order on: the interval under way is the first without numbers
    assert healths == [*["ok"] * 3, *["released"] * 4, *["ok"] * 4, *["released"] * 3, *["ok"] * 6]
    assert {row["gpu_util_pct"] for row in host.of("GPU-a") if row["health"] == "released"} == {None}
    told = [each for each in host.kinds() if each in ("released", "resumed")]
    assert told == ["released", "resumed"] * 2
    assert "the time of the release is over" in host.events("resumed")[0]["detail"]


def test_a_released_driver_is_left_alone_by_the_next_run_of_the_same_boot(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.at(2.5, order(host, "release"))
    host.run(5).run(5)
    assert [row["health"] for row in host.of("GPU-a")][-5:] == ["released"] * 5
    host.at((host.clock.now_ms() - START_MS) / 1000 + 3, order(host, "resume"))
    host.run(8)
    assert host.of("GPU-a")[-1]["health"] == "ok"


def test_settings_are_read_again_and_wrong_ones_refused(simulated: Simulated) -> None:
    host = simulated(one_gpu())

    def reload(name: str, value: str) -> Callable[[Supervisor], None]:
        def change(supervisor: Supervisor) -> None:
            host.settings[name] = value
            supervisor.reload()

        return change

    host.at(4.5, reload("agent.host", "another"))
    host.at(8.5, reload("agent.host", "fakehost"))
    host.at(8.6, reload("agent.interval", "2s"))
    host.run(16)
    assert [row["interval_ms"] for row in host.of("GPU-a")] == [1000] * 9 + [2000] * 4
    (rejected,) = host.events("config_rejected")
    assert "agent.spool and agent.host cannot change" in rejected["detail"]
    assert host.events("config_reloaded")


def test_a_run_that_is_stopped_ends_at_once_and_says_so(simulated: Simulated) -> None:
    host = simulated(one_gpu())
    host.at(3.5, lambda supervisor: supervisor.stop())
    host.run(3600)
    assert seconds_of(host) == [1, 2]
    assert host.kinds() == ["agent_start", "agent_stop"]
    assert host.clock.now_ms() == START_MS + 3500


def test_a_run_that_fails_or_was_killed_explains_its_gap(simulated: Simulated) -> None:
    host = simulated(one_gpu())

    def fail(_: Supervisor) -> None:
        raise RuntimeError("on purpose")

    host.at(3.5, fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        host.run(10)
    with closing(Spool(str(host.folder / "spool"), for_agent=True)) as spool:
        spool.append({}, {"running": "yes"})  # as a run leaves it that has no time to say that it ends
    host.run(2)
    kinds = host.kinds()
    assert kinds == ["agent_start", "agent_failed", "agent_killed", "agent_start", "agent_stop"]
    assert host.events("agent_failed")[0]["detail"] == "the agent ended: RuntimeError: on purpose"


@pytest.mark.parametrize("expected", ["auto", "8"])
def test_gpus_that_are_added_are_watched_within_a_minute(simulated: Simulated, tmp_path: Path, expected: str) -> None:
    devices = tmp_path / "sys/bus/pci/drivers/nvidia"
    for number in range(6):
        (devices / f"0000:{number:02x}:00.0").mkdir(parents=True)
    added = tuple(Fault("unplug", gpu=gpu, end_s=50) for gpu in (6, 7))
    host = simulated(one_gpu(*added, gpus=8), agent__sys=str(tmp_path / "sys"), agent__expected_gpus=expected)

    def add(_: Supervisor) -> None:
        for number in (6, 7):
            (devices / f"0000:{number:02x}:00.0").mkdir()

    host.at(41, add)
    host.run(100, "10s")
    every = [10.0 * number for number in range(1, 11)]
    for gpu in "abcdef":
        rows = host.of(f"GPU-{gpu}")
        assert [(row["time"] - START_MS) / 1000 for row in rows] == every
        assert {row["health"] for row in rows} == {"ok"}
        assert all(row["gpu_util_coverage_ratio"] > 0.97 for row in rows), "a new worker costs the others nothing"
    for gpu in "gh":
        rows = host.of(f"GPU-{gpu}")
        assert [(row["time"] - START_MS) / 1000 for row in rows] == every[6:], "the first interval after a look"
        assert {row["health"] for row in rows} == {"ok"}
        assert rows[0]["gpu_util_pct"] == 60
    assert [event["gpu"] for event in host.events("gpu_added")] == ["GPU-g", "GPU-h"]
    (look,) = host.events("worker_restart")
    assert look["detail"] == "the kernel's list of NVIDIA devices has changed"
    seen_ms = {event["time"] for event in host.events("gpu_added")}
    assert seen_ms == {look["time"]}, "said at once, not with the rows after"
    assert look["time"] - START_MS - 41_000 <= 60_000
    away = [row["gpu"] for row in host.rows("gpu") if row["health"] == "missing"]
    assert sorted(set(away)) == ([] if expected == "auto" else ["fakehost/gpu-6", "fakehost/gpu-7"])
    assert len(away) == (0 if expected == "auto" else 2 * 6), "missing until they answer"


@pytest.mark.parametrize(
    ("away_s", "begins", "lost"),
    [(1.0, [10, 20, 30, 40], 0), (6.0, [10, 20, 30, 40], 0), (40.0, [10, 70, 80], 5)],
    ids=["within an interval", "over its end", "for long"],
)
def test_a_restart_costs_no_row_as_long_as_the_rings_reach_back(
    simulated: Simulated, away_s: float, begins: list[float], lost: int
) -> None:
    host = simulated(one_gpu())
    host.at(26, lambda supervisor: supervisor.stop())
    host.run(3600, "10s")
    host.clock.sleep(away_s)
    told: list[Any] = []
    host.at(begins[-1] + 1, lambda _: told.append(ask(str(host.folder / "spool"), "status", 10)["missed_at_start"]))
    host.run(begins[-1] - begins[1] + 10, "10s")
    assert seconds_of(host) == begins
    rows = host.of("GPU-a")
    assert [row["gpu_util_pct"] for row in rows] == [60] * len(begins)
    assert min(row["gpu_util_coverage_ratio"] for row in rows) > 0.7
    assert told == [lost]
