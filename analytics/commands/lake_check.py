"""`fallow lake check`: opens every file of the observed tables and names what readers leave out or read wrongly, and what nobody claims.

Files of derived tables are not opened: a reader that cannot use one makes it again. A file without a table is named.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables
from analytics.lake_care.repair import inspect
from analytics.lake_care.tables import file_faults, files_left_out, unclaimed_files, unused_files
from analytics.language.sentences import tr
from analytics.progress import bar
from fallow import parquet, schema
from fallow.compaction import partitions
from fallow.errors import LakeError, UnusableFileError
from fallow.host_claims import Origins
from fallow.lake import Lake, LakeFile
from fallow.quarantine import LeftOut


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:  # noqa: ARG001  # as every verb
    """What readers leave out, what no installation claims, what is wrong between files, and what no reader uses."""
    lake = given.lake.require_known()
    files, origins, unclaimed = list(_observed(lake)), Origins(lake), []
    with bar("files") as progress:
        for number, file in enumerate(files, 1):
            if _is_whole(lake, file) and (doubt := _doubt(origins, file)):
                unclaimed.append(LeftOut(file.key, "unclaimed", doubt))
            progress(number / len(files))
    left_out = [*lake.strays(), *lake.left_out.found]
    with bar("hidden files and ranges") as progress:
        inspected = inspect(lake, partitions(lake), progress)
    yield files_left_out(len(files), left_out)
    yield unclaimed_files(unclaimed)
    yield file_faults(inspected.problems)
    yield unused_files(inspected)


def _observed(lake: Lake) -> Iterator[LakeFile]:
    """The files of observed tables; the lake takes note of what is none, in the derived ones too."""
    for table in schema.TABLES:
        files = lake.files(table.name)
        if not table.derived:
            yield from files


def _is_whole(lake: Lake, file: LakeFile) -> bool:
    """Decodes the file whole, as a reader would; SchemaVersionError is of the lake, and not of the file."""
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
    try:
        return origins.doubt(file, parquet.metadata(file))
    except UnusableFileError:
        return ""


VERB = LakeVerb(
    tr("Files of the lake"),
    _tables,
    why="every file of the lake is checked",
    fails_on=("left_out", "unclaimed", "problems"),
)
