"""Verbs that print the reference: `fallow rules`, `fallow settings` and `fallow glossary`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from dataclasses import dataclass
from difflib import get_close_matches

from analytics.commands.table_verb import PARTS, WINDOW, LakeVerb
from fallow.errors import UsageError


@dataclass(frozen=True)
class ReferenceVerb(LakeVerb):
    """A verb over what the code itself knows, which reads no lake."""

    refused: tuple[str, ...] = ("lake", *WINDOW, *PARTS)
    why: str = "the reference is the same for every lake"


def name_argument(metavar: str, meaning: str) -> Callable[[argparse.ArgumentParser], None]:
    """Return what adds an optional name to a verb's arguments, as `args.name`."""

    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("name", nargs="?", metavar=metavar, help=meaning)

    return add


def check_name(thing: str, name: str | None, names: Collection[str], otherwise: str = "leave it out for all") -> None:
    """Raise UsageError for a name that is not in `names`, with the nearest name, or else `otherwise`, as the hint."""
    if name is None or name in names:
        return
    near = get_close_matches(name, names, n=1)
    raise UsageError(f"there is no {thing} '{name}'", f"did you mean {near[0]}?" if near else otherwise)
