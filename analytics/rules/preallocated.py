"""Preallocated memory: the need is not known, or known only from the server's own metrics.

Look-alikes that it leaves alone: memory that grows or varies, a constant share that no framework takes by default, a KV
cache that was nearly full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from analytics.language.sentences import Amount, Bytes, Number, Sentence, Share, tr
from analytics.workloads import waste
from analytics.workloads.cards import Offer, shelf
from analytics.workloads.commands import monitor_command
from analytics.workloads.finding_parts import label, varying, workload_candidate
from analytics.workloads.ledger_rows import gpus_on, highest
from analytics.workloads.model import Context, EvidenceValue, gpus_of, of_gpus
from analytics.workloads.rule import Candidate, HistoryNeed, Rule
from analytics.workloads.runs import NEED_MARGIN, NEED_THRESHOLDS
from analytics.workloads.smaller_cards import demand_of, saving_of
from analytics.workloads.workloads import (
    RUN_MIN_MS,
    WORK_THRESHOLDS,
    above_a_gpu_day,
    with_demand,
    with_rows,
    workloads,
)
from fallow.clock import HOUR_MS

FULL_CACHE_RATIO = 0.9
"""Highest used share of a KV cache that counts as preallocated: above it, the server needs its memory."""


_PARAMETERS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])")
_EXPERTS = re.compile(r"(?<![a-z0-9.])\d+e(?![a-z0-9])")
_HALF_BYTE = re.compile(r"awq|gptq|int4|4bit|w4a16|nvfp4|mxfp4|bnb-4")
_ONE_BYTE = re.compile(r"fp8|int8|8bit|w8a8")


@dataclass(frozen=True)
class CacheUse:
    """The KV cache of the servers on some GPUs; figures of the fullest server.

    `weights_bytes` and `need_bytes` are per GPU. They are None if the model's name does not contain its number of
    parameters.
    """

    model: str
    used_max_ratio: float
    hours: int
    reserved_bytes: int
    gpus: int
    bytes_per_parameter: float
    weights_bytes: int | None

    @property
    def need_bytes(self) -> int | None:
        """Return the weights, plus the remaining memory times the highest used share of the cache, with a margin.

        The remaining memory holds more than the cache (the CUDA context, activations), so the need may be too high.
        """
        return self.need_at(self.bytes_per_parameter)

    def need_at(self, bytes_per_parameter: float) -> int | None:
        """Return the need with weights of this width; the cache stays as it is."""
        if self.weights_bytes is None or self.weights_bytes >= self.reserved_bytes:
            return None
        used = self.used_max_ratio * (self.reserved_bytes - self.weights_bytes)
        weights = self.weights_bytes * bytes_per_parameter / self.bytes_per_parameter
        return min(round((weights + used) * NEED_MARGIN), self.reserved_bytes)


def preallocated_findings(context: Context) -> Iterator[Candidate]:
    """Yield a finding per user, account and model, for workloads that preallocated a fixed share of their card."""
    reserved = above_a_gpu_day(workloads(context).filter(pl.col("by_default")))
    if reserved.is_empty():
        return
    by = ("user", "account", "model")
    groups = with_demand(context, reserved).partition_by(by, maintain_order=True)
    for group, runs, rows in with_rows(context, groups):
        use = cache_use(context, runs)
        if use is None or use.used_max_ratio < FULL_CACHE_RATIO:
            host = runs["host"][0]
            share = float(highest(runs, "mem_share"))
            offer = None if use is None else _lesser(context, group, use.need_bytes)
            quantised = None if use is None else _quantised(context, group, rows, use, offer)
            # a server keeps what it reserved on purpose, and takes as much at the next start
            serves = bool(runs["reserving"].any()) or 0.88 <= share < 0.95
            framework, setting = ("JAX", "XLA_PYTHON_CLIENT_PREALLOCATE=false") if share < 0.8 else _TENSORFLOW
            numbers: dict[str, EvidenceValue] = {
                "mem_used_max_bytes": highest(group, "peak_bytes"),
                "reserved_share_of_card": share,
                "mem_variation": highest(runs, "variation"),
                "gpu_util_mean_pct": highest(group, "util_mean_pct"),
                "kv_cache_used_max_ratio": None if use is None else use.used_max_ratio,
                "weights_bytes": None if use is None else use.weights_bytes,
                "mem_need_bytes": None if use is None else use.need_bytes,
            }
            if offer is not None:
                numbers |= {"recommended_card": offer.model or offer.card.name, "recommended_hourly": offer.hourly}
            if quantised is not None:
                numbers |= quantised.numbers
            yield workload_candidate(
                group,
                runs,
                rows,
                numbers=numbers,
                failed=_preallocated_unsure(use),
                # for a server, which wants its cache, a look at its GPUs; else what limits the next start to its need
                next_command=monitor_command(host, gpus_on(runs, host)) if serves else f"export {setting}",
                notes=_without_metrics(framework, serves=serves)
                if use is None
                else [*_with_metrics(share, use, offer), *([] if quantised is None else quantised.sentences)],
            )


PREALLOCATED = Rule(
    name="preallocated",
    category="right_size",
    sentence=of_gpus("with preallocated memory, so the need is not known"),
    kinds=(waste.INEFFICIENT,),
    precedence=70,
    history=HistoryNeed(RUN_MIN_MS),
    thresholds={
        "preallocated": NEED_THRESHOLDS["preallocated"],
        "need": (
            "weights and the used share of the KV cache times 1.15, where the server's metrics and the model's name"
            f" tell; a cache used to {FULL_CACHE_RATIO:.0%} and more is no reserve"
        ),
        **WORK_THRESHOLDS,
    },
    labels=(
        label("reserved_share_of_card", "{value} of the card's memory preallocated", Share),
        varying("mem_variation", "memory varies by less than {share}", "memory varies by {share}"),
        label("kv_cache_used_max_ratio", "at most {value} of the KV cache used", Share),
        label("weights_bytes", "weights {value}", Bytes),
    ),
    find=preallocated_findings,
)


_TENSORFLOW = ("TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH=true")


def _lesser(context: Context, group: pl.DataFrame, need_bytes: int | None) -> Offer | None:
    """Return a smaller card that holds the need and is as fast as the servers use theirs; None without one."""
    if need_bytes is None:
        return None
    row: dict[str, Any] = group.select(pl.col("util_pct", "sm_pct", "dram_pct").max()).row(0, named=True)
    demand = demand_of(row | {"peak_bytes": need_bytes}, less_memory=True)
    return None if demand is None else shelf(context).choose(group["model"][0], demand)


_NARROWER = (
    (8, 1.0, tr("FP8 without measurable loss, INT8 with 1 to 3 %")),
    (4, 4.25 / 8, tr("INT4 with a loss close to that of 8 bits")),
)
"""Bits, bytes per parameter with scales, published loss of accuracy: Llama 3.1, all sizes, arXiv 2411.02355 (2024)."""


@dataclass(frozen=True)
class Quantised:
    """A smaller card for servers whose weights take fewer bits."""

    bits: int
    loss: Sentence
    need_bytes: int
    offer: Offer
    saving: float | None
    """Saving in the window; None if unknown."""
    currency: str

    @property
    def numbers(self) -> dict[str, EvidenceValue]:
        """Return the evidence."""
        card = self.offer.model or self.offer.card.name
        return {
            "quantised_bits": self.bits,
            "quantised_need_bytes": self.need_bytes,
            "quantised_card": card,
            "quantised_saving": self.saving,
        }

    @property
    def sentences(self) -> list[Sentence]:
        """Return what would fit, at which loss, and the saving."""
        fits = tr(
            "with weights of {bits} bits the need is {need}, which {card} holds (published loss on Llama 3.1: {loss};"
            " arXiv 2411.02355)",
            bits=self.bits,
            need=Bytes(self.need_bytes),
            card=self.offer.model or self.offer.card.name,
            loss=self.loss,
        )
        if self.saving is None:
            return [fits]
        return [
            fits,
            tr("that card would have saved {saving} in this window", saving=Amount(self.saving, self.currency)),
        ]


def _quantised(
    context: Context, group: pl.DataFrame, rows: pl.DataFrame, use: CacheUse, as_is: Offer | None
) -> Quantised | None:
    """Return the most bits with which the servers fit on another smaller card than they do now; None without one."""
    for bits, width, loss in _NARROWER:
        need = use.need_at(width) if width < use.bytes_per_parameter else None
        offer = _lesser(context, group, need)
        if need is not None and offer is not None and (as_is is None or offer.card != as_is.card):
            saving, _ = saving_of(context, rows, offer)
            return Quantised(bits, loss, need, offer, saving, context.costs.currency)
    return None


def _preallocated_unsure(use: CacheUse | None) -> list[str]:
    if use is None:
        return [tr("the need is not known: no server reports how much of its cache it uses")]
    if use.need_bytes is None:
        return [tr("the need is not known: the name {model} does not contain the size of the weights", model=use.model)]
    return [tr("the weights are estimated from the model's name")]


def _without_metrics(framework: str, *, serves: bool) -> list[str]:
    if serves:
        return [
            tr(
                "an inference server preallocates its cache at the start; let the agent read its metrics"
                " (serving.endpoints) to see the need"
            )
        ]
    return [
        tr(
            "{framework} preallocates this much by default; start the workload once with that variable set to see the"
            " need",
            framework=framework,
        )
    ]


def _with_metrics(share: float, use: CacheUse, offer: Offer | None) -> list[str]:
    used = tr(
        "at most {share} of the KV cache was in use over {hours} hours",
        share=Share(use.used_max_ratio),
        hours=Number(use.hours),
    )
    if use.need_bytes is None or use.weights_bytes is None:
        return [used]
    share_needed = use.need_bytes / (use.reserved_bytes / share)
    notes: list[str] = [
        _arithmetic(used, use, use.weights_bytes, use.need_bytes),
        tr("vLLM uses less with --gpu-memory-utilization {ratio}", ratio=f"{max(share_needed, 0.01):.2f}"),
    ]
    if offer is not None:
        card = offer.model or offer.card.name
        held = tr("{card} has enough memory", card=card)
        notes.append(
            held if offer.model else tr("{card} has enough memory, but this fleet has no such card", card=card)
        )
    return notes


def _arithmetic(used: Sentence, use: CacheUse, weights_bytes: int, need_bytes: int) -> Sentence:
    width = tr("{bytes} bytes per parameter", bytes=f"{use.bytes_per_parameter:g}")
    if use.gpus > 1:
        width = tr("{width} over {gpus}", width=width, gpus=gpus_of(use.gpus))
    return tr(
        "{used}; need = (weights {weights} ({width}) + {share} of the other {rest}) x {margin} = {need}",
        used=used,
        weights=Bytes(weights_bytes),
        width=width,
        share=Share(use.used_max_ratio),
        rest=Bytes(use.reserved_bytes - weights_bytes),
        margin=Number(NEED_MARGIN, 2),
        need=Bytes(need_bytes),
    )


def cache_use(context: Context, runs: pl.DataFrame) -> CacheUse | None:
    """Return the cache use that the servers on the GPUs of some runs report.

    None unless each GPU has one server with one model.
    """
    inside = (pl.col("time") >= context.since_ms - HOUR_MS) & pl.col("kv_cache_used_max_ratio").is_not_null()
    served = context.rollups.serving(context.since_ms - HOUR_MS).filter(
        inside, pl.col("gpu").is_in(runs["gpu"].unique().to_list())
    )
    each = served.group_by("gpu").agg(
        pl.col("model").drop_nulls().unique(),
        pl.col("endpoint").first(),
        used=pl.col("kv_cache_used_max_ratio").max(),
        endpoints=pl.struct("endpoint", "model").n_unique(),
        hours=pl.len(),
    )
    alone = each.filter((pl.col("endpoints") == 1) & (pl.col("model").list.len() == 1)).explode("model")
    if alone.height < runs["gpu"].n_unique() or alone["model"].n_unique() != 1:
        return None
    name = alone["model"][0]
    gpus = int(alone.group_by("endpoint").len()["len"].bottom_k(1)[0])
    parameters, width = parameters_of(name), bytes_per_parameter(name)
    return CacheUse(
        model=name,
        used_max_ratio=float(alone["used"].top_k(1)[0]),
        hours=int(alone["hours"].bottom_k(1)[0]),
        reserved_bytes=int(runs["peak_bytes"].top_k(1)[0]),
        gpus=gpus,
        bytes_per_parameter=width,
        weights_bytes=None if parameters is None else round(parameters * width / gpus),
    )


def parameters_of(model: str) -> float | None:
    """Return the number of parameters in a model's name.

    It is 8e9 for `Llama-3.1-8B-Instruct`, at most 56e9 for `Mixtral-8x7B`, 7e9 for `OLMoE-1B-7B`, which also names the
    active ones, and None for `Llama-4-Scout-17B-16E`, which names only these.
    """
    name = model.lower().replace("_", "-")
    found = [] if _EXPERTS.search(name) else _PARAMETERS.findall(name)
    return max((int(experts or 1) * float(billions) * 1e9 for experts, billions in found), default=None)


def bytes_per_parameter(model: str) -> float:
    """Return the bytes per parameter: 2 unless the name shows quantised weights; of `GPTQ-Int8`, 1."""
    name = model.lower()
    if _ONE_BYTE.search(name):
        return 1.0
    return 0.5 if _HALF_BYTE.search(name) else 2.0
