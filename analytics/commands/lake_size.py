"""`fallow lake size`: files, rows and bytes of the lake, and what a month adds."""

from __future__ import annotations

import argparse

from analytics.commands.table_verb import LakeInputs, LakeVerb, Tables
from analytics.lake_care.size import size_of
from analytics.lake_care.tables import SIZE_BY, stored_by, whole_size
from analytics.language.sentences import tr
from analytics.progress import bar


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--by", choices=tuple(SIZE_BY), default="table", help="a line per table, host or day (default: table)"
    )
    parser.add_argument(
        "--no-rows", action="store_true", help="leave out the row counts; the lake is listed and no file is opened"
    )


def _tables(given: LakeInputs, args: argparse.Namespace) -> Tables:
    """Yield the sizes by table, host and day; --by chooses the table that people read."""
    with bar("tables") as progress:
        size = size_of(given.lake.require_known(), given.now_ms, count_rows=not args.no_rows, progress=progress)
    for by in sorted(SIZE_BY, key=lambda each: each != args.by):
        yield stored_by(by, size, for_people=by == args.by)
    yield whole_size(size)


VERB = LakeVerb(tr("Size of the lake"), _tables, flags=_flags, why="the size is that of the whole lake")
