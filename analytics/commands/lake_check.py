"""`fallow lake check`: opens every file of the observed tables and names what readers leave out or read wrongly, and why.

Files of derived tables are not opened, for whoever cannot read one makes it again; what is none of them and has their place is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fallow import schema
from fallow.errors import LakeError, UnusableFileError
from fallow.lake import Lake, LakeFile
from fallow.lake_verbs.flags import add_lake_flags, lake_of
from fallow.output import show
from fallow.outside_text import visible
from fallow.quarantine import LeftOut

if TYPE_CHECKING:
    from analytics.lake_care.inspect import Inspected


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Prints them; 1 where there are any."""
    from analytics.lake_care.inspect import inspect
    from analytics.lake_care.partitions import partitions
    from analytics.progress import bar

    lake = lake_of(args).require()
    files = list(_observed(lake))
    with bar("files") as progress:
        for number, file in enumerate(files, 1):
            _check(lake, file)
            progress(number / len(files))
    found = [*lake.strays(), *lake.left_out.found]
    with bar("hidden files and ranges") as progress:
        inspected = inspect(lake, partitions(lake), progress)
    show(
        json.dumps(_as_json(len(files), found, inspected), indent=2)
        if args.json
        else _text(len(files), found, inspected)
    )
    return int(bool(found or inspected.problems))


def _observed(lake: Lake) -> Iterator[LakeFile]:
    """The files of observed tables; the lake takes note of what is none, in the derived ones too."""
    for table in schema.TABLES:
        files = lake.files(table.name)
        if not table.derived:
            yield from files


def _check(lake: Lake, file: LakeFile) -> None:
    """Decodes the file whole, as a reader would; SchemaVersionError is of the lake, and not of the file."""
    from fallow import parquet

    try:
        parquet.read([file], schema.table(file.table))
    except UnusableFileError as error:
        lake.left_out.add(LeftOut(file.key, error.kind, f"{error.message}; {error.hint}"))
    except LakeError as error:
        lake.left_out.add(LeftOut(file.key, "broken", str(error)))


def _text(files: int, found: Sequence[LeftOut], inspected: Inspected) -> str:
    lines = [
        visible(sentence)
        for sentence in [each.sentence for each in found] + [each.sentence for each in inspected.problems]
    ]
    lines.append(f"{files} files, {len(found) or 'none'} left out")
    if inspected.problems:
        lines.append(f"{len(inspected.problems)} faults between files: `fallow lake repair` puts them right")
    if left := len(inspected.hidden) + len(inspected.partials):
        lines.append(
            f"{left} files that no reader uses: {len(inspected.hidden)} are replaced by wider ones, "
            f"{len(inspected.partials)} were never written to their end; `fallow lake repair` removes those that are old enough"
        )
    return "\n".join(lines)


def _as_json(files: int, found: Sequence[LeftOut], inspected: Inspected) -> dict[str, object]:
    return {
        "files": files,
        "left_out": [{"file": each.key, "fault": each.kind, "message": each.sentence} for each in found],
        "problems": [
            {"files": [file.key for file in each.files], "fault": each.kind, "message": each.sentence}
            for each in inspected.problems
        ],
        "hidden": [file.key for file in inspected.hidden],
        "partial": [each.key for each in inspected.partials],
    }
