"""Tables about the files of a lake: their size, and their faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from analytics.lake_care.repair import FileFault, Inspected
from analytics.lake_care.size import Size, StoredAmount
from analytics.language.sentences import Bytes, Number, plain, tr, tr_many
from analytics.tables.table import Table, column, column_of, fact, single
from fallow.quarantine import LeftOut

SIZE_BY = {"table": tr("table"), "host": tr("host"), "day": tr("day")}
"""The unit of a row in the size table."""

_AMOUNT = (
    column("files", tr("files"), "count"),
    column("rows", tr("rows"), "count"),
    column("bytes", tr("size"), "number", lambda each: Bytes(each.bytes), "bytes", json_type="integer"),
    column("removable_files", tr("to remove"), "count"),
    fact("removable_bytes", "count"),
)


def stored_by(by: str, size: Size, *, for_people: bool) -> Table:
    """Return a row for each table, host or day, with the part that compaction would remove."""
    amounts: dict[str, StoredAmount] = {"table": size.tables, "host": size.hosts, "day": size.days}[by]
    whole = size.whole
    held = tr("In all {files} files, {size}.", files=Number(whole.files), size=Bytes(whole.bytes))
    counted = tr(
        "In all {files} files, {rows} rows, {size}.",
        files=Number(whole.files),
        rows=Number(whole.rows or 0),
        size=Bytes(whole.bytes),
    )
    return Table(
        name=f"{by}s",
        title=tr("Size by {what}", what=SIZE_BY[by]),
        question=tr("How much is stored, and what does a month add?"),
        headline=held if whole.rows is None else counted,
        columns=(
            column(by, SIZE_BY[by], "name", lambda name: plain(name) or tr("all hosts"), str),
            *(column_of(amounts.__getitem__, each) for each in _AMOUNT),
        ),
        rows=tuple(sorted(amounts)),
        notes=tuple(_notes(size)),
        audience="all" if for_people else "programs",
    )


def _notes(size: Size) -> list[str]:
    notes: list[str] = []
    if size.month_bytes is not None:
        added = Bytes(size.month_bytes)
        notes.append(
            tr("A month adds {size} at the pace of the last seven complete days.", size=added)
            if size.month_rows is None
            else tr(
                "A month adds {size}, {rows} rows, at the pace of the last seven complete days.",
                size=added,
                rows=Number(size.month_rows),
            )
        )
    if size.whole.removable_files:
        notes.append(tr_many("Compaction would remove {number} {file|files}.", size.whole.removable_files))
    return notes


def whole_size(size: Size) -> Table:
    """Return the total and the monthly growth, for programs."""
    return single(
        "whole",
        (*(column_of("whole", each) for each in _AMOUNT), fact("month_bytes", "number"), fact("month_rows", "number")),
        size,
    )


def files_left_out(files: int, found: Sequence[LeftOut]) -> Table:
    """Return the files that readers leave out, and why."""
    none = tr_many("{number} {file|files}, none left out.", files)
    some = tr_many("{number} {file|files}, {left_out} left out.", files, left_out=Number(len(found)))
    return _faults("left_out", tr("Files that readers leave out"), some if found else none, found, "all")


def unclaimed_files(found: Sequence[LeftOut]) -> Table:
    """Return the files whose installation never claimed their host."""
    headline = tr_many(
        "{number} {file|files} of {an installation|installations} that never claimed {the|their} host.", len(found)
    )
    return _faults("unclaimed", tr("Files of unknown origin"), headline, found, "all" if found else "programs")


def _faults(
    name: str, title: str, headline: str, found: Sequence[LeftOut], audience: Literal["all", "programs"]
) -> Table:
    return Table(
        name=name,
        title=title,
        question=tr("Which files does no reader trust?"),
        headline=headline,
        columns=(fact("file", "words", "key"), fact("fault", "words", "kind"), _MESSAGE),
        rows=tuple(found),
        audience=audience,
    )


_MESSAGE = column("message", tr("what is wrong"), "sentence", lambda each: plain(each.sentence, 2000), "sentence")


def file_faults(found: Sequence[FileFault]) -> Table:
    """Return overlapping ranges, rows in two files, and rows that a wider file lacks."""
    headline = tr("No two files overlap or contradict each other.")
    if to_repair := sum(each.kind != "two_writers" for each in found):
        headline = tr_many(
            "{number} {fault|faults} between files: `fallow lake repair` repairs {it|them} once the files are old"
            " enough.",
            to_repair,
        )
    elif found:
        headline = tr("Two installations write rows of the same moments.")
    return Table(
        name="problems",
        title=tr("Faults between files"),
        question=tr("Which rows are read twice, or not at all?"),
        headline=headline,
        columns=(
            fact("files", "words", lambda each: [file.key for file in each.files], "array"),
            fact("fault", "words", "kind"),
            _MESSAGE,
        ),
        rows=tuple(found),
        audience="all" if found else "programs",
    )


def unused_files(found: Inspected) -> Table:
    """Return unused files that are no fault: replaced by wider files, or never completely written."""
    rows = [*((file.key, "hidden") for file in found.hidden), *((each.key, "partial") for each in found.partials)]
    return Table(
        name="unused",
        title=tr("Files that no reader uses"),
        question=tr("What can be removed?"),
        headline=tr(
            "{hidden} are replaced by wider ones, {partial} were never completely written; `fallow lake repair` removes"
            " those that are old enough.",
            hidden=Number(len(found.hidden)),
            partial=Number(len(found.partials)),
        ),
        columns=(
            column("file", tr("file"), "sentence", lambda each: plain(each[0], 2000)),
            column("why", tr("why"), "words", lambda each: _UNUSED[each[1]], lambda each: each[1]),
        ),
        rows=tuple(rows),
        shown=0,
        audience="all" if rows else "programs",
    )


_UNUSED = {"hidden": tr("replaced"), "partial": tr("incomplete")}
