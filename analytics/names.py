"""Names of people, accounts and clusters: several people are joined by `+`, so a single name contains none."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import polars as pl

JOINER = "+"
_INSTEAD = "\\"
"""A `+` inside a name separates a domain from a user (winbind); the usual sign is `\\`."""
CLUSTER = pl.col("host").str.extract("@([^@]+)$", 1)
"""The cluster in a host's name NODE@CLUSTER; null without one."""


def single_name(name: str) -> str:
    """Return a user's or account's name in the form of all derived data."""
    return name.replace(JOINER, _INSTEAD)


def joined_names(names: Iterable[str | None]) -> str | None:
    """Return the distinct names, sorted and joined; None without any."""
    return JOINER.join(sorted({name for name in names if name is not None})) or None


def asked_name(text: str) -> str:
    """Return a user's name as shown, or with the `+` of its source. Raises ArgumentTypeError for an empty name."""
    return single_name(given_name(text))


def given_name(text: str) -> str:
    """Return the given name. Raises ArgumentTypeError if it is blank: a blank name stands for time without a user."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty: leave the option out to select everything")
    return text


def single_names(*columns: str) -> pl.Expr:
    """Return `single_name` for columns that hold one name each."""
    return pl.col(*columns).str.replace_all(JOINER, _INSTEAD, literal=True)
