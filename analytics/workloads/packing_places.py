"""On which cards of the fleet packed work lies, so that whole hosts come free where they can."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from analytics.workloads.cards import present_gpus
from analytics.workloads.model import Context, once_per_context

Bin = tuple[str, ...]
"""GPUs whose work lies together on one card."""


def targets(context: Context, bins: Sequence[Bin]) -> list[tuple[Bin, str]]:
    """Each bin with the card that it lies on, one of those that the bins' works are on now.

    A bin stays on the card of one of its own, unless more whole hosts come free where it does not.
    """
    packed = {gpu for each in bins for gpu in each}
    ranks = {gpu: _rank(context, gpu, packed) for gpu in packed}
    own = [(each, min(each, key=ranks.__getitem__)) for each in bins]
    kept = sorted(packed, key=ranks.__getitem__)[: len(bins)]
    moved = _onto(bins, kept)
    freed = [wholly_freed(context, packed - {target for _, target in each}) for each in (own, moved)]
    return moved if len(freed[1]) > len(freed[0]) else own


def _rank(context: Context, gpu: str, packed: Collection[str]) -> tuple[bool, int, str, str]:
    """Which cards to keep: first those of hosts that cannot come free, then those of the largest hosts."""
    host = context.inventory.devices[gpu].host
    there = gpus_of_hosts(context).get(host, frozenset())
    return there <= set(packed), -len(there), host, gpu


def _onto(bins: Sequence[Bin], kept: Sequence[str]) -> list[tuple[Bin, str]]:
    """The bins on these cards, each on one of its own where it is among them."""
    left = set(kept)
    found: dict[Bin, str] = {}
    for each in bins:
        target = next((gpu for gpu in each if gpu in left), None)
        if target is not None:
            found[each] = target
            left.remove(target)
    rest = iter(sorted(left))
    return [(each, found[each] if each in found else next(rest)) for each in bins]


@once_per_context
def gpus_of_hosts(context: Context) -> dict[str, frozenset[str]]:
    """The whole GPUs that each host has at the window's end."""
    there = present_gpus(context)
    found: dict[str, set[str]] = {}
    for gpu, device in context.inventory.devices.items():
        if gpu in there and device.parent_gpu is None:
            found.setdefault(device.host, set()).add(gpu)
    return {host: frozenset(gpus) for host, gpus in found.items()}


def wholly_freed(context: Context, freed: Collection[str]) -> tuple[str, ...]:
    """The hosts of which every GPU comes free."""
    devices = context.inventory.devices
    counts = Counter(devices[gpu].host for gpu in freed)
    return tuple(sorted(host for host, count in counts.items() if count == len(gpus_of_hosts(context)[host])))
