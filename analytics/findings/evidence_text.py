"""A finding's evidence in words: every number with its unit, shares as percent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.ledger.text import percent, plain
from fallow.units import format_bytes

if TYPE_CHECKING:
    from analytics.findings.model import Finding

_WORDS = {
    "holder_source": "holder known by {}",
    "gpus_held_now": "{} of the GPUs held at the end",
    "stretch_count": "stretches {}",
    "longest_h": "longest {} h",
    "mem_used_max_bytes": "memory in use up to {}",
    "mem_need_bytes": "memory needed {}",
    "card_memory_bytes": "the card has {}",
    "power_mean_w": "mean power {} W",
    "gpu_util_max_pct": "highest utilization {} %",
    "gpu_util_p95_pct": "utilization {} % or less for 95 % of the time",
    "gpu_util_p98_pct": "utilization {} % or less for 98 % of the time",
    "sm_active_p98_pct": "SM activity {} % or less for 98 % of the time",
    "sm_active_mean_pct": "mean SM activity {} %",
    "sample_count": "{} samples",
    "coverage": "observed {}",
    "observed_gpu_hours": "{} GPU-hours observed",
    "reserved_gpu_hours": "{} GPU-hours reserved",
    "used_gpu_hours": "{} GPU-hours used",
    "rank_among_holders": "rank {} among the holders",
    "share_of_held_hours": "{} of all GPU-hours that are held",
    "efficiency": "efficiency {}",
    "saving": "saving {}",
}
_STRETCHES = re.compile(r"(?:held|reserved)_gpu_hours_in_stretches_of_(\d+)_min")
_UNITS = (
    ("_gpu_hours", "GPU-hours"), ("_hours", "h"), ("_h", "h"), ("_days", "days"), ("_min", "min"), ("_s", "s"), ("_pct", "%"),
    ("_kwh", "kWh"), ("_w", "W"), ("_mhz", "MHz"), ("_c", "°C"),
)  # fmt: skip
"""What a name's ending says of its number."""
_SHARE = re.compile(r"(^|_)(share|ratio|efficiency|coverage|spread|reserve)(_|$)")


def evidence(finding: Finding) -> str:
    """The known numbers of the evidence in words."""
    known = {name: value for name, value in finding.evidence.numbers.items() if value is not None}
    stretches = {found[1]: known.pop(name) for name in list(known) if (found := _STRETCHES.fullmatch(name))}
    parts = [words(name, value) for name, value in known.items()]
    if stretches:
        shown = " / ".join(f"{float(value):,.1f}" for value in stretches.values())
        parts.insert(0, f"{shown} GPU-hours in stretches of at least {' / '.join(stretches)} min")
    return "; ".join(parts)


def words(name: str, value: float | str) -> str:
    """One number of the evidence; `name` carries its unit."""
    if name in _WORDS:
        return _WORDS[name].format(_shown(name, value))
    ending = next((each for each in _UNITS if name.endswith(each[0])), ("", ""))
    if isinstance(value, str | bool) or _SHARE.search(name) or "_bytes" in name:
        ending = ("", "")
    base = re.sub("_bytes(_per_s)?$", "", name.removesuffix(ending[0]) if ending[0] else name)
    return f"{base.replace('_', ' ')} {_shown(name, value)} {ending[1]}".rstrip()


def _shown(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _SHARE.search(name):
        return percent(value)
    if "_bytes" in name:
        return format_bytes(value) + ("/s" if name.endswith("_per_s") else "")
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
