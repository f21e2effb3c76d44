"""`fallow lake check`: opens every file of the observed tables and names what readers leave out or read wrongly, and what nobody claims.

Files of derived tables are not opened, for whoever cannot read one makes it again; what is none of them and has their place is named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fallow import schema
from fallow.errors import LakeError, UnusableFileError
from fallow.lake import Lake, LakeFile
from fallow.lake_verbs.flags import add_lake_flags, lake_of
from fallow.output import show
from fallow.outside_text import visible
from fallow.parquet_files import Origins
from fallow.quarantine import LeftOut

if TYPE_CHECKING:
    from analytics.lake_care.repair import Inspected


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's own flags."""
    add_lake_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Prints them; 1 where there are any."""
    from analytics.lake_care.partitions import partitions
    from analytics.lake_care.repair import inspect
    from analytics.progress import bar

    lake = lake_of(args).require_known()
    files, origins, unclaimed = list(_observed(lake)), Origins(lake), []
    with bar("files") as progress:
        for number, file in enumerate(files, 1):
            if _is_whole(lake, file) and (doubt := _doubt(origins, file)):
                unclaimed.append(LeftOut(file.key, "unclaimed", doubt))
            progress(number / len(files))
    left_out = [*lake.strays(), *lake.left_out.found]
    with bar("hidden files and ranges") as progress:
        inspected = inspect(lake, partitions(lake), progress)
    checked = _Checked(len(files), left_out, unclaimed, inspected)
    show(json.dumps(checked.as_json(), indent=2) if args.json else checked.text())
    return int(bool(left_out or unclaimed or inspected.problems))


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


@dataclass(frozen=True)
class _Checked:
    """What was found in so many files."""

    files: int
    left_out: list[LeftOut]
    unclaimed: list[LeftOut]
    inspected: Inspected

    def text(self) -> str:
        inspected = self.inspected
        lines = [visible(each.sentence) for each in (*self.left_out, *self.unclaimed)]
        lines += [visible(each.sentence) for each in inspected.problems]
        lines.append(f"{self.files} files, {len(self.left_out) or 'none'} left out")
        if self.unclaimed:
            lines.append(f"{len(self.unclaimed)} of installations that never claimed their host")
        if inspected.problems:
            count = sum(each.kind != "two_writers" for each in inspected.problems)
            if count:
                lines.append(
                    f"{count} fault{'s' if count > 1 else ''} between files: `fallow lake repair` puts right what has rested"
                )
        if left := len(inspected.hidden) + len(inspected.partials):
            lines.append(
                f"{left} files that no reader uses: {len(inspected.hidden)} are replaced by wider ones, "
                f"{len(inspected.partials)} were never written to their end; `fallow lake repair` removes those that are old enough"
            )
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        return {
            "files": self.files,
            "left_out": [_left_out_json(each) for each in self.left_out],
            "unclaimed": [_left_out_json(each) for each in self.unclaimed],
            "problems": [
                {"files": [file.key for file in each.files], "fault": each.kind, "message": each.sentence}
                for each in self.inspected.problems
            ],
            "hidden": [file.key for file in self.inspected.hidden],
            "partial": [each.key for each in self.inspected.partials],
        }


def _left_out_json(left_out: LeftOut) -> dict[str, str]:
    return {"file": left_out.key, "fault": left_out.kind, "message": left_out.sentence}
