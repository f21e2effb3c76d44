"""What stands in for GPUs that cannot answer: GPUs known from before, rests after crashes, the devices of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.nvml.installation import NvidiaDevices
from agent.supervise.known_gpus import KnownGpus
from agent.supervise.workers import BURST, EVERY_S, Crashes, RestartBudget

if TYPE_CHECKING:
    from pathlib import Path


def devices(**indexes: int) -> list[dict[str, object]]:
    return [{"gpu": gpu, "gpu_index": index} for gpu, index in indexes.items()]


def test_a_gpu_that_is_not_watched_any_more_is_lost_until_it_is_back() -> None:
    known = KnownGpus()
    assert known.opened(devices(a=0, b=1), ["a", "b"], [], []) == []
    known.watch(["a", "b"], [], {"b": ["MIG-1"]})
    known.watch(["a"], [1], {})
    assert list(known.rows_down()) == [("b", "lost"), ("MIG-1", "lost")]
    known.watch(["a", "b"], [], {})
    assert list(known.rows_down()) == []


def test_gpus_that_come_and_go_between_two_loads_of_the_driver_are_named() -> None:
    known = KnownGpus({"a": 0, "gone": 1})
    gone = known.gone(["a", "new"], [])
    changes = known.opened(devices(a=0, new=1), ["a", "new"], gone, [])
    assert [(kind, uuid) for kind, _, uuid in changes] == [("gpu_added", "new"), ("gpu_removed", "gone")]
    assert known.indexes == {"a": 0, "new": 1}


def test_a_gpu_that_cannot_be_opened_has_not_gone() -> None:
    known = KnownGpus({"a": 0, "b": 1})
    assert known.gone(["a"], [1]) == []
    known.watch(["a"], [1], {})
    assert list(known.rows_down()) == [("b", "lost")]


def test_a_gpu_that_should_still_be_there_is_missing_until_it_is_back() -> None:
    known = KnownGpus({"a": 0, "b": 1})
    assert known.opened(devices(a=0), ["a"], known.gone(["a"], []), ["b"]) == []
    known.watch(["a"], [], {})
    assert list(known.rows_down()) == [("b", "missing")]
    known.opened(devices(a=0, b=1), ["a", "b"], [], [])
    known.watch(["a", "b"], [], {})
    assert list(known.rows_down()) == []


def test_wedged_is_worse_than_anything_that_befalls_all() -> None:
    known = KnownGpus()
    known.opened(devices(a=0, b=1), ["a", "b"], [], [])
    known.watch(["a", "b"], [], {})
    known.set("a", "wedged")
    known.set_all("driver_down")
    assert known.down == {"a": "wedged", "b": "driver_down"}
    assert not known.all_are("wedged")


def test_one_crash_may_be_chance_two_are_the_gpus() -> None:
    crashes = Crashes()
    assert not crashes.count("a")
    assert crashes.count("a")
    assert crashes.avoided() == {"a"}
    rests = 0
    while not crashes.due():
        rests += 1
    assert rests >= 4
    assert crashes.avoided() == frozenset()
    assert crashes.count("a"), "after a rest one crash is enough"
    longer = 0
    while not crashes.due():
        longer += 1
    assert longer > rests


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


def test_devices_of_the_kernel_are_compared_with_the_look_before(tmp_path: Path) -> None:
    folder = tmp_path / "bus/pci/drivers/nvidia"
    folder.mkdir(parents=True)
    (folder / "new_id").touch()
    (folder / "0000:17:00.0").mkdir()
    kernel = NvidiaDevices(str(tmp_path))
    assert not kernel.changed()
    (folder / "0000:18:00.0").mkdir()
    assert kernel.changed()
    assert not kernel.changed()
    assert not NvidiaDevices(str(tmp_path / "nowhere")).changed()


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
