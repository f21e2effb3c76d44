"""How to ask for another card next time: a Slurm directive, a node label, or a host that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analytics.findings.holders import quote, watch_command
from analytics.findings.looking import monitor_command
from analytics.money.cards import Card, card

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analytics.findings.model import Context

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
    context: Context, jobs: Sequence[str | None], wanted: Card, model: str, gpus_per_host: int, present: str
) -> tuple[str, str]:
    """The command or directive that gets a card of the fleet, and a sentence that says what to do with it."""
    kind = job_kind(jobs)
    if kind == "slurm":
        others = [known for each in (present, *_models(context)) if (known := card(each)) is not None]
        directive = f"#SBATCH --gres=gpu:{slurm_type(wanted, others)}:{gpus_per_host}"
        return directive, "submit it with this directive; the type is called as in the site's gres.conf"
    if kind == "pod":
        label = f"nvidia.com/gpu.product={product_label(model)}"
        return (
            f"kubectl get nodes -l {quote(label)}",
            f"give the pod the nodeSelector {label.replace('=', ': ')}; the command lists the nodes that have it",
        )
    if kind == "ray":
        return _there(context, model), f'start it with accelerator_type="{slurm_type(wanted).upper()}"'
    return _there(context, model), "start it on a host with that card; the command shows how busy one is"


def look_at(host: str, gpus: Sequence[str]) -> str:
    """What shows the GPUs at work, where the fleet has nothing to move to."""
    return monitor_command(host, gpus)


def _models(context: Context) -> set[str]:
    return {each.model for each in context.inventory.devices.values() if each.model}


def _there(context: Context, model: str) -> str:
    hosts = sorted(each.host for each in context.inventory.devices.values() if each.model == model)
    return watch_command(hosts[0]) if hosts else ""
