"""Sharing out cents so that every table adds up exactly: the method of the largest remainder, in integers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

MICROCENTS = 10**6
"""Of a cent: amounts are whole numbers of them, so that sums depend on no order."""

Key = tuple[str, ...]


def rounded(amount: int) -> int:
    """An amount in microcents as whole cents, half a cent up."""
    return (2 * amount + MICROCENTS) // (2 * MICROCENTS)


def share_out(cents: int, amounts: Mapping[Key, int]) -> dict[Key, int]:
    """Whole cents for amounts in microcents, adding up to `cents`, which is their sum rounded either way.

    Each is rounded down, and the cents that are left go to the largest remainders, the first by name among equal ones: every
    share is its amount rounded either way.
    """
    shares = {key: amount // MICROCENTS for key, amount in amounts.items()}
    left = cents - sum(shares.values())
    ranked = sorted(amounts, key=lambda key: (-(amounts[key] % MICROCENTS), key))
    for key in ranked[:left]:
        shares[key] += 1
    return shares


def nested(amounts: Mapping[Key, int]) -> dict[Key, int]:
    """Whole cents for amounts in microcents under keys of several levels.

    Cents go from the whole to the first level, from each of those to its second, and so on: every level adds up to the one
    above it and the whole to its own rounding, and every figure of every level is within one cent of its exact amount.
    """
    return _below((), rounded(sum(amounts.values())), amounts)


def _below(prefix: Key, cents: int, amounts: Mapping[Key, int]) -> dict[Key, int]:
    depth = len(prefix)
    if all(len(key) == depth for key in amounts):
        return dict.fromkeys(amounts, cents)
    parts: dict[Key, dict[Key, int]] = defaultdict(dict)
    for key, amount in amounts.items():
        parts[key[: depth + 1]][key] = amount
    shares = share_out(cents, {part: sum(below.values()) for part, below in parts.items()})
    return {key: each for part, below in parts.items() for key, each in _below(part, shares[part], below).items()}
