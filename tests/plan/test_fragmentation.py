"""FGD's measure: by hand, and against the figure that its authors published for an empty cluster."""

from __future__ import annotations

import pytest

from analytics.plan.room_for_jobs import FreeRoom, JobShape, fragmentation, fragments

HOSTS = (
    (8, 1, 22), (8, 2, 2), (16, 2, 107), (32, 4, 28), (48, 4, 9), (64, 2, 22), (64, 8, 7), (82, 8, 1), (96, 4, 17),
    (96, 8, 570), (104, 2, 387), (128, 1, 2), (128, 8, 39),
)  # fmt: skip
"""CPUs, GPUs and how many such hosts, as we counted them in the trace `openb` (alibaba/clusterdata, cluster-trace-gpu-v2023)."""
JOBS = (
    (0, 8, 185), (0, 16, 516), (0, 32, 387), (1, 8, 3283), (1, 16, 3338), (1, 32, 368), (2, 8, 3), (2, 16, 1), (2, 32, 12),
    (4, 32, 3), (4, 48, 9), (4, 64, 3), (8, 64, 3), (8, 82, 18), (8, 96, 18), (8, 128, 5),
)  # fmt: skip
"""GPUs, CPUs (rounded up to those of some host) and how many such pods."""


def test_the_empty_openb_cluster_has_the_published_fragmentation() -> None:
    rooms = [FreeRoom((1.0,) * gpus, cpus, hosts) for cpus, gpus, hosts in HOSTS]
    total = sum(count for _, _, count in JOBS)
    shapes = [JobShape(gpus, count / total, cpus=cpus) for gpus, cpus, count in JOBS]
    assert (sum(room.hosts for room in rooms), sum(len(room.free) * room.hosts for room in rooms)) == (1_213, 6_212)
    assert total == 8_152
    assert fragmentation(rooms, shapes) == pytest.approx(0.1389, abs=0.00005)  # 13.89 %


def test_parts_of_gpus_that_are_too_small_are_fragments() -> None:
    room = FreeRoom((0.3, 0.6, 1.0))
    assert fragments(room, [JobShape(1, 1.0, part=0.5)]) == pytest.approx(0.3)
    assert fragments(room, [JobShape(2, 1.0)]) == pytest.approx(1.9)  # only one whole GPU: nothing of it can be used


def test_each_shape_counts_as_often_as_it_comes() -> None:
    shapes = [JobShape(1, 0.75), JobShape(4, 0.25)]
    assert fragments(FreeRoom((1.0, 1.0)), shapes) == pytest.approx(0.25 * 2)
    assert fragmentation([FreeRoom((1.0, 1.0), hosts=3), FreeRoom((1.0,) * 4)], shapes) == pytest.approx(1.5 / 10)
    assert fragmentation([FreeRoom(())], shapes) is None
