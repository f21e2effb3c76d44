"""`fallow lake VERB`: the table of verbs. A verb is one entry in VERBS and one module, with a command's two functions.

The base install has `init` alone; the other verbs name the extra that their packages belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow.cli import Command, add_verbs

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
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    """Runs the verb."""
    code: int = args.run_verb(args)
    return code
