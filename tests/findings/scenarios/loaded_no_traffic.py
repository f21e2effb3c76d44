"""Servers that nobody asks, and servers that are asked seldom or wait on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tests.findings.scenarios.builder import A100_80, H100, L40S, Fleet
from tests.findings.scenarios.situations import serve, situation, train

if TYPE_CHECKING:
    from tests.findings.scenarios.builder import Gpu, Level, Mask


def _asked(fleet: Fleet, gpu: Gpu, requests_per_s: Level, when: Mask | None = None, **columns: Level | str) -> None:
    """The server's metrics, by its counters."""
    levels = {"running_requests": 0.0, "waiting_requests": 0.0, "kv_cache_used_ratio": 0.0} | columns
    fleet.serving(gpu, when, requests_per_s=requests_per_s, **levels)


def model_of_a_demo_that_is_over(fleet: Fleet) -> None:
    """It was asked a lot for four days; the last request was three days ago."""
    first, second = fleet.host("k1", H100, 2, pool="serving")
    shown = fleet.between(0, -3)
    serve(fleet, first, util=np.where(shown, 55, 0), mem_gb=70)
    _asked(fleet, first, np.where(shown, 3.0, 0.0))
    train(fleet, second, "ann")


def tensor_parallel_without_a_request(fleet: Fleet) -> None:
    """A server over two cards: health checks make them flicker, and no request has come since it was started."""
    gpus = fleet.host("k1", A100_80, 4, pool="serving")
    up = fleet.between(-4)
    serve(fleet, gpus[:2], up, util=0.4, zero=0.98, mem_gb=72, one_process=True, command="sglang")
    for gpu in gpus[:2]:
        _asked(fleet, gpu, 0.0, up, engine="sglang", model="llama-70b")
    train(fleet, gpus[2:], "ann")
    train(fleet, gpus[:2], "ann", fleet.between(0, -4.1), job="1002")


def triton_without_metrics(fleet: Fleet) -> None:
    """Its metrics are closed; not one kernel has run for two days."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    fleet.run(first, "mlops", util=np.where(fleet.between(-2), 0, 30), mem_gb=20, command="tritonserver")
    train(fleet, second, "ann")


def one_request_an_hour(fleet: Fleet) -> None:
    """A report asks once an hour; the metrics count it, utilization hardly shows it."""
    first, second = fleet.host("k1", L40S, 2, pool="serving")
    asked = fleet.every(1, 1 / 12)
    serve(fleet, first, util=np.where(asked, 4, 0), zero=0.9, mem_gb=40)
    _asked(fleet, first, np.where(asked, 1 / 300, 0))
    train(fleet, second, "ann")


def seldom_and_without_metrics(fleet: Fleet) -> None:
    """The same without metrics: half a minute of kernels in every second hour."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    fleet.run(first, "mlops", util=np.where(fleet.every(2, 1 / 12), 8, 0), zero=0.9, mem_gb=40, command="vllm")
    train(fleet, second, "ann")


def standby_that_says_so(fleet: Fleet) -> None:
    """The second of two servers waits for the first to fail, and is called so."""
    first, second = fleet.host("k1", L40S, 2, pool="serving")
    serve(fleet, first, util=70.0, mem_gb=40)
    _asked(fleet, first, 5.0)
    serve(fleet, second, util=0.0, mem_gb=40, pod="llm-standby-0")
    _asked(fleet, second, 0.0)


def loaded_this_morning(fleet: Fleet) -> None:
    """A model that came ten hours ago and waits for its first users."""
    first, second = fleet.host("k1", L40S, 2, pool="serving")
    up = fleet.between(-10 / 24)
    serve(fleet, first, up, util=0.0, mem_gb=40)
    _asked(fleet, first, 0.0, up)
    train(fleet, second, "ann")
    train(fleet, first, "ann", fleet.between(0, -11 / 24), job="1002")


def server_asleep_beside_training(fleet: Fleet) -> None:
    """The server on the card is not asked, and somebody trains on the same card: it is in use."""
    (gpu,) = fleet.host("h1", A100_80, 1)
    serve(fleet, gpu, util=0.0, mem_gb=20)
    _asked(fleet, gpu, 0.0)
    train(fleet, gpu, "ann", mem_gb=40)


def metrics_that_do_not_count(fleet: Fleet) -> None:
    """Only gauges are exported: between two scrapes requests come and go, and the card works every few minutes."""
    first, second = fleet.host("h1", L40S, 2, pool="serving")
    serve(fleet, first, util=np.where(fleet.every(0.5, 1 / 12), 20, 0), zero=0.7, mem_gb=40)
    fleet.serving(first, running_requests=0.0, waiting_requests=0.0)
    train(fleet, second, "ann")


HELD = "held wind_down preallocated co_location memory_oversized compute_oversized mig_fit low_efficiency inefficient"

SCENARIOS = (
    situation(model_of_a_demo_that_is_over, fires="loaded_no_traffic", may=HELD, look_alike_of="zombie_holder"),
    situation(tensor_parallel_without_a_request, fires="loaded_no_traffic", may=HELD, look_alike_of="zombie_holder"),
    situation(triton_without_metrics, fires="loaded_no_traffic", may=HELD, look_alike_of="zombie_holder"),
    situation(one_request_an_hour, may=HELD, look_alike_of="loaded_no_traffic"),
    situation(seldom_and_without_metrics, may=HELD, look_alike_of="loaded_no_traffic"),
    situation(standby_that_says_so, may=HELD, look_alike_of="loaded_no_traffic zombie_holder"),
    situation(loaded_this_morning, may=HELD, look_alike_of="loaded_no_traffic"),
    situation(server_asleep_beside_training, may=HELD, look_alike_of="zombie_holder"),
    situation(metrics_that_do_not_count, may=HELD, look_alike_of="loaded_no_traffic"),
)
