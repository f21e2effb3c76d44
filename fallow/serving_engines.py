"""Inference servers: which metrics of an engine fill which column of `serving`, for the agent and for importers.

To add an engine, describe it here; docs/inference-servers.md names the sources. Names are written without `_total`,
which only some clients append to a counter's name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

TOTAL = "_total"
FIRST_TOKEN = "time_to_first_token_s"  # noqa: S105  # no password


@dataclass(frozen=True)
class Metric:
    """The series of one metric whose label has one of the given values."""

    name: str
    label: str = ""
    values: tuple[str, ...] = ()
    over: Metric | None = None
    """The divisor: of a level to make it a share, of a counter to make it a mean."""

    @property
    def parts(self) -> tuple[Metric, ...]:
        return (self,) if self.over is None else (self, self.over)

    def takes(self, name: str, labels: Mapping[str, str]) -> bool:
        return name == self.name and (not self.label or labels.get(self.label, "") in self.values)


@dataclass(frozen=True)
class EngineMetric:
    """One column of the `serving` table."""

    column: str
    sources: tuple[Metric, ...]
    """The first metric that the server has counts: versions have renamed metrics, and some expose both names."""
    mean: bool = False
    """Whether the series of a model are averaged (shares) instead of summed (counts)."""


@dataclass(frozen=True)
class Engine:
    name: str
    prefix: str
    """Prefix of its metrics' names; one name with a prefix identifies the server."""
    model_labels: tuple[str, ...]
    """Labels that name the model, joined by a colon."""
    levels: tuple[EngineMetric, ...]
    counters: tuple[EngineMetric, ...]
    """Counters since the server's start; the column is the rate or, with a divisor, the ratio of both increases."""
    copies: tuple[str, ...] = ()
    """Labels by which the server repeats the same count: the largest value counts."""
    parts: tuple[str, ...] = ()
    """Labels that are empty in the total and set in its parts: the parts are ignored."""

    @property
    def quantities(self) -> tuple[EngineMetric, ...]:
        return (*self.levels, *self.counters)

    @property
    def names(self) -> frozenset[str]:
        sources = [source for quantity in self.quantities for source in quantity.sources]
        return frozenset(part.name for source in sources for part in source.parts)

    def model(self, label: Callable[[str], str]) -> str | None:
        """Return the model that the labels name."""
        return ":".join(value for name in self.model_labels if (value := label(name))) or None


def _plain(column: str, *names: str, mean: bool = False) -> EngineMetric:
    return EngineMetric(column, tuple(Metric(name) for name in names), mean=mean)


def _first_token(histogram: str) -> EngineMetric:
    return EngineMetric(FIRST_TOKEN, (Metric(f"{histogram}_sum", over=Metric(f"{histogram}_count")),))


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
        _first_token("vllm:time_to_first_token_seconds"),
    ),
)
"""Data-parallel engines differ by the label `engine`, ends of requests by `finished_reason`."""


def _renamed(engine: Engine, prefix: str) -> Engine:
    """Return the engine under another prefix, as a framework around it passes its metrics on."""

    def metric(source: Metric) -> Metric:
        name, over = prefix + source.name.removeprefix(engine.prefix), source.over
        return replace(source, name=name, over=None if over is None else metric(over))

    def quantities(group: tuple[EngineMetric, ...]) -> tuple[EngineMetric, ...]:
        return tuple(replace(each, sources=tuple(map(metric, each.sources))) for each in group)

    return replace(engine, prefix=prefix, levels=quantities(engine.levels), counters=quantities(engine.counters))


RAY_VLLM = _renamed(VLLM, "ray_vllm_")
"""Ray Serve's language models: a node's page has all its replicas, which differ by `ReplicaId` and `WorkerId`."""

RAY_SERVE = Engine(
    "ray serve",
    "ray_serve_",
    model_labels=("application", "deployment"),
    levels=(
        _plain("running_requests", "ray_serve_replica_processing_queries"),
        _plain("waiting_requests", "ray_serve_deployment_queued_queries"),
    ),
    counters=(_plain("requests_per_s", "ray_serve_deployment_request_counter"),),
)

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
                Metric("sglang:realtime_tokens", "mode", ("prefill_compute", "prefill_cache")),
                Metric("sglang:prompt_tokens"),
            ),
        ),
        EngineMetric(
            "generated_tokens_per_s",
            (Metric("sglang:realtime_tokens", "mode", ("decode",)), Metric("sglang:generation_tokens")),
        ),
        _first_token("sglang:time_to_first_token_seconds"),
    ),
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),
    parts=("priority",),
)
"""With --enable-metrics-for-all-schedulers every rank of a split model reports the same requests.

The real-time counters grow while a request runs, the older counters only at its end.
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
            (Metric(_BLOCKS, "kv_cache_block_type", ("used",), over=Metric(_BLOCKS, "kv_cache_block_type", ("max",))),),
            mean=True,
        ),
        EngineMetric("running_requests", (Metric(_REQUESTS, "request_type", ("scheduled",)),)),
        EngineMetric(
            "waiting_requests",
            (Metric(_REQUESTS, "request_type", ("waiting",)), Metric("nv_inference_pending_request_count")),
        ),
    ),
    counters=(
        _plain("requests_per_s", "nv_inference_request_success"),
        _plain("prompt_tokens_per_s", "vllm:prompt_tokens"),
        _plain("generated_tokens_per_s", "vllm:generation_tokens"),
    ),
)
"""The nv_trt_llm_ metrics are those of the TensorRT-LLM backend, whose requests wait inside it and not in Triton's
queue; the vllm: metrics are those of the vLLM backend, with Triton's labels. Other models have no token counts.
"""

TGI = Engine(
    "tgi",
    "tgi_",
    model_labels=(),
    levels=(_plain("running_requests", "tgi_batch_current_size"), _plain("waiting_requests", "tgi_queue_size")),
    counters=(
        _plain("requests_per_s", "tgi_request_success"),
        _plain("prompt_tokens_per_s", "tgi_request_input_length_sum"),
        _plain("generated_tokens_per_s", "tgi_request_generated_tokens_sum"),
    ),
)

TENSORRT_LLM = Engine(
    "tensorrt-llm",
    "trtllm_",
    model_labels=("model_name",),
    levels=(
        _plain("kv_cache_used_ratio", "trtllm_kv_cache_utilization", mean=True),
        _plain("running_requests", "trtllm_num_requests_running"),
        _plain("waiting_requests", "trtllm_num_requests_waiting"),
    ),
    counters=(
        _plain("requests_per_s", "trtllm_request_success"),
        _plain("prompt_tokens_per_s", "trtllm_prompt_tokens"),
        _plain("generated_tokens_per_s", "trtllm_generation_tokens"),
        _first_token("trtllm_time_to_first_token_seconds"),
    ),
)
"""trtllm-serve; Dynamo's workers pass these metrics on under the same names."""

DYNAMO = Engine(
    "dynamo",
    "dynamo_frontend_",
    model_labels=("model",),
    levels=(
        _plain("running_requests", "dynamo_frontend_inflight_requests"),
        _plain("waiting_requests", "dynamo_frontend_queued_requests"),
    ),
    counters=(
        _plain("requests_per_s", "dynamo_frontend_requests"),
        _plain("prompt_tokens_per_s", "dynamo_frontend_input_sequence_tokens_sum"),
        _plain("generated_tokens_per_s", "dynamo_frontend_output_tokens", "dynamo_frontend_output_sequence_tokens_sum"),
        _first_token("dynamo_frontend_time_to_first_token_seconds"),
    ),
)
"""The frontend, which has no GPU and counts the requests of all its workers; these report for themselves as vLLM,
SGLang or TensorRT-LLM."""

OTHER_PREFIXES = (_renamed(VLLM, "vllm_"), _renamed(SGLANG, "sglang_"), _renamed(TENSORRT_LLM, "trtllm:"))
"""The same metrics after a collector that replaces colons, and as older versions of Dynamo passed them on."""

ENGINES: tuple[Engine, ...] = (TRITON, RAY_VLLM, RAY_SERVE, VLLM, SGLANG, TENSORRT_LLM, TGI, DYNAMO, *OTHER_PREFIXES)
"""The first recognised engine counts: Triton also exposes the metrics of the engines that it hosts."""


def recognise(prefixes: Collection[str]) -> Engine | None:
    """Return the engine with these prefixes of metric names."""
    return next((engine for engine in ENGINES if engine.prefix in prefixes), None)


def engine_of(names: Collection[str]) -> Engine | None:
    """Return the engine that has metrics of these names."""
    return recognise({engine.prefix for engine in ENGINES if any(name.startswith(engine.prefix) for name in names)})


def wanted_names() -> frozenset[str]:
    return frozenset[str]().union(*(engine.names for engine in ENGINES))
