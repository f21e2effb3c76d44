"""A finding's evidence in words: every number with its unit, shares as percent, amounts with their currency."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from analytics.ledger.text import count, percent, plain
from fallow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from analytics.findings.model import Finding

_WORDS = {
    "holder_source": "holder known by {}",
    "longest_h": "longest {} h",
    "mem_used_max_bytes": "memory in use up to {}",
    "mem_need_bytes": "memory needed {}",
    "mem_together_bytes": "memory needed together {}",
    "card_memory_bytes": "the card has {}",
    "mem_variation": "memory varies by {}",
    "reserved_share_of_card": "{} of the card's memory reserved",
    "kv_cache_used_max_ratio": "at most {} of the KV cache used",
    "weights_bytes": "weights {}",
    "power_mean_w": "mean power {} W",
    "gpu_util_mean_pct": "mean utilization {} %",
    "gpu_util_max_pct": "highest utilization {} %",
    "gpu_util_p95_pct": "utilization {} % or less for 95 % of the time",
    "gpu_util_p98_pct": "utilization {} % or less for 98 % of the time",
    "gpu_util_together_p95_pct": "together at most {} % for 95 % of the hours",
    "gpu_util_together_bursts_p95_pct": "together at most {} % for 95 % of samples",
    "aligned_hours": "seen side by side for {} h",
    "sm_active_p95_pct": "SM activity {} % or less for 95 % of the time",
    "sm_active_p98_pct": "SM activity {} % or less for 98 % of the time",
    "sm_active_mean_pct": "mean SM activity {} %",
    "dram_active_p95_pct": "memory bandwidth {} % or less for 95 % of the time",
    "dram_active_p98_pct": "memory bandwidth {} % or less for 98 % of the time",
    "dram_active_mean_pct": "mean memory bandwidth {} %",
    "mig_profile": "profile {}",
    "mig_sm_share": "with {} of the card's SMs",
    "mig_memory_bytes": "and {}",
    "coverage": "observed {}",
    "observed_gpu_hours": "{} GPU-hours observed",
    "reserved_gpu_hours": "{} GPU-hours reserved",
    "used_gpu_hours": "{} GPU-hours used",
    "inefficient_gpu_hours": "{} such GPU-hours",
    "share_of_busy_hours": "{} of the busy hours",
    "rank_among_holders": "rank {} among the holders",
    "share_of_held_hours": "{} of all GPU-hours that are held",
    "recommended_card": "{} would do",
    "recommended_memory_bytes": "it has {}",
    "history_days": "{} days of history",
    "gpus_of_the_job": "{} GPUs in the job",
    "gpus_of_the_host": "{} GPUs in the host",
    "gpus_used": "{} of them used",
    "gpus_never_used": "{} never used",
    "gpus_claimed": "{} GPUs claimed on the host",
    "gpus_seen_of_the_claim": "seen on {} of them",
    "gpus_never_seen_of_the_claim": "never on {}",
}
_COUNTS = {"works": "job", "sample_count": "sample", "stall_count": "stall", "process_count": "process"}
_UNTOLD = ("recommended_in_fleet",)
"""Of use to machines only: how many of a card there are does not say that any is free, and a note tells where there is none."""
_Known = dict[str, float | str]
"""Numbers by name without the unknown ones."""
_STRETCHES = re.compile(r"(?:held|reserved)_gpu_hours_in_stretches_of_(\d+)_min")
_BLOCKS = re.compile(r"surplus_gpus_in_blocks_of_(\d+)")
_UNITS = (
    ("_gpu_hours", "GPU-hours"), ("_hours", "h"), ("_h", "h"), ("_days", "days"), ("_min", "min"), ("_s", "s"), ("_pct", "%"),
    ("_kwh", "kWh"), ("_w", "W"), ("_mhz", "MHz"), ("_c", "°C"),
)  # fmt: skip
"""What a name's ending says of its number."""
_SHARE = re.compile(r"(^|_)(share|ratio|efficiency|coverage|spread|reserve|variation)(_|$)")


def evidence(finding: Finding) -> str:
    """The known numbers of the evidence in words."""
    known: _Known = {name: value for name, value in finding.evidence.numbers.items() if value is not None}
    for name in _UNTOLD:
        known.pop(name, None)
    first = [*_surplus(known), *_stretches(known)]
    last = _prices(known, finding.currency)
    return "; ".join([*first, *(words(name, value, len(finding.gpus)) for name, value in known.items()), *last])


def words(name: str, value: float | str, gpus: int = 0) -> str:
    """One number of the evidence of a finding about so many GPUs; `name` carries its unit."""
    if name in _SPECIAL:
        return _SPECIAL[name](value, gpus)
    if name in _COUNTS and isinstance(value, int):
        return count(value, _COUNTS[name])
    if name in _WORDS:
        return _WORDS[name].format(_shown(name, value))
    ending = next((each for each in _UNITS if name.endswith(each[0])), ("", ""))
    if isinstance(value, str | bool) or _SHARE.search(name) or "_bytes" in name:
        ending = ("", "")
    base = re.sub("_bytes(_per_s)?$", "", name.removesuffix(ending[0]) if ending[0] else name)
    return f"{base.replace('_', ' ')} {_shown(name, value)} {ending[1]}".rstrip()


def money(amount: float, currency: str | None) -> str:
    """`1,234.50 USD`."""
    return f"{amount:,.2f} {plain(currency or '')}".rstrip()


def _held_now(value: float | str, gpus: int) -> str:
    return "none held at the end" if value == 0 else f"{value} of {count(gpus, 'GPU')} held at the end"


def _in_stretches(value: float | str, _: int) -> str:
    return "in 1 stretch" if value == 1 else f"in {value:,} stretches"


def _memory_in_use(value: float | str, _: int) -> str:
    return "no memory in use" if value == 0 else f"memory in use up to {_shown('_bytes', value)}"


def _with_sm_activity(value: float | str, gpus: int) -> str:
    if value == 0:
        return "SM activity not measured"
    return f"SM activity measured on {value} of {count(gpus, 'GPU')}"


_SPECIAL: Mapping[str, Callable[[float | str, int], str]] = {
    "gpus_held_now": _held_now,
    "stretch_count": _in_stretches,
    "mem_used_max_bytes": _memory_in_use,
    "gpus_with_sm_activity": _with_sm_activity,
}


def _stretches(known: _Known) -> list[str]:
    """Takes the sums by the shortest stretch out of `known`: they stand beside each other."""
    found = {match[1]: known.pop(name) for name in list(known) if (match := _STRETCHES.fullmatch(name))}
    if not found:
        return []
    sums = " / ".join(f"{float(value):,.1f}" for value in found.values())
    return [f"{sums} GPU-hours in stretches of at least {' / '.join(found)} min"]


def _surplus(known: _Known) -> list[str]:
    """Takes a pool's reserve out of `known`: what there is, what was needed, and what that leaves."""
    if "surplus_gpus" not in known:
        return []
    names = ("pool_gpus", "needed_at_once_gpus", "needed_at_once_max_gpus", "needed_with_reserve_gpus",
             "surplus_low_gpus", "surplus_gpus", "surplus_high_gpus", "surplus_free_now_gpus")  # fmt: skip
    there, need, most, reserve, low, point, high, free = (_whole(known.pop(name, None)) for name in names)
    quantile = known.pop("needed_quantile", None)
    usual = "" if need == most or quantile is None else f" ({need} for {percent(float(quantile), 0)} of the hours)"
    spare = f"{point} to spare ({low} to {high})"
    pool = f"pool {plain(str(known.pop('pool', '')))}, {plain(str(known.pop('model', '')))}"
    return [
        f"{pool}: {there} GPUs, at most {most} needed at once{usual}, {reserve} with the reserve: {spare}",
        f"{free if free != '0' else 'none'} of these free now",
        _backtest(known),
        *_in_blocks(known),
    ]


def _backtest(known: _Known) -> str:
    """Takes out of `known` what became of last week's estimate."""
    names = ("surplus_gpus", "enough_gpus", "hours", "exceeded_hours", "needed_max_gpus")
    spare, enough, hours, exceeded, most = (_whole(known.pop(f"backtest_{name}", None)) for name in names)
    if hours == "unknown":
        return "no back-test: it takes 14 days of hours in which the pool was seen"
    said = f"{enough} were to be enough and {spare} to spare" if spare != "0" else "none was to spare"
    return f"back-test: a week earlier {said}; more than {enough} were needed at once in {exceeded} of the {hours} h since, at most {most}"


def _in_blocks(known: _Known) -> list[str]:
    """Takes the sums by block out of `known`; blocks of one are all there are, and none says nothing."""
    found = {match[1]: known.pop(name) for name in list(known) if (match := _BLOCKS.fullmatch(name))}
    told = [f"{number} in blocks of {size}" for size, number in found.items() if number and size != "1"]
    hosts = str(known.pop("surplus_blocks", "") or "").replace("; ", ", ")
    return [*([", ".join(told)] if told else []), *([f"by host: {plain(hosts, 400)}"] if hosts else [])]


def _prices(known: _Known, currency: str | None) -> list[str]:
    """Takes prices and what would be saved out of `known`."""
    hourly, other, saving = (known.pop(name, None) for name in ("hourly", "recommended_hourly", "saving"))
    card = plain(str(known.get("recommended_card", "the other card")))
    return [
        *([] if hourly is None else [f"{money(float(hourly), currency)} per GPU-hour"]),
        *([] if other is None else [f"{card}: {money(float(other), currency if hourly is None else None)}"]),
        *([] if saving is None else [f"saves {money(float(saving), currency)} in this window"]),
    ]


def _whole(value: float | str | None) -> str:
    """A number of GPUs; parts of one only where a split card leaves them."""
    return "unknown" if value is None else f"{float(value):,.1f}".removesuffix(".0")


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
