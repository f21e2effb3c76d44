"""Making a lake (`fallow lake init`), and what a command that a person runs does where there is no marker yet."""

from __future__ import annotations

import contextlib
import json
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
    """The lake's marker, made where there is none, and whether it was made now. Of several at once, one makes it.

    The folder of a lake is made too; a bucket has to be there. Raises LakeError where the lake cannot be written, or its folder is
    another lake's or something else's.
    """
    if (found := read_marker(lake.store)) is not None:
        return found, False
    if lake.store.may_vanish:
        _refuse_other_folder(lake.root)
    lake.store.make()
    with leased(lake, "init", f"the making of {lake.root}"):
        if (found := read_marker(lake.store)) is not None:
            return found, False
        made = Marker(str(uuid.uuid4()), format_ms((clock or SystemClock()).now_ms()), f"fallow {__version__}")
        lake.store.put(MARKER_KEY, made.content())
        lake.store.share(MARKER_KEY)
        if read_marker(lake.store) != made:
            raise not_kept(lake.store.url(MARKER_KEY), len(made.content()), lake.store.look(MARKER_KEY))
    if lake.store.may_vanish:
        _remove_if_empty(Path(lake.root, FOLDER, "init"))  # whoever makes a lake is mostly not who writes to it
    return made, True


def _refuse_other_folder(root: str) -> None:
    """Raises LakeError where a folder lies inside a lake, or holds something that is none of a lake's."""
    folder = Path(root).resolve()
    own = {MARKER_KEY, "lost+found", *(table.name for table in schema.TABLES)}
    around, others = None, []
    with contextlib.suppress(OSError):  # what cannot be looked at cannot be made a lake either, and the store says why
        around = next((each for each in folder.parents if (each / MARKER_KEY).is_file()), None)
        others = sorted(each.name for each in folder.iterdir() if each.name not in own and each.name[0] != ".")
    if around is not None:
        raise LakeError(f"{folder} lies inside the lake {around}", "name that lake, or a folder outside it")
    if others:
        raise LakeError(
            f"{folder} holds {others[0]}, which is no table of a lake",
            "give a new or empty folder: a lake shares its own with nothing",
        )


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()
        folder.parent.rmdir()


def holds_observed_files(lake: Lake) -> bool:
    """Whether rows of some host, or allocations, lie in the lake."""
    return any(lake.store.folders(table.name) for table in schema.TABLES if not table.derived)


def opened_for_writing(lake: Lake, tell: Callable[[str], None] = say) -> Lake:
    """The lake for a command that somebody types to bring rows in: made where nothing is, and that is told.

    A lake that has rows and no marker is written as it is, with a hint.
    """
    if read_marker(lake.store) is None:
        if holds_observed_files(lake):
            tell(
                f"the lake at {lake.root} has no id yet, so no agent publishes into it; "
                f"`fallow lake init --lake {lake.root}` gives it one"
            )
        else:
            marker, _ = init_lake(lake)
            tell(f"made a new lake at {lake.root} (id {marker.id})")
    return lake


def require_marker(lake: Lake) -> Marker:
    """The marker; NoLakeError with the remedy where there is none."""
    if (found := read_marker(lake.store)) is None:
        raise no_marker(lake.root)
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `fallow lake init`."""
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Makes the lake; says what its id is, and whether it was made now."""
    lake = lake_of(args)
    marker, made = init_lake(lake)
    if args.json:
        show(json.dumps({"lake": lake.root, **asdict(marker), "new": made}, indent=2))
    elif made:
        show(f"{lake.root} is a fallow lake now, with the id {marker.id}.")
    else:
        show(f"{lake.root} is a fallow lake already, with the id {marker.id}; nothing has changed.")
    return 0
