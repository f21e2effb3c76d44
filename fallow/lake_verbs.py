"""`fallow lake VERB`: the table of verbs, the flags that each has, and the lake that they name.

The base install has `init` alone; the other verbs name the extra that their packages belong to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow import config
from fallow.cli import Command, add_verbs
from fallow.lake import Lake

if TYPE_CHECKING:
    import argparse

    from fallow.config import Config

VERBS: tuple[Command, ...] = (
    Command("init", "make a lake, or give one its id; agents publish only where they find one",
            "fallow lake init --lake /srv/lake", "fallow.lake_init"),
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


def add_lake_flags(parser: argparse.ArgumentParser) -> None:
    """Adds --lake, --config and --json."""
    parser.add_argument("--lake", metavar="DIR", help="the lake (or FALLOW_LAKE_PATH, or lake.path in the config file)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    parser.add_argument("--json", action="store_true", help="machine-readable")


def settings(args: argparse.Namespace) -> Config:
    """The settings in force, given the flags of `add_lake_flags`."""
    return config.load({"lake.path": args.lake}, args.config)


def lake_of(args: argparse.Namespace) -> Lake:
    """The lake of the flags, whether it exists or not; UsageError where none is given."""
    return Lake.at(settings(args).require("lake.path", "--lake"))
