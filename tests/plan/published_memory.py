"""Published measurements of GPU memory, against what `fallow plan fit` estimates of the same work.

`python -m tests.plan.published_memory` (part of `make docs`) writes the table of docs/fit.md; test_memory_need.py fails where the
page is not current, or where the estimate gets worse. Every figure was read at the address beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.plan.model_needs import ERROR, Serving, Training, serving_need, training_need
from analytics.plan.model_shape import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fit.md"
BEGIN, END = "<!-- measurements -->\n", "<!-- measurements end -->"
GIB, GB, MIB = 2**30, 10**9, 2**20

LLAMA2_7B = ModelShape("Llama 2 7B", 32, 4096, 32, 32, 128, 11008, 32000)
LLAMA2_13B = ModelShape("Llama 2 13B", 40, 5120, 40, 40, 128, 13824, 32000)
LLAMA2_70B = ModelShape("Llama 2 70B", 80, 8192, 64, 8, 128, 28672, 32000)
LLAMA_33B = ModelShape("LLaMA 33B", 60, 6656, 52, 52, 128, 17920, 32000)
LLAMA_65B = ModelShape("LLaMA 65B", 80, 8192, 64, 64, 128, 22016, 32000)
LLAMA3_8B = ModelShape("Llama 3 8B", 32, 4096, 32, 8, 128, 14336, 128256)
LLAMA31_405B = ModelShape("Llama 3.1 405B", 126, 16384, 128, 8, 128, 53248, 128256)
CODE_LLAMA_34B = ModelShape("CodeLlama 34B", 48, 8192, 64, 8, 128, 22016, 32016)
MISTRAL_7B = ModelShape("Mistral 7B", 32, 4096, 32, 8, 128, 14336, 32000)
QWEN_1_8B = ModelShape("Qwen 1.8B", 24, 2048, 16, 16, 128, 5504, 151936)
QWEN_7B = ModelShape("Qwen 7B", 32, 4096, 32, 32, 128, 11008, 151936)
QWEN_14B = ModelShape("Qwen 14B", 40, 5120, 40, 40, 128, 13696, 152064)
QWEN_72B = ModelShape("Qwen 72B", 80, 8192, 64, 64, 128, 24576, 152064)
QWEN25_32B = ModelShape("Qwen2.5 32B", 64, 5120, 40, 8, 128, 27648, 152064)
STABLELM_3B = ModelShape("StableLM Alpha 3B", 16, 4096, 32, 32, 128, 16384, 50688, mlp_matrices=2)
PHI_1_5 = ModelShape("phi-1.5", 24, 2048, 32, 32, 64, 8192, 51200, mlp_matrices=2)
BERT_LARGE = ModelShape("BERT large", 24, 1024, 16, 16, 64, 4096, 30522, mlp_matrices=2, is_encoder=True)
GPT3 = ModelShape("GPT-3 175B", 96, 12288, 96, 96, 128, 49152, 50257, mlp_matrices=2, is_tied=True)

VLLM_PROFILE = "https://github.com/vllm-project/vllm/pull/10511"
VLLM_QWEN = "https://github.com/vllm-project/vllm/issues/15815"
VLLM_405B = "https://github.com/vllm-project/vllm/issues/6746"
ANATOMY = "https://huggingface.co/docs/transformers/v4.27.2/en/perf_train_gpu_one"
QWEN = "https://github.com/QwenLM/Qwen/blob/main/README.md"
LITGPT = "https://github.com/Lightning-AI/litgpt/blob/main/tutorials/resource-tables.md"
AUTO_AWQ = "https://github.com/casper-hansen/AutoAWQ/blob/main/README.md"
ZERO_GIST = "https://gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a"
SWIFT = "https://github.com/modelscope/ms-swift/blob/main/docs/source_en/LLM/Benchmark.md"
TORCHTUNE = "https://github.com/pytorch/torchtune/blob/main/README.md"
QLORA = "https://arxiv.org/abs/2305.14314"
LORA = "https://arxiv.org/abs/2106.09685"


@dataclass(frozen=True)
class Measurement:
    """What somebody measured on each card, without the parts named; `in_sample` figures set a constant of the estimate."""

    shape: ModelShape
    work: Serving | Training
    measured: float
    source: str
    cards: int = 1
    without: tuple[str, ...] = ()
    in_sample: bool = False
    note: str = ""

    @property
    def estimate(self) -> float:
        if isinstance(self.work, Serving):
            need = serving_need(self.shape, self.work, self.cards)
        else:
            need = training_need(self.shape, self.work, self.cards)
        return sum(size for name, size in need.parts if name not in self.without)

    @property
    def error(self) -> float:
        return self.estimate / self.measured - 1

    @property
    def is_hit(self) -> bool:
        return abs(self.error) <= ERROR


BY_TORCH = ("runtime",)
"""What PyTorch allocated: the driver's context is not in it."""


def qwen_serving(shape: ModelShape, *by_bits: tuple[int, float]) -> tuple[Measurement, ...]:
    """One request of 2,048 tokens."""
    return tuple(Measurement(shape, Serving(bits, 2048, 1), gb * GB, QWEN, without=BY_TORCH) for bits, gb in by_bits)


def qwen_training(shape: ModelShape, method: str, *by_length: tuple[int, float]) -> tuple[Measurement, ...]:
    """Its script trains adapters of rank 64 on all linear layers."""
    return tuple(
        Measurement(shape, Training(method, length, rank=64), gb * GB, QWEN, note="rank 64") for length, gb in by_length
    )


def litgpt_serving(shape: ModelShape, bits: int, gb: float) -> Measurement:
    return Measurement(shape, Serving(bits, 256, 1), gb * GB, LITGPT, without=BY_TORCH)


def litgpt_training(shape: ModelShape, method: str, sequence: int, batch: int, gb: float) -> Measurement:
    """Rank 8 on two of seven matrices, as much as rank 2 on all; nothing is computed again, all in 16 bits."""
    work = Training(method, sequence, batch, rank=2, precision="bf16", is_checkpointed=False)
    return Measurement(shape, work, gb * GB, LITGPT, without=BY_TORCH)


def auto_awq(shape: ModelShape, requests: int, gib: float, note: str = "") -> Measurement:
    """Prompt and answer of 2,048 tokens each; its GB are GiB, by the share of the card that it prints beside them."""
    return Measurement(shape, Serving(4, 4096, requests), gib * GIB, AUTO_AWQ, without=BY_TORCH, note=note)


def guanaco(shape: ModelShape, gb: float) -> Measurement:
    return Measurement(shape, Serving(4, 1, 1), gb * GB, QLORA, without=BY_TORCH, note="table 1")


def bert(batch: int, mib: float, *, is_checkpointed: bool = False) -> Measurement:
    work = Training("full", 512, batch, precision="fp32", is_checkpointed=is_checkpointed, has_flash=False)
    return Measurement(BERT_LARGE, work, mib * MIB, ANATOMY, in_sample=True)


def zero_3(batch: int, gib: float, *, is_checkpointed: bool = True) -> Measurement:
    work = Training("full", 4096, batch, is_checkpointed=is_checkpointed)
    return Measurement(
        LLAMA2_7B, work, gib * GIB, ZERO_GIST, 8, BY_TORCH, in_sample=not is_checkpointed, note="LLaMA 7B, ZeRO-3"
    )


def compiled(method: str, gib: float) -> Measurement:
    work = Training(method, 2048, 2, rank=8)
    return Measurement(LLAMA3_8B, work, gib * GIB, TORCHTUNE, without=BY_TORCH, note="compiled, loss in chunks")


MEASUREMENTS = (
    Measurement(LLAMA3_8B, Serving(16, 8192, 1), 18.01 * GIB, VLLM_PROFILE, without=("kv_cache",), in_sample=True, note="all but the cache"),
    Measurement(QWEN25_32B, Serving(16, 63152, 1), 39.98 * GIB, VLLM_QWEN, 2, in_sample=True, note="3,947 blocks of cache"),
    Measurement(LLAMA31_405B, Serving(8, 1, 1), 57.752 * GIB, VLLM_405B, 8, ("kv_cache", "working", "runtime"), note="weights; attention is left in 16 bits"),
    *qwen_serving(QWEN_1_8B, (16, 4.23), (8, 3.48), (4, 2.91)),
    *qwen_serving(QWEN_7B, (16, 16.99), (8, 11.20), (4, 8.21)),
    *qwen_serving(QWEN_14B, (16, 30.15), (8, 18.81), (4, 13.01)),
    *qwen_serving(QWEN_72B, (4, 48.86)),
    litgpt_serving(LLAMA2_7B, 16, 13.52),
    litgpt_serving(LLAMA2_7B, 4, 4.57),
    litgpt_serving(LLAMA2_13B, 16, 26.21),
    litgpt_serving(LLAMA2_13B, 4, 8.32),
    litgpt_serving(CODE_LLAMA_34B, 4, 20.52),
    litgpt_serving(LLAMA2_70B, 4, 37.21),
    auto_awq(LLAMA2_7B, 1, 6.15, "Vicuna 7B"),
    auto_awq(MISTRAL_7B, 1, 5.55),
    auto_awq(MISTRAL_7B, 8, 16.82, "all prompts in one pass"),
    auto_awq(LLAMA2_13B, 1, 10.28),
    auto_awq(LLAMA2_13B, 3, 16.90),
    auto_awq(CODE_LLAMA_34B, 1, 20.26),
    guanaco(LLAMA2_13B, 10),
    guanaco(LLAMA_33B, 21),
    guanaco(LLAMA_65B, 41),
    bert(4, 14949),
    bert(1, 8681),
    bert(1, 6775, is_checkpointed=True),
    zero_3(2, 75.7, is_checkpointed=False),
    zero_3(2, 20.4),
    zero_3(8, 39.1),
    litgpt_training(PHI_1_5, "lora", 1044, 1, 4.82),
    litgpt_training(STABLELM_3B, "lora", 1034, 1, 9.69),
    litgpt_training(LLAMA2_7B, "lora", 1304, 1, 21.30),
    litgpt_training(LLAMA2_7B, "lora", 1304, 2, 29.07),
    litgpt_training(LLAMA2_7B, "qlora", 1304, 1, 14.14),
    litgpt_training(LLAMA2_13B, "lora", 1304, 1, 38.12),
    litgpt_training(LLAMA2_13B, "qlora", 1304, 1, 23.14),
    *qwen_training(QWEN_1_8B, "lora", (2048, 11.0)),
    *qwen_training(QWEN_7B, "lora", (256, 20.1), (2048, 23.8), (8192, 36.6)),
    *qwen_training(QWEN_7B, "qlora", (256, 11.5), (2048, 13.9), (8192, 23.5)),
    *qwen_training(QWEN_14B, "lora", (2048, 37.4), (8192, 55.2)),
    *qwen_training(QWEN_14B, "qlora", (2048, 19.9), (8192, 27.9)),
    *qwen_training(QWEN_72B, "qlora", (2048, 64.1), (8192, 75.6)),
    Measurement(QWEN_7B, Training("lora", 2048, rank=8), 27.74 * GIB, SWIFT),
    Measurement(QWEN_7B, Training("lora", 2048, rank=8, is_checkpointed=False), 37.70 * GIB, SWIFT),
    compiled("lora", 16.2),
    compiled("qlora", 7.4),
    Measurement(GPT3, Training("lora", 2048, rank=4), 350 * GB, LORA, note="section 4.2, over all cards"),
    Measurement(GPT3, Training("full", 2048), 1.2e12, LORA, note="section 4.2, over all cards; how Adam kept its states is not said"),
)  # fmt: skip


def table() -> str:
    """Measured against estimated, as markdown."""
    lines = [
        "| model | work | cards | measured GiB | estimated | off | within 15 % | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in MEASUREMENTS:
        verdict = ("yes" if each.is_hit else "**no**") + (", in sample" if each.in_sample else "")
        work = "; ".join(part for part in (_words(each.work), each.note) if part)
        lines.append(
            f"| {each.shape.name} | {work} | {each.cards} | {each.measured / GIB:.1f} | {each.estimate / GIB:.1f} | {100 * each.error:+.0f} % "
            f"| {verdict} | [{_site(each.source)}]({each.source}) |"
        )
    tested = [each for each in MEASUREMENTS if not each.in_sample]
    others = [each for each in MEASUREMENTS if each.in_sample]
    counted = (
        f"Within 15 %: {_hits(tested)} that set no constant ({_hits(each for each in tested if isinstance(each.work, Serving))} of serving, "
        f"{_hits(each for each in tested if isinstance(each.work, Training))} of training), and {_hits(others)} that did."
    )
    return f"{counted}\n\n" + "\n".join(lines) + "\n"


def _hits(measurements: Iterable[Measurement]) -> str:
    found = [each.is_hit for each in measurements]
    return f"{sum(found)} of {len(found)}"


def _words(work: Serving | Training) -> str:
    if isinstance(work, Serving):
        return f"serving, {work.bits} bits, {work.requests} x {work.context:,} tokens"
    kept = "recomputed" if work.is_checkpointed else "all kept"
    return f"{work.method}, {work.precision}, {work.batch} x {work.sequence:,} tokens, activations {kept}"


def _site(source: str) -> str:
    return "/".join(source.removeprefix("https://").split("/")[:3])


def with_table(page: str) -> str:
    """The page with the table as it is computed today."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
