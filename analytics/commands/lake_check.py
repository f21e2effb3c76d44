"""`fallow lake check`: opens every file of the observed tables and names what readers leave out, and why.

Files of derived tables are not opened, for whoever cannot read one makes it again; what is none of them and has their place is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from fallow import schema
from fallow.errors import LakeError, UnusableFileError
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
    files = list(_observed(lake))
    with bar("files") as progress:
        for number, file in enumerate(files, 1):
            _check(lake, file)
            progress(number / len(files))
    found = [*lake.strays(), *lake.left_out.found]
    if args.json:
        show(json.dumps({"files": len(files), "left_out": [_as_json(each) for each in found]}, indent=2))
    else:
        for each in found:
            show(visible(each.sentence))
        show(f"{len(files)} files, {len(found)} left out" if found else f"{len(files)} files, none left out")
    return int(bool(found))


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


def _as_json(left_out: LeftOut) -> dict[str, str]:
    return {"file": left_out.key, "fault": left_out.kind, "message": left_out.sentence}
