"""GPUs whose inventory entry or price is incomplete, and GPUs that do not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analytics.language.sentences import Number, tr, tr_many
from analytics.quality.model import Data, Remark, named


def unlisted(data: Data) -> Iterator[Remark]:
    """Report GPUs without an inventory entry, or with an entry that names no model."""
    gpus = data.segments["gpu"].unique().sort()
    absent = [gpu for gpu in gpus if gpu not in data.inventory.devices]
    if absent:
        sentence = tr_many(
            "{number} {GPU|GPUs} without an inventory entry: model, memory and pool are unknown", len(absent)
        )
        yield Remark("no_inventory", sentence, len(absent), absent[0])
    nameless = [gpu for gpu in gpus if gpu in data.inventory.devices and not _has_model(data, gpu)]
    if nameless:
        sentence = tr_many(
            "{number} {GPU|GPUs} without a model name: {its|their} cost is unknown, and so is whether a smaller card"
            " would do",
            len(nameless),
        )
        yield Remark("no_model", sentence, len(nameless), nameless[0])


def unpriced(data: Data) -> Iterator[Remark]:
    """Report models without a price: a sum that includes them is left out, instead of being too low."""
    known = [gpu for gpu in data.segments["gpu"].unique().sort() if data.costs.rate_of(gpu) is None]
    models = Counter(
        f"{data.inventory.model(gpu)} ({data.inventory.pool(gpu)})" for gpu in known if _has_model(data, gpu)
    )
    if models:
        ranked = sorted(models, key=lambda name: (-models[name], name))
        sentence = tr_many(
            "{number} {GPU|GPUs} without a price: {models}; every cost that includes {it|them} is left out; add"
            " {its|their} price to the file in money.prices",
            models.total(),
            models=named(ranked, "model"),
        )
        yield Remark("no_price", sentence, models.total(), ranked[0])


def _has_model(data: Data, gpu: str) -> bool:
    device = data.inventory.devices.get(gpu)
    return device is not None and (device.model is not None or device.parent_gpu is not None)


def simulated(data: Data) -> Iterator[Remark]:
    """Report GPUs that exist in a simulation only."""
    gpus = data.segments["gpu"].unique().sort()
    unreal = [gpu for gpu in gpus if data.inventory.simulated(gpu)]
    if unreal:
        sentence = tr_many(
            "{number} {GPU simulated: its|GPUs simulated: their} figures are no measurements", len(unreal)
        )
        if len(unreal) < len(gpus):
            sentence = tr(
                "{part} of {all} GPUs simulated: their figures are no measurements",
                part=Number(len(unreal)),
                all=Number(len(gpus)),
            )
        yield Remark("simulated", sentence, len(unreal), unreal[0])
