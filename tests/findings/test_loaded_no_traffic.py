"""The rule `loaded_no_traffic`: which servers nobody asks, how that is known, and when it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analytics.rules.loaded_no_traffic import LOADED_NO_TRAFFIC
from tests.findings.one_rule import found
from tests.findings.scenarios.builder import H100, T_END, Fleet, Gpu
from tests.findings.scenarios.situations import train

RULE = LOADED_NO_TRAFFIC
DAY_MS = 86_400_000
NOTHING = {"requests_per_s": 0.0, "running_requests": 0.0, "waiting_requests": 0.0, "generated_tokens_per_s": 0.0}


def served(days: float, util: float = 50, **columns: Any) -> tuple[Fleet, Gpu]:
    """A GPU with a server that worked until so many days before the end."""
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    settled = {"command": "vllm", "mem_gb": 60}
    fleet.run(first, "mlops", util=np.where(fleet.between(-days), 0, util), **(settled | columns))
    train(fleet, second, "ann")
    return fleet, first


def test_no_request_for_two_days() -> None:
    fleet, gpu = served(2)
    asked = np.where(fleet.between(-2), 0.0, 3.0)
    fleet.serving(gpu, model="llama-70b", **NOTHING | {"requests_per_s": asked})
    (each,) = found(RULE, fleet)
    assert (each.subject, each.holder, each.gpus, each.reclaimable_gpus) == (
        "llama-70b",
        "mlops",
        (gpu.uuid,),
        (gpu.uuid,),
    )
    assert each.next_command == f"ssh h1 kill {gpu.stays[0].columns['pid']}"
    assert (each.since_ms, each.gpu_hours) == (T_END - 2 * DAY_MS, pytest.approx(48))
    numbers = each.evidence.numbers
    assert (numbers["models"], numbers["quiet_h"], numbers["answered_share"]) == ("llama-70b", 48, 1.0)
    assert numbers["endpoints"] == "http://127.0.0.1:8000/metrics"
    assert (numbers["gpu_util_max_pct"], numbers["commands"]) == (0, "vllm")


@pytest.mark.parametrize(("hours", "fires"), [(23, False), (24, True)])
@pytest.mark.parametrize("metrics", [True, False])
def test_a_day_is_wanted(hours: float, *, metrics: bool, fires: bool) -> None:
    fleet, gpu = served(hours / 24)
    if metrics:
        fleet.serving(gpu, **NOTHING | {"requests_per_s": np.where(fleet.between(-hours / 24), 0.0, 3.0)})
    assert bool(found(RULE, fleet)) == fires


@pytest.mark.parametrize("column", list(NOTHING))
def test_one_request_is_traffic(column: str) -> None:
    fleet, gpu = served(2)
    once = np.zeros(fleet.rows)
    once[-100] = 0.01
    fleet.serving(gpu, **NOTHING | {column: once})
    assert found(RULE, fleet) == []


def test_without_metrics_it_is_less_sure_and_only_looked_at() -> None:
    fleet, _ = served(2)
    (each,) = found(RULE, fleet)
    assert each.subject == "by utilization: mlops"
    assert (
        "no metrics of the server itself: only its utilization suggests that it got no requests"
        in each.confidence.failed
    )
    assert each.next_command.startswith("ssh h1 nvidia-smi --query-compute-apps")
    assert each.evidence.numbers["answered_share"] is None


def test_gauges_alone_do_not_count_requests() -> None:
    """What runs at the moment of a scrape says nothing of the time between: utilization is asked."""
    fleet, gpu = served(2)
    fleet.serving(gpu, running_requests=0.0, waiting_requests=0.0)
    (each,) = found(RULE, fleet)
    assert each.subject == "by utilization: mlops"


def test_metrics_that_did_not_answer_leave_it_open() -> None:
    fleet, gpu = served(2, util=0)
    fleet.serving(gpu, ~fleet.between(-1.5, -1), **NOTHING)
    assert found(RULE, fleet) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"command": "python3"},
        {"arguments": "vllm serve llama --served-model-name standby"},
        {"pod": "llm-failover-0", "namespace": "prod"},
        {"pod": "llm-0", "namespace": "prod", "pod_labels": '{"role": "canary"}'},
    ],
)
def test_what_is_no_server_or_waits_on_purpose(columns: dict[str, str]) -> None:
    assert found(RULE, served(2, **columns)[0]) == []


@pytest.mark.parametrize(
    "command", ["vllm", "VLLM::EngineCor", "sglang::schedul", "tritonserver", "text-generation", "ollama"]
)
def test_servers_by_their_commands(command: str) -> None:
    assert len(found(RULE, served(2, command=command)[0])) == 1


def test_a_replica_of_a_busy_model_is_kept() -> None:
    fleet = Fleet(3)
    first, second = fleet.host("h1", H100, 2)
    fleet.run(first, "mlops", util=80.0, command="vllm", mem_gb=60)
    fleet.run(second, "mlops", command="vllm", mem_gb=60)
    fleet.serving(first, model="llama", **NOTHING | {"requests_per_s": 4.0})
    fleet.serving(second, model="llama", **NOTHING)
    (each,) = found(RULE, fleet)
    assert (each.gpus, each.reclaimable) == ((second.uuid,), False)
    assert "the same model has traffic elsewhere: this may be a spare replica" in each.confidence.failed
    assert each.next_command.startswith("ssh h1 nvidia-smi --query-compute-apps")


def test_a_pod_and_what_brings_it_back() -> None:
    fleet, gpu = served(2, util=0, pod="llm-0", namespace="prod")
    fleet.serving(gpu, **NOTHING)
    (each,) = found(RULE, fleet)
    assert each.next_command == "kubectl delete pod -n prod llm-0"
    assert "scale its owner to zero" in each.notes[0]


def test_a_server_on_two_gpus_is_one_finding() -> None:
    fleet = Fleet(3)
    gpus = fleet.host("h1", H100, 2)
    fleet.run(gpus, "mlops", command="sglang", mem_gb=60, one_process=True)
    for gpu in gpus:
        fleet.serving(gpu, model="llama", engine="sglang", **NOTHING)
    (each,) = found(RULE, fleet)
    assert each.gpus == tuple(gpu.uuid for gpu in gpus)
    assert each.gpu_hours == pytest.approx(2 * 72)
