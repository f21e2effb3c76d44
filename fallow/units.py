"""Byte sizes: parsing and formatting."""

from __future__ import annotations

import re

from fallow.errors import UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]i?)?B?", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as `48GiB` (powers of 1024), `1GB` (of 1000) or `123`; raises UsageError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a size", "write a number and a unit: 48GiB, 1GB, 512MiB")
    prefix = (match[2] or "").lower()
    base = 1024 if prefix.endswith("i") else 1000
    factor: int = base ** _POWER[prefix.removesuffix("i")]
    size = float(match[1]) * factor
    if size >= 2**63:
        raise UsageError(f"'{text}' is too large", "write a number and a unit: 48GiB, 1GB, 512MiB")
    return round(size)


def format_bytes(size: float) -> str:
    """Return the size in binary units, with one decimal below 100, such as `23.4 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError(size)
