"""Version numbers of drivers and of CUDA, which compare as numbers and not as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

Version = tuple[int, ...]
"""580.65.06 is (580, 65, 6)."""
Cuda = tuple[int, int]
"""12.8 is (12, 8)."""

_NUMBERS = re.compile(r"\d+(?:\.\d+)+")
_LIBRARY = re.compile(r"\.so\.(\d+\.\d+(?:\.\d+)?)$")


def version(text: str) -> Version | None:
    """The first dotted number in a text; None where there is none."""
    match = _NUMBERS.search(text)
    return None if match is None else tuple(int(part) for part in match[0].split("."))


def cuda(text: str) -> Cuda | None:
    """Major and minor of the first dotted number in a text."""
    found = version(text)
    return None if found is None else (found[0], found[1])


def library_version(name: str) -> str | None:
    """The driver version in a library's file name, such as `libcuda.so.580.65.06`."""
    match = _LIBRARY.search(name)
    return None if match is None else match[1]


def shown(numbers: Version) -> str:
    """12.8 again; driver versions keep their two digits: 580.65.06."""
    return ".".join(str(part) if index < 2 else f"{part:02}" for index, part in enumerate(numbers))


READ_ON = date(2026, 11, 21)
"""When the sources were read."""

FULL_DRIVER: dict[Cuda, Version] = {
    (13, 3): (610, 43, 2), (13, 2): (595, 45, 4), (13, 1): (590, 44, 1), (13, 0): (580, 65, 6),
    (12, 9): (575, 51, 3), (12, 8): (570, 26), (12, 6): (560, 28, 3), (12, 5): (555, 42, 2), (12, 4): (550, 54, 14),
    (12, 3): (545, 23, 6), (12, 2): (535, 54, 3), (12, 1): (530, 30, 2), (12, 0): (525, 60, 13),
    (11, 8): (520, 61, 5), (11, 7): (515, 43, 4), (11, 6): (510, 39, 1), (11, 5): (495, 29, 5), (11, 4): (470, 42, 1),
    (11, 3): (465, 19, 1), (11, 2): (460, 27, 3), (11, 1): (455, 23), (11, 0): (450, 51, 5),
    (10, 2): (440, 33), (10, 1): (418, 39), (10, 0): (410, 48), (9, 2): (396, 26), (9, 1): (390, 46), (9, 0): (384, 81),
    (8, 0): (367, 48), (7, 5): (352, 31), (7, 0): (346, 46),
}  # fmt: skip
"""The first Linux driver that has everything of a CUDA version, and the newest CUDA of each driver [1]."""

FAMILY_DRIVER: dict[int, Version] = {13: (580,), 12: (525, 60, 13), 11: (450, 80, 2)}
"""The first Linux driver that runs any CUDA of a major version, with what it lacks left out [1, 2]."""


@dataclass(frozen=True)
class CardGeneration:
    """A generation of cards and the CUDA versions and driver branches that know it; None: still supported."""

    name: str
    first_cuda: Cuda
    last_cuda: Cuda | None = None
    last_branch: int | None = None


_KEPLER_OLD = CardGeneration("Kepler", (6, 0), (10, 2), 470)
_KEPLER = CardGeneration("Kepler", (6, 0), (11, 8), 470)
_MAXWELL = CardGeneration("Maxwell", (6, 5), (12, 9), 580)
_PASCAL = CardGeneration("Pascal", (8, 0), (12, 9), 580)
_VOLTA = CardGeneration("Volta", (9, 0), (12, 9), 580)

GENERATIONS: dict[tuple[int, int], CardGeneration] = {
    (3, 0): _KEPLER_OLD, (3, 2): _KEPLER_OLD, (3, 5): _KEPLER, (3, 7): _KEPLER,
    (5, 0): _MAXWELL, (5, 2): _MAXWELL, (5, 3): _MAXWELL,
    (6, 0): _PASCAL, (6, 1): _PASCAL, (6, 2): _PASCAL,
    (7, 0): _VOLTA, (7, 2): _VOLTA,
    (7, 5): CardGeneration("Turing", (10, 0)),
    (8, 0): CardGeneration("Ampere", (11, 0)), (8, 6): CardGeneration("Ampere", (11, 1)), (8, 7): CardGeneration("Ampere", (11, 4)),
    (8, 9): CardGeneration("Ada", (11, 8)),
    (9, 0): CardGeneration("Hopper", (11, 8)),
    (10, 0): CardGeneration("Blackwell", (12, 8)), (10, 3): CardGeneration("Blackwell", (12, 9)),
    (10, 7): CardGeneration("Rubin", (13, 4)),
    (11, 0): CardGeneration("Blackwell", (13, 0)),
    (12, 0): CardGeneration("Blackwell", (12, 8)), (12, 1): CardGeneration("Blackwell", (12, 9)),
}  # fmt: skip
"""By compute capability [3, 6]."""

OLD_DEVICES: tuple[tuple[int, int, CardGeneration], ...] = (
    (0x0FC0, 0x103F, _KEPLER),
    (0x1180, 0x11FF, _KEPLER),
    (0x1280, 0x130B, _KEPLER),
    (0x1340, 0x1436, _MAXWELL),
    (0x1613, 0x1676, _MAXWELL),
    (0x174D, 0x17FD, _MAXWELL),
    (0x15C2, 0x15FF, _PASCAL),
    (0x1725, 0x172F, _PASCAL),
    (0x1B00, 0x1D56, _PASCAL),
    (0x1D81, 0x1DF6, _VOLTA),
)
"""Device ids on the PCI bus (first, last) of generations that drivers have dropped [7]: a driver that no longer knows a
card does not list it."""

FIRST_OPEN_CAPABILITY = (7, 5)
"""The open kernel module knows Turing and newer; older cards need the proprietary one [4]."""
FIRST_OPEN_ONLY_CAPABILITY = (10, 0)
"""From Blackwell on there is only the open kernel module [4]."""


@dataclass(frozen=True)
class Branch:
    """A data center driver branch and the month after which it gets no more updates."""

    kind: str
    ends: date


BRANCHES: dict[int, Branch] = {
    535: Branch("long-term support", date(2026, 6, 30)),
    570: Branch("production", date(2026, 2, 28)),
    580: Branch("long-term support", date(2028, 6, 30)),
    595: Branch("production", date(2027, 3, 31)),
    610: Branch("new feature", date(2026, 8, 31)),
}
"""[3]"""
ENDED_BRANCHES = frozenset(
    (390, 410, 418, 440, 450, 455, 460, 465, 470, 495, 510, 515, 525, 545, 550, 555, 560, 565, 575, 590)
)
"""Branches that [3] lists as ended, or no more; without a date."""
RECOMMENDED_BRANCH = 580
"""What to move to from an ended branch: supported longest, and the last one that knows every card since Maxwell."""

TORCH_OLDEST_CAPABILITY: tuple[tuple[Cuda, tuple[int, int]], ...] = (
    ((13, 0), (7, 5)),
    ((12, 8), (7, 0)),
    ((11, 8), (5, 0)),
)
"""From which CUDA on PyTorch's wheels leave out cards below which compute capability, newest first [5]."""
TORCH_BUILDS: tuple[tuple[Cuda, tuple[int, int]], ...] = (
    ((13, 0), (7, 5)),
    ((12, 8), (7, 5)),
    ((12, 6), (5, 0)),
    ((11, 8), (5, 0)),
)
"""Builds of PyTorch to advise, newest first, and the oldest card that every release of such a build has code for [5]."""
