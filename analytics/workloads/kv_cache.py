"""How much of its reserved memory an inference server needs: its weights, and the share of the KV cache that was in use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from analytics.workloads.memory_need import NEED_MARGIN
from fallow.clock import HOUR_MS

if TYPE_CHECKING:
    from analytics.workloads.model import Context

_PARAMETERS = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])")
_HALF_BYTE = re.compile(r"awq|gptq|int4|4bit|w4a16|nvfp4|mxfp4|bnb-4")
_ONE_BYTE = re.compile(r"fp8|int8|8bit|w8a8")


@dataclass(frozen=True)
class CacheUse:
    """The KV cache of the servers on some GPUs, over the fullest of them.

    `weights_bytes` and `need_bytes` are for one GPU; None where the model's name does not say how many parameters it has.
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
        """Weights, and the share of the rest that the cache has used at most, with a margin.

        The rest holds more than the cache (the CUDA context, activations), so that the need is rather too high.
        """
        if self.weights_bytes is None or self.weights_bytes >= self.reserved_bytes:
            return None
        used = self.used_max_ratio * (self.reserved_bytes - self.weights_bytes)
        return min(round((self.weights_bytes + used) * NEED_MARGIN), self.reserved_bytes)


def cache_use(context: Context, runs: pl.DataFrame) -> CacheUse | None:
    """What the servers on the GPUs of some runs say; None unless each GPU has one server with one model that does."""
    inside = (pl.col("time") >= context.since_ms - HOUR_MS) & pl.col("kv_cache_used_max_ratio").is_not_null()
    served = context.rollups.serving().filter(inside, pl.col("gpu").is_in(runs["gpu"].unique().to_list()))
    each = served.group_by("gpu").agg(
        pl.col("model").drop_nulls().unique(), pl.col("endpoint").first(), used=pl.col("kv_cache_used_max_ratio").max(),
        endpoints=pl.struct("endpoint", "model").n_unique(), hours=pl.len(),
    )  # fmt: skip
    alone = each.filter((pl.col("endpoints") == 1) & (pl.col("model").list.len() == 1)).explode("model")
    if alone.height < runs["gpu"].n_unique() or alone["model"].n_unique() != 1:
        return None
    name = str(alone["model"][0])
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
    """How many parameters a model has by its name: 8e9 for `Llama-3.1-8B-Instruct`, at most 56e9 for `Mixtral-8x7B`."""
    found = _PARAMETERS.search(model.lower().replace("_", "-"))
    return int(found[1] or 1) * float(found[2]) * 1e9 if found else None


def bytes_per_parameter(model: str) -> float:
    """2 unless the name says that the weights are quantised."""
    name = model.lower()
    if _HALF_BYTE.search(name):
        return 0.5
    return 1.0 if _ONE_BYTE.search(name) else 2.0
