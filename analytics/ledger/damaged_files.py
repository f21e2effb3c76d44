"""Kept files that are damaged: they are removed, so that whoever looks next makes them again."""

from __future__ import annotations

from collections.abc import Callable

from fallow.errors import BrokenFileError, LakeError, UnusableFileError, VanishedFileError
from fallow.lake import LakeFile
from fallow.quarantine import OnUnusable

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
