"""The inference servers that are understood, each as data: which of its metrics answer which column.

To add a server, describe it here; docs/inference-servers.md names the sources. Names are written without `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """The series of one metric that have one of the given values in each of the given labels."""

    name: str
    where: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class MetricSource:
    """Where a column's value is from: a metric, or one metric over another."""

    metric: Metric
    over: Metric | None = None


@dataclass(frozen=True)
class EngineMetric:
    """One column of the `serving` table."""

    column: str
    sources: tuple[MetricSource, ...]
    """The first that the server has counts: versions have renamed metrics, and some show both names at once."""
    mean: bool = False
    """Whether several series of a model are averaged (shares) and not added up (counts)."""


@dataclass(frozen=True)
class Engine:
    name: str
    prefix: str
    """What the names of its metrics begin with: one such name and the server is recognised."""
    model_labels: tuple[str, ...]
    """Labels that together name the model; several are joined by a colon."""
    levels: tuple[EngineMetric, ...]
    counters: tuple[EngineMetric, ...]
    """Counted since the server's start; the column is the rate."""
    copies: tuple[str, ...] = ()
    """Labels by whose value the server says one and the same thing several times: the largest counts."""
    parts: tuple[str, ...] = ()
    """Labels that are empty in the whole and filled in its parts: the parts are left out."""

    def quantities(self) -> tuple[EngineMetric, ...]:
        return self.levels + self.counters


def _plain(column: str, *names: str, mean: bool = False) -> EngineMetric:
    return EngineMetric(column, tuple(MetricSource(Metric(name)) for name in names), mean=mean)


def _where(name: str, label: str, *values: str) -> Metric:
    return Metric(name, ((label, values),))


VLLM = Engine(
    "vllm",
    "vllm:",
    model_labels=("model_name",),
    levels=(
        _plain("kv_cache_used_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", mean=True),
        _plain("running_requests", "vllm:num_requests_running"),
        _plain("waiting_requests", "vllm:num_requests_waiting"),
    ),
    counters=(
        _plain("requests_per_s", "vllm:request_success"),
        _plain("prompt_tokens_per_s", "vllm:prompt_tokens"),
        _plain("generated_tokens_per_s", "vllm:generation_tokens"),
    ),
)
"""Data-parallel engines differ by the label `engine`, ends of requests by `finished_reason`."""

SGLANG = Engine(
    "sglang",
    "sglang:",
    model_labels=("model_name",),
    levels=(
        _plain("kv_cache_used_ratio", "sglang:token_usage", mean=True),
        _plain("running_requests", "sglang:num_running_reqs"),
        _plain("waiting_requests", "sglang:num_queue_reqs"),
    ),
    counters=(
        _plain("requests_per_s", "sglang:num_requests"),
        EngineMetric(
            "prompt_tokens_per_s",
            (
                MetricSource(_where("sglang:realtime_tokens", "mode", "prefill_compute", "prefill_cache")),
                MetricSource(Metric("sglang:prompt_tokens")),
            ),
        ),
        EngineMetric(
            "generated_tokens_per_s",
            (
                MetricSource(_where("sglang:realtime_tokens", "mode", "decode")),
                MetricSource(Metric("sglang:generation_tokens")),
            ),
        ),
    ),
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),
    parts=("priority",),
)
"""With --enable-metrics-for-all-schedulers every rank of a model's split tells of the same requests.

The real-time counters move while a request runs, the older ones only when it has ended.
"""

_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"

TRITON = Engine(
    "triton",
    "nv_inference_",
    model_labels=("model", "version"),
    levels=(
        EngineMetric(
            "kv_cache_used_ratio",
            (
                MetricSource(
                    _where(_BLOCKS, "kv_cache_block_type", "used"), over=_where(_BLOCKS, "kv_cache_block_type", "max")
                ),
            ),
            mean=True,
        ),
        EngineMetric("running_requests", (MetricSource(_where(_REQUESTS, "request_type", "scheduled")),)),
        EngineMetric(
            "waiting_requests",
            (
                MetricSource(_where(_REQUESTS, "request_type", "waiting")),
                MetricSource(Metric("nv_inference_pending_request_count")),
            ),
        ),
    ),
    counters=(
        _plain("requests_per_s", "nv_inference_request_success"),
        _plain("prompt_tokens_per_s", "vllm:prompt_tokens"),
        _plain("generated_tokens_per_s", "vllm:generation_tokens"),
    ),
)
"""The nv_trt_llm_ metrics are those of the TensorRT-LLM backend, whose requests wait inside it and not in Triton's queue;
the vllm: ones those of the vLLM backend, which bear Triton's labels. Other models know no tokens.
"""

TGI = Engine(
    "tgi",
    "tgi_",
    model_labels=(),
    levels=(
        _plain("running_requests", "tgi_batch_current_size"),
        _plain("waiting_requests", "tgi_queue_size"),
    ),
    counters=(
        _plain("requests_per_s", "tgi_request_success"),
        _plain("prompt_tokens_per_s", "tgi_request_input_length_sum"),
        _plain("generated_tokens_per_s", "tgi_request_generated_tokens_sum"),
    ),
)

ENGINES: tuple[Engine, ...] = (TRITON, VLLM, SGLANG, TGI)
"""The first that is recognised counts: Triton passes on the metrics of the engines that it hosts."""
