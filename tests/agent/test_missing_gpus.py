"""GPUs that should be there and are not: what is expected, what they are called, and their rows until they are back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.nvml.installation import NvidiaDevices
from agent.supervise.known_gpus import REMEMBERED_MS, KnownGpus, MissingGpus
from agent.supervise.workers import BURST, EVERY_S, Crashes, RestartBudget
from analytics.ledger.build import load_ledger
from analytics.ledger.settings import LedgerSettings
from analytics.ledger.summary import totals_of
from fallow.errors import DriverError
from tests.agent.simulation import HOST, START_MS
from tests.fakes.nvml import Fault, Gpu, Scenario, constant
from tests.fakes.pci import put_on_bus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.agent.simulation import SimulatedHost

    Simulated = Callable[..., SimulatedHost]

AGO_S = 20.0
DEAD = f"{HOST}/pci-0000:13:00.0"


def address(number: int) -> str:
    return f"0000:{0x10 + number:02x}:00.0"


def gpus(*faults: Fault, count: int = 8) -> Scenario:
    made = tuple(
        Gpu(f"GPU-{number}", util=constant(60), pci_bus_id=address(number)[:-2].upper()) for number in range(count)
    )
    return Scenario(made, START_MS - round(AGO_S * 1000), faults)


def bus(folder: Path, count: int = 8) -> None:
    for number in range(count):
        put_on_bus(folder / "sys", address(number))


def rows_by_gpu(host: SimulatedHost) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in host.rows("gpu"):
        found.setdefault(row["gpu"], []).append(row)
    return found


def test_a_gpu_dead_at_the_first_start_is_unavailable_from_the_first_interval(
    simulated: Simulated, tmp_path: Path
) -> None:
    bus(tmp_path)
    host = simulated(gpus(Fault("unplug", gpu=3))).run(6)
    rows = rows_by_gpu(host)
    assert len(rows) == 8
    assert [row["health"] for row in rows[DEAD]] == ["missing"] * 6
    assert {row["gpu_util_pct"] for row in rows[DEAD]} == {None}
    (said,) = host.events("gpu_missing")
    assert said["gpu"] == DEAD
    (device,) = [row for row in host.rows("device") if row["gpu"] == DEAD]
    assert (device["pci_bus_id"], device["source"]) == ("00000000:13:00.0", "pci")
    assert device["model"] == "NVIDIA H100 80GB HBM3", "cards with the same PCI ids are the same product"
    whole = totals_of(load_ledger(host.lake, LedgerSettings()).segments)
    assert (whole.gpus, whole.total_ms, whole.observed_ms) == (8, 8 * 6_000, 8 * 6_000)
    assert whole.state_ms["unavailable"] == 6_000


def test_what_was_missing_ends_when_its_uuid_begins(simulated: Simulated, tmp_path: Path) -> None:
    bus(tmp_path)
    host = simulated(gpus(Fault("unplug", gpu=3, end_s=AGO_S + 3)))
    host.at(
        5.5, lambda _: put_on_bus(tmp_path / "sys", "0000:99:00.0", kind="0x020000")
    )  # the kernel lists something new
    host.run(40, interval="2s")
    rows = rows_by_gpu(host)
    gone, back = rows[DEAD], rows["GPU-3"]
    assert {row["health"] for row in back} == {"ok"}
    assert gone[-1]["time"] + 2000 == back[0]["time"]
    assert [
        (event["kind"], event["gpu"]) for event in host.rows("event") if "missing" in event["kind"] + event["detail"]
    ] == [
        ("gpu_missing", DEAD),
        ("gpu_ok", "GPU-3"),
    ]
    whole = totals_of(load_ledger(host.lake, LedgerSettings()).segments)
    assert whole.total_ms == whole.observed_ms == 8 * 40_000, "every moment of eight GPUs, and none twice"


def test_a_gpu_that_is_listed_and_cannot_be_opened_goes_by_its_address(simulated: Simulated, tmp_path: Path) -> None:
    bus(tmp_path, 3)
    host = simulated(gpus(Fault("lost", gpu=1, end_s=AGO_S + 5), count=3)).run(12)
    rows = rows_by_gpu(host)
    gone = rows[f"{HOST}/pci-0000:11:00.0"]
    assert {row["health"] for row in gone} == {"missing"}
    assert gone[-1]["time"] + 1000 == rows["GPU-1"][0]["time"]
    assert [event["gpu"] for event in host.events("gpu_missing")] == [f"{HOST}/pci-0000:11:00.0"]
    assert [event["gpu"] for event in host.events("gpu_ok")] == ["GPU-1"]


def test_a_driver_that_is_not_loaded_at_the_first_start_is_waited_for(simulated: Simulated, tmp_path: Path) -> None:
    bus(tmp_path, 2)
    host = simulated(gpus(Fault("driver_not_loaded", end_s=AGO_S + 4), count=2)).run(12)
    rows = rows_by_gpu(host)
    assert {row["health"] for gpu in (0, 1) for row in rows[f"{HOST}/pci-{address(gpu)}"]} == {"driver_down"}
    assert {row["health"] for gpu in (0, 1) for row in rows[f"GPU-{gpu}"]} == {"ok"}
    assert host.kinds() == ["agent_start", "driver_down", "driver_up", "agent_stop"]
    whole = totals_of(load_ledger(host.lake, LedgerSettings()).segments)
    assert whole.total_ms == whole.observed_ms == 2 * 12_000


def test_a_driver_that_only_this_user_may_not_use_makes_no_gpu_unavailable(
    simulated: Simulated, tmp_path: Path
) -> None:
    bus(tmp_path, 2)
    with pytest.raises(DriverError, match="refuses access"):
        simulated(gpus(Fault("no_permission", function="nvmlInit"), count=2)).run(1)


def test_a_gpu_of_an_earlier_run_keeps_its_uuid(simulated: Simulated, tmp_path: Path) -> None:
    """It fell off the bus between two runs: neither the driver nor the bus shows it."""
    bus(tmp_path, 2)
    host = simulated(gpus(Fault("unplug", gpu=2, start_s=AGO_S + 3.5), count=3)).run(2)
    host.clock.sleep(2)
    host.run(3).run(2)
    assert [row["health"] for row in host.of("GPU-2")] == ["ok"] * 2 + ["missing"] * 5
    assert len(host.events("gpu_missing")) == 1, "a restart of the agent is no news of the GPU"
    assert host.events("gpu_removed") == []
    host.settings["agent.expected_gpus"] = "2"
    host.run(2)
    assert len(host.of("GPU-2")) == 7
    assert [event["gpu"] for event in host.events("gpu_removed")] == ["GPU-2"]


def test_the_setting_says_how_many_there_should_be(simulated: Simulated) -> None:
    host = simulated(gpus(count=2), agent__expected_gpus="3").run(3)
    assert [row["health"] for row in host.of(f"{HOST}/gpu-2")] == ["missing"] * 3
    assert "agent.expected_gpus is 3, and 2 answer" in host.events("gpu_missing")[0]["detail"]


def missing(folder: Path, expected: int = 0, **since_ms: int) -> MissingGpus:
    return MissingGpus("h", expected=expected, sys=str(folder / "sys"), since_ms=since_ms)


def names(
    found: MissingGpus, known: KnownGpus, unopened: tuple[int, ...] = (), blocked: tuple[int, ...] = ()
) -> list[Any]:
    found.look(known, unopened, blocked)
    return [each.name if each.health == "missing" else (each.name, each.health) for each in found.found]


def watching(*numbers: int, located: bool = True) -> KnownGpus:
    known = KnownGpus(
        {f"GPU-{number}": number for number in numbers}, {f"GPU-{n}": address(n) for n in numbers if located}
    )
    known.uuids = tuple(known.indexes)
    return known


@pytest.fixture
def _whole_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")


@pytest.mark.usefixtures("_whole_host")
def test_what_belongs_to_others_is_not_expected(tmp_path: Path) -> None:
    sys = tmp_path / "sys"
    bus(tmp_path, 2)
    put_on_bus(sys, "0000:20:00.0", driver="vfio-pci")
    put_on_bus(sys, "0000:21:00.0", driver="nouveau", kind="0x030000")
    put_on_bus(sys, "0000:22:00.4", virtual=True)
    put_on_bus(sys, "0000:10:00.1", driver="snd_hda_intel", kind="0x040300")
    put_on_bus(sys, "0000:23:00.0", driver="ast", kind="0x030000", vendor="0x1a03")
    put_on_bus(sys, "0000:24:00.0", kind="0x068000")
    assert names(missing(tmp_path), watching(0, 1)) == []
    put_on_bus(sys, "0000:25:00.0", driver="")
    assert names(missing(tmp_path), watching(0, 1)) == ["h/pci-0000:25:00.0"]


@pytest.mark.usefixtures("_whole_host")
@pytest.mark.parametrize(
    ("known", "unopened", "blocked", "found"),
    [
        (watching(0, 1, 2), (), (), []),
        (watching(0, 2), (), (), ["h/pci-0000:11:00.0"]),
        (watching(0, 2), (1,), (), ["h/pci-0000:11:00.0"]),
        (watching(0, 2), (), (1,), [("h/pci-0000:11:00.0", "wedged")]),
        (watching(2), (0,), (1,), ["h/pci-0000:10:00.0", ("h/pci-0000:11:00.0", "wedged")]),
        (watching(0, 2, located=False), (), (), ["h/pci-0000:12:00.0"]),
        (watching(0, 1, 2), (3,), (), ["h/gpu-3"]),
    ],
)
def test_the_bus_and_the_drivers_list_are_one_account(
    tmp_path: Path, known: KnownGpus, unopened: tuple[int, ...], blocked: tuple[int, ...], found: list[Any]
) -> None:
    bus(tmp_path, 3)
    assert names(missing(tmp_path), known, unopened, blocked) == found


@pytest.mark.usefixtures("_whole_host")
@pytest.mark.parametrize(
    ("expected", "known", "found"),
    [
        (2, watching(0, 1), []),
        (3, watching(0, 1), ["h/pci-0000:12:00.0"]),
        (5, watching(0, 1), ["h/pci-0000:12:00.0", "h/gpu-4", "h/gpu-3"]),
        (1, watching(0, 1), []),
    ],
)
def test_the_setting_goes_before_the_bus(tmp_path: Path, expected: int, known: KnownGpus, found: list[str]) -> None:
    bus(tmp_path, 3)
    assert names(missing(tmp_path, expected), known) == found


def test_a_container_with_some_of_the_gpus_expects_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus(tmp_path, 3)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU-0")
    some = missing(tmp_path)
    assert names(some, watching(0)) == []
    assert some.still_expected(["GPU-1"], watching(0, 1), ["GPU-0"], 1, 0) == frozenset()
    assert names(missing(tmp_path, 2), watching(0)) == ["h/gpu-1"]


@pytest.mark.usefixtures("_whole_host")
def test_a_gpu_that_nothing_shows_any_more_is_expected_back_for_a_week(tmp_path: Path) -> None:
    bus(tmp_path, 1)
    known, seen = watching(0, 1), missing(tmp_path, **{"GPU-1": 1_000})
    assert seen.still_expected(["GPU-1"], known, ["GPU-0"], 1, REMEMBERED_MS) == {"GPU-1"}
    assert seen.still_expected(["GPU-1"], known, ["GPU-0"], 1, REMEMBERED_MS + 1_000) == frozenset()
    put_on_bus(tmp_path / "sys", address(1))
    seen.look_at_bus()
    assert seen.still_expected(["GPU-1"], known, ["GPU-0"], 1, 10 * REMEMBERED_MS) == {"GPU-1"}, "the bus shows it"
    (tmp_path / "sys/bus/pci/devices" / address(1) / "driver").unlink()
    (tmp_path / "sys/bus/pci/devices" / address(1) / "driver").symlink_to("../drivers/vfio-pci")
    seen.look_at_bus()
    assert seen.still_expected(["GPU-1"], known, ["GPU-0"], 1, 0) == frozenset(), "a virtual machine has it"
    known.addresses["GPU-new"] = address(1)
    assert seen.still_expected(["GPU-1"], known, ["GPU-0", "GPU-new"], 2, 0) == frozenset(), "another has its place"


def test_status_counts_what_is_missing(simulated: Simulated, tmp_path: Path) -> None:
    bus(tmp_path, 2)
    host = simulated(gpus(Fault("unplug", gpu=1), count=2))
    seen: list[dict[str, Any]] = []
    host.at(4.5, lambda supervisor: seen.append(supervisor._orders.handle("status", {})))  # noqa: SLF001
    host.run(5)
    assert seen[0]["gpus"] == {"ok": 1, "missing": 1}


def test_wedged_is_worse_than_anything_that_befalls_all() -> None:
    known = KnownGpus()
    known.opened([{"gpu": gpu, "gpu_index": index} for index, gpu in enumerate("ab")], ["a", "b"], [], [])
    known.watch(["a", "b"], [], {})
    known.set("a", "wedged")
    known.set_all("driver_down")
    assert known.down == {"a": "wedged", "b": "driver_down"}
    assert not known.all_wedged()


def test_workers_that_end_are_replaced_at_once_and_never_in_a_hot_loop() -> None:
    budget = RestartBudget()
    assert [budget.take(100.0) for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    taken = [second for second in range(101, 161) if budget.take(float(second))]
    assert len(taken) == 60 / EVERY_S
    assert all(budget.take(1e6) for _ in range(BURST)), "a calm hour later all may be taken again"
    assert not budget.take(1e6)


def test_a_crash_long_ago_is_forgotten() -> None:
    crashes = Crashes()
    crashes.count("a")
    for _ in range(100):
        crashes.survived()
    assert not crashes.count("a")


def test_a_node_that_a_container_is_handed_is_a_change(tmp_path: Path) -> None:
    """Its /sys shows the cards of the whole host from the start."""
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (dev / name).touch()
    container = NvidiaDevices(str(tmp_path / "sys"), str(dev))
    (dev / "tty1").touch()
    assert not container.changed()
    (dev / "nvidia1").touch()
    assert container.changed()
    assert not container.changed()
