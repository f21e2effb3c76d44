"""Data of each GPU model: memory, number formats, peak rates, links, power, MIG profiles and software (`cards.csv`).

Memory is what NVML shows with default settings (ECC on where that is the default), for others what their makers state.
FP16 is dense with tensor cores and FP32 sums, from the source of the row, as are FP8 and FP4 (dense, too). A link joins
`link_cards` cards at most: a bridge two, a switch or a mesh of a board eight. Its rate is of both directions and all
links of a card. MIG profiles are those of NVIDIA's MIG user guide. `software` is what programs for the card are written
in. An empty field is not known, or a format or link that the card lacks. Several memory sizes are as many cards. For a
present card the device table's own `mem_total_bytes` is better.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

_MIB = 2**20
_GIB = 2**30

MIG_VISIBLE = 16 / 18
"""Least memory of a MIG instance as a share of the GiB in its name: 16.00 of an H200's 1g.18gb, 4.75 of an A100's
1g.5gb."""

CUDA = "CUDA"
"""The software of NVIDIA's cards."""

ROCM = "ROCm"
"""The software of AMD's cards."""

UNIFIED = "MPS"
"""The software of cards that share the memory of their host."""

_UNIFIED_SHARES = ((32 * _GIB, 2 / 3), (float("inf"), 3 / 4))
"""Share of a Mac's memory that Metal lets a GPU take by default, up to this size (recommendedMaxWorkingSetSize, as
https://github.com/ggml-org/llama.cpp/discussions/2182 read it)."""

_SAME_MEMORY = 0.1
"""A device's memory names one of several cards of a name if it differs from the card's by at most this share."""

_MAKER = re.compile(r"\b(nvidia|tesla|amd|intel|habana)\b|\((r|tm)\)")
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
    software: str
    installed_bytes: int
    memory_bytes: int
    """Memory that the GPU may take: all of its own, or a share of its host's."""
    generation: str
    year: int
    formats: tuple[str, ...]
    """Number formats of up to 16 bits in which it multiplies matrices, the widest first."""
    fp16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    bandwidth_gb_per_s: float | None
    link: str | None
    """Name of the link between cards beside PCIe; None without one."""
    link_gb_per_s: float | None
    link_cards: int
    """Most cards that the link joins; 1 without one."""
    tdp_w: float | None
    mig_slices: int
    mig_profiles: tuple[MigProfile, ...]
    source: str

    @property
    def is_alone(self) -> bool:
        """Return whether its host has one of it: laptops and Macs."""
        return self.software == UNIFIED or "Laptop" in self.name


def card(model_name: str | None, memory_bytes: float | None = None) -> Card | None:
    """Return the card with this NVML name (`NVIDIA H100 80GB HBM3`, `A100-SXM4-80GB`), or of a MIG instance's name.

    Spelling (case, dashes, the maker's name) does not matter. An ambiguous name is None: `A100` alone may be one of
    four cards. Memory decides between cards that differ in nothing else. A model that is not in the table is None.
    """
    found = _by_alias().get(words(model_name), ()) if model_name else ()
    if len(found) > 1 and memory_bytes:
        found = tuple(each for each in found if abs(each.installed_bytes / memory_bytes - 1) <= _SAME_MEMORY)
    return found[0] if len(found) == 1 else None


def cards() -> tuple[Card, ...]:
    """Return every card, newest first."""
    return tuple(dict.fromkeys(each for found in _by_alias().values() for each in found))


def words(model_name: str) -> frozenset[str]:
    """Return the words of a model's name without spelling, which two names of one card share."""
    plain = _MAKER.sub(" ", _MIG_SUFFIX.sub("", model_name).lower().replace("_", " "))
    return frozenset(re.findall(r"[a-z0-9]+", plain))


def is_called(asked: str, model: str) -> bool:
    """Return True if all words of the request are in a model's name or in that of its card: `H100` is any H100.

    A laptop's card shares its number with another card, so it has to be asked for as such.
    """
    known = card(model)
    names = words(model) | (words(known.name) if known is not None else frozenset())
    if (known is not None and card(asked) == known) or words(asked) == names:
        return True
    return words(asked) <= names and ("laptop" in words(asked)) == ("laptop" in names)


@cache
def _by_alias() -> Mapping[frozenset[str], tuple[Card, ...]]:
    text = resources.files(__package__).joinpath("cards.csv").read_text(encoding="utf-8")
    found: dict[frozenset[str], tuple[Card, ...]] = {}
    for row in csv.DictReader(text.splitlines()):
        sizes = [int(each) * _MIB for each in row["memory_mib"].split("|")]
        for size in sizes:
            suffix = f" {size // _GIB}GB" if len(sizes) > 1 else ""
            entry = _card(row, size, suffix)
            names = (row["name"], *filter(None, row["aliases"].split("|")))
            for alias in {words(name + end) for name in names for end in ("", suffix)}:
                found[alias] = (*found.get(alias, ()), entry)
    return found


def _card(row: Mapping[str, str], installed_bytes: int, suffix: str) -> Card:
    shares = _UNIFIED_SHARES if row["software"] == UNIFIED else ((float("inf"), 1.0),)
    share = next(share for most, share in shares if installed_bytes <= most)
    return Card(
        name=row["name"] + suffix,
        software=row["software"],
        installed_bytes=installed_bytes,
        memory_bytes=int(installed_bytes * share),
        generation=row["generation"],
        year=int(row["year"]),
        formats=tuple(row["formats"].split()),
        link=row["link"] or None,
        link_cards=int(row["link_cards"]),
        mig_slices=int(row["mig_slices"]),
        mig_profiles=tuple(_profiles(row["mig_profiles"].split())),
        source=row["source"],
        **{name: float(row[name]) if row[name] else None for name in _PERHAPS},
    )


_PERHAPS = ("fp16_tflops", "fp8_tflops", "fp4_tflops", "bandwidth_gb_per_s", "link_gb_per_s", "tdp_w")
"""Columns that may be unknown."""


def _profiles(names: Iterable[str]) -> Iterator[MigProfile]:
    for name in names:
        slices, _, memory = name.partition("g.")
        yield MigProfile(name, int(slices), int(int(memory.removesuffix("gb")) * _GIB * MIG_VISIBLE))
