"""Which GPUs of which node a running job has: what `scontrol show job --details` prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analytics.allocations.hostlist import expand
from analytics.allocations.slurm_tres import is_mig

if TYPE_CHECKING:
    from collections.abc import Iterator

# at the start of a line each: a job's name stands further behind and may hold anything
_JOB = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_NODES = re.compile(r"^ +Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S+)", re.MULTILINE)
_GPUS = re.compile(r"gpu(?::([^:(),]+))??:(\d+)\(IDX:([\d,-]+)\)")


@dataclass(frozen=True)
class JobGpus:
    """One job on one node, and the positions of its GPUs among those that Slurm knows of the node."""

    job_id: str
    node: str
    positions: tuple[int, ...]


def job_gpus(text: str) -> Iterator[JobGpus]:
    """Jobs whose GPUs are told; MIG instances are left out, for their positions are not those of GPUs."""
    for job in re.split(r"\n(?=JobId=)", text):
        found = _JOB.match(job)
        if found is None:
            continue
        for nodes, gres in _NODES.findall(job):
            entries = _GPUS.findall(gres)
            if not entries or any(is_mig(kind) for kind, _, _ in entries):
                continue
            positions = tuple(position for _, _, listed in entries for position in _positions(listed))
            for node in expand(nodes):
                yield JobGpus(found[1], node, positions)


def _positions(text: str) -> list[int]:
    """`0-1,3`."""
    found: list[int] = []
    for item in text.strip(",").split(","):
        first, _, last = item.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
