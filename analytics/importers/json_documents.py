"""JSON documents that stand one after another in a file, as loops write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from analytics.importers.limits import InputLimits
from fallow.errors import InputError

CUT_OFF = "in a document that is cut off or damaged"


def read_documents(path: str, text: bytes, limits: InputLimits) -> Iterator[Any]:
    """The JSON values that stand one after another or in lists; None for each stretch between them that is none.

    One at a time: as Python objects a file takes ten times its size. Raises InputError for one that is too long, and for a
    file that is more damage than documents.
    """
    damaged, at = 0, 0
    while (at := _next(text, at)) < len(text):
        found = document_at(path, text, at, limits)
        if found is None:
            damaged += 1
            if damaged > _MOST_DAMAGED:
                raise InputError(f"{path} is damaged in more than {_MOST_DAMAGED:,} places", "fetch or record it again")
            yield None
            again = text.find(b"\n{", at + 1)
            at = len(text) if again < 0 else again + 1
        else:
            value, at = found
            yield value


def document_at(path: str, text: bytes, at: int, limits: InputLimits) -> tuple[Any, int] | None:
    """The JSON value that begins there and where it ends; None where none does. Raises InputError for one that is too long."""
    size = _PIECE
    while True:
        piece = text[at : at + size].decode(errors="ignore")  # the end may part a character
        is_rest = at + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(piece)
        except (ValueError, RecursionError) as error:  # not JSON, or a number of too many digits
            if is_rest or not _is_cut(error, piece):
                return None
        else:
            if end < len(piece) or is_rest:
                return value, at + len(piece[:end].encode())
        if size >= limits.max_record_bytes:
            raise limits.too_long(path)
        size = min(8 * size, limits.max_record_bytes)


def _is_cut(error: Exception, piece: str) -> bool:
    """Whether the text may be JSON that only goes on behind the piece."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated string") or error.pos >= len(piece) - _LONGEST_TOKEN


_DECODER = json.JSONDecoder()
_PIECE = 1 << 14
_LONGEST_TOKEN = 32
_MOST_DAMAGED = 10_000
_BETWEEN = re.compile(rb"[\s,\[\]]*")
"""What may stand between documents: the lists that hold them are not read as one value, but one by one."""


def _next(text: bytes, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return at if found is None else found.end()


def number(value: object) -> float | None:
    """The number that a JSON value is; None for what is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
