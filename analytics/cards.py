"""Data of each GPU model: memory, generation, SMs, peak rates, power and MIG profiles (`cards.csv`).

Memory is what NVML shows with default settings (ECC on where that is the default). FP16 is dense with tensor cores and
FP32 sums, from NVIDIA's data sheets, as are FP8 and FP4 (dense, too; on GeForce cards with FP32 sums) and NVLink (both
directions, all links of a card; 0 is none). MIG profiles are those of NVIDIA's MIG user guide, the compute capability
that of NVIDIA's table of CUDA GPUs. An empty field is not known, or a format that the card lacks. For a present card
the device table's own `mem_total_bytes` is better.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_MIB = 2**20
_GIB = 2**30

MIG_VISIBLE = 16 / 18
"""Least memory of a MIG instance as a share of the GiB in its name: 16.00 of an H200's 1g.18gb, 4.75 of an A100's
1g.5gb."""

_MAKER = re.compile(r"\b(nvidia|tesla)\b")
_MIG_SUFFIX = re.compile(r"\s+MIG\s+\d+g\..*$", re.IGNORECASE)


@dataclass(frozen=True)
class MigProfile:
    """One MIG profile: its slices of compute, and the memory that an instance has at least."""

    name: str
    slices: int
    memory_bytes: int


@dataclass(frozen=True)
class Card:
    """One GPU model; None is unknown. `mig_slices` is 7 or 4, and 0 for a card without MIG."""

    name: str
    memory_bytes: int
    generation: str
    year: int
    compute_capability: tuple[int, int]
    sms: int | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    bandwidth_gb_per_s: float | None
    nvlink_gb_per_s: float
    tdp_w: float | None
    mig_slices: int
    mig_profiles: tuple[MigProfile, ...]

    @property
    def formats(self) -> tuple[str, ...]:
        """Return the number formats of up to 16 bits in which it multiplies matrices, the widest first.

        The compute capability decides, from NVIDIA's CUDA programming guide, feature availability of compute
        capabilities. INT8 counts from the dot products of 6.1 on.
        """
        first = {"BF16": (8, 0), "FP16": (7, 0), "FP8": (8, 9), "INT8": (6, 1), "FP4": (10, 0)}
        own = tuple(name for name, since in first.items() if self.compute_capability >= since)
        lacking = {
            (6, 0): ("FP16",),
            (7, 0): ("FP16",),
        }  # P100 has fast FP16 without tensor cores; Volta has no INT8 ones
        return lacking.get(self.compute_capability, own)


def card(model_name: str | None) -> Card | None:
    """Return the card with this NVML name (`NVIDIA H100 80GB HBM3`, `A100-SXM4-80GB`), or of a MIG instance's name.

    Spelling (case, dashes, the maker's name) does not matter. An ambiguous name is None: `A100` alone may be one of
    four cards. A model that is not in the table is None.
    """
    return _by_alias().get(words(model_name)) if model_name else None


def cards() -> tuple[Card, ...]:
    """Return every card, newest first."""
    return tuple(dict.fromkeys(_by_alias().values()))


def words(model_name: str) -> frozenset[str]:
    """Return the words of a model's name without spelling, which two names of one card share."""
    plain = _MAKER.sub(" ", _MIG_SUFFIX.sub("", model_name).lower().replace("_", " "))
    return frozenset(re.findall(r"[a-z0-9]+", plain))


def is_called(asked: str, model: str) -> bool:
    """Return True if all words of the request are in a model's name or in that of its card: `H100` is any H100."""
    known = card(model)
    names = words(model) | (words(known.name) if known is not None else frozenset())
    return words(asked) <= names or (known is not None and card(asked) == known)


@cache
def _by_alias() -> Mapping[frozenset[str], Card]:
    text = resources.files(__package__).joinpath("cards.csv").read_text(encoding="utf-8")
    found: dict[frozenset[str], Card] = {}
    for row in csv.DictReader(text.splitlines()):
        entry = _card(row)
        for alias in (entry.name, *row["aliases"].split("|")):
            found[words(alias)] = entry
    return found


def _card(row: Mapping[str, str]) -> Card:
    return Card(
        name=row["name"],
        memory_bytes=int(row["memory_mib"]) * _MIB,
        generation=row["generation"],
        year=int(row["year"]),
        compute_capability=_capability(row["compute_capability"]),
        sms=int(row["sms"]) if row["sms"] else None,
        nvlink_gb_per_s=float(row["nvlink_gb_per_s"]),
        mig_slices=int(row["mig_slices"]),
        mig_profiles=tuple(_profiles(row["mig_profiles"].split())),
        **{name: float(row[name]) if row[name] else None for name in _PERHAPS},
    )


_PERHAPS = ("fp16_tflops", "fp8_tflops", "fp4_tflops", "bandwidth_gb_per_s", "tdp_w")
"""Columns that may be unknown."""


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def _profiles(names: Iterable[str]) -> Iterable[MigProfile]:
    for name in names:
        slices, _, memory = name.partition("g.")
        yield MigProfile(name, int(slices), int(int(memory.removesuffix("gb")) * _GIB * MIG_VISIBLE))
