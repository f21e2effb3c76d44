"""Claims that cannot be as they are written: more GPUs than the host has, or a host by a name that nobody reports."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import polars as pl

from analytics.allocations.spans import known_claims

if TYPE_CHECKING:
    from collections.abc import Iterable

_ALIKE_MIN = 0.8
_DIGITS = re.compile(r"\d+")


def oversized_claims(claims: pl.DataFrame, stretches: pl.DataFrame, *, since_ms: int, until_ms: int) -> pl.DataFrame:
    """Claims of a window that name or count more GPUs of a host than it ever showed, MIG instances included.

    Args:
        claims: rows of the `claim` table with `spans.CLAIM_COLUMNS` and `host`.
        stretches: rows of the whole ledger.
        since_ms: start of the window.
        until_ms: its end.

    Returns:
        claim_id, user, account, host, `claimed` and `present`, the most GPUs first.
    """
    rows = known_claims(claims).filter((pl.col("start") < until_ms) & (pl.col("end") > since_ms))
    run = ("scheduler", "claim_id", "user", "account", "host", "start")
    gpus = pl.when(pl.col("gpu").is_null()).then(pl.col("host_gpu_count").cast(pl.Int64)).otherwise(1)
    claimed = rows.group_by(run).agg(claimed=gpus.sum())
    present = stretches.group_by("host").agg(present=pl.col("gpu").n_unique().cast(pl.Int64))
    over = claimed.join(present, on="host").filter(pl.col("claimed") > pl.col("present"))
    ordered = over.sort("claimed", "claim_id", "host", "start", descending=[True, False, False, False])
    return ordered.select("claim_id", "user", "account", "host", "claimed", "present")


def resembling_hosts(strangers: Iterable[str], hosts: Iterable[str]) -> dict[str, str]:
    """For hosts that never reported the one that each is most like; hosts that differ by their number are two hosts."""
    known = sorted(hosts)
    numbers = {host: _numbers(host) for host in known}
    found = {}
    for stranger in sorted(set(strangers) - set(known)):
        alike = [
            (SequenceMatcher(None, stranger.lower(), host.lower()).ratio(), host)
            for host in known
            if numbers[host] == _numbers(stranger)
        ]
        ratio, host = max(alike, default=(0.0, ""))
        if ratio >= _ALIKE_MIN:
            found[stranger] = host
    return found


def _numbers(host: str) -> list[int]:
    return [int(digits) for digits in _DIGITS.findall(host)]
