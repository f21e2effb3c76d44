"""The flags that every verb of `fallow lake` has, and the lake that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fallow import config
from fallow.lake import Lake

if TYPE_CHECKING:
    import argparse

    from fallow.config import Config


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
