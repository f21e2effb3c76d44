"""`fallow lake check`: opens every file of the observed tables and names what readers leave out, and why, and what nobody claims.

Files of derived tables are not opened, for whoever cannot read one makes it again; what is none of them and has their place is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

from fallow import schema
from fallow.errors import LakeError, UnusableFileError
from fallow.file_origin import Origins
from fallow.lake import Lake, LakeFile
from fallow.lake_verbs.flags import add_lake_flags, lake_of
from fallow.output import show
from fallow.outside_text import visible
from fallow.quarantine import LeftOut


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Prints them; 1 where there are any."""
    from analytics.progress import bar

    lake = lake_of(args).require()
    files, origins, doubts = list(_observed(lake)), Origins(lake), []
    with bar("files") as progress:
        for number, file in enumerate(files, 1):
            if _is_whole(lake, file) and (doubt := _doubt(origins, file)):
                doubts.append(LeftOut(file.key, "unclaimed", doubt))
            progress(number / len(files))
    found = [*lake.strays(), *lake.left_out.found]
    if args.json:
        answer = {"files": len(files), "left_out": found, "unclaimed": doubts}
        show(json.dumps(answer, indent=2, default=_as_json))
    else:
        for each in [*found, *doubts]:
            show(visible(each.sentence))
        show(_summary(len(files), len(found), len(doubts)))
    return int(bool(found or doubts))


def _summary(files: int, left_out: int, unclaimed: int) -> str:
    said = f"{files} files, {left_out or 'none'} left out"
    return f"{said}; {unclaimed} more of installations that never claimed their host" if unclaimed else said


def _observed(lake: Lake) -> Iterator[LakeFile]:
    """The files of observed tables; the lake takes note of what is none, in the derived ones too."""
    for table in schema.TABLES:
        files = lake.files(table.name)
        if not table.derived:
            yield from files


def _is_whole(lake: Lake, file: LakeFile) -> bool:
    """Decodes the file whole, as a reader would; SchemaVersionError is of the lake, and not of the file."""
    from fallow import parquet

    try:
        parquet.read([file], schema.table(file.table))
    except UnusableFileError as error:
        lake.left_out.add(LeftOut(file.key, error.kind, f"{error.message}; {error.hint}"))
    except LakeError as error:
        lake.left_out.add(LeftOut(file.key, "broken", str(error)))
    else:
        return True
    return False


def _doubt(origins: Origins, file: LakeFile) -> str:
    """What is odd about who wrote a whole file; empty also where it was replaced meanwhile."""
    from fallow import parquet

    try:
        return origins.doubt(file, parquet.metadata(file))
    except UnusableFileError:
        return ""


def _as_json(left_out: Any) -> dict[str, str]:
    return {"file": left_out.key, "fault": left_out.kind, "message": left_out.sentence}
