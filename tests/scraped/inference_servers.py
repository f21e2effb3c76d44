"""Inference servers with a known truth: what they served until a moment, and the pages on which they say so."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.scraped.exposed import Exposed
from tests.scraped.site import labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PAGES: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
        "vllm:kv_cache_usage_perc": "kv", "vllm:prompt_tokens_total": "prompt",
        "vllm:generation_tokens_total": "generated", 'vllm:request_success_total{finished_reason="stop"}': "requests",
        "vllm:time_to_first_token_seconds_sum": "first_token_s", "vllm:time_to_first_token_seconds_count": "requests",
        "vllm:prefix_cache_hits_total": "prompt",
    },
    "vllm v0": {
        "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
        "vllm:gpu_cache_usage_perc": "kv", "vllm:prompt_tokens_total": "prompt",
        "vllm:generation_tokens_total": "generated", 'vllm:request_success_total{finished_reason="stop"}': "requests",
    },
    "sglang": {
        "sglang:num_running_reqs": "running", "sglang:num_queue_reqs": "waiting", "sglang:token_usage": "kv",
        'sglang:realtime_tokens_total{mode="prefill_compute"}': "prompt",
        'sglang:realtime_tokens_total{mode="decode"}': "generated", "sglang:num_requests_total": "requests",
        "sglang:prompt_tokens_total": "running", "sglang:generation_tokens_total": "running",
    },
    "sglang of a collector": {
        "sglang_num_running_reqs": "running", "sglang_num_queue_reqs": "waiting", "sglang_token_usage": "kv",
        "sglang_num_requests_total": "requests",
        "sglang_prompt_tokens_total": "prompt", "sglang_generation_tokens_total": "generated",
    },
    "tgi": {
        "tgi_batch_current_size": "running", "tgi_queue_size": "waiting", "tgi_request_success": "requests",
        "tgi_request_input_length_sum": "prompt", "tgi_request_generated_tokens_sum": "generated",
    },
    "tensorrt-llm": {
        "trtllm_num_requests_running": "running", "trtllm_num_requests_waiting": "waiting",
        "trtllm_kv_cache_utilization": "kv", "trtllm_request_success_total": "requests",
        "trtllm_prompt_tokens_total": "prompt", "trtllm_generation_tokens_total": "generated",
    },
    "ray": {
        "ray_vllm_num_requests_running": "running", "ray_vllm_num_requests_waiting": "waiting",
        "ray_vllm_kv_cache_usage_perc": "kv", "ray_vllm_request_success": "requests",
        "ray_vllm_request_success_total": "requests", "ray_vllm_prompt_tokens": "prompt",
        "ray_vllm_prompt_tokens_total": "prompt", "ray_vllm_generation_tokens": "generated",
        "ray_vllm_generation_tokens_total": "generated",
    },
    "dynamo": {
        "dynamo_frontend_inflight_requests": "running", "dynamo_frontend_queued_requests": "waiting",
        "dynamo_frontend_requests_total": "requests", "dynamo_frontend_input_sequence_tokens_sum": "prompt",
        "dynamo_frontend_output_tokens_total": "generated",
    },
}  # fmt: skip
"""The metrics of each engine, with what of the truth each of them says."""

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@dataclass(frozen=True)
class SimulatedServer:
    """A server that serves since the epoch's second `began_s`, and counts from 0 again from `restarted_s` on."""

    pod: str
    page: str = "vllm"
    namespace: str = "serving"
    node: str = "gn004"
    began_s: int = 0
    restarted_s: int | None = None
    engines: tuple[str, ...] = ("0",)
    is_asked: bool = True
    others: Mapping[str, str] = field(default_factory=dict)

    def served(self, name: str, until_s: int, since_s: int | None = None) -> int:
        """Return how many requests, prompt or generated tokens it served between two seconds, over all its engines."""
        first = self.began_s if since_s is None else since_s
        return sum(self._in_second(name, second) for second in range(first, until_s)) * len(self.engines)

    def samples(self, times_s: Iterable[int]) -> Iterator[Exposed]:
        """Yield what a metrics server has of its pages."""
        counts, last_s = dict.fromkeys(("prompt", "generated", "requests"), 0), self.began_s
        for at_s in times_s:
            for second in range(last_s, at_s):
                if second == self.restarted_s:
                    counts = dict.fromkeys(counts, 0)
                counts = {name: count + self._in_second(name, second) for name, count in counts.items()}
            last_s = at_s
            for engine in self.engines:
                yield from self._page(counts | self._levels(at_s), engine, at_s)

    def _page(self, truth: Mapping[str, float], engine: str, at_s: int) -> Iterator[Exposed]:
        for metric, said in PAGES[self.page].items():
            name, _, label = metric.rstrip("}").partition("{")
            own = dict([label.replace('"', "").split("=")]) if label else {}
            model = {} if self.page == "tgi" else {"model" if self.page == "dynamo" else "model_name": MODEL}
            about = {"pod": self.pod, "namespace": self.namespace, "node": self.node, "engine": engine, **model, **own}
            about |= {"instance": f"10.0.0.{zlib.crc32(self.pod.encode()) % 250}:8000", "job": "servers"}
            yield Exposed(name, labels_of(**about | dict(self.others)), float(truth[said]), at_s * 1000)

    def _in_second(self, name: str, second: int) -> int:
        if not self.is_asked:
            return 0
        noise = zlib.crc32(f"{self.pod}{second}".encode())
        requests = noise % 3
        return {"requests": requests, "prompt": requests * (200 + noise % 97), "generated": requests * 90 + noise % 41}[
            name
        ]

    def _levels(self, at_s: int) -> dict[str, float]:
        noise = zlib.crc32(f"{self.pod}/{at_s}".encode()) if self.is_asked else 0
        return {"running": noise % 7, "waiting": noise % 2, "kv": noise % 400 / 1000, "first_token_s": at_s * 0.25}
