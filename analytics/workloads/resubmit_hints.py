"""How to ask for another card next time: a Slurm directive, a node label, or a host that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.language.sentences import say
from analytics.workloads.process_holders import quote, watch_command
from analytics.workloads.smaller_cards import shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.money.cards import Card
    from analytics.workloads.model import Context
    from analytics.workloads.smaller_cards import Offer

KINDS = ("slurm", "pod", "ray", "claim")
"""How the names of jobs begin."""


def job_kind(jobs: Iterable[str | None]) -> str | None:
    """Who started all of these jobs; None for bare processes, and where it was not the same for all."""
    kinds = {None if job is None else job.partition(":")[0] for job in jobs}
    only = kinds.pop() if len(kinds) == 1 else None
    return only if only in KINDS else None


def slurm_type(wanted: Card, others: Iterable[Card] = ()) -> str:
    """What Slurm sites usually call the card in a gres, with its memory where another card would be called the same."""

    def short(each: Card) -> str:
        words = each.name.lower().split()
        return words[0] if words[0][-1].isdigit() or words[0][-1:] == "s" else "_".join(words)

    same = any(short(each) == short(wanted) and each.memory_bytes != wanted.memory_bytes for each in others)
    return f"{short(wanted)}_{round(wanted.memory_bytes / 2**30)}gb" if same else short(wanted)


def product_label(model: str) -> str:
    """The value of the node label nvidia.com/gpu.product for a model as NVML names it."""
    return model.replace(" ", "-")


def ask_for(
    context: Context, jobs: Sequence[str | None], offer: Offer, *, present: str, gpus_per_host: int
) -> tuple[str, str]:
    """The command or directive that gets a card of the fleet for work on the present model, and what to do with it."""
    kind, model = job_kind(jobs), offer.model or offer.card.name
    if kind == "slurm":
        others = [each.card for each in shelf(context).fleet.values()]
        directive = f"#SBATCH --gres=gpu:{slurm_type(offer.card, others)}:{gpus_per_host}"
        return (
            directive,
            say(
                "submit it with this directive instead of {present}; gres.conf says how the site calls the type",
                present=present,
            ),
        )
    if kind == "pod":
        label = f"nvidia.com/gpu.product={product_label(model)}"
        says = say(
            "give the pod the nodeSelector {selector}; the command lists the nodes that have it",
            selector=label.replace("=", ": "),
        )
        return f"kubectl get nodes -l {quote(label)}", says
    if kind == "ray":
        kind_of_card = slurm_type(offer.card).upper()
        return _there(context, model), say('start it with accelerator_type="{card}"', card=kind_of_card)
    return _there(context, model), say("start it on a host with that card; the command shows how busy one is")


def _there(context: Context, model: str) -> str:
    hosts = sorted(each.host for each in context.inventory.devices.values() if each.model == model)
    return watch_command(hosts[0]) if hosts else ""
