"""`fallow lake check`: open each file of the observed tables, and list the files with faults.

Faults are files that readers leave out or read wrongly, files that no installation claims, and files without a table.
Files of derived tables are not opened: a reader that cannot use such a file builds it again.
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
    """Yield the files that readers leave out, unclaimed files, faults between files, and files that no reader uses."""
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
    """Yield the files of observed tables. `lake` records files that belong to no table, also in derived tables."""
    for table in schema.TABLES:
        files = lake.files(table.name)
        if not table.derived:
            yield from files


def _is_whole(lake: Lake, file: LakeFile) -> bool:
    """Return whether the whole file decodes; if not, `lake` records the fault."""
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
    """Return why the origin of a file is in doubt; empty for no doubt, and for a file that was replaced meanwhile."""
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
