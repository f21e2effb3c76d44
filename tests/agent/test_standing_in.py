"""What stands in for GPUs that cannot answer, and for a disk that is full: known GPUs, rests after crashes, longer intervals."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

from agent.nvml.installation import NvidiaDevices
from agent.supervise.known_gpus import KnownGpus
from agent.supervise.quarantine import Crashes
from agent.supervise.schedule import Bell, Thinning

if TYPE_CHECKING:
    from pathlib import Path


def devices(**indexes: int) -> list[dict[str, object]]:
    return [{"gpu": gpu, "gpu_index": index} for gpu, index in indexes.items()]


def test_a_gpu_that_is_not_watched_any_more_is_lost_until_it_is_back() -> None:
    known = KnownGpus({})
    assert known.opened(devices(a=0, b=1), ["a", "b"], []) == []
    known.watch(["a", "b"], [], {"b": ["MIG-1"]})
    known.watch(["a"], [1], {})
    assert list(known.rows_down()) == [("b", "lost"), ("MIG-1", "lost")]
    known.watch(["a", "b"], [], {})
    assert list(known.rows_down()) == []


def test_gpus_that_come_and_go_between_two_loads_of_the_driver_are_named() -> None:
    known = KnownGpus({"a": 0, "gone": 1})
    changes = known.opened(devices(a=0, new=1), ["a", "new"], [])
    assert [(kind, uuid) for kind, _, uuid in changes] == [("gpu_added", "new"), ("gpu_removed", "gone")]
    assert known.indexes == {"a": 0, "new": 1}


def test_a_gpu_that_cannot_be_opened_has_not_gone() -> None:
    known = KnownGpus({"a": 0, "b": 1})
    assert known.opened(devices(a=0), ["a"], [1]) == []
    known.watch(["a"], [1], {})
    assert list(known.rows_down()) == [("b", "lost")]


def test_wedged_is_worse_than_anything_that_befalls_all() -> None:
    known = KnownGpus({})
    known.opened(devices(a=0, b=1), ["a", "b"], [])
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


def test_crashes_that_are_nobodys_slow_the_restarts_down_and_an_answer_ends_that() -> None:
    crashes = Crashes()
    pauses = []
    for _ in range(10):
        assert not crashes.count("")
        pauses.append(crashes.pause)
    assert pauses == [0, 1, 2, 3, 4, 5, 6, 6, 6, 6]
    crashes.survived()
    assert crashes.pause == 0


def test_a_crash_long_ago_is_forgotten() -> None:
    crashes = Crashes()
    crashes.count("a")
    for _ in range(100):
        crashes.survived()
    assert not crashes.count("a")


def test_thinned_intervals_follow_one_another_without_a_gap() -> None:
    thinning = Thinning(10_000)
    ends = [1_000_010_000]
    for pressure in (0, 0, 1, 1, 2, 2, 0, 0):
        thinning.adapt(pressure)
        ends.append(thinning.end_of(ends[-1]))
    assert ends[1:3] == [1_000_020_000, 1_000_030_000]
    assert ends[3] % 60_000 == 0
    assert ends[4] == ends[3] + 60_000
    assert ends[5] % 300_000 == 0
    assert ends[7] == ends[6] + 10_000


def test_thinning_says_what_it_does_once() -> None:
    thinning = Thinning(10_000)
    assert thinning.adapt(0) == []
    assert [kind for kind, _ in thinning.adapt(1)] == ["sampling_thinned"]
    assert thinning.adapt(1) == []
    assert [kind for kind, _ in thinning.adapt(0)] == ["sampling_restored"]


def test_a_bell_rung_before_during_and_from_a_signal_handler_is_heard() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    assert not bell.wait(0), "it is heard once"
    ringer = threading.Timer(0.05, bell.ring)
    ringer.start()
    assert bell.wait(20)
    before = signal.signal(signal.SIGALRM, lambda *_: bell.ring())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begun = time.monotonic()
        assert bell.wait(20)
        assert time.monotonic() - begun < 20
    finally:
        signal.signal(signal.SIGALRM, before)
    ringer.join()
    bell.close()


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
