"""`fallow lake init`, and the creation of a lake by other commands that people run."""

from __future__ import annotations

import contextlib
import json
import shlex
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fallow import __version__, schema
from fallow.clock import SystemClock, format_ms
from fallow.errors import LakeError
from fallow.lake_marker import MARKER_KEY, Marker, no_marker, read_marker
from fallow.lake_verbs import add_lake_flags, lake_of
from fallow.leases import FOLDER, leased
from fallow.output import say, show
from fallow.stores.model import not_kept

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from fallow.clock import Clock
    from fallow.lake import Lake


def init_lake(lake: Lake, clock: Clock | None = None) -> tuple[Marker, bool]:
    """Return the marker of the lake, and whether this call created it; of concurrent calls, one creates it.

    Also creates the folder of a lake; a bucket has to exist. Raises LakeError if the lake cannot be written, or if the
    folder belongs to another lake or has other content.
    """
    if (found := read_marker(lake.store)) is not None:
        return found, False
    if lake.store.may_vanish:
        _refuse_other_folder(lake.root)
    lake.store.make()
    with leased(lake, "init", f"the creation of {lake.root}"):
        if (found := read_marker(lake.store)) is not None:
            return found, False
        marker = Marker(str(uuid.uuid4()), format_ms((clock or SystemClock()).now_ms()), f"fallow {__version__}")
        lake.store.put(MARKER_KEY, marker.content())
        lake.store.share(MARKER_KEY)
        if read_marker(lake.store) != marker:
            raise not_kept(lake.store.url(MARKER_KEY), len(marker.content()), lake.store.look(MARKER_KEY))
    if lake.store.may_vanish:  # the user who creates a lake is rarely the user who writes to it
        with contextlib.suppress(OSError):
            Path(lake.root, FOLDER, "init").rmdir()
            Path(lake.root, FOLDER).rmdir()
    return marker, True


def _refuse_other_folder(root: str) -> None:
    """Raise LakeError for a folder inside a lake, and for a folder with content that is not a lake's."""
    folder = Path(root).resolve()
    own = {MARKER_KEY, "lost+found", *(table.name for table in schema.TABLES)}
    around, others = None, []
    with contextlib.suppress(OSError):  # a folder that cannot be read cannot become a lake, and the store says why
        around = next((each for each in folder.parents if (each / MARKER_KEY).is_file()), None)
        others = sorted(each.name for each in folder.iterdir() if each.name not in own and each.name[0] != ".")
    if around is not None:
        raise LakeError(f"{folder} is inside the lake {around}", "name this lake, or a folder outside it")
    if others:
        raise LakeError(
            f"{folder} contains {others[0]}, which is not a table of a lake",
            "give a new or empty folder: a lake needs its own folder",
        )


def holds_observed_files(lake: Lake) -> bool:
    """Return whether the lake has rows of a host, or allocations."""
    return any(lake.store.folders(table.name) for table in schema.TABLES if not table.derived)


def opened_for_writing(lake: Lake, tell: Callable[[str], None] = say) -> Lake:
    """Return the lake for a command that imports rows; an empty location becomes a lake, and `tell` gets a message.

    A lake with rows and without a marker is used as it is; `tell` gets a hint.
    """
    if read_marker(lake.store) is None:
        if holds_observed_files(lake):
            tell(
                f"the lake at {lake.root} has no id yet, so agents do not publish into it; "
                f"`fallow lake init --lake {lake.root}` gives it an id"
            )
        else:
            marker, _ = init_lake(lake)
            tell(f"created a lake at {lake.root} (id {marker.id})")
    return lake


def require_marker(lake: Lake) -> Marker:
    """Return the marker; raises NoLakeError without one."""
    if (found := read_marker(lake.store)) is None:
        raise no_marker(lake.root)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Create the lake, and print its id, whether it is new, and the next command; return the exit code."""
    lake = lake_of(args)
    marker, is_new = init_lake(lake)
    agent = f"fallow agent run --lake {shlex.quote(lake.root)} --spool /var/lib/fallow"
    if args.json:
        show(json.dumps({"lake": lake.root, **asdict(marker), "new": is_new, "next": agent}, indent=2))
        return 0
    if is_new:
        show(f"{lake.root} is a new fallow lake, with the id {marker.id}.")
    else:
        show(f"{lake.root} is already a fallow lake, with the id {marker.id}; nothing changed.")
    show(f"next      {agent} (on each GPU host; for history: fallow import --help)")
    return 0
