"""How much of the free GPUs the jobs of a site could not use, because they lie apart: the fragmentation measure of FGD.

Weng et al., Beware of Fragmentation, USENIX ATC 2023, section 4: the free GPUs of a host are a fragment for a job that the host cannot
take; for one that it can take, those whose free part is smaller than what the job wants of each. A host's fragments are the mean over
the jobs, each with its share of all that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class JobShape:
    """Jobs that want the same of one host: whole GPUs, or `part` of one; `popularity` is their share of all jobs.

    `cpus` is None where nobody knows what they want of them. One without any GPU makes all of a host's free GPUs a fragment.
    """

    gpus: int
    popularity: float
    part: float = 1.0
    cpus: float | None = None


@dataclass(frozen=True)
class FreeRoom:
    """Hosts with the same room: the free part of each of their GPUs, the free CPUs (None: not looked at), and how many such hosts."""

    free: tuple[float, ...]
    cpus: float | None = None
    hosts: int = 1


def fragments(room: FreeRoom, shapes: Iterable[JobShape]) -> float:
    """GPUs of one such host that are free and that a job of these could not use, in the mean."""
    return sum(shape.popularity * _fragment(room, shape) for shape in shapes)


def fragmentation(rooms: Sequence[FreeRoom], shapes: Sequence[JobShape]) -> float | None:
    """The share of all free GPUs that are fragments; None where none is free."""
    free = sum(room.hosts * sum(room.free) for room in rooms)
    return sum(room.hosts * fragments(room, shapes) for room in rooms) / free if free else None


def _fragment(room: FreeRoom, shape: JobShape) -> float:
    fitting = [free for free in room.free if free >= shape.part]
    lacks_cpus = room.cpus is not None and shape.cpus is not None and room.cpus < shape.cpus
    if shape.gpus == 0 or lacks_cpus or len(fitting) < shape.gpus:
        return sum(room.free)
    return sum(room.free) - sum(fitting)
