"""`fallow lake VERB`: the verbs, their shared flags, and the lake that the flags name.

The base install only has `init`; the other verbs name the extra that they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow import config
from fallow.cli import Command, VerbGroup
from fallow.lake import Lake

if TYPE_CHECKING:
    import argparse

    from fallow.config import Config

VERBS: tuple[Command, ...] = (
    Command("init", "create a lake, or give a lake its id; agents publish only into a lake with an id",
            "fallow lake init --lake /srv/lake", "fallow.lake_init"),
    Command("check", "list files that readers leave out, and doubled and hidden rows; exit code 1 for any",
            "fallow lake check --lake /srv/lake", "analytics.commands.lake_check", "analytics"),
    Command("compact", "merge the files of past days that agents did not merge, by table and host",
            "fallow lake compact --lake /srv/lake --older-than 2d", "analytics.commands.lake_compact", "analytics"),
    Command("repair", "repair what `check` lists and remove unused files; without --yes only list the steps",
            "fallow lake repair --lake /srv/lake --yes", "analytics.commands.lake_repair", "analytics"),
    Command("expire", "delete rows older than the retention settings allow; without --yes only list them",
            "fallow lake expire --lake /srv/lake --yes", "analytics.commands.lake_expire", "analytics"),
    Command("size", "count files, rows and bytes by table, host or day, and the growth per month",
            "fallow lake size --lake /srv/lake --by day", "analytics.commands.lake_size", "analytics"),
    Command("export", "bring tables of Delta Lake up to date with the ledger, for Spark, Trino, Snowflake and others",
            "fallow lake export --lake /srv/lake --to s3://exports/gpus", "analytics.commands.lake_export", "delta"),
    Command("warm", "make the findings of the usual windows ahead and keep them in the lake, for pages and reports",
            "fallow lake warm --lake /srv/lake", "analytics.commands.lake_warm", "analytics"),
)  # fmt: skip


VERB = VerbGroup(VERBS)


def add_lake_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lake", metavar="DIR", help="location of the lake (or FALLOW_LAKE_PATH, or lake.path)")
    parser.add_argument("--config", metavar="FILE", help="config file (default: /etc/fallow/fallow.toml)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def settings(args: argparse.Namespace) -> Config:
    """Return the settings in force, given the flags of `add_lake_flags`."""
    return config.load({"lake.path": args.lake}, args.config)


def lake_of(args: argparse.Namespace) -> Lake:
    """Return the lake that the flags name, which need not exist; raises UsageError if they name none."""
    return Lake.at(settings(args).require("lake.path", "--lake"))
