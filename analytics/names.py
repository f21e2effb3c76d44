"""Names of people and accounts: several are joined by `+`, so a single one has none."""

from __future__ import annotations

import polars as pl

JOINER = "+"
_INSTEAD = "\\"
"""Where `+` stands in a name it parts a domain from a user (winbind), for which `\\` is the usual sign."""


def single_name(name: str) -> str:
    """One user's or account's name as it stands in everything that is derived."""
    return name.replace(JOINER, _INSTEAD)


def single_names(*columns: str) -> pl.Expr:
    """The same for columns that hold one name each."""
    return pl.col(*columns).str.replace_all(JOINER, _INSTEAD, literal=True)
