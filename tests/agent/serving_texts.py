"""What inference servers answer, written in the style of each."""

from __future__ import annotations


def vllm(
    running: float = 3,
    generated: float = 52_000,
    finished: tuple[float, float] = (40, 2),
    model: str = "meta-llama/Llama-3.1-8B",
) -> str:
    """A vLLM with two data-parallel engines, of a version that shows the KV cache under its old and its new name."""
    lines = [
        "# HELP python_gc_objects_collected_total Objects collected during gc",
        "# TYPE python_gc_objects_collected_total counter",
        'python_gc_objects_collected_total{generation="0"} 9345.0',
        "# HELP process_resident_memory_bytes Resident memory size in bytes.",
        "process_resident_memory_bytes 1.0e+09",
    ]
    for engine, share in (("0", 1.0), ("1", 0.0)):
        labels = f'engine="{engine}",model_name="{model}"'
        lines += [
            f"vllm:num_requests_running{{{labels}}} {running * share}",
            f"vllm:num_requests_waiting{{{labels}}} {1.0 + share}",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 99.0',
            f"vllm:kv_cache_usage_perc{{{labels}}} {0.25 + share / 2}",
            f"vllm:gpu_cache_usage_perc{{{labels}}} 0.9",
            f"vllm:prompt_tokens_total{{{labels}}} {1e6 * share}",
            f"vllm:prompt_tokens_created{{{labels}}} 1.7e+09",
            f"vllm:generation_tokens_total{{{labels}}} {generated * share}",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} {finished[0] * share}',
            f'vllm:request_success_total{{{labels},finished_reason="length"}} {finished[1]}',
            f'vllm:time_to_first_token_seconds_bucket{{{labels},le="+Inf"}} 42.0',
            f"vllm:time_to_first_token_seconds_sum{{{labels}}} 12.5",
        ]
    return "\n".join(lines) + "\n"


def sglang(decoded: float = 7000, prefilled: float = 3000, *, all_ranks: bool = False) -> str:
    """SGLang with two data-parallel ranks of two tensor-parallel ones, by default only the first of each telling."""
    lines = ["# TYPE sglang:token_usage gauge"]
    for dp in ("0", "1"):
        for tp in ("0", "1") if all_ranks else ("0",):
            labels = f'engine_type="unified",model_name="qwen",tp_rank="{tp}",pp_rank="0",dp_rank="{dp}"'
            rank, part = f'{labels},priority=""', f'{labels},priority="7"'
            lines += [
                f"sglang:token_usage{{{rank}}} {0.2 if dp == '0' else 0.4}",
                f"sglang:num_running_reqs{{{rank}}} 4.0",
                f"sglang:num_running_reqs{{{part}}} 4.0",
                f"sglang:num_queue_reqs{{{rank}}} 0.0",
                f'sglang:realtime_tokens_total{{{rank},mode="decode"}} {decoded}',
                f'sglang:realtime_tokens_total{{{rank},mode="prefill_compute"}} {prefilled}',
                f'sglang:realtime_tokens_total{{{rank},mode="prefill_cache"}} 100.0',
            ]
    for streaming in ("true", "false"):
        labels = f'model_name="qwen",is_streaming="{streaming}"'
        lines += [
            f"sglang:prompt_tokens_total{{{labels}}} 5.0",
            f"sglang:generation_tokens_total{{{labels}}} 6.0",
            f"sglang:num_requests_total{{{labels}}} 11.0",
        ]
    return "\n".join(lines) + "\n"


def triton(success: float = 100) -> str:
    """Triton with an image model on two GPUs, a TensorRT-LLM model and a vLLM one."""
    return f"""\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{{gpu_uuid="GPU-1",model="resnet",version="2"}} {success}
nv_inference_request_success{{gpu_uuid="GPU-2",model="resnet",version="2"}} {success}
nv_inference_request_success{{model="trt",version="1"}} 7
nv_inference_request_success{{model="chat",version="1"}} 3
nv_inference_pending_request_count{{model="resnet",version="2"}} 5
nv_inference_pending_request_count{{model="trt",version="1"}} 0
nv_trt_llm_request_metrics{{model="trt",request_type="waiting",version="1"}} 6
nv_trt_llm_request_metrics{{model="trt",request_type="scheduled",version="1"}} 4
nv_trt_llm_request_metrics{{model="trt",request_type="max",version="1"}} 512
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="used",model="trt",version="1"}} 50
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="max",model="trt",version="1"}} 200
nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="tokens_per",model="trt",version="1"}} 64
vllm:prompt_tokens_total{{model="chat",version="1"}} 10
vllm:generation_tokens_total{{model="chat",version="1"}} 16
nv_gpu_utilization{{gpu_uuid="GPU-1"}} 0.5
"""


def tgi(success: float = 10) -> str:
    """Text Generation Inference, which names no model."""
    return f"""\
# TYPE tgi_request_success counter
tgi_request_success {success}

# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 8

# TYPE tgi_queue_size gauge
tgi_queue_size 2

# TYPE tgi_request_generated_tokens histogram
tgi_request_generated_tokens_bucket{{le="+Inf"}} {success}
tgi_request_generated_tokens_sum {success * 100}
tgi_request_generated_tokens_count {success}

# TYPE tgi_request_input_length histogram
tgi_request_input_length_sum {success * 1000}
tgi_request_input_length_count {success}
"""
