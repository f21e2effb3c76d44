"""Unusable files: samples are left out, with a row of `quality`; kept files are removed, and made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl

from analytics.ledger.day_rows import Defect
from fallow.errors import BrokenFileError, LakeError, UnreadableFileError, UnusableFileError, VanishedFileError
from fallow.lake import Lake, LakeFile
from fallow.quarantine import FAULTS, LeftOut, OnUnusable
from fallow.stores.model import NOT_PERMITTED

Discard = Callable[[LakeFile], None]
"""Removes a kept file. Raises LakeError where it cannot."""


def discarding(discard: Discard) -> OnUnusable:
    """Return the handler for readers of derived tables, which removes a damaged file.

    It then raises VanishedFileError. It raises any other error, and that of a file that it cannot remove, as it is.
    """

    def damaged(file: LakeFile, error: UnusableFileError) -> None:
        if not isinstance(error, BrokenFileError):
            raise error
        try:
            discard(file)
        except LakeError:
            raise error from None
        raise VanishedFileError(
            f"{file.url} was damaged and is removed", "run the command again: it builds the file again"
        )

    return damaged


LEFT_OUT = "file_left_out"
"""The kind of a file whose fault stays until the file is replaced."""

NOT_READ = "file_not_read"
"""The kind of a file that may be readable for another user, or later: no kept day can rest on it."""


@dataclass(frozen=True)
class UnusedFiles:
    """The files that were left out of a day."""

    defects: list[Defect] = field(default_factory=list)

    def add(self, file: LakeFile, error: UnusableFileError) -> None:
        """Note an unusable file; an `OnUnusable`."""
        # the version in a listing shows whether a file may be read, not what a failing disk or a hidden file returns
        may_pass = isinstance(error, UnreadableFileError) and not file.version.endswith(NOT_PERMITTED)
        kind = NOT_READ if may_pass or file.hides else LEFT_OUT
        self.defects.append(Defect(file.host, None, kind, 1, f"{error.kind} {file.key}"))


def left_out_files(quality: pl.DataFrame) -> list[LeftOut]:
    """Return the files that rows of `quality` name."""
    rows = (
        quality.filter(pl.col("kind").is_in([LEFT_OUT, NOT_READ]))["example"].drop_nulls().unique(maintain_order=True)
    )
    named = (str(example).partition(" ") for example in rows)
    return [LeftOut(key, kind, "") for kind, _, key in named if key]


def left_out_note(lake: Lake, quality: pl.DataFrame | None = None) -> str:
    """Return a command's note on files that are left out of its figures; empty where there are none."""
    kept = () if quality is None else left_out_files(quality)
    found = {each.key: each for each in (*kept, *lake.left_out.found, *lake.strays())}
    if not found:
        return ""
    first = found[min(found)]
    sentence = first.sentence or f"{lake.store.url(first.key)} {FAULTS[first.kind]}"
    counted = "one file of the lake is" if len(found) == 1 else f"{len(found)} files of the lake are"
    return f"{counted} left out: {sentence} (`fallow lake check` lists them)"


def hosts_to_read_again(quality: pl.DataFrame) -> set[str]:
    """Return the hosts whose day must be built again, though none of its files changes."""
    return set(quality.filter(pl.col("kind") == NOT_READ)["host"])
