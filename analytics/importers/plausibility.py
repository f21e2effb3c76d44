"""Refuses values that no GPU can have, and names their probable unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from analytics.importers.model import PROCESSES, Tally
from analytics.importers.processes import flat
from analytics.importers.values import BYTES
from fallow.errors import InputError
from fallow.units import format_bytes

_MIB = 2**20
_LARGEST_CARD_BYTES = 2**40
"""Three times the largest memory of 2026 (B300 with 288 GB)."""

_SMALLEST_CARD_BYTES = 128 * _MIB
_MOST_POWER_W = 3_000
"""Twice the largest board limit of 2026 (1,400 W)."""

_LEAST_POWER_W = 2.0
"""Less than any card that answers draws at rest."""

_HOTTEST_C = 125
_FEW = 3
_SHARE = 0.05
_ABOVE_CARD = 1.01
_RARE = 1_000
_FROM_MIB = (("GiB", 2**10), ("KiB", 2**-10), ("B", 2**-20))
"""Possible units of a size that was read as MiB, and their factors."""
_CLOCKS = {"sm_clock_mhz": (10.0, 6_000.0), "mem_clock_mhz": (10.0, 25_000.0)}
_OUTSIDE = (
    "outside 0..100: value dropped",
    "outside 0..1: value dropped",
    "too large: value dropped",
    "less than one byte: value dropped",
)


Declare = Callable[[str], str]
"""Returns how to declare another unit; empty where none is likely."""


@dataclass(frozen=True)
class Claim:
    """One column of an import: its name in messages, whether its unit was declared, and how to declare another unit."""

    label: str
    declared: bool
    declare: Declare


@dataclass(frozen=True)
class _Fault:
    """A fault of a column, and the unit that would explain it."""

    column: str
    what: str
    unit: str = ""
    certain: bool = True
    possible: bool = True
    """True where the values are possible if the unit was declared."""


def card_bytes(model: str | None) -> int | None:
    """Return the memory in a product name such as `NVIDIA A100-SXM4-80GB`; None where it states none."""
    found = re.search(r"(\d{1,3})\s?GB\b", model or "")
    return None if found is None else int(found[1]) * 2**30


def check_values(
    frame: pl.DataFrame, claims: Mapping[str, Claim], nulled: Mapping[tuple[str, str], int], card: int | None
) -> list[str]:
    """Return sentences on doubtful values in the columns that `claims` names.

    Raises InputError for impossible values, with the likely unit; where the unit was declared, they are only doubtful.
    """
    odd = []
    for fault in _faults(frame.select(name for name in claims if name in frame.columns), nulled, card):
        claim = claims[fault.column]
        sentence = f"{claim.label} {fault.what}"
        if fault.certain and not (claim.declared and fault.possible):
            raise InputError(sentence, claim.declare(fault.unit))
        odd.append(sentence + (f": is it {fault.unit}?" if fault.unit else ""))
    return odd


def check_recording(
    path: str, rows: pl.DataFrame, declare: Mapping[str, Declare], of_processes: Declare, tally: Tally
) -> None:
    """Note doubtful values in a tool's rows and their process lists, in the tool's units. Raises as `check_values`.

    `declare` is by column; `of_processes` does the same for the memory of processes.
    """
    largest = rows["mem_total_bytes"].max() if "mem_total_bytes" in rows.columns else None
    card = largest if isinstance(largest, int) else None
    claims = {column: Claim(f"{path}: {column}", declared=False, declare=how) for column, how in declare.items()}
    tally.odd.extend(check_values(rows, claims, tally.nulled, card))
    if PROCESSES in rows.columns:
        memory = {"mem_used_bytes": Claim(f"{path}: memory of processes", declared=False, declare=of_processes)}
        tally.odd.extend(check_values(flat(rows, ()), memory, {}, card))


def _faults(frame: pl.DataFrame, nulled: Mapping[tuple[str, str], int], card: int | None) -> Iterator[_Fault]:
    for name in frame.columns:
        values = frame[name].drop_nulls()
        yield from _outside(name, values, nulled)
        if not values.dtype.is_numeric() or values.is_empty():
            continue
        if name.endswith("_pct"):
            yield from _percent(name, values)
        elif name == "mem_used_bytes":
            yield from _memory(name, values, card)
        elif name == "mem_total_bytes":
            yield from _card(name, values)
        elif name == "power_w":
            yield from _power(name, values)
        elif name.endswith("temperature_c"):
            yield from _temperature(name, values)
        elif name in _CLOCKS:
            yield from _clock(name, values)


def _outside(name: str, values: pl.Series, nulled: Mapping[tuple[str, str], int]) -> Iterator[_Fault]:
    """Yield a fault where many values are out of range: a few are noise and only counted, many are another unit."""
    count = sum(nulled.get((name, reason), 0) for reason in _OUTSIDE)
    total = count + len(values)
    if count >= _FEW and count > _SHARE * total:
        top = {"_pct": "100", "_ratio": "1"}.get("_" + name.rpartition("_")[2])
        what = f"outside 0..{top}" if top else "that are impossible"
        yield _Fault(name, f"has {count:,} of {total:,} values {what}")


def _percent(name: str, values: pl.Series) -> Iterator[_Fault]:
    top = float(str(values.max()))
    if 0 < top <= 1 and bool((values % 1 != 0).any()):
        yield _Fault(name, f"never exceeds {top:g}, where percent is expected", "ratio")


def _memory(name: str, values: pl.Series, card: int | None) -> Iterator[_Fault]:
    used = values.filter(values > 0)
    if used.is_empty():
        return
    tiny, top = int((used < _MIB).sum()), int(str(used.max()))
    if tiny * 2 > len(used):
        what = f"holds {int(str(used.filter(used < _MIB).max())):,} bytes at most, less than any process takes on a GPU"
        yield _Fault(name, what, _memory_unit(top, used, card))
    elif tiny * _RARE > len(used):
        yield _Fault(name, f"has {tiny:,} values below 1 MiB, which no GPU reports", certain=False)
    limit = _LARGEST_CARD_BYTES if card is None else card * _ABOVE_CARD
    above = int((used > limit).sum())
    if above:
        whose = "any card's" if card is None else "the card's"
        what = f"has {above:,} of {len(values):,} values above {whose} {format_bytes(card or _LARGEST_CARD_BYTES)}"
        yield _Fault(name, what, certain=above > _SHARE * len(used), possible=top <= _LARGEST_CARD_BYTES)


def _memory_unit(top: int, used: pl.Series, card: int | None) -> str:
    """Return MiB or GiB: the largest unit with which the largest value still fits the card."""
    if card is not None:
        return next((unit for unit in ("GiB", "MiB", "KiB") if top * BYTES[unit] <= card * _ABOVE_CARD), "KiB")
    return "GiB" if top <= 288 and float(str(used.median())) < 80 else "MiB"


def _card(name: str, values: pl.Series) -> Iterator[_Fault]:
    least, most = int(str(values.min())), int(str(values.max()))
    if 0 < least < _SMALLEST_CARD_BYTES or most > _LARGEST_CARD_BYTES:
        size = least if 0 < least < _SMALLEST_CARD_BYTES else most
        unit = next(
            (unit for unit, of_mib in _FROM_MIB if _SMALLEST_CARD_BYTES <= size * of_mib <= _LARGEST_CARD_BYTES), ""
        )
        yield _Fault(name, f"gives a card {format_bytes(size)} of memory", unit)


def _power(name: str, values: pl.Series) -> Iterator[_Fault]:
    top = float(str(values.max()))
    if int((values > _MOST_POWER_W).sum()) > _SHARE * len(values):
        yield _Fault(name, f"reaches {top:,.0f} W, more than any card draws", "mW")
    elif 0 < top < _LEAST_POWER_W:
        yield _Fault(name, f"never exceeds {top:g} W, less than any card draws", "kW")


def _temperature(name: str, values: pl.Series) -> Iterator[_Fault]:
    if int((values > _HOTTEST_C).sum()) > _SHARE * len(values):
        yield _Fault(name, f"reaches {int(str(values.max()))} degC, at which no GPU runs: is it Fahrenheit or Kelvin?")


def _clock(name: str, values: pl.Series) -> Iterator[_Fault]:
    low, high = _CLOCKS[name]
    top = float(str(values.max()))
    if 0 < top < low:
        yield _Fault(name, f"never exceeds {top:g} MHz", "GHz")
    elif int((values > high).sum()) > _SHARE * len(values):
        yield _Fault(name, f"reaches {top:,.0f} MHz, more than any card's", "kHz")
