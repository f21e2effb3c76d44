"""`fallow lake init`: makes a lake, or gives one its id; run again, it changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fallow.lake_init import init_lake
from fallow.lake_verbs.flags import add_lake_flags, lake_of
from fallow.output import show

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Says what the lake's id is, and whether it was made now."""
    lake = lake_of(args)
    marker, made = init_lake(lake)
    if args.json:
        show(
            json.dumps(
                {"lake": lake.root, "id": marker.id, "made": marker.made, "by": marker.by, "new": made}, indent=2
            )
        )
    elif made:
        show(f"{lake.root} is a fallow lake now, with the id {marker.id}.")
    else:
        show(f"{lake.root} is a fallow lake already, with the id {marker.id}; nothing has changed.")
    return 0
