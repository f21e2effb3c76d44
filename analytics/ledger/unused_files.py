"""Files that cannot be used: samples are left out, with a row of `quality`; kept files are removed, and made again."""

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
"""Removes a kept file; raises LakeError where it cannot."""


def discarding(discard: Discard) -> OnUnusable:
    """What a reader of derived tables is given: of a damaged file it makes a VanishedFileError, of any other the error itself."""

    def damaged(file: LakeFile, error: UnusableFileError) -> None:
        if not isinstance(error, BrokenFileError):
            raise error
        try:
            discard(file)
        except LakeError:
            raise error from None
        raise VanishedFileError(f"{file.url} was damaged and is removed", "run the command again: it is made again")

    return damaged


LEFT_OUT = "file_left_out"
"""The kind of a file whose fault stays until the file is another one."""

NOT_READ = "file_not_read"
"""The kind of a file that somebody else may read, or the same one later, as it is: no kept day can rest on it."""


@dataclass(frozen=True)
class UnusedFiles:
    """The files that a day was made without."""

    defects: list[Defect] = field(default_factory=list)

    def add(self, file: LakeFile, error: UnusableFileError) -> None:
        """Takes note of one: an `OnUnusable`."""
        # a listing tells by the version whether a file may be read, but not what a failing disk or a hidden file will give
        may_pass = isinstance(error, UnreadableFileError) and not file.version.endswith(NOT_PERMITTED)
        kind = NOT_READ if may_pass or file.hides else LEFT_OUT
        self.defects.append(Defect(file.host, None, kind, 1, f"{error.kind} {file.key}"))


def left_out_files(quality: pl.DataFrame) -> list[LeftOut]:
    """The files that rows of `quality` name."""
    rows = (
        quality.filter(pl.col("kind").is_in([LEFT_OUT, NOT_READ]))["example"].drop_nulls().unique(maintain_order=True)
    )
    named = (str(example).partition(" ") for example in rows)
    return [LeftOut(key, kind, "") for kind, _, key in named if key]


def left_out_note(lake: Lake, quality: pl.DataFrame | None = None) -> str:
    """What a command says of the files that its figures are made without; empty where there are none."""
    kept = () if quality is None else left_out_files(quality)
    found = {each.key: each for each in (*kept, *lake.left_out.found, *lake.strays())}
    if not found:
        return ""
    first = found[min(found)]
    sentence = first.sentence or f"{lake.store.url(first.key)} {FAULTS[first.kind]}"
    counted = "one file of the lake is" if len(found) == 1 else f"{len(found)} files of the lake are"
    return f"{counted} left out: {sentence} (`fallow lake check` says more)"


def hosts_to_read_again(quality: pl.DataFrame) -> set[str]:
    """The hosts whose day has to be made again, though no file of it changes."""
    return set(quality.filter(pl.col("kind") == NOT_READ)["host"])
