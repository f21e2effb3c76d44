"""FGD's measure: by hand, and against the figure that its authors published for an empty cluster."""

from __future__ import annotations

import pytest

from analytics.plan.room_for_jobs import fragments

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
    total, gpus = sum(count for _, _, count in JOBS), sum(gpus * hosts for _, gpus, hosts in HOSTS)
    assert (sum(hosts for _, _, hosts in HOSTS), gpus, total) == (1_213, 6_212, 8_152)
    lost = 0.0
    for cpus, free, hosts in HOSTS:
        # who wants no GPU, or more CPUs than the host has, can use none of its GPUs
        shares = [(want if want and need <= cpus else free + 1, count / total) for want, need, count in JOBS]
        lost += hosts * fragments(free, shares)
    assert lost / gpus == pytest.approx(0.1389, abs=0.00005)  # 13.89 %


def test_each_size_counts_as_often_as_it_comes() -> None:
    shares = [(1, 0.75), (4, 0.25)]
    assert [fragments(free, shares) for free in (0, 2, 4)] == [0.0, pytest.approx(0.25 * 2), 0.0]
