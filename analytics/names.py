"""Names of people and accounts: several are joined by `+`, so a single one has none."""

from __future__ import annotations

import argparse

import polars as pl

JOINER = "+"
_INSTEAD = "\\"
"""Where `+` stands in a name it parts a domain from a user (winbind), for which `\\` is the usual sign."""


def single_name(name: str) -> str:
    """One user's or account's name as it stands in everything that is derived."""
    return name.replace(JOINER, _INSTEAD)


def asked_name(text: str) -> str:
    """A holder's name on the command line, as it is shown or with the `+` that its source has; ArgumentTypeError for none."""
    return single_name(given_name(text))


def given_name(text: str) -> str:
    """A name on the command line; raises ArgumentTypeError for an empty one, which would be nobody's."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it names nobody and nothing: leave it out for everything")
    return text


def single_names(*columns: str) -> pl.Expr:
    """The same for columns that hold one name each."""
    return pl.col(*columns).str.replace_all(JOINER, _INSTEAD, literal=True)
