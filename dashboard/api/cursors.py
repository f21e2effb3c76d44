"""Cursors: where a page of rows begins, in which version of the lake and of which request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from fallow.errors import FallowError, UsageError

_FORM = re.compile(r"(\d{1,9})\.([0-9a-f]{12})\.([0-9a-f]{12})")


class OutdatedCursorError(FallowError):
    """The lake has changed since the page before: the rows of this one are those of another version."""


def write_cursor(position: int, version: str, asked: str) -> str:
    """The cursor of the page that begins at a row; `asked` tells the request, and who asks, from others."""
    text = f"{position}.{short_digest(version)}.{short_digest(asked)}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(cursor: str, version: str, asked: str) -> int:
    """The row that the page begins at.

    Raises UsageError for what is no cursor of this request, OutdatedCursorError for one of another version.
    """
    hint = "take `next` of the answer before, with the same other parameters, or leave the cursor out"
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise UsageError("this is no cursor", hint) from error
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError("this is no cursor", hint)
    if found[3] != short_digest(asked):
        raise UsageError("this cursor is of another question", hint)
    if found[2] != short_digest(version):
        raise OutdatedCursorError("the data have changed since the page before", "begin again without a cursor")
    return int(found[1])


def short_digest(text: str) -> str:
    """Twelve hexadecimal digits that change with the text."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
