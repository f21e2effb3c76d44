"""`fallow lake VERB`: the table of verbs. A verb is one entry in VERBS and one module.

A verb's module is like a command's: `add_arguments(parser)`, which begins with `flags.add_lake_flags(parser)`, and
`run(args) -> int` (the exit code). All of these modules are loaded for the help, in the base install too, so they import
nothing heavy (pyarrow, polars, duckdb) at their top: `run` imports what it needs. Where that belongs to an extra, the entry
names the extra, and whoever lacks it is told how to install it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from fallow.cli import Command, CommandModule, missing_extra

if TYPE_CHECKING:
    import argparse

VERBS: tuple[Command, ...] = (
    Command("init", "make a lake, or give one its id; agents publish only where they find one",
            "fallow lake init --lake /srv/lake", "fallow.lake_verbs.init"),
    Command("check", "name files that readers leave out, doubled rows and hidden ones; exit code 1 where there are any",
            "fallow lake check --lake /srv/lake", "analytics.commands.lake_check", "analytics"),
    Command("compact", "merge the files of days that are over, one of each table and host, where agents did not",
            "fallow lake compact --lake /srv/lake --older-than 2d", "analytics.commands.lake_compact", "analytics"),
    Command("repair", "put right what check names and remove what is left over; without --yes only say so",
            "fallow lake repair --lake /srv/lake --yes", "analytics.commands.lake_repair", "analytics"),
    Command("expire", "delete what is older than the retention settings say; without --yes only say so",
            "fallow lake expire --lake /srv/lake --yes", "analytics.commands.lake_expire", "analytics"),
    Command("size", "count files, rows and bytes by table, host or day, and what a month adds",
            "fallow lake size --lake /srv/lake --by day", "analytics.commands.lake_size", "analytics"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds every verb with its own flags."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="|".join(verb.name for verb in VERBS))
    for verb in VERBS:
        verb_parser = verbs.add_parser(
            verb.name, help=verb.summary, epilog=f"example: {verb.example}", allow_abbrev=False
        )
        _module(verb).add_arguments(verb_parser)


def run(args: argparse.Namespace) -> int:
    """Runs the verb; MissingExtraError where the packages that it needs are not installed."""
    verb = next(each for each in VERBS if each.name == args.verb)
    try:
        return _module(verb).run(args)
    except ModuleNotFoundError as error:
        if (told := missing_extra(error, f"lake {verb.name}", verb.extra)) is None:
            raise
        raise told from error


def _module(verb: Command) -> CommandModule:
    return cast("CommandModule", importlib.import_module(verb.module))
